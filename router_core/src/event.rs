//! What happened in a pool, for logs: a bounded ring that the shell empties.
//!
//! Counters say how often; events say what, when and to whom. When nobody collects them the oldest make room, and
//! their number is reported, so a pool without a reader costs a fixed amount of memory.

use crate::health::Health;
use crate::load::Capacity;
use crate::membership::{BackendInfo, BackendRef};
use crate::poison::Death;
use crate::select::RepinReason;
use crate::state::Failure;
use crate::time::Timestamp;
use crate::update::UpdatePhase;
use crate::version::{Published, Weights};
use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

/// Events kept between two collections.
pub const CAPACITY: usize = 1024;

/// How many of the latest events may still take in one that counts the same thing.
const RECENT: usize = 16;

/// Something that happened at a time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// When, on the shell's clock; of an event that counts, when the first one happened.
    pub at: Timestamp,
    /// What.
    pub kind: EventKind,
}

/// What happened. [`fmt::Display`] writes one readable line.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum EventKind {
    /// A new incarnation was registered.
    BackendAdded {
        /// The incarnation.
        backend: Arc<BackendInfo>,
        /// Its health at the start: up when it was declared proven, else unproven.
        health: Health,
    },
    /// A live backend's capacity changed.
    BackendUpdated {
        /// The incarnation, with its new capacity.
        backend: Arc<BackendInfo>,
        /// Its capacity before.
        before: Capacity,
    },
    /// A backend takes no new executions.
    BackendDraining {
        /// The incarnation.
        backend: Arc<BackendInfo>,
        /// Executions it still has to finish.
        outstanding: u32,
    },
    /// A backend that was draining takes new executions again.
    BackendResumed {
        /// The incarnation.
        backend: Arc<BackendInfo>,
    },
    /// A backend takes no new executions until it is known how others on it ended.
    BackendHeldBack {
        /// The incarnation.
        backend: Arc<BackendInfo>,
        /// Executions whose end is unknown.
        unresolved: u32,
    },
    /// It takes executions again: those are known to be over.
    BackendReleased {
        /// The incarnation.
        backend: Arc<BackendInfo>,
    },
    /// A backend left the pool.
    BackendRemoved {
        /// The incarnation.
        backend: Arc<BackendInfo>,
        /// Executions that are still running on it.
        outstanding: u32,
    },
    /// The last execution on a removed backend ended.
    BackendForgotten {
        /// The incarnation.
        backend: Arc<BackendInfo>,
    },
    /// The belief about a backend's life changed.
    HealthChanged {
        /// The incarnation.
        backend: Arc<BackendInfo>,
        /// The belief before.
        from: Health,
        /// The belief now.
        to: Health,
        /// Consecutive failures behind it.
        failures: u32,
    },
    /// An engine died with executions in flight.
    BackendDied {
        /// Which, and how.
        death: Arc<Death>,
        /// Fingerprints and sessions that were in flight.
        suspects: u32,
        /// Those of them that are refused from now on; see [`crate::poison::PoisonEntry::id`].
        condemned: Vec<u64>,
    },
    /// Suspects were forgotten by order.
    PoisonCleared {
        /// How many.
        count: usize,
    },
    /// Sessions moved for good.
    SessionsRepinned {
        /// The incarnation they were pinned to, which may be forgotten.
        from: BackendRef,
        /// Why.
        why: RepinReason,
        /// How many since the time of the event.
        count: u64,
    },
    /// Sessions were idle for longer than the TTL.
    SessionsExpired {
        /// How many since the time of the event.
        count: u64,
    },
    /// Idle sessions made room for new ones at the cap.
    SessionsEvicted {
        /// How many since the time of the event.
        count: u64,
    },
    /// What is known about a backend's weights changed.
    WeightsChanged {
        /// The incarnation.
        backend: Arc<BackendInfo>,
        /// What is known now.
        weights: Weights,
    },
    /// An owner got another reason for which nothing is granted to it.
    OwnerFenced {
        /// Its name.
        owner: String,
        /// The reason.
        reason: String,
    },
    /// An owner lost one of the reasons.
    OwnerUnfenced {
        /// Its name.
        owner: String,
        /// The reason.
        reason: String,
    },
    /// An owner's processes know a version.
    VersionAcknowledged {
        /// Its name.
        owner: String,
        /// The version.
        version: u64,
    },
    /// An update entered a phase.
    UpdateMoved {
        /// Its id.
        update: String,
        /// The phase.
        phase: UpdatePhase,
    },
    /// The servers run again.
    ServersResumed {
        /// The update for which they were paused.
        update: String,
    },
    /// A version was published.
    VersionPublished {
        /// The version.
        published: Published,
    },
    /// A sender came.
    SenderAttached {
        /// Its name.
        sender: String,
        /// Its owner.
        owner: String,
    },
    /// A sender went.
    SenderGone {
        /// Its name.
        sender: String,
        /// Why.
        why: &'static str,
        /// Leases it held.
        open_leases: u32,
    },
    /// The pool failed for good.
    PoolFailed {
        /// The first cause.
        failure: Arc<Failure>,
    },
    /// The pool was closed for good.
    PoolClosed,
}

