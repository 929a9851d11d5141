//! What the [`model`](crate::model) knows about single updates, senders, leases, waiters and backends.

use router_core::lease::LeaseId;
use router_core::waiters::Ticket;
use std::collections::{BTreeMap, BTreeSet};

/// The code of an error.
pub(crate) type Code = &'static str;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Quiescing,
    Drained,
    Updating,
    Published,
    Cancelled,
    Failed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Update {
    pub(crate) id: u32,
    pub(crate) offload: bool,
    pub(crate) phase: Phase,
    pub(crate) version: Option<u64>,
    pub(crate) deadline: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Life {
    Init,
    Serving,
    Updating(Update),
    Failed,
    Closed,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Owner {
    pub(crate) fences: BTreeSet<u8>,
    pub(crate) acknowledged: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Record {
    Parked(Ticket),
    /// The number of a lease, open or settled.
    Leased(u64),
}

#[derive(Clone, Debug)]
pub(crate) struct Sender {
    pub(crate) incarnation: u8,
    /// Unique over all time.
    pub(crate) namespace: u64,
    pub(crate) settled: BTreeSet<u64>,
    /// The session and the answer of each request.
    pub(crate) records: BTreeMap<u64, (u8, Record)>,
    pub(crate) heard: u64,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Lease {
    /// Unknown until a call was told.
    pub(crate) id: Option<LeaseId>,
    pub(crate) backend: Option<u32>,
    pub(crate) owner: usize,
    /// Namespace of the sender and number of the request.
    pub(crate) request: Option<(u64, u64)>,
    pub(crate) version: Option<(u64, u64)>,
    pub(crate) ambiguous: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct Waiter {
    pub(crate) ticket: Ticket,
    pub(crate) owner: usize,
    pub(crate) request: Option<(u64, u64)>,
    /// Namespace and key of the session.
    pub(crate) session: (u64, u8),
    /// The number of the session, when it was known.
    pub(crate) hold: Option<u64>,
    pub(crate) deadline: u64,
    pub(crate) why: Code,
    pub(crate) calls: u32,
    /// The lease's number, or the error.
    pub(crate) answer: Option<Result<u64, Code>>,
    pub(crate) told: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Weights {
    Unknown,
    Version(u64),
    Tainted,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Backend {
    pub(crate) number: u8,
    pub(crate) generation: u32,
    pub(crate) draining: bool,
    pub(crate) removed: bool,
    pub(crate) weights: Weights,
    pub(crate) enrolled: bool,
}
