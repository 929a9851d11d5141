//! Looking at the pool.

use super::Pool;
use crate::error::Census;
use crate::event::Event;
use crate::health::Health;
use crate::membership::{Backend, BackendInfo, Phase};
use crate::sender::SenderStatus;
use crate::stats::{BackendStatistics, ControlStatistics, ParkCounts, PoolStatistics};
use crate::version::{Published, Weights};
use crate::waiters::ParkReason;
use std::sync::Arc;
use std::time::Duration;

impl Pool {
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
        let published = self.lifecycle.published;
        for backend in self.backends.live() {
            census.registered += 1;
            let count = match (backend.phase, backend.vitals.health(), backend.weights) {
                (Phase::Draining | Phase::Retiring | Phase::Removed, ..) => &mut census.draining,
                (Phase::Serving, ..) if backend.held_back => &mut census.draining,
                (Phase::Serving, Health::Unproven, _) => &mut census.unproven,
                (Phase::Serving, ..) if !backend.vitals.admits() => &mut census.down,
                (Phase::Serving, _, Weights::Tainted) => &mut census.tainted,
                (Phase::Serving, _, weights) if !weights.fit(published) => &mut census.pending_version,
                (Phase::Serving, ..) => &mut census.eligible,
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
        let published = self.lifecycle.published;
        let frozen = |backends: Vec<&Backend>| -> Vec<BackendStatistics> {
            let active = self.active.elapsed();
            backends
                .into_iter()
                .map(|backend| freeze(backend, published, active))
                .collect()
        };
        let (backends, retired) = (frozen(live), frozen(retired));
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
            poison: self.poison.statistics(),
            control: self.control_statistics(),
            durations: self.durations.of_grants(self.totals.picks.total()),
        }
    }

    fn control_statistics(&self) -> ControlStatistics {
        let mut senders: Vec<SenderStatus> = self
            .senders
            .iter()
            .map(|(handle, _)| self.status_of_sender(handle))
            .collect();
        senders.sort_unstable_by(|one, other| one.sender.cmp(&other.sender));
        let update = |update| self.status_of_update(update, false);
        ControlStatistics {
            state: self.lifecycle.state(),
            server_paused: self.lifecycle.paused_for.is_some(),
            published: self.lifecycle.published,
            generation: self.lifecycle.generation,
            revision: self.lifecycle.revision,
            update: self.lifecycle.update().map(update),
            last_updates: self.lifecycle.results.iter().map(update).collect(),
            later_failures: self.lifecycle.later_failures,
            owners: self.owners.indexes().map(|index| self.status_of_owner(index)).collect(),
            senders,
            waiters: self.waiters.queued(),
            waiting: self.waiting(),
            parked: self.totals.parked,
            tombstones: self.leases.tombstones(),
            unresolved: self.leases.ambiguous(),
            unexpected_aborts: self.totals.unexpected_aborts,
            stale_probes: self.totals.stale_probes,
            replays: self.totals.replays,
        }
    }

    /// What the parked acquires wait for now: those of one owner all for the same.
    fn waiting(&self) -> ParkCounts {
        let mut counts = ParkCounts::default();
        for owner in self.owners.indexes() {
            let queued = self.waiters.queued_of(owner);
            if queued > 0 {
                let refusal = (!self.is_open(owner)).then(|| self.refusal(owner));
                let obstacle = refusal.or_else(|| self.check_capacity().err());
                let reason = obstacle.and_then(|why| why.park_reason());
                counts.add_many(reason.unwrap_or(ParkReason::NoEligibleBackend), u64::from(queued));
            }
        }
        counts
    }

    /// Takes the events since the last call, oldest first, and the number of older ones that found no room.
    pub fn take_events(&mut self) -> (Vec<Event>, u64) {
        self.events.take()
    }
}

fn freeze(backend: &Backend, published: Option<Published>, active: Duration) -> BackendStatistics {
    BackendStatistics {
        info: Arc::clone(&backend.info),
        health: backend.vitals.health(),
        draining: matches!(backend.phase, Phase::Draining | Phase::Retiring) || backend.held_back,
        unresolved: backend.unresolved,
        eligible: backend.is_eligible(published),
        outstanding: backend.outstanding,
        sessions: backend.sessions,
        picks: backend.picks,
        outcomes: backend.outcomes,
        output_tokens: backend.output_tokens,
        failures: backend.vitals.failures(),
        unhealthy: backend.vitals.unhealthy_for(active),
        weights: backend.weights,
        weights_fit: backend.weights.fit(published),
    }
}
