//! `Pool`: thread-safe, one critical section a call.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::Duration;

use dataplane::shared::{LeaseGuard, SharedPool};
use dataplane::{ParkedCall, RequestPhase};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedStr;
use pyo3::types::PyString;
use router_core::address::Address;
use router_core::config::{OnAmbiguous, OnDrainTimeout, OnUnhealthy, Recovery, Start};
use router_core::error::Error;
use router_core::load::LoadSignal;
use router_core::membership::{BackendRef, BackendSpec};
use router_core::pool::{AcquireRequest, PoolConfig};
use router_core::sender::{Attach, RequestKey};
use router_core::time::Timestamp;
use router_core::update::{BeginUpdate, UpdateKind};
use router_core::waiters::Acquisition;

use crate::clock::VirtualClock;
use crate::errors;
use crate::lease::{Backend, Lease};
use crate::parked::{Acquired, ParkedAcquire};
use crate::poison::PoisonEntry;
use crate::stats::PoolStatistics;
use crate::status::{Attached, OwnerStatus, SenderStatus, UpdateStatus};

/// The routing state of one (role, model).
#[pyclass(frozen, module = "trimtab._core")]
pub(crate) struct Pool(pub(crate) Arc<SharedPool>);

type CorePool = router_core::pool::Pool;

impl Pool {
    /// One critical section, with the core's refusal as the typed exception.
    fn run<R>(
        &self,
        py: Python<'_>,
        operation: impl FnOnce(&mut CorePool, Timestamp) -> Result<R, Error>,
    ) -> PyResult<R> {
        self.0.with(operation).map_err(|error| errors::from_core(py, &error))
    }
}

/// What an idle session counts with `load = "sessions"`, in millionths of an execution.
const HALF: u32 = 500_000;

