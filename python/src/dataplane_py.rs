//! `DataPlane` and `Role`.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use dataplane::{Config, DataPlaneStatistics, Genrm, Limits, ListenerTls, RoleConfig, StartError, Timeouts};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyMapping};

use crate::address_rules::AddressRules;
use crate::errors;
use crate::histogram::Histogram;
use crate::pool::Pool;
use crate::routing;

/// What is served under one path prefix.
#[pyclass(frozen, module = "trimtab._core")]
pub(crate) struct Role(RoleConfig);

#[pymethods]
impl Role {
    #[new]
    #[pyo3(signature = (
        name, models, *, default_model = None, lenient_model = false, route_keys = None, router_urls = None,
        session_fields = None, genrm = None,
    ))]
    #[expect(clippy::too_many_arguments, reason = "the keyword arguments of a Python class")]
    fn new(
        name: String,
        models: &Bound<'_, PyMapping>,
        default_model: Option<String>,
        lenient_model: bool,
        route_keys: Option<&Bound<'_, PyMapping>>,
        router_urls: Option<&Bound<'_, PyMapping>>,
        session_fields: Option<Vec<String>>,
        genrm: Option<HashMap<String, (String, Option<String>)>>,
    ) -> PyResult<Self> {
        let py = models.py();
        let mut pools = Vec::with_capacity(models.len()?);
        for item in models.items()? {
            let (model, pool): (String, PyRef<'_, Pool>) = item.extract()?;
            pools.push((model, Arc::clone(&pool.0)));
        }
        let mut judges = Vec::new();
        for (model, (defaults, kwargs)) in genrm.unwrap_or_default() {
            let judge =
                Genrm::new(&defaults, kwargs.as_deref()).map_err(|message| errors::invalid_request(py, &message))?;
            judges.push((model, Arc::new(judge)));
        }
        let role = RoleConfig {
            name,
            models: pools,
            genrm: judges,
            default_model,
            lenient_model,
            route_keys: routing::pairs(route_keys)?,
            router_urls: routing::pairs(router_urls)?,
            session_fields: routing::fields(py, session_fields)?,
        };
        match role.routing() {
            Ok(_) => Ok(Self(role)),
            Err(message) => Err(errors::invalid_request(py, &message)),
        }
    }

    #[getter]
    fn name(&self) -> &str {
        &self.0.name
    }
}

/// The running data plane.
#[pyclass(frozen, module = "trimtab._core")]
pub(crate) struct DataPlane {
    inner: dataplane::DataPlane,
    address: SocketAddr,
}

