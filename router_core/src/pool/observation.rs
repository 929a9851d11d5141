//! Looking at the pool, and the passing of time.

use super::Pool;
use crate::error::Census;
use crate::event::Event;
use crate::health::Health;
use crate::membership::{Backend, BackendInfo, Phase};
use crate::stats::{BackendStatistics, ControlStatistics, PoolStatistics};
use crate::version::Weights;
use crate::time::Timestamp;
use std::sync::Arc;

/// Sessions that one tick expires at most: about a millisecond's work, so that no request waits long for the lock.
const EXPIRED_PER_TICK: usize = 4096;

impl Pool {
    /// Lets time pass: forgets sessions that were idle for longer than the TTL and ends suspicions. The work is
    /// bounded; call it about once a second. A pool that is never ticked is as correct, only larger.
    pub fn tick(&mut self, now: Timestamp) {
        let now = self.advance(now);
        self.expire_sessions(EXPIRED_PER_TICK, now);
    }

    /// The backends of the pool, in slot order; removed ones are not among them.
    pub fn backends(&self) -> impl Iterator<Item = &Arc<BackendInfo>> {
        self.backends.live().map(|backend| &backend.info)
    }

    /// The backend called `id`.
    #[must_use]
    pub fn find_backend(&self, id: &str) -> Option<&Arc<BackendInfo>> {
        self.backends.slot_of(id).ok().map(|slot| &self.backends.at(slot).info)
    }

    /// Where the backends stand. A backend that is draining is counted as that, whatever its health.
    #[must_use]
    pub fn census(&self) -> Census {
        let mut census = Census::default();
        for backend in self.backends.live() {
            census.registered += 1;
            let count = match (backend.phase, backend.vitals.health()) {
                (Phase::Draining | Phase::Removed, _) => &mut census.draining,
                (Phase::Serving, Health::Unproven) => &mut census.unproven,
                (Phase::Serving, Health::Down) => &mut census.down,
                (Phase::Serving, Health::Up | Health::Suspect) => &mut census.eligible,
            };
            *count += 1;
        }
        census
    }

    /// A frozen snapshot of everything that is counted.
    #[must_use]
    pub fn statistics(&self) -> PoolStatistics {
        let (retired, live): (Vec<&Backend>, Vec<&Backend>) = self
            .backends
            .iter()
            .partition(|backend| backend.phase == Phase::Removed);
        let backends: Vec<BackendStatistics> = live.into_iter().map(BackendStatistics::from).collect();
        let retired: Vec<BackendStatistics> = retired.into_iter().map(BackendStatistics::from).collect();
        PoolStatistics {
            outstanding: backends.iter().chain(&retired).map(|backend| backend.outstanding).sum(),
            backends,
            retired,
            sessions: self.sessions.len(),
            leases: self.leases.len() as usize,
            picks: self.totals.picks,
            outcomes: self.totals.outcomes,
            output_tokens: self.totals.output_tokens,
            sessions_expired: self.totals.sessions_expired,
            sessions_evicted: self.totals.sessions_evicted,
            census: self.census(),
            control: self.control_statistics(),
        }
    }

    fn control_statistics(&self) -> ControlStatistics {
        todo!()
    }

    /// Takes the events since the last call, oldest first, and the number of older ones that found no room.
    pub fn take_events(&mut self) -> (Vec<Event>, u64) {
        self.events.take()
    }
}

impl From<&Backend> for BackendStatistics {
    fn from(backend: &Backend) -> Self {
        Self {
            info: Arc::clone(&backend.info),
            health: backend.vitals.health(),
            draining: backend.phase == Phase::Draining,
            eligible: backend.is_eligible(),
            outstanding: backend.outstanding,
            sessions: backend.sessions,
            picks: backend.picks,
            outcomes: backend.outcomes,
            output_tokens: backend.output_tokens,
            failures: backend.vitals.failures(),
            weights: Weights::Unknown,
            weights_fit: true,
        }
    }
}
