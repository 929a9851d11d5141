//! Owners, senders, updates and waiting, through the public face of the pool only, with time moved by hand.
//!
//! Names that begin with `s6` carry the section and the letter of the failure semantics (idempotency 6.1, ambiguity 6.2,
//! fences and publication 6.3, health 6.4, deletion 6.5, addresses 6.6, sender death 6.7); names that begin with `b` the
//! number of a public bug.

mod ambiguity;
mod deletion;
mod desk;
mod durations;
mod facts;
mod health;
mod idempotency;
mod interleavings;
mod model;
mod operations;
mod options;
mod public_bugs;
mod public_bugs_balance;
mod ramp;
mod senders;
mod transactions;
mod trial;
mod updates;
mod waiting;
