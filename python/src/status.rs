//! How owners, updates and senders stand: frozen answers.

use std::collections::BTreeMap;

use pyo3::prelude::*;
use router_core::fence::OwnerStatus as CoreOwner;
use router_core::sender::{Attached as CoreAttached, SenderStatus as CoreSender};
use router_core::update::UpdateStatus as CoreUpdate;

/// How an owner stands.
#[pyclass(frozen, get_all, module = "trimtab._core")]
#[derive(Clone)]
pub(crate) struct OwnerStatus {
    owner: String,
    fences: Vec<String>,
    acknowledged: Option<u64>,
    needs_acknowledgement: bool,
    parked: u32,
    outstanding: u32,
    per_backend: BTreeMap<String, u32>,
}

impl From<&CoreOwner> for OwnerStatus {
    fn from(status: &CoreOwner) -> Self {
        Self {
            owner: status.owner.clone(),
            fences: status.fences.clone(),
            acknowledged: status.acknowledged,
            needs_acknowledgement: status.needs_acknowledgement,
            parked: status.parked,
            outstanding: status.outstanding,
            // Two incarnations of one id may hold leases at once: their sum is what the owner waits for.
            per_backend: status
                .per_backend
                .iter()
                .fold(BTreeMap::new(), |mut sums, (backend, count)| {
                    *sums.entry(backend.id.clone()).or_insert(0) += count;
                    sums
                }),
        }
    }
}

#[pymethods]
impl OwnerStatus {
    fn __repr__(&self) -> String {
        format!(
            "OwnerStatus(owner={:?}, fences={:?}, acknowledged={:?}, outstanding={}, parked={})",
            self.owner, self.fences, self.acknowledged, self.outstanding, self.parked
        )
    }
}

/// How an update stands.
#[pyclass(frozen, get_all, module = "trimtab._core")]
#[derive(Clone)]
pub(crate) struct UpdateStatus {
    id: String,
    kind: &'static str,
    to_version: Option<u64>,
    phase: &'static str,
    server_paused: bool,
    outstanding: u32,
    version: Option<u64>,
    epoch: Option<u64>,
    replayed: bool,
}

impl From<&CoreUpdate> for UpdateStatus {
    fn from(status: &CoreUpdate) -> Self {
        Self {
            id: status.id.clone(),
            kind: status.kind.as_str(),
            to_version: status.to_version,
            phase: status.phase.as_str(),
            server_paused: status.server_paused,
            outstanding: status.outstanding,
            version: status.published.map(|published| published.version),
            epoch: status.published.map(|published| published.epoch),
            replayed: status.replayed,
        }
    }
}

#[pymethods]
impl UpdateStatus {
    fn __repr__(&self) -> String {
        format!(
            "UpdateStatus(id={:?}, kind={:?}, phase={:?}, outstanding={}, version={:?})",
            self.id, self.kind, self.phase, self.outstanding, self.version
        )
    }
}

/// How a sender stands.
#[pyclass(frozen, get_all, module = "trimtab._core")]
#[derive(Clone)]
pub(crate) struct SenderStatus {
    sender: String,
    incarnation: String,
    owner: String,
    held: u32,
    tombstones: u32,
    settled: Vec<(u64, u64)>,
    silent_s: f64,
}

impl From<&CoreSender> for SenderStatus {
    fn from(status: &CoreSender) -> Self {
        Self {
            sender: status.sender.clone(),
            incarnation: status.incarnation.clone(),
            owner: status.owner.clone(),
            held: status.held,
            tombstones: status.tombstones,
            settled: status.settled.clone(),
            silent_s: status.silent.as_secs_f64(),
        }
    }
}

#[pymethods]
impl SenderStatus {
    fn __repr__(&self) -> String {
        format!(
            "SenderStatus(sender={:?}, incarnation={:?}, owner={:?}, held={}, tombstones={})",
            self.sender, self.incarnation, self.owner, self.held, self.tombstones
        )
    }
}

/// The answer to a sender that introduces itself.
#[pyclass(frozen, get_all, module = "trimtab._core")]
pub(crate) struct Attached {
    weight_version: Option<u64>,
    ttl_s: f64,
    already: bool,
}

impl From<&CoreAttached> for Attached {
    fn from(attached: &CoreAttached) -> Self {
        Self {
            weight_version: attached.published.map(|published| published.version),
            ttl_s: attached.ttl.as_secs_f64(),
            already: attached.already,
        }
    }
}
