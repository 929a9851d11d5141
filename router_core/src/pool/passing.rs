//! The passing of time.

use super::Pool;
use crate::config::{OnDrainTimeout, OnUnhealthy};
use crate::membership::Phase;
use crate::state::Cause;
use crate::time::Timestamp;
use std::time::Duration;

/// Sessions that one tick takes out at most, of those that expired and of those whose sender departed: about a
/// millisecond's work, so that no request waits long for the lock.
const ENDED_PER_TICK: usize = 4096;

impl Pool {
    /// Lets time pass: forgets sessions that were idle for longer than the TTL, ends suspicions, gives up drains, loses
    /// silent senders and counts how long backends were unhealthy or silent. The work is bounded; call it about once a
    /// second. A pool of which nothing of this is asked is as correct without ticks, only larger.
    pub fn tick(&mut self, now: Timestamp) {
        let now = self.advance(now);
        self.active.tick(now);
        self.expire_sessions(ENDED_PER_TICK, now);
        self.expire_senders();
        self.forget_departed(ENDED_PER_TICK);
        if self.poison.is_watchful() {
            self.poison.expire(now);
        }
        if self.config.on_drain_timeout == OnDrainTimeout::Fail {
            self.fail_overdue_drain();
        }
        if self.lifecycle.paused_for.is_none() {
            self.look_for_stalls();
            self.check_budgets();
        }
        self.pump();
    }

    /// Suspects backends that run something and were silent for too long.
    fn look_for_stalls(&mut self) {
        let Some(timeout) = self.config.progress_timeout else {
            return;
        };
        let at = self.instant();
        for slot in self.backends.live_slots() {
            let backend = self.backends.at(slot);
            let is_silent = backend.outstanding > 0 && at.1.saturating_sub(backend.heard) >= timeout;
            if is_silent && !backend.vitals.is_stalled() {
                self.examine(slot, |vitals| vitals.note_stall(at));
                self.refresh(slot);
            }
        }
    }

    /// Acts on backends that were unhealthy for too long.
    fn check_budgets(&mut self) {
        let Some(budget) = self.config.unhealthy_budget else {
            return;
        };
        for slot in self.backends.live_slots() {
            if self.has_exhausted(slot, budget) {
                match self.config.on_unhealthy {
                    OnUnhealthy::Exclude => self.examine(slot, super::Vitals::exhaust),
                    OnUnhealthy::FailPool => {
                        let backend = self.backends.at(slot).info.id.clone();
                        self.fail_with(Cause::BackendHealthTimeout { backend });
                    }
                }
            }
        }
    }

    fn has_exhausted(&self, slot: u32, budget: Duration) -> bool {
        let backend = self.backends.at(slot);
        let is_served = backend.phase == Phase::Serving && self.lifecycle.check_alive().is_ok();
        is_served && backend.vitals.has_exhausted(budget, self.active.elapsed())
    }

    /// Lets suspicions, open breakers and ramps end that are due.
    #[cold]
    pub(super) fn pass_time(&mut self) {
        let (patience, now) = (self.patience, self.clock);
        self.next_change = Timestamp::MAX;
        for slot in self.backends.live_slots() {
            if self.backends.at(slot).vitals.next_change(&patience).is_some() {
                self.examine(slot, |vitals| vitals.pass_time(&patience, now));
            }
            match self.backends.at(slot).ramp_end {
                Some(end) if end > now => self.next_change = self.next_change.min(end),
                Some(_) => self.refresh(slot),
                None => {}
            }
        }
        self.pump();
    }
}
