//! The HTTP data plane of trimtab: proxying, streaming and lease accounting, without Python.
//!
//! One [`DataPlane`] owns a listener and its own tokio threads. A request is routed to the pool of its role and
//! model, leased on one backend, relayed byte for byte, and settled when the response *stream* ends, whatever that
//! end is: [`shared::LeaseGuard`] is the only thing that counts, so no route can forget to. What the data plane does
//! not serve itself goes to the control app over a Unix socket.
//!
//! Client and engine connection of a request are driven by one task (see `link.rs`): closing one closes the other in
//! the same poll, and no byte crosses a thread.

mod abort;
mod abort_request;
mod access;
mod answer;
mod attempt;
mod body;
mod client_io;
pub mod clock;
pub mod config;
mod context;
mod control;
mod crowd;
mod cut;
mod edit;
mod error;
mod exchange;
mod failure_log;
mod few;
mod genrm;
mod headers;
mod in_flight;
mod json;
mod lag;
mod latency;
mod lease_api;
mod lease_socket;
mod link;
mod loads;
pub mod model_state;
mod observe;
mod openapi;
pub mod parked;
mod peek;
mod plane;
mod poison;
mod probe;
mod ready;
mod relay;
mod request_id;
mod resolve;
mod route;
mod selection;
mod server;
mod service;
pub mod shared;
mod socket;
pub mod stats;
mod stream;
mod survey;
mod terms;
mod tls;
mod trace;
mod tracker;
mod upload;
mod upstream;
mod version_log;
mod via;

pub use config::{Config, Limits, ListenerTls, RoleConfig, Timeouts};
pub use failure_log::FailureSummary;
pub use genrm::Genrm;
pub use latency::RequestPhase;
pub use parked::ParkedCall;
pub use server::{DataPlane, StartError, start};
pub use shared::{LeaseGuard, SharedPool};
pub use stats::DataPlaneStatistics;
pub use trace::FinishedTrace;
pub use upstream::EngineNote;
pub use version_log::VersionMismatch;
