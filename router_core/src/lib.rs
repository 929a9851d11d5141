//! The routing core of trimtab: which engine runs the next execution, and who is running what now.
//!
//! RL rollouts are *sessions*: tens of turns that must stay on the engine whose KV cache holds their prefix, while
//! their lengths differ a hundredfold. The core keeps every engine evenly loaded (outstanding executions per
//! capacity), keeps sessions where they are, and counts every execution by a *lease* that is settled exactly once.
//!
//! It is a pure state machine: no sockets, no clock, no randomness, no Python. Time is an argument
//! ([`time::Timestamp`]), each operation of [`pool::Pool`] is one critical section, and the caller (the data plane or
//! the Python binding) owns the lock. So every interleaving is a unit test.
//!
//! ```
//! use router_core::pool::{AcquireRequest, Pool, PoolConfig};
//! use router_core::membership::BackendSpec;
//! use router_core::lease::{Outcome, Settlement};
//! use router_core::time::Timestamp;
//!
//! let mut pool = Pool::new(PoolConfig::default());
//! let t0 = Timestamp::ZERO;
//! pool.add_backend(BackendSpec::parse("http://10.0.0.1:30000", 8.0)?, t0)?;
//! pool.add_backend(BackendSpec::parse("http://10.0.0.2:30000", 2.0)?, t0)?;
//!
//! let first = pool.acquire(&AcquireRequest::for_session("traj-17"), t0)?;
//! pool.settle(first.lease, Settlement::new(Outcome::Completed), t0)?;
//! let second = pool.acquire(&AcquireRequest::for_session("traj-17"), t0)?;
//! assert_eq!(first.backend.reference, second.backend.reference);
//! pool.settle(second.lease, Settlement::new(Outcome::Completed), t0)?;
//! # Ok::<(), router_core::error::Error>(())
//! ```
#![forbid(unsafe_code)]

pub mod address;
mod clock;
pub mod config;
pub mod durations;
pub mod error;
pub mod event;
pub mod fence;
pub mod health;
pub mod histogram;
pub mod interval;
pub mod lease;
pub mod load;
pub mod membership;
pub mod poison;
pub mod pool;
pub mod routing;
pub mod select;
pub mod sender;
pub mod session;
mod slab;
pub mod state;
pub mod stats;
pub mod time;
pub mod update;
pub mod version;
pub mod waiters;
