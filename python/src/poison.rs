//! What is suspected to kill engines, as frozen values.

use pyo3::prelude::*;
use router_core::poison::{PoisonEntry as CoreEntry, PoisonSubject, Strike};
use router_core::time::Timestamp;

/// A death that a suspect coincided with.
#[pyclass(frozen, module = "trimtab._core")]
pub(crate) struct EngineDeath {
    strike: Strike,
    now: Timestamp,
}

#[pymethods]
impl EngineDeath {
    #[getter]
    fn backend(&self) -> &str {
        &self.strike.death.backend
    }

    #[getter]
    fn generation(&self) -> u32 {
        self.strike.death.generation
    }

    #[getter]
    fn evidence(&self) -> &str {
        &self.strike.death.evidence
    }

    #[getter]
    fn age_s(&self) -> f64 {
        self.now.since(self.strike.death.at).as_secs_f64()
    }

    #[getter]
    fn weight(&self) -> f64 {
        f64::from(self.strike.halves) / 2.0
    }
}

/// One suspect.
#[pyclass(frozen, module = "trimtab._core")]
pub(crate) struct PoisonEntry {
    pub(crate) entry: CoreEntry,
    pub(crate) now: Timestamp,
}

#[pymethods]
impl PoisonEntry {
    #[getter]
    fn entry(&self) -> String {
        self.entry.name()
    }

    #[getter]
    fn kind(&self) -> &'static str {
        match self.entry.subject {
            PoisonSubject::Fingerprint => "request",
            PoisonSubject::Session { .. } => "session",
        }
    }

    #[getter]
    fn session(&self) -> Option<&str> {
        match &self.entry.subject {
            PoisonSubject::Fingerprint => None,
            PoisonSubject::Session { key, .. } => Some(key),
        }
    }

    #[getter]
    fn sender(&self) -> Option<&str> {
        match &self.entry.subject {
            PoisonSubject::Fingerprint => None,
            PoisonSubject::Session { sender, .. } => sender.as_deref(),
        }
    }

    #[getter]
    fn refused(&self) -> bool {
        self.entry.refused
    }

    #[getter]
    fn refusals(&self) -> u64 {
        self.entry.refusals
    }

    #[getter]
    fn expires_in_s(&self) -> f64 {
        self.entry.expires_in.as_secs_f64()
    }

    #[getter]
    fn deaths(&self) -> Vec<EngineDeath> {
        let strikes = self.entry.strikes.iter().cloned();
        strikes.map(|strike| EngineDeath { strike, now: self.now }).collect()
    }

    fn __str__(&self) -> String {
        self.entry.to_string()
    }
}
