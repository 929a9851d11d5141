//! Senders: processes that acquire leases, each with its own numbered requests.
//!
//! Every message can be lost, repeated and late. So each request carries the key `(sender, incarnation, seq)`, and what
//! was answered to it once is what is answered to it again, until the sender says that it needs the answer no more.

use crate::error::Error;
use crate::interval::Interval;
use crate::lease::LeaseId;
use crate::version::Published;
use std::time::Duration;

/// The key of a request of a sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RequestKey<'a> {
    /// The sender's name, as attached.
    pub sender: &'a str,
    /// The process behind the name, as attached.
    pub incarnation: &'a str,
    /// Numbered by the process without gaps.
    pub seq: u64,
}

/// A sender that introduces itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attach<'a> {
    /// Its name, the same after a restart of the process: `rollout/3`.
    pub sender: &'a str,
    /// Different after every restart of the process.
    pub incarnation: &'a str,
    /// The owner it belongs to, which is made when it is new.
    pub owner: &'a str,
    /// Leases of an earlier router process that it still holds.
    pub held: &'a [HeldLease<'a>],
    /// Sessions and the backends (by id) to which an earlier router process pinned them.
    pub pins: &'a [(&'a str, &'a str)],
}

impl<'a> Attach<'a> {
    /// A sender that brings nothing from an earlier router process.
    #[must_use]
    pub const fn new(sender: &'a str, incarnation: &'a str, owner: &'a str) -> Self {
        Self {
            sender,
            incarnation,
            owner,
            held: &[],
            pins: &[],
        }
    }
}

/// A lease that an earlier router process granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeldLease<'a> {
    /// The number of the request it was granted for.
    pub seq: u64,
    /// What the earlier process called it; engines may know the execution by that name.
    pub lease: LeaseId,
    /// The id of its backend.
    pub backend: &'a str,
    /// Its session.
    pub session: Option<&'a str>,
    /// Its weight version.
    pub version: Option<u64>,
}

/// The answer to [`Attach`].
#[derive(Clone, Debug, PartialEq)]
pub struct Attached {
    /// The version to label tokens with, unless a lease says otherwise.
    pub published: Option<Published>,
    /// How long the sender may be silent.
    pub ttl: Duration,
    /// Whether the same incarnation was attached already.
    pub already: bool,
    /// What became of each presented lease, in order: its id in this process, or why it is lost.
    pub adopted: Vec<Result<LeaseId, Error>>,
    /// How many of the presented pins were taken over.
    pub pins_adopted: u32,
}

/// The answer to a heartbeat.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SenderStatus {
    /// Its name.
    pub sender: String,
    /// Its process.
    pub incarnation: String,
    /// Its owner.
    pub owner: String,
    /// Open leases.
    pub held: u32,
    /// Settled requests that are still remembered.
    pub tombstones: u32,
    /// What it said to be settled.
    pub settled: Vec<Interval>,
    /// How long it has been silent.
    pub silent: Duration,
}

mod table;

pub(crate) use table::{Answer, Record, Senders};
