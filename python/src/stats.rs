//! Frozen snapshots of a pool.

use dataplane::RequestPhase;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use router_core::durations::UpdateStep;
use router_core::histogram::Histogram as CoreHistogram;
use router_core::lease::Outcome;
use router_core::state::PoolState;
use router_core::stats::{BackendStatistics as CoreBackend, OutcomeCounts, PoolStatistics as CorePool};
use router_core::update::UpdateKind;
use router_core::version::Weights;

use crate::histogram::{self, Histogram};
use crate::status::{OwnerStatus, SenderStatus, UpdateStatus};

/// Snapshot of one backend.
#[pyclass(frozen, module = "trimtab._core")]
pub(crate) struct BackendStatistics(CoreBackend);

#[pymethods]
impl BackendStatistics {
    #[getter]
    fn id(&self) -> &str {
        &self.0.info.id
    }

    #[getter]
    fn generation(&self) -> u32 {
        self.0.info.reference.generation()
    }

    #[getter]
    fn authority(&self) -> &str {
        self.0.info.address.authority()
    }

    #[getter]
    fn url(&self) -> String {
        self.0.info.address.url()
    }

    #[getter]
    fn capacity(&self) -> f64 {
        self.0.info.capacity.as_f64()
    }

    #[getter]
    fn health(&self) -> &'static str {
        self.0.health.as_str()
    }

    #[getter]
    fn draining(&self) -> bool {
        self.0.draining
    }

    #[getter]
    fn eligible(&self) -> bool {
        self.0.eligible
    }

    #[getter]
    fn outstanding(&self) -> u32 {
        self.0.outstanding
    }

    #[getter]
    fn sessions(&self) -> u32 {
        self.0.sessions
    }

    #[getter]
    fn picks(&self) -> u64 {
        self.0.picks
    }

    #[getter]
    fn outcomes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        outcomes(py, &self.0.outcomes)
    }

    #[getter]
    fn output_tokens(&self) -> u64 {
        self.0.output_tokens
    }

    #[getter]
    fn failures(&self) -> u32 {
        self.0.failures
    }

    #[getter]
    fn unhealthy_s(&self) -> f64 {
        self.0.unhealthy.as_secs_f64()
    }

    #[getter]
    fn weight_version(&self) -> Option<u64> {
        match self.0.weights {
            Weights::Version(version) => Some(version),
            Weights::Unknown | Weights::Tainted => None,
        }
    }

    #[getter]
    fn tainted(&self) -> bool {
        self.0.weights == Weights::Tainted
    }

    #[getter]
    fn weights_fit(&self) -> bool {
        self.0.weights_fit
    }
}

/// Snapshot of one pool.
#[pyclass(frozen, module = "trimtab._core")]
pub(crate) struct PoolStatistics {
    pub(crate) name: String,
    pub(crate) snapshot: CorePool,
    /// The shell sees what engines answer; the core does not.
    pub(crate) version_mismatches: u64,
    /// By [`RequestPhase`], in the order of declaration.
    pub(crate) request_seconds: [CoreHistogram; RequestPhase::ALL.len()],
}

#[pymethods]
impl PoolStatistics {
    #[getter]
    fn name(&self) -> &str {
        &self.name
    }

    #[getter]
    fn outstanding(&self) -> u32 {
        self.snapshot.outstanding
    }

    #[getter]
    fn sessions(&self) -> usize {
        self.snapshot.sessions
    }

    #[getter]
    fn sessions_expired(&self) -> u64 {
        self.snapshot.sessions_expired
    }

    #[getter]
    fn sessions_evicted(&self) -> u64 {
        self.snapshot.sessions_evicted
    }