impl fmt::Display for EventKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BackendAdded { backend, health } => {
                write!(
                    f,
                    "backend {} added at {} with capacity {}, {health}",
                    Name(backend),
                    backend.address,
                    backend.capacity
                )
            }
            Self::BackendUpdated { backend, before } => {
                write!(
                    f,
                    "backend {} changed its capacity from {before} to {}",
                    Name(backend),
                    backend.capacity
                )
            }
            Self::BackendDraining { backend, outstanding } => {
                write!(f, "backend {} is draining, {outstanding} outstanding", Name(backend))
            }
            Self::BackendResumed { backend } => write!(f, "backend {} takes executions again", Name(backend)),
            Self::BackendHeldBack { backend, unresolved } => {
                write!(
                    f,
                    "backend {} gets nothing more until it is known how {unresolved} executions on it ended",
                    Name(backend)
                )
            }
            Self::BackendReleased { backend } => {
                write!(
                    f,
                    "backend {} serves again: the executions with an unknown end are over",
                    Name(backend)
                )
            }
            Self::BackendRemoved { backend, outstanding } => {
                write!(f, "backend {} removed, {outstanding} outstanding", Name(backend))
            }
            Self::BackendForgotten { backend } => {
                write!(f, "backend {} forgotten: its last execution ended", Name(backend))
            }
            Self::HealthChanged {
                backend,
                from,
                to,
                failures,
            } => {
                write!(
                    f,
                    "backend {} went from {from} to {to} ({failures} failures in a row)",
                    Name(backend)
                )
            }
            Self::SessionsRepinned { from, why, count } => {
                write!(
                    f,
                    "{count} sessions moved away from generation {} ({why})",
                    from.generation()
                )
            }
            Self::BackendDied {
                death,
                suspects,
                condemned,
            } => {
                write!(
                    f,
                    "backend {} (generation {}) died ({}) under {suspects} requests and sessions; ",
                    death.backend, death.generation, death.evidence
                )?;
                match condemned.first() {
                    None => f.write_str("none of them is refused for it"),
                    Some(first) => write!(f, "{} are refused from now on, such as {first:016x}", condemned.len()),
                }
            }
            Self::PoisonCleared { count } => write!(f, "{count} suspects of killing engines were cleared"),
            Self::SessionsExpired { count } => write!(f, "{count} idle sessions expired"),
            Self::SessionsEvicted { count } => write!(f, "{count} idle sessions evicted at the cap"),
            other => other.describe_control(f),
        }
    }
}

impl EventKind {
    /// The lines about owners, updates and senders.
    fn describe_control(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::WeightsChanged { backend, weights } => match weights {
                Weights::Unknown => write!(f, "backend {} has unknown weights", Name(backend)),
                Weights::Version(version) => write!(f, "backend {} runs version {version}", Name(backend)),
                Weights::Tainted => write!(f, "backend {} is tainted: its update failed", Name(backend)),
            },
            Self::OwnerFenced { owner, reason } => write!(f, "owner {owner} fenced ({reason})"),
            Self::OwnerUnfenced { owner, reason } => write!(f, "owner {owner} unfenced ({reason})"),
            Self::VersionAcknowledged { owner, version } => write!(f, "owner {owner} acknowledged version {version}"),
            Self::UpdateMoved { update, phase } => write!(f, "update {update} is {phase}"),
            Self::ServersResumed { update } => write!(f, "the servers run again after update {update}"),
            Self::VersionPublished { published } => write!(f, "{published} is published"),
            Self::SenderAttached { sender, owner } => write!(f, "sender {sender} of owner {owner} attached"),
            Self::SenderGone {
                sender,
                why,
                open_leases,
            } => write!(f, "sender {sender} is gone with {open_leases} open leases: {why}"),
            Self::PoolFailed { failure } => write!(f, "the pool failed: {failure}"),
            _ => f.write_str("the pool is closed"),
        }
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.kind.fmt(f)
    }
}

/// How a line names an incarnation.
struct Name<'a>(&'a BackendInfo);

impl fmt::Display for Name<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (generation {})", self.0.id, self.0.reference.generation())
    }
}

/// The events since the last collection.
#[derive(Debug, Default)]
pub(crate) struct EventRing {
    events: VecDeque<Event>,
    dropped: u64,
}

impl EventRing {
    pub(crate) fn push(&mut self, at: Timestamp, kind: EventKind) {
        // A dying engine moves thousands of sessions; they must not push the event that explains them out of the ring.
        let mut latest = self.events.iter_mut().rev().take(RECENT);
        if latest.any(|event| event.kind.absorb(&kind)) {
            return;
        }
        if self.events.len() == CAPACITY {
            self.events.pop_front();
            self.dropped += 1;
        }
        self.events.push_back(Event { at, kind });
    }

    /// The events, oldest first, and how many older ones were dropped.
    pub(crate) fn take(&mut self) -> (Vec<Event>, u64) {
        (
            std::mem::take(&mut self.events).into(),
            std::mem::take(&mut self.dropped),
        )
    }
}

impl EventKind {
    /// Adds `later` to this event when both count the same thing.
    fn absorb(&mut self, later: &Self) -> bool {
        let (count, more) = match (self, later) {
            (Self::SessionsExpired { count }, Self::SessionsExpired { count: more })
            | (Self::SessionsEvicted { count }, Self::SessionsEvicted { count: more }) => (count, more),
            (
                Self::SessionsRepinned { from, why, count },
                Self::SessionsRepinned {
                    from: also_from,
                    why: also_why,
                    count: more,
                },
            ) if (*from, *why) == (*also_from, *also_why) => (count, more),
            _ => return false,
        };
        *count += more;
        true
    }
}

#[cfg(test)]
mod tests;