#[pymethods]
impl DataPlane {
    #[staticmethod]
    #[pyo3(signature = (
        *, roles, host = "127.0.0.1", port = 0, control_socket = None, worker_threads = 2,
        max_body_bytes = 536_870_912, connect_timeout_s = 5.0, first_byte_timeout_s = None, idle_timeout_s = None,
        total_timeout_s = None, engine_keepalive_s = 4.0, abort_grace_s = 2.0, probe_interval_s = 1.0,
        probe_timeout_s = 5.0, client_key = None, admin_key = None, engine_key = None, metrics_need_key = false,
        tls_cert = None, tls_key = None, engine_ca = None, max_clients = None, min_ready = None, lease_socket = None,
        traces = false,
        address_rules = None,
    ))]
    #[expect(clippy::too_many_arguments, reason = "the keyword arguments of a Python function")]
    fn start(
        py: Python<'_>,
        roles: Vec<PyRef<'_, Role>>,
        host: &str,
        port: u16,
        control_socket: Option<std::path::PathBuf>,
        worker_threads: usize,
        max_body_bytes: u64,
        connect_timeout_s: f64,
        first_byte_timeout_s: Option<f64>,
        idle_timeout_s: Option<f64>,
        total_timeout_s: Option<f64>,
        engine_keepalive_s: f64,
        abort_grace_s: f64,
        probe_interval_s: f64,
        probe_timeout_s: f64,
        client_key: Option<String>,
        admin_key: Option<String>,
        engine_key: Option<String>,
        metrics_need_key: bool,
        tls_cert: Option<std::path::PathBuf>,
        tls_key: Option<std::path::PathBuf>,
        engine_ca: Option<std::path::PathBuf>,
        max_clients: Option<u64>,
        min_ready: Option<HashMap<String, u32>>,
        lease_socket: Option<std::path::PathBuf>,
        traces: bool,
        address_rules: Option<PyRef<'_, AddressRules>>,
    ) -> PyResult<Self> {
        let seconds = |name: &str, value: f64| errors::seconds(py, name, value);
        let optional = |name: &str, value: Option<f64>| value.map(|value| seconds(name, value)).transpose();
        if worker_threads == 0 {
            return Err(errors::invalid_request(
                py,
                "worker_threads is 0: it must be at least 1",
            ));
        }
        if max_body_bytes == 0 {
            return Err(errors::invalid_request(
                py,
                "max_body_bytes is 0: it must be at least 1",
            ));
        }
        let tls = match (tls_cert, tls_key) {
            (Some(cert), Some(key)) => Some(ListenerTls { cert, key }),
            (None, None) => None,
            _ => return Err(errors::invalid_request(py, "tls_cert and tls_key go together")),
        };
        let config = Config {
            host: host.to_owned(),
            port,
            roles: roles.into_iter().map(|role| role.0.clone()).collect(),
            control_socket,
            client_key,
            metrics_need_key,
            lease_socket,
            traces,
            admin_key,
            engine_key,
            tls,
            engine_ca,
            min_ready: min_ready.unwrap_or_default(),
            address_rules: address_rules.map(|rules| rules.0.clone()).unwrap_or_default(),
            worker_threads,
            limits: Limits {
                max_body_bytes,
                max_clients,
                ..Limits::default()
            },
            timeouts: Timeouts {
                connect: seconds("connect_timeout_s", connect_timeout_s)?,
                first_byte: optional("first_byte_timeout_s", first_byte_timeout_s)?,
                idle: optional("idle_timeout_s", idle_timeout_s)?,
                total: optional("total_timeout_s", total_timeout_s)?,
                engine_keepalive: seconds("engine_keepalive_s", engine_keepalive_s)?,
                abort_grace: seconds("abort_grace_s", abort_grace_s)?,
                probe_interval: seconds("probe_interval_s", probe_interval_s)?,
                probe_timeout: seconds("probe_timeout_s", probe_timeout_s)?,
                ..Timeouts::default()
            },
        };
        let inner = py
            .detach(|| dataplane::start(config))
            .map_err(|error| errors::raise(py, class_of(&error), &error.to_string()))?;
        let address = inner.local_addr();
        Ok(Self { inner, address })
    }

    #[getter]
    fn host(&self) -> String {
        self.address.ip().to_string()
    }

    #[getter]
    fn port(&self) -> u16 {
        self.address.port()
    }

    fn statistics<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        to_dict(py, &self.inner.statistics())
    }

    fn take_traces<'py>(&self, py: Python<'py>) -> PyResult<(Vec<Bound<'py, PyDict>>, u64)> {
        let (finished, dropped) = self.inner.take_traces();
        let to_dict = |trace: dataplane::FinishedTrace| {
            let dict = PyDict::new(py);
            let since_epoch = trace.ended.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
            dict.set_item("traceparent", trace.traceparent)?;
            dict.set_item("tracestate", trace.tracestate)?;
            dict.set_item("pool", trace.pool)?;
            dict.set_item("backend", trace.backend)?;
            dict.set_item("lease", trace.lease)?;
            dict.set_item("session", trace.session)?;
            dict.set_item("weight_version", trace.weight_version)?;
            dict.set_item("outcome", trace.outcome.as_str())?;
            dict.set_item("status", trace.status)?;
            dict.set_item("ended_ns", u64::try_from(since_epoch.as_nanos()).unwrap_or(u64::MAX))?;
            dict.set_item("queue_s", trace.queue.as_secs_f64())?;
            dict.set_item("first_byte_s", trace.first_byte.map(|duration| duration.as_secs_f64()))?;
            dict.set_item("total_s", trace.total.as_secs_f64())?;
            Ok(dict)
        };
        let finished: PyResult<Vec<_>> = finished.into_iter().map(to_dict).collect();
        Ok((finished?, dropped))
    }

    fn loop_lag(&self) -> Histogram {
        Histogram(self.inner.loop_lag())
    }

    fn take_failures<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyDict>>> {
        let to_dict = |failure: dataplane::FailureSummary| {
            let dict = PyDict::new(py);
            dict.set_item("code", failure.code)?;
            dict.set_item("count", failure.count)?;
            dict.set_item("backend", failure.backend)?;
            dict.set_item("lease", failure.lease)?;
            dict.set_item("session", failure.session)?;
            dict.set_item("message", failure.message)?;
            Ok(dict)
        };
        self.inner.take_failures().into_iter().map(to_dict).collect()
    }

    fn take_version_mismatches<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyDict>>> {
        let mismatches = self.inner.take_version_mismatches().into_iter();
        mismatches
            .map(|mismatch| {
                let dict = PyDict::new(py);
                dict.set_item("pool", mismatch.pool)?;
                dict.set_item("backend", mismatch.backend)?;
                dict.set_item("expected", mismatch.expected)?;
                dict.set_item("observed", mismatch.observed)?;
                dict.set_item("lease", mismatch.lease)?;
                dict.set_item("count", mismatch.count)?;
                Ok(dict)
            })
            .collect()
    }

    fn engine_notes<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyDict>>> {
        let to_dict = |note: dataplane::EngineNote| {
            let dict = PyDict::new(py);
            dict.set_item("pool", note.pool)?;
            dict.set_item("backend", note.backend)?;
            dict.set_item("note", note.note)?;
            Ok(dict)
        };
        self.inner.engine_notes().into_iter().map(to_dict).collect()
    }

    #[pyo3(signature = (grace_s = 5.0))]
    fn shutdown(&self, py: Python<'_>, grace_s: f64) -> PyResult<()> {
        let grace = Duration::try_from_secs_f64(grace_s)
            .map_err(|_| errors::invalid_request(py, &format!("grace_s is {grace_s}: it must not be negative")))?;
        py.detach(|| self.inner.shutdown(grace));
        Ok(())
    }
}

