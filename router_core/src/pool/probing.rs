//! Probes, with stamps that make late answers harmless.

use super::Pool;
use crate::health::{Patience, Probe, ProbeKind, Source};
use crate::membership::{BackendRef, Phase};
use crate::time::Timestamp;

impl Pool {
    /// Begins a probe of a backend; `None` when it must not be asked now: the servers are paused, the pool is over, or
    /// the incarnation is gone. A probe of it that was begun before is void.
    pub fn begin_probe(&mut self, backend: BackendRef, now: Timestamp) -> Option<Probe> {
        self.advance(now);
        if !self.may_probe() || !self.is_live(backend) {
            return None;
        }
        let pool_generation = self.lifecycle.generation;
        let target = self.backends.at_mut(backend.slot());
        target.probe_seq = target.probe_seq.wrapping_add(1);
        let is_idle = target.outstanding == 0 && target.vitals.has_failed_executions();
        let generate = target.is_suspect() && (target.vitals.is_stalled() || is_idle);
        Some(Probe {
            backend,
            kind: if generate {
                ProbeKind::Generate
            } else {
                ProbeKind::Liveness
            },
            pool_generation,
            seq: target.probe_seq,
            begun: self.clock,
        })
    }

    /// Takes in the answer to a probe. Ignored unless it is the latest of its backend, and no update began meanwhile. A
    /// failure of the first one after a pause only makes the backend suspect: an engine that has just been resumed may
    /// be busy waking up.
    /// Whether it was taken in.
    pub fn finish_probe(&mut self, probe: &Probe, alive: bool, now: Timestamp) -> bool {
        self.advance(now);
        let is_latest = self.is_live(probe.backend)
            && self.backends.at(probe.backend.slot()).probe_seq == probe.seq
            && probe.pool_generation == self.lifecycle.generation
            && self.may_probe();
        if !is_latest {
            self.totals.stale_probes += 1;
            return false;
        }
        let is_waking = std::mem::take(&mut self.backends.at_mut(probe.backend.slot()).is_waking);
        if alive {
            self.revive(probe.backend, probe.begun);
        }
        match probe.kind {
            _ if is_waking && !alive => self.doubt(probe.backend),
            ProbeKind::Liveness => self.note_probe(probe.backend, alive),
            ProbeKind::Generate => {
                let (patience, at) = (self.patience, self.instant());
                self.backends.at_mut(probe.backend.slot()).heard = at.1;
                self.examine(probe.backend.slot(), |vitals| {
                    vitals.note_generated(alive, &patience, at);
                });
            }
        }
        self.pump();
        true
    }

    /// Takes in the result of a liveness probe without a stamp: of a shell that lets a backend answer one probe at a
    /// time, for a pool that is not updated. Ignored for an incarnation that is gone, and while the servers are paused.
    pub fn report_probe(&mut self, backend: BackendRef, alive: bool, now: Timestamp) {
        self.advance(now);
        if self.is_live(backend) && self.may_probe() {
            if alive {
                self.revive(backend, self.clock);
            }
            self.note_probe(backend, alive);
            self.pump();
        }
    }

    /// Takes in bytes of an answer as a sign of life. Ignored for an incarnation that is gone, and while the servers are
    /// paused.
    pub fn note_alive(&mut self, backend: BackendRef, now: Timestamp) {
        self.advance(now);
        if self.is_live(backend) && self.may_probe() {
            let active = self.active.elapsed();
            self.backends.at_mut(backend.slot()).heard = active;
            self.examine(backend.slot(), |vitals| vitals.note_alive(Source::Execution));
            self.pump();
        }
    }

    fn note_probe(&mut self, backend: BackendRef, alive: bool) {
        let (patience, at) = (self.patience, self.instant());
        self.examine(backend.slot(), |vitals| {
            if alive {
                vitals.note_alive(Source::Probe);
            } else {
                vitals.note_failure(Source::Probe, &patience, at);
            }
        });
    }

    /// Takes in a failure that suspects a backend and brings it down by no means.
    fn doubt(&mut self, backend: BackendRef) {
        let lenient = Patience {
            down_after: u32::MAX,
            ..self.patience
        };
        let at = self.instant();
        self.examine(backend.slot(), |vitals| {
            vitals.note_failure(Source::Probe, &lenient, at);
        });
    }

    /// The servers were let go on: the first probe of each may meet one that is not awake yet.
    pub(super) fn wake_backends(&mut self) {
        for slot in self.backends.live_slots() {
            self.backends.at_mut(slot).is_waking = true;
        }
    }

    /// Whether an engine's answer can mean anything now.
    fn may_probe(&self) -> bool {
        self.lifecycle.paused_for.is_none() && self.lifecycle.check_alive().is_ok()
    }

    pub(super) fn is_live(&self, reference: BackendRef) -> bool {
        self.backends
            .get(reference)
            .is_some_and(|backend| backend.phase != Phase::Removed)
    }
}
