//! The weight-update transaction: quiesce, drain, transfer, resume, publish.
//!
//! Between the first pause and the publication no lease may exist whose tokens nobody can label. So the pool itself
//! is the gate: it stops granting before the servers are paused, says when nothing is outstanding, and grants again
//! only when the new version is published and the servers are running, whichever comes last.

use crate::lease::LeaseId;
use crate::membership::BackendInfo;
use crate::time::Timestamp;
use crate::version::Published;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Results kept, so that a repeated call gets the answer of the first.
pub const KEPT_RESULTS: usize = 16;

/// Blockers named in one report at most.
pub const MAX_BLOCKERS: usize = 64;

/// What an update is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum UpdateKind {
    /// New weights: ends with a publication.
    Weights,
    /// The engines give their memory to somebody else for a while: ends with a cancellation, same version.
    Offload,
    /// The engines rest and keep what they have, requests under way included: ends with a cancellation, same version.
    Pause,
}

/// How far an update is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum UpdatePhase {
    /// Leases are still open.
    Quiescing,
    /// Nothing is outstanding; the controller has not been told yet.
    Drained,
    /// The controller was told that nothing is outstanding.
    Updating,
    /// Over: its version is published.
    Published,
    /// Over: the version is what it was.
    Cancelled,
    /// Over: the pool failed.
    Failed,
}

impl UpdateKind {
    /// Every kind, in the order of declaration.
    pub const ALL: [Self; 3] = [Self::Weights, Self::Offload, Self::Pause];

    /// The lower-case name used in snapshots and APIs.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Weights => "weights",
            Self::Offload => "offload",
            Self::Pause => "pause",
        }
    }
}

impl UpdatePhase {
    /// The lower-case name used in snapshots and APIs.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Quiescing => "quiescing",
            Self::Drained => "drained",
            Self::Updating => "updating",
            Self::Published => "published",
            Self::Cancelled => "cancelled",
            Self::Failed => "failed",
        }
    }
}

impl fmt::Display for UpdatePhase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What a controller wants to begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BeginUpdate<'a> {
    /// Chosen by the controller; the key of every later call.
    pub id: &'a str,
    /// What it is for.
    pub kind: UpdateKind,
    /// The version it will publish, when that is known.
    pub to_version: Option<u64>,
}

/// How an update stands: the answer to each of its calls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpdateStatus {
    /// Its id.
    pub id: String,
    /// What it is for.
    pub kind: UpdateKind,
    /// The version it will publish, or has published.
    pub to_version: Option<u64>,
    /// How far it is.
    pub phase: UpdatePhase,
    /// Whether the servers are paused for it.
    pub server_paused: bool,
    /// Executions outstanding in the pool.
    pub outstanding: u32,
    /// The version that is published now.
    pub published: Option<Published>,
    /// When it began.
    pub began: Timestamp,
    /// When its drain gives up, once a drain was asked for.
    pub drain_deadline: Option<Timestamp>,
    /// Whether this call found its effect already there.
    pub replayed: bool,
}

/// An execution that keeps a drain from ending.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Blocker {
    /// Its lease.
    pub lease: LeaseId,
    /// Where it runs.
    pub backend: Arc<BackendInfo>,
    /// Its session, unless it has none or it was closed.
    pub session: Option<String>,
    /// Its sender, unless it has none or it is gone.
    pub sender: Option<String>,
    /// How long ago it was granted.
    pub age: Duration,
    /// Whether its end is already known to be unknown, so that it waits to be resolved.
    pub ambiguous: bool,
}

mod lifecycle;

pub(crate) use lifecycle::{Lifecycle, Stage, Update};
