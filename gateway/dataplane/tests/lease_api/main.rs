//! The lease API over real HTTP: every call, every rule about repetition, and everything that waits.

mod access;
mod backends;
mod batch;
mod fences;
mod idempotency;
mod kit;
mod limits;
mod lost_replies;
mod pools;
mod requests;
mod resolving;
mod senders;
mod sessions;
#[path = "../support/mod.rs"]
mod support;
mod updates;
mod waiting;
