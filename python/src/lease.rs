//! `Backend` and `Lease`.

use std::hash::{Hash, Hasher};
use std::sync::{Arc, Mutex, PoisonError};

use dataplane::shared::LeaseGuard;
use pyo3::prelude::*;
use pyo3::types::PyString;
use router_core::error::Error;
use router_core::lease::{LeaseId, Outcome, Settlement};
use router_core::membership::BackendInfo;
use router_core::select::PickReason;
use router_core::version::Published;

use crate::errors;

/// One incarnation of an engine.
#[pyclass(frozen, eq, hash, module = "trimtab._core")]
pub(crate) struct Backend(pub(crate) Arc<BackendInfo>);

impl PartialEq for Backend {
    fn eq(&self, other: &Self) -> bool {
        self.0.reference == other.0.reference && self.0.address == other.0.address
    }
}

impl Hash for Backend {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.reference.hash(state);
    }
}

#[pymethods]
impl Backend {
    #[getter]
    fn id(&self) -> &str {
        &self.0.id
    }

    #[getter]
    fn generation(&self) -> u32 {
        self.0.reference.generation()
    }

    #[getter]
    fn authority(&self) -> &str {
        self.0.address.authority()
    }

    #[getter]
    fn url(&self) -> String {
        self.0.address.url()
    }

    #[getter]
    fn capacity(&self) -> f64 {
        self.0.capacity.as_f64()
    }

    fn __repr__(&self) -> String {
        format!(
            "Backend(id={:?}, generation={}, url={:?}, capacity={})",
            self.0.id,
            self.0.reference.generation(),
            self.0.address.url(),
            self.0.capacity.as_f64()
        )
    }
}

/// What is left of a lease: the guard while it is open, then how it ended.
enum State {
    Open(LeaseGuard),
    Settled(Outcome),
}

/// The right to run one execution.
#[pyclass(frozen, module = "trimtab._core")]
pub(crate) struct Lease {
    id: LeaseId,
    backend: Arc<BackendInfo>,
    reason: PickReason,
    version: Option<Published>,
    session: Option<Py<PyString>>,
    state: Mutex<Option<State>>,
}

impl Lease {
    pub(crate) fn new(guard: LeaseGuard, session: Option<Py<PyString>>) -> Self {
        Self {
            id: guard.id(),
            backend: Arc::clone(guard.backend()),
            reason: guard.reason(),
            version: guard.version(),
            session,
            state: Mutex::new(Some(State::Open(guard))),
        }
    }
}

#[pymethods]
impl Lease {
    #[getter]
    fn id(&self) -> String {
        self.id.to_string()
    }

    #[getter]
    fn backend(&self) -> Backend {
        Backend(Arc::clone(&self.backend))
    }

    #[getter]
    fn backend_id(&self) -> &str {
        &self.backend.id
    }

    #[getter]
    fn authority(&self) -> &str {
        self.backend.address.authority()
    }

    #[getter]
    fn url(&self) -> String {
        self.backend.address.url()
    }

    #[getter]
    fn session(&self, py: Python<'_>) -> Option<Py<PyString>> {
        self.session.as_ref().map(|session| session.clone_ref(py))
    }

    #[getter]
    fn reason(&self) -> &'static str {
        self.reason.as_str()
    }

    #[getter]
    fn sticky(&self) -> bool {
        self.reason == PickReason::Sticky
    }

    #[getter]
    fn weight_version(&self) -> Option<u64> {
        self.version.map(|published| published.version)
    }

    #[getter]
    fn outcome(&self) -> Option<&'static str> {
        match *self.state.lock().unwrap_or_else(PoisonError::into_inner) {
            Some(State::Settled(outcome)) => Some(outcome.as_str()),
            _ => None,
        }
    }

    #[pyo3(signature = (outcome, *, output_tokens = None, context_tokens = None))]
    fn settle(
        &self,
        py: Python<'_>,
        outcome: &str,
        output_tokens: Option<u64>,
        context_tokens: Option<u32>,
    ) -> PyResult<()> {
        let outcome = Outcome::parse(outcome).ok_or_else(|| {
            let known: Vec<_> = Outcome::ALL.iter().map(|known| known.as_str()).collect();
            errors::invalid_request(
                py,
                &format!("outcome {outcome:?} is unknown; known are {}", known.join(", ")),
            )
        })?;
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        match state.take() {
            Some(State::Open(guard)) => {
                let mut settlement = Settlement::new(outcome);
                settlement.output_tokens = output_tokens;
                settlement.context_tokens = context_tokens;
                let settled = guard.try_settle(settlement);
                *state = Some(State::Settled(match settled {
                    Err(Error::OutcomeConflict { recorded, .. }) => recorded,
                    // Its sender was lost, and with it the record of how the pool ended it.
                    Err(_) => Outcome::Ambiguous,
                    Ok(_) => outcome,
                }));
                settled.map(drop).map_err(|error| errors::from_core(py, &error))
            }
            settled => {
                *state = settled;
                Err(errors::raise(
                    py,
                    "UnknownLease",
                    &format!("lease {} was settled before", self.id),
                ))
            }
        }
    }

    fn abandon(&self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(State::Open(guard)) = state.take_if(|state| matches!(state, State::Open(_))) {
            drop(guard);
            *state = Some(State::Settled(Outcome::Ambiguous));
        }
    }

    fn __repr__(&self) -> String {
        let outcome = self.outcome().unwrap_or("open");
        format!(
            "Lease(id='{}', backend_id={:?}, outcome={outcome})",
            self.id, self.backend.id
        )
    }
}
