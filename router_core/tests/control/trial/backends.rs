//! Backends: their coming and going, their weights and their probes.

use super::Trial;
use super::control::moved;
use crate::model::{Backend, Weights};
use crate::operations::Operation;
use proptest::prelude::*;
use router_core::membership::{BackendRef, BackendSpec};

impl Trial {
    pub(super) fn apply_to_backends(&mut self, operation: &Operation) -> Result<(), TestCaseError> {
        let now = self.now();
        match *operation {
            Operation::AddBackend { number, ahead } => self.add_backend(number, ahead),
            Operation::DrainBackend { number } => {
                let answer = self.pool.drain_backend(&number.to_string(), now);
                let known = self.model.live(number).map(|backend| backend.draining = true);
                prop_assert_eq!(answer.is_ok(), known.is_some());
            }
            Operation::ResumeBackend { number } => {
                let answer = self.pool.resume_backend(&number.to_string(), now);
                let known = self.model.live(number).map(|backend| backend.draining = false);
                prop_assert_eq!(answer.is_ok(), known.is_some());
                self.model.pump();
            }
            Operation::RemoveBackend { number } => {
                let answer = self.pool.remove_backend(&number.to_string(), now);
                let known = self.model.live(number).map(|backend| backend.removed = true);
                prop_assert_eq!(answer.is_ok(), known.is_some());
            }
            Operation::Taint { backend } if !self.references.is_empty() => {
                let reference = *backend.get(&self.references);
                let taken = self.pool.taint_backend(reference, now);
                let known = self.incarnation(reference.generation()).map(|backend| {
                    (backend.weights, backend.enrolled) = (Weights::Tainted, false);
                });
                prop_assert_eq!(taken, known.is_some());
            }
            Operation::Report {
                backend,
                ahead,
                reloaded,
            } if !self.references.is_empty() => {
                let reference = *backend.get(&self.references);
                self.report(reference, ahead, reloaded)?;
            }
            Operation::BeginProbe { backend } if !self.references.is_empty() => {
                let reference = *backend.get(&self.references);
                let probe = self.pool.begin_probe(reference, now);
                let may = self.model.over().is_none() && self.model.paused_for.is_none();
                let lives = self.incarnation(reference.generation()).is_some();
                prop_assert_eq!(probe.is_some(), may && lives);
                self.probes.extend(probe);
            }
            Operation::FinishProbe { probe, alive } if !self.probes.is_empty() => {
                let probe = *probe.get(&self.probes);
                // Takes the pool's clock along, by which a suspicion may end.
                self.pool.close_session("nobody", now);
                let before = self.pool.statistics().backends;
                if !self.pool.finish_probe(&probe, alive, now) {
                    let unchanged = self.pool.statistics().backends == before;
                    prop_assert!(unchanged, "I6: a stale answer changed something");
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn incarnation(&mut self, generation: u32) -> Option<&mut Backend> {
        let mut backends = self.model.backends.iter_mut();
        backends.find(|backend| backend.generation == generation && !backend.removed)
    }

    fn add_backend(&mut self, number: u8, ahead: Option<i8>) {
        let version = self.model.published.map_or(0, |(_, version)| version);
        let spec = BackendSpec::parse(&format!("h:{}", number + 1), 1.0).expect("valid");
        let mut spec = spec.with_id(number.to_string());
        spec.weight_version = ahead.map(|ahead| moved(version, ahead));
        let weights = spec.weight_version.map_or(Weights::Unknown, Weights::Version);
        let now = self.now();
        let reference = self.pool.add_backend(spec, now).expect("new or equal").reference;
        if self.model.live(number).is_none() {
            self.references.push(reference);
            self.model.backends.push(Backend {
                number,
                generation: reference.generation(),
                draining: false,
                removed: false,
                weights,
                enrolled: false,
            });
        }
        self.model.pump();
    }

    fn report(&mut self, reference: BackendRef, ahead: i8, reloaded: bool) -> Result<(), TestCaseError> {
        let published = self.model.published.map(|(_, version)| version);
        let version = moved(published.unwrap_or(0), ahead);
        let now = self.now();
        let taken = self.pool.report_weights(reference, version, reloaded, now);
        let backend = self.incarnation(reference.generation());
        prop_assert_eq!(taken, backend.is_some());
        if let Some(backend) = backend
            && (backend.weights != Weights::Tainted || reloaded)
        {
            backend.weights = Weights::Version(version);
            backend.enrolled &= Some(version) == published && !reloaded;
        }
        self.model.pump();
        Ok(())
    }
}
