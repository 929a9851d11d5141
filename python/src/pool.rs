//! `Pool`: thread-safe, one critical section a call.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use dataplane::shared::SharedPool;
use pyo3::prelude::*;
use pyo3::types::PyString;
use router_core::address::Address;
use router_core::membership::{BackendRef, BackendSpec};
use router_core::pool::{AcquireRequest, PoolConfig};

use crate::errors;
use crate::lease::{Backend, Lease};
use crate::stats::PoolStatistics;

/// The routing state of one (role, model).
#[pyclass(frozen, module = "trimtab._core")]
pub(crate) struct Pool(pub(crate) Arc<SharedPool>);

#[pymethods]
impl Pool {
    #[new]
    #[pyo3(signature = (name = "default/default", *, session_ttl_s = 3600.0, session_cap = 1_000_000, max_concurrent = None))]
    fn new(
        py: Python<'_>,
        name: &str,
        session_ttl_s: f64,
        session_cap: i64,
        max_concurrent: Option<i64>,
    ) -> PyResult<Self> {
        let config = PoolConfig {
            session_ttl: errors::seconds(py, "session_ttl_s", session_ttl_s)?,
            session_cap: errors::count(py, "session_cap", session_cap)? as usize,
            max_outstanding: max_concurrent
                .map(|limit| errors::count(py, "max_concurrent", limit))
                .transpose()?,
            // Session keys come from clients: an unpredictable seed keeps them from piling up in one bucket.
            hash_seed: RandomState::new().hash_one(0_u8),
            ..PoolConfig::default()
        };
        Ok(Self(SharedPool::new(name, config)))
    }

    #[getter]
    fn name(&self) -> &str {
        self.0.name()
    }

    #[pyo3(signature = (address, capacity = 1.0, *, id = None, proven = true))]
    fn add_backend(
        &self,
        py: Python<'_>,
        address: &str,
        capacity: f64,
        id: Option<String>,
        proven: bool,
    ) -> PyResult<Backend> {
        let add = || {
            let mut spec = BackendSpec::parse(address, capacity)?;
            spec.id = id;
            spec.proven = proven;
            self.0.with(|pool, now| pool.add_backend(spec, now))
        };
        add().map(Backend).map_err(|error| errors::from_core(py, &error))
    }

    fn drain_backend(&self, py: Python<'_>, id: &str) -> PyResult<u32> {
        self.0
            .with(|pool, now| pool.drain_backend(id, now))
            .map_err(|error| errors::from_core(py, &error))
    }

    fn remove_backend(&self, py: Python<'_>, id: &str) -> PyResult<u32> {
        self.0
            .with(|pool, now| pool.remove_backend(id, now))
            .map_err(|error| errors::from_core(py, &error))
    }

    #[pyo3(signature = (session = None, *, exclude = Vec::new()))]
    fn acquire(
        &self,
        py: Python<'_>,
        session: Option<&Bound<'_, PyString>>,
        exclude: Vec<PyRef<'_, Backend>>,
    ) -> PyResult<Lease> {
        let excluded: Vec<BackendRef> = exclude.into_iter().map(|backend| backend.0.reference).collect();
        let request = AcquireRequest {
            session: session.map(|key| key.to_str()).transpose()?,
            exclude: &excluded,
            ..AcquireRequest::unpinned()
        };
        let guard = self
            .0
            .acquire(&request)
            .map_err(|error| errors::from_core(py, &error))?;
        Ok(Lease::new(guard, session.map(|key| key.clone().unbind())))
    }

    fn close_session(&self, session: &str) -> (bool, u32) {
        let closed = self.0.with(|pool, now| pool.close_session(session, now));
        (closed.known, closed.open_leases)
    }

    fn report_probe(&self, backend: &Backend, alive: bool) {
        self.0
            .with(|pool, now| pool.report_probe(backend.0.reference, alive, now));
    }

    fn tick(&self) {
        self.0.with(router_core::pool::Pool::tick);
    }

    fn backends(&self) -> Vec<Backend> {
        self.0
            .with(|pool, _| pool.backends().map(|info| Backend(Arc::clone(info))).collect())
    }

    fn statistics(&self) -> PoolStatistics {
        PoolStatistics {
            name: self.0.name().to_owned(),
            snapshot: self.0.with(|pool, _| pool.statistics()),
        }
    }

    fn take_events(&self) -> (Vec<String>, u64) {
        let (events, dropped) = self.0.with(|pool, _| pool.take_events());
        (events.iter().map(ToString::to_string).collect(), dropped)
    }

    fn __repr__(&self) -> String {
        let snapshot = self.0.with(|pool, _| pool.statistics());
        format!(
            "Pool(name={:?}, backends={}, outstanding={}, sessions={})",
            self.0.name(),
            snapshot.backends.len(),
            snapshot.outstanding,
            snapshot.sessions
        )
    }
}

/// Normalises an engine address.
#[pyfunction]
pub(crate) fn normalize_address(py: Python<'_>, text: &str) -> PyResult<(String, String)> {
    let address = Address::parse(text).map_err(|error| errors::from_core(py, &error))?;
    Ok((address.authority().to_owned(), address.url()))
}
