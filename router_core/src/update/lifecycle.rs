//! The state of a pool, its update and its latch for the pause of the servers.

use super::{KEPT_RESULTS, UpdateKind, UpdatePhase};
use crate::config::Start;
use crate::error::Error;
use crate::state::{Failure, PoolState};
use crate::time::Timestamp;
use crate::version::Published;
use std::collections::VecDeque;
use std::sync::Arc;

/// One update, in progress or over.
#[derive(Clone, Debug)]
pub(crate) struct Update {
    pub(crate) id: Arc<str>,
    pub(crate) kind: UpdateKind,
    /// The version that its begin announced.
    pub(crate) announced: Option<u64>,
    /// The version that it published.
    pub(crate) version: Option<u64>,
    pub(crate) phase: UpdatePhase,
    pub(crate) began: Timestamp,
    /// Since when nothing is outstanding.
    pub(crate) drained: Option<Timestamp>,
    /// When the controller was told so.
    pub(crate) told: Option<Timestamp>,
    pub(crate) deadline: Option<Timestamp>,
}

/// Where the pool is in its life.
#[derive(Debug)]
pub(crate) enum Stage {
    Init,
    Serving,
    Updating(Update),
    Failed(Arc<Failure>),
    Closed,
}

#[derive(Debug)]
pub(crate) struct Lifecycle {
    pub(crate) stage: Stage,
    /// The update for which the servers are paused: a latch of its own, as engines are resumed before or after the
    /// publication.
    pub(crate) paused_for: Option<Arc<str>>,
    pub(crate) published: Option<Published>,
    /// How often something was published.
    pub(crate) publications: u32,
    pub(crate) generation: u32,
    pub(crate) revision: u64,
    pub(crate) later_failures: u64,
    /// The latest last.
    pub(crate) results: VecDeque<Update>,
    start: Start,
}

impl Lifecycle {
    pub(crate) fn new(start: Start) -> Self {
        let mut lifecycle = Self {
            stage: Stage::Serving,
            paused_for: None,
            published: None,
            publications: 0,
            generation: 0,
            revision: 0,
            later_failures: 0,
            results: VecDeque::new(),
            start,
        };
        lifecycle.stage = lifecycle.at_rest();
        lifecycle
    }

    /// The stage outside an update.
    pub(crate) fn at_rest(&self) -> Stage {
        match (self.start, self.published) {
            (Start::AwaitVersion, None) => Stage::Init,
            _ => Stage::Serving,
        }
    }

    /// Whether leases may be granted, as far as the pool is concerned.
    #[inline]
    pub(crate) fn grants(&self) -> bool {
        matches!(self.stage, Stage::Serving) && self.paused_for.is_none()
    }

    /// Refuses when the pool is failed or closed.
    pub(crate) fn check_alive(&self) -> Result<(), Error> {
        match &self.stage {
            Stage::Failed(failure) => Err(Error::PoolFailed {
                failure: Arc::clone(failure),
            }),
            Stage::Closed => Err(Error::PoolClosed),
            Stage::Init | Stage::Serving | Stage::Updating(_) => Ok(()),
        }
    }

    /// The update in progress.
    pub(crate) const fn update(&self) -> Option<&Update> {
        match &self.stage {
            Stage::Updating(update) => Some(update),
            _ => None,
        }
    }

    /// The update called `id`, in progress or over.
    pub(crate) fn find(&self, id: &str) -> Result<&Update, Error> {
        let known = self.update().into_iter().chain(&self.results);
        known
            .into_iter()
            .find(|update| *update.id == *id)
            .ok_or_else(|| Error::UnknownUpdate { id: id.to_owned() })
    }

    /// Keeps the result of an update.
    pub(crate) fn keep(&mut self, update: Update) {
        if self.results.len() == KEPT_RESULTS {
            self.results.pop_front();
        }
        self.results.push_back(update);
    }

    /// Ends the update in progress so; the pool goes on in `next`.
    pub(crate) fn end_update(&mut self, phase: UpdatePhase, next: Stage) {
        if let Stage::Updating(mut update) = std::mem::replace(&mut self.stage, next) {
            update.phase = phase;
            self.keep(update);
        }
    }

    pub(crate) fn state(&self) -> PoolState {
        match &self.stage {
            Stage::Init => PoolState::Init,
            Stage::Serving => PoolState::Serving,
            Stage::Updating(update) => {
                let id = Arc::clone(&update.id);
                match update.phase {
                    UpdatePhase::Quiescing => PoolState::Quiescing { update: id },
                    UpdatePhase::Drained => PoolState::Drained { update: id },
                    _ => PoolState::Updating { update: id },
                }
            }
            Stage::Failed(failure) => PoolState::Failed(Arc::clone(failure)),
            Stage::Closed => PoolState::Closed,
        }
    }
}
