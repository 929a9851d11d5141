//! Where a pool is in its life.
//!
//! `Init → Serving → Quiescing → Drained → Updating → Serving`, and two states that nothing leaves: `Failed`, which keeps
//! its first cause, and `Closed`. Owner fences and the pause of the servers are latches beside the state: a pool that
//! is `Serving` may still grant nothing.

use crate::lease::LeaseId;
use crate::time::Timestamp;
use std::fmt;
use std::sync::Arc;

/// Where a pool is in its life.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PoolState {
    /// Before the first published version.
    Init,
    /// Leases can be granted.
    Serving,
    /// An update has begun; leases are still open.
    Quiescing {
        /// The update.
        update: Arc<str>,
    },
    /// Nothing is outstanding; the controller has not been told yet.
    Drained {
        /// The update.
        update: Arc<str>,
    },
    /// The controller was told that nothing is outstanding: weights may be moving.
    Updating {
        /// The update.
        update: Arc<str>,
    },
    /// Something uncertain happened that no later event can make certain again.
    Failed(Arc<Failure>),
    /// Closed by its owner.
    Closed,
}

impl PoolState {
    /// The lower-case name used in snapshots and APIs.
    #[must_use]
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Init => "init",
            Self::Serving => "serving",
            Self::Quiescing { .. } => "quiescing",
            Self::Drained { .. } => "drained",
            Self::Updating { .. } => "updating",
            Self::Failed(_) => "failed",
            Self::Closed => "closed",
        }
    }

    /// The update in progress, if there is one.
    #[must_use]
    pub const fn update(&self) -> Option<&Arc<str>> {
        match self {
            Self::Quiescing { update } | Self::Drained { update } | Self::Updating { update } => Some(update),
            Self::Init | Self::Serving | Self::Failed(_) | Self::Closed => None,
        }
    }
}

impl fmt::Display for PoolState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())?;
        match self {
            Self::Failed(failure) => write!(f, " ({failure})"),
            other => match other.update() {
                Some(update) => write!(f, " (update {update})"),
                None => Ok(()),
            },
        }
    }
}

/// The first cause of a failed pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// What happened.
    pub cause: Cause,
    /// When.
    pub at: Timestamp,
}

/// Why a pool failed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Cause {
    /// The end of an execution is unknown.
    Ambiguous {
        /// Its lease.
        lease: LeaseId,
        /// The id of its backend.
        backend: String,
    },
    /// A sender was silent for longer than its TTL, or came back as another process, while it held leases.
    SenderLost {
        /// Its name.
        sender: String,
        /// How many leases it held.
        leases: u32,
    },
    /// Leases presented after a restart of the router cannot be adopted.
    LeasesLost {
        /// The sender that presented them.
        sender: String,
        /// How many.
        leases: u32,
    },
    /// A drain did not end by its deadline.
    DrainTimeout {
        /// The update.
        update: String,
        /// Executions still outstanding.
        outstanding: u32,
        /// Backends whose engines ran something that no lease stood for.
        engines: Vec<String>,
    },
    /// A backend was unhealthy for longer than its budget.
    BackendHealthTimeout {
        /// Its id.
        backend: String,
    },
    /// An update failed, says its controller.
    UpdateFailed {
        /// The update.
        update: String,
        /// In the words of the controller.
        reason: String,
    },
    /// Said by a controller.
    Reported {
        /// In its words.
        reason: String,
    },
}

impl Cause {
    /// The lower-case name used in snapshots and APIs.
    #[must_use]
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Ambiguous { .. } => "ambiguous",
            Self::SenderLost { .. } => "sender_lost",
            Self::LeasesLost { .. } => "leases_lost",
            Self::DrainTimeout { .. } => "drain_timeout",
            Self::BackendHealthTimeout { .. } => "backend_health_timeout",
            Self::UpdateFailed { .. } => "update_failed",
            Self::Reported { .. } => "reported",
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.cause {
            Cause::Ambiguous { lease, backend } => {
                write!(f, "the end of the execution of lease {lease} on {backend} is unknown")
            }
            Cause::SenderLost { sender, leases } => write!(f, "sender {sender} was lost while it held {leases} leases"),
            Cause::LeasesLost { sender, leases } => {
                write!(
                    f,
                    "{leases} leases that sender {sender} presented after a restart cannot be adopted"
                )
            }
            Cause::DrainTimeout {
                update,
                outstanding: 0,
                engines,
            } if !engines.is_empty() => {
                write!(
                    f,
                    "engines ran something that no lease stands for at the drain deadline of update {update}: {}",
                    engines.join(", ")
                )
            }
            Cause::DrainTimeout {
                update, outstanding, ..
            } => {
                write!(
                    f,
                    "update {update} had {outstanding} executions outstanding at its drain deadline"
                )
            }
            Cause::BackendHealthTimeout { backend } => {
                write!(f, "backend {backend} was unhealthy for longer than its budget")
            }
            Cause::UpdateFailed { update, reason } => write!(f, "update {update} failed: {reason}"),
            Cause::Reported { reason } => f.write_str(reason),
        }
    }
}