/// A contradiction in the configuration is the caller's mistake; the rest is about this machine.
fn class_of(error: &StartError) -> &'static str {
    match error {
        StartError::InvalidConfig { .. } => "InvalidRequest",
        _ => "StartError",
    }
}

fn to_dict<'py>(py: Python<'py>, statistics: &DataPlaneStatistics) -> PyResult<Bound<'py, PyDict>> {
    let requests = PyDict::new(py);
    for (code, count) in &statistics.requests_total {
        requests.set_item(code, count)?;
    }
    let dict = PyDict::new(py);
    dict.set_item("requests_total", requests)?;
    for (name, value) in [
        ("open_requests", statistics.open_requests),
        ("open_streams", statistics.open_streams),
        ("connections", statistics.connections),
        ("connections_total", statistics.connections_total),
        ("turned_away_total", statistics.turned_away_total),
        ("accept_errors_total", statistics.accept_errors_total),
        ("upstream_connections", statistics.upstream_connections),
        ("upstream_idle", statistics.upstream_idle),
        ("upstream_connections_total", statistics.upstream_connections_total),
        ("upstream_reused_total", statistics.upstream_reused_total),
        ("retries_total", statistics.retries_total),
        ("client_gone_total", statistics.client_gone_total),
        ("aborts_sent_total", statistics.aborts_sent_total),
        ("aborts_confirmed_total", statistics.aborts_confirmed_total),
        ("broken_streams_total", statistics.broken_streams_total),
        ("probes_total", statistics.probes_total),
        ("probe_failures_total", statistics.probe_failures_total),
    ] {
        dict.set_item(name, value)?;
    }
    Ok(dict)
}