    #[getter]
    fn picks<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let dict = PyDict::new(py);
        for (reason, count) in self.snapshot.picks.iter() {
            dict.set_item(reason.as_str(), count)?;
        }
        Ok(dict)
    }

    #[getter]
    fn outcomes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        outcomes(py, &self.snapshot.outcomes)
    }

    #[getter]
    fn output_tokens(&self) -> u64 {
        self.snapshot.output_tokens
    }

    #[getter]
    fn census<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let census = &self.snapshot.census;
        let dict = PyDict::new(py);
        for (name, count) in [
            ("registered", census.registered),
            ("eligible", census.eligible),
            ("unproven", census.unproven),
            ("down", census.down),
            ("draining", census.draining),
            ("pending_version", census.pending_version),
            ("tainted", census.tainted),
        ] {
            dict.set_item(name, count)?;
        }
        Ok(dict)
    }

    #[getter]
    fn engine_deaths(&self) -> u64 {
        self.snapshot.poison.deaths
    }

    #[getter]
    fn poison_refusals(&self) -> u64 {
        self.snapshot.poison.refusals
    }

    #[getter]
    fn poison_suspects(&self) -> u32 {
        self.snapshot.poison.suspects
    }

    #[getter]
    fn poison_refused(&self) -> u32 {
        self.snapshot.poison.refused
    }

    #[getter]
    fn state(&self) -> &'static str {
        self.snapshot.control.state.as_str()
    }

    #[getter]
    fn model_state(&self) -> &'static str {
        dataplane::model_state::model_state(&self.snapshot)
    }

    #[getter]
    fn failure(&self) -> Option<String> {
        match &self.snapshot.control.state {
            PoolState::Failed(failure) => Some(failure.to_string()),
            _ => None,
        }
    }

    #[getter]
    fn server_paused(&self) -> bool {
        self.snapshot.control.server_paused
    }

    #[getter]
    fn weight_version(&self) -> Option<u64> {
        self.snapshot.control.published.map(|published| published.version)
    }

    #[getter]
    fn epoch(&self) -> Option<u64> {
        self.snapshot.control.published.map(|published| published.epoch)
    }

    #[getter]
    fn generation(&self) -> u32 {
        self.snapshot.control.generation
    }

    #[getter]
    fn update(&self) -> Option<UpdateStatus> {
        self.snapshot.control.update.as_ref().map(UpdateStatus::from)
    }

    #[getter]
    fn last_updates(&self) -> Vec<UpdateStatus> {
        self.snapshot
            .control
            .last_updates
            .iter()
            .map(UpdateStatus::from)
            .collect()
    }

    #[getter]
    fn owners(&self) -> Vec<OwnerStatus> {
        self.snapshot.control.owners.iter().map(OwnerStatus::from).collect()
    }

    #[getter]
    fn senders(&self) -> Vec<SenderStatus> {
        self.snapshot.control.senders.iter().map(SenderStatus::from).collect()
    }

    #[getter]
    fn waiters(&self) -> u32 {
        self.snapshot.control.waiters
    }

    #[getter]
    fn parked<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let dict = PyDict::new(py);
        for (reason, count) in self.snapshot.control.parked.iter() {
            dict.set_item(reason.as_str(), count)?;
        }
        Ok(dict)
    }

    #[getter]
    fn tombstones(&self) -> u32 {
        self.snapshot.control.tombstones
    }

    #[getter]
    fn later_failures(&self) -> u64 {
        self.snapshot.control.later_failures
    }

    #[getter]
    fn unexpected_aborts(&self) -> u64 {
        self.snapshot.control.unexpected_aborts
    }

    #[getter]
    fn version_mismatches(&self) -> u64 {
        self.version_mismatches
    }

    #[getter]
    fn unresolved(&self) -> u32 {
        self.snapshot.control.unresolved
    }

    #[getter]
    fn stale_probes(&self) -> u64 {
        self.snapshot.control.stale_probes
    }

    #[getter]
    fn waiting<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let dict = PyDict::new(py);
        for (reason, count) in self.snapshot.control.waiting.iter() {
            dict.set_item(reason.as_str(), count)?;
        }
        Ok(dict)
    }

    #[getter]
    fn replays<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let replays = self.snapshot.control.replays;
        let dict = PyDict::new(py);
        dict.set_item("acquire", replays.acquires)?;
        dict.set_item("settle", replays.settlements)?;
        dict.set_item("update", replays.updates)?;
        Ok(dict)
    }

    #[getter]
    fn acquire_seconds(&self) -> Histogram {
        Histogram(self.snapshot.durations.acquire().clone())
    }

    #[getter]
    fn drain_seconds(&self) -> Histogram {
        Histogram(self.snapshot.durations.drain().clone())
    }

    #[getter]
    fn lease_seconds<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let outcomes = Outcome::ALL.into_iter();
        histogram::named(
            py,
            outcomes.map(|outcome| (outcome.as_str(), self.snapshot.durations.lease(outcome))),
        )
    }

    #[getter]
    fn update_seconds<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let dict = PyDict::new(py);
        for kind in UpdateKind::ALL {
            let steps = UpdateStep::ALL.into_iter();
            let durations = &self.snapshot.durations;
            let steps = histogram::named(py, steps.map(|step| (step.as_str(), durations.update(kind, step))))?;
            dict.set_item(kind.as_str(), steps)?;
        }
        Ok(dict)
    }

    #[getter]
    fn request_seconds<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let phases = RequestPhase::ALL.into_iter().zip(&self.request_seconds);
        histogram::named(py, phases.map(|(phase, histogram)| (phase.as_str(), histogram)))
    }

    #[getter]
    fn backends(&self) -> Vec<BackendStatistics> {
        self.snapshot.backends.iter().cloned().map(BackendStatistics).collect()
    }
}

fn outcomes<'py>(py: Python<'py>, counts: &OutcomeCounts) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    for (outcome, count) in counts.iter() {
        dict.set_item(outcome.as_str(), count)?;
    }
    Ok(dict)
}