#[pymethods]
impl Pool {
    #[new]
    #[pyo3(signature = (
        name = "default/default", *, session_ttl_s = 3600.0, session_cap = 1_000_000, max_concurrent = None,
        queue_size = None, queue_timeout_s = None,
        await_version = false, on_ambiguous = "settle", on_drain_timeout = "fail", sender_ttl_s = 120.0,
        recovery = "adopt", unhealthy_budget_s = None, on_unhealthy = "exclude", load = "outstanding", spill = true,
        rebind_on_publish = false, ramp_s = None, poison_deaths = 2, poison_quarantine_s = 600.0, clock = None,
    ))]
    #[expect(clippy::too_many_arguments, reason = "the keyword arguments of a Python class")]
    fn new(
        py: Python<'_>,
        name: &str,
        session_ttl_s: f64,
        session_cap: i64,
        max_concurrent: Option<i64>,
        queue_size: Option<i64>,
        queue_timeout_s: Option<f64>,
        await_version: bool,
        on_ambiguous: &str,
        on_drain_timeout: &str,
        sender_ttl_s: f64,
        recovery: &str,
        unhealthy_budget_s: Option<f64>,
        on_unhealthy: &str,
        load: &str,
        spill: bool,
        rebind_on_publish: bool,
        ramp_s: Option<f64>,
        poison_deaths: i64,
        poison_quarantine_s: f64,
        clock: Option<&VirtualClock>,
    ) -> PyResult<Self> {
        let defaults = PoolConfig::default();
        let config = PoolConfig {
            session_ttl: errors::seconds(py, "session_ttl_s", session_ttl_s)?,
            session_cap: errors::count(py, "session_cap", session_cap)? as usize,
            max_outstanding: max_concurrent
                .map(|limit| errors::count(py, "max_concurrent", limit))
                .transpose()?,
            queue_size: match queue_size {
                Some(0) => 0,
                Some(size) => errors::count(py, "queue_size", size)?,
                None => defaults.queue_size,
            },
            queue_timeout: queue_timeout_s
                .map(|patience| errors::seconds(py, "queue_timeout_s", patience))
                .transpose()?,
            // Session keys come from clients: an unpredictable seed keeps them from piling up in one bucket.
            hash_seed: RandomState::new().hash_one(0_u8),
            // Whoever outlived an earlier router may still settle its leases, and must not hit one of this.
            lease_seed: RandomState::new().hash_one(0_u8),
            start: if await_version {
                Start::AwaitVersion
            } else {
                Start::Serving
            },
            on_ambiguous: choice(
                py,
                "on_ambiguous",
                on_ambiguous,
                &[
                    ("settle", OnAmbiguous::Settle),
                    ("resolve", OnAmbiguous::Resolve),
                    ("fail_pool", OnAmbiguous::FailPool),
                ],
            )?,
            on_drain_timeout: choice(
                py,
                "on_drain_timeout",
                on_drain_timeout,
                &[("fail", OnDrainTimeout::Fail), ("report", OnDrainTimeout::Report)],
            )?,
            sender_ttl: errors::seconds(py, "sender_ttl_s", sender_ttl_s)?,
            recovery: choice(
                py,
                "recovery",
                recovery,
                &[("adopt", Recovery::Adopt), ("restart", Recovery::Restart)],
            )?,
            unhealthy_budget: unhealthy_budget_s
                .map(|budget| errors::seconds(py, "unhealthy_budget_s", budget))
                .transpose()?,
            on_unhealthy: choice(
                py,
                "on_unhealthy",
                on_unhealthy,
                &[("exclude", OnUnhealthy::Exclude), ("fail_pool", OnUnhealthy::FailPool)],
            )?,
            load: choice(
                py,
                "load",
                load,
                &[
                    ("outstanding", LoadSignal::Outstanding),
                    ("plain", LoadSignal::Plain),
                    ("sessions", LoadSignal::OutstandingAndSessions { millionths: HALF }),
                ],
            )?,
            spill: defaults.spill.filter(|_| spill),
            rebind_on_publish,
            ramp: ramp_s.map(|ramp| errors::seconds(py, "ramp_s", ramp)).transpose()?,
            poison_deaths: match poison_deaths {
                0 => 0,
                deaths => errors::count(py, "poison_deaths", deaths)?,
            },
            poison_quarantine: errors::seconds(py, "poison_quarantine_s", poison_quarantine_s)?,
            ..defaults
        };
        Ok(Self(match clock {
            None => SharedPool::new(name, config),
            Some(clock) => clock.pool(name, config),
        }))
    }

    #[getter]
    fn name(&self) -> &str {
        self.0.name()
    }

    #[getter]
    fn managed(&self) -> bool {
        self.0.is_managed()
    }

    #[setter]
    fn set_managed(&self, managed: bool) {
        self.0.set_managed(managed);
    }

    #[pyo3(signature = (address, capacity = 1.0, *, id = None, proven = true, weight_version = None))]
    fn add_backend(
        &self,
        py: Python<'_>,
        address: &str,
        capacity: f64,
        id: Option<String>,
        proven: bool,
        weight_version: Option<u64>,
    ) -> PyResult<Backend> {
        let add = || {
            let mut spec = BackendSpec::parse(address, capacity)?;
            spec.id = id;
            spec.proven = proven;
            spec.weight_version = weight_version;
            self.0.with(|pool, now| pool.add_backend(spec, now))
        };
        add().map(Backend).map_err(|error| errors::from_core(py, &error))
    }

    fn drain_backend(&self, py: Python<'_>, id: &str) -> PyResult<u32> {
        self.0
            .with(|pool, now| pool.drain_backend(id, now))
            .map_err(|error| errors::from_core(py, &error))
    }

    fn resume_backend(&self, py: Python<'_>, id: &str) -> PyResult<()> {
        self.run(py, |pool, now| pool.resume_backend(id, now))
    }

    fn retire_backend(&self, py: Python<'_>, backend: &Backend) -> PyResult<bool> {
        let info = &backend.0;
        let generation = Some(info.reference.generation());
        match self.0.with(|pool, now| pool.retire_backend(&info.id, generation, now)) {
            Ok(()) | Err(Error::UnknownBackend { .. }) => Ok(true),
            Err(Error::BackendBusy { .. }) => Ok(false),
            Err(error) => Err(errors::from_core(py, &error)),
        }
    }

    fn remove_backend(&self, py: Python<'_>, id: &str) -> PyResult<u32> {
        self.0
            .with(|pool, now| pool.remove_backend(id, now))
            .map_err(|error| errors::from_core(py, &error))
    }

    fn unresolved(&self) -> Vec<(String, Backend)> {
        let open = self.0.with(|pool, _| pool.unresolved());
        open.into_iter()
            .map(|open| (open.lease.to_string(), Backend(open.backend)))
            .collect()
    }

    fn settle_lost(&self, py: Python<'_>, lease_id: &str) -> PyResult<()> {
        let settle = || self.0.settle_lost(lease_id.parse()?);
        settle().map(|_| ()).map_err(|error| errors::from_core(py, &error))
    }

    #[pyo3(signature = (session = None, *, exclude = Vec::new(), key = None, expect_version = None))]
    fn acquire(
        &self,
        py: Python<'_>,
        session: Option<&Bound<'_, PyString>>,
        exclude: Vec<PyRef<'_, Backend>>,
        key: Option<Key>,
        expect_version: Option<u64>,
    ) -> PyResult<Lease> {
        let wanted = Wanted::new(session, exclude, key, expect_version);
        let guard = self
            .0
            .acquire(&wanted.request(py)?)
            .map_err(|error| errors::from_core(py, &error))?;
        Ok(Lease::new(guard, wanted.session))
    }

    #[pyo3(signature = (session = None, *, wait_s, exclude = Vec::new(), key = None, expect_version = None))]
    fn acquire_or_park(
        &self,
        py: Python<'_>,
        session: Option<&Bound<'_, PyString>>,
        wait_s: f64,
        exclude: Vec<PyRef<'_, Backend>>,
        key: Option<Key>,
        expect_version: Option<u64>,
    ) -> PyResult<Acquired> {
        let wait = not_negative(py, "wait_s", wait_s)?;
        let wanted = Wanted::new(session, exclude, key, expect_version);
        let request = wanted.request(py)?;
        let acquisition = self.run(py, |pool, now| pool.acquire_or_park(&request, now.after(wait), now))?;
        let shared = Arc::clone(&self.0);
        Ok(match acquisition {
            Acquisition::Granted(grant) => Acquired::Lease(Lease::new(LeaseGuard::new(shared, grant), wanted.session)),
            Acquisition::Parked(parked) => {
                let call = ParkedCall::new(Arc::clone(&shared), parked);
                Acquired::Parked(ParkedAcquire::new(shared, call, wanted.session))
            }
        })
    }

    fn close_session(&self, session: &str) -> (bool, u32) {
        let closed = self.0.with(|pool, now| pool.close_session(session, now));
        (closed.known, closed.open_leases)
    }

    fn report_probe(&self, backend: &Backend, alive: bool) {
        self.0
            .with(|pool, now| pool.report_probe(backend.0.reference, alive, now));
    }

    fn report_death(&self, backend: &Backend, evidence: &str) -> bool {
        self.0
            .with(|pool, now| pool.report_death(backend.0.reference, evidence, now))
    }

    fn poison_entries(&self) -> Vec<PoisonEntry> {
        let (entries, now) = self.0.with(|pool, now| (pool.poison_entries(now), now));
        entries.into_iter().map(|entry| PoisonEntry { entry, now }).collect()
    }

    #[pyo3(signature = (entry = None))]
    fn clear_poison(&self, entry: Option<&str>) -> usize {
        let id = entry.map(|name| u64::from_str_radix(name, 16).ok().filter(|_| name.len() == 16));
        match id {
            // Not as an entry is written, so it is the name of none.
            Some(None) => 0,
            id => self.0.with(|pool, now| pool.clear_poison(id.flatten(), now)),
        }
    }

    fn tick(&self) {
        self.0.with(CorePool::tick);
    }

    fn backends(&self) -> Vec<Backend> {
        self.0
            .with(|pool, _| pool.backends().map(|info| Backend(Arc::clone(info))).collect())
    }

    #[getter]
    fn revision(&self) -> u64 {
        self.0.with(|pool, _| pool.revision())
    }

    fn statistics(&self) -> PoolStatistics {
        PoolStatistics {
            version_mismatches: self.0.version_mismatches(),
            request_seconds: RequestPhase::ALL.map(|phase| self.0.request_seconds(phase)),
            name: self.0.name().to_owned(),
            snapshot: self.0.with(|pool, _| pool.statistics()),
        }
    }

    fn take_events(&self) -> (Vec<String>, u64) {
        let (events, dropped) = self.0.with(|pool, _| pool.take_events());
        (events.iter().map(ToString::to_string).collect(), dropped)
    }

    #[getter]
    fn state(&self) -> &'static str {
        self.0.with(|pool, _| pool.state().as_str())
    }

    #[getter]
    fn weight_version(&self) -> Option<u64> {
        self.0
            .with(|pool, _| pool.published().map(|published| published.version))
    }

    #[pyo3(signature = (backend, version, *, reloaded = false))]
    fn report_weights(&self, backend: &Backend, version: u64, reloaded: bool) -> bool {
        self.0
            .with(|pool, now| pool.report_weights(backend.0.reference, version, reloaded, now))
    }

    fn taint_backend(&self, backend: &Backend) -> bool {
        self.0.with(|pool, now| pool.taint_backend(backend.0.reference, now))
    }

    #[pyo3(signature = (owner, version = None))]
    fn attach_owner(&self, py: Python<'_>, owner: &str, version: Option<u64>) -> PyResult<OwnerStatus> {
        let status = self.run(py, |pool, now| pool.attach_owner(owner, version, now))?;
        Ok(OwnerStatus::from(&status))
    }

    fn ack(&self, py: Python<'_>, owner: &str, version: u64) -> PyResult<OwnerStatus> {
        let status = self.run(py, |pool, now| pool.ack(owner, version, now))?;
        Ok(OwnerStatus::from(&status))
    }

    #[pyo3(signature = (owner, reason, *, op_id = None))]
    fn fence(&self, py: Python<'_>, owner: &str, reason: &str, op_id: Option<&str>) -> PyResult<OwnerStatus> {
        let status = self.run(py, |pool, now| pool.fence(owner, reason, op_id, now))?;
        Ok(OwnerStatus::from(&status))
    }

    #[pyo3(signature = (owner, reason, *, op_id = None))]
    fn unfence(&self, py: Python<'_>, owner: &str, reason: &str, op_id: Option<&str>) -> PyResult<OwnerStatus> {
        let status = self.run(py, |pool, now| pool.unfence(owner, reason, op_id, now))?;
        Ok(OwnerStatus::from(&status))
    }

    fn owner_status(&self, py: Python<'_>, owner: &str) -> PyResult<OwnerStatus> {
        let status = self.run(py, |pool, _| pool.owner_status(owner))?;
        Ok(OwnerStatus::from(&status))
    }

    fn attach_sender(&self, py: Python<'_>, sender: &str, incarnation: &str, owner: &str) -> PyResult<Attached> {
        let attached = self.run(py, |pool, now| {
            pool.attach_sender(&Attach::new(sender, incarnation, owner), now)
        })?;
        Ok(Attached::from(&attached))
    }

    #[pyo3(signature = (sender, incarnation, settled = Vec::new()))]
    fn heartbeat(
        &self,
        py: Python<'_>,
        sender: &str,
        incarnation: &str,
        settled: Vec<(u64, u64)>,
    ) -> PyResult<SenderStatus> {
        let status = self.run(py, move |pool, now| pool.heartbeat(sender, incarnation, &settled, now))?;
        Ok(SenderStatus::from(&status))
    }

    fn detach_sender(&self, py: Python<'_>, sender: &str, incarnation: &str) -> PyResult<()> {
        self.run(py, |pool, now| pool.detach_sender(sender, incarnation, now))
    }

    fn close_sender_session(&self, py: Python<'_>, sender: &str, session: &str) -> PyResult<(bool, u32)> {
        let closed = self.run(py, |pool, now| pool.close_sender_session(sender, session, now))?;
        Ok((closed.known, closed.open_leases))
    }

    #[pyo3(signature = (id, *, to = None, kind = "weights"))]
    fn begin_update(&self, py: Python<'_>, id: &str, to: Option<u64>, kind: &str) -> PyResult<UpdateStatus> {
        let kinds = UpdateKind::ALL.map(|kind| (kind.as_str(), kind));
        let begin = BeginUpdate {
            id,
            kind: choice(py, "kind", kind, &kinds)?,
            to_version: to,
        };
        let status = self.run(py, |pool, now| pool.begin_update(&begin, now))?;
        Ok(UpdateStatus::from(&status))
    }

    #[pyo3(signature = (id, *, timeout_s))]
    fn drain(&self, py: Python<'_>, id: &str, timeout_s: f64) -> PyResult<UpdateStatus> {
        let timeout = not_negative(py, "timeout_s", timeout_s)?;
        let status = self.run(py, |pool, now| pool.drain(id, now.after(timeout), now))?;
        Ok(UpdateStatus::from(&status))
    }

    fn end_server_pause(&self, py: Python<'_>, id: &str) -> PyResult<UpdateStatus> {
        let status = self.run(py, |pool, now| pool.end_server_pause(id, now))?;
        Ok(UpdateStatus::from(&status))
    }

    #[pyo3(signature = (id, version, *, epoch = None))]
    fn publish(&self, py: Python<'_>, id: &str, version: u64, epoch: Option<u64>) -> PyResult<UpdateStatus> {
        let status = self.run(py, |pool, now| pool.publish(id, version, epoch, now))?;
        Ok(UpdateStatus::from(&status))
    }

    fn cancel_update(&self, py: Python<'_>, id: &str) -> PyResult<UpdateStatus> {
        let status = self.run(py, |pool, now| pool.cancel_update(id, now))?;
        Ok(UpdateStatus::from(&status))
    }

    fn fail_update(&self, py: Python<'_>, id: &str, reason: &str) -> PyResult<UpdateStatus> {
        let status = self.run(py, |pool, now| pool.fail_update(id, reason, now))?;
        Ok(UpdateStatus::from(&status))
    }

    fn update_status(&self, py: Python<'_>, id: &str) -> PyResult<UpdateStatus> {
        let status = self.run(py, |pool, _| pool.update_status(id))?;
        Ok(UpdateStatus::from(&status))
    }

    fn fail(&self, reason: &str) {
        self.0.with(|pool, now| pool.fail(reason, now));
    }

    fn close(&self) {
        self.0.with(CorePool::close);
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

/// Sender, incarnation and number of a request.
type Key = (PyBackedStr, PyBackedStr, u64);

/// The arguments of an acquire, owned: what the core's request borrows from.
struct Wanted {
    session: Option<Py<PyString>>,
    exclude: Vec<BackendRef>,
    key: Option<Key>,
    expect_version: Option<u64>,
}

impl Wanted {
    fn new(
        session: Option<&Bound<'_, PyString>>,
        exclude: Vec<PyRef<'_, Backend>>,
        key: Option<Key>,
        expect_version: Option<u64>,
    ) -> Self {
        Self {
            session: session.map(|key| key.clone().unbind()),
            exclude: exclude.into_iter().map(|backend| backend.0.reference).collect(),
            key,
            expect_version,
        }
    }

    fn request<'a>(&'a self, py: Python<'a>) -> PyResult<AcquireRequest<'a>> {
        Ok(AcquireRequest {
            session: self.session.as_ref().map(|key| key.bind(py).to_str()).transpose()?,
            exclude: &self.exclude,
            key: self.key.as_ref().map(|(sender, incarnation, seq)| RequestKey {
                sender,
                incarnation,
                seq: *seq,
            }),
            expect_version: self.expect_version,
            fingerprint: None,
        })
    }
}

fn not_negative(py: Python<'_>, name: &str, seconds: f64) -> PyResult<Duration> {
    Duration::try_from_secs_f64(seconds)
        .map_err(|_| errors::invalid_request(py, &format!("{name} is {seconds}: it must not be negative")))
}

/// The value that a word stands for.
fn choice<T: Copy>(py: Python<'_>, what: &str, word: &str, known: &[(&str, T)]) -> PyResult<T> {
    known
        .iter()
        .find(|(name, _)| *name == word)
        .map(|(_, value)| *value)
        .ok_or_else(|| {
            let names: Vec<_> = known.iter().map(|(name, _)| *name).collect();
            errors::invalid_request(
                py,
                &format!("{what} {word:?} is unknown; known are {}", names.join(", ")),
            )
        })
}

/// Normalises an engine address.
#[pyfunction]
pub(crate) fn normalize_address(py: Python<'_>, text: &str) -> PyResult<(String, String)> {
    let address = Address::parse(text).map_err(|error| errors::from_core(py, &error))?;
    Ok((address.authority().to_owned(), address.url()))
}
