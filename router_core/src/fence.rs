//! Owners: groups of senders that are fenced, and told versions, together.
//!
//! A training step stops the trainer's own traffic, evaluates, and starts it again, so a fence belongs to one *owner*
//! and is a set of reasons: a controller that pauses twice and resumes once means to be open. Requests that come
//! without a sender (the gateway's proxying, a library user without a controller) belong to the owner called
//! [`DEFAULT_OWNER`], which needs no acknowledgement.

use crate::membership::BackendInfo;
use std::sync::Arc;

/// The owner of requests that name no sender.
pub const DEFAULT_OWNER: &str = "default";

/// The longest name of an owner, a sender, an update or a reason, in bytes.
pub const MAX_NAME_BYTES: usize = 256;

/// Owners per pool at most.
pub const MAX_OWNERS: usize = 1024;

/// How an owner stands: the answer to attaching, acknowledging, fencing and unfencing it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnerStatus {
    /// Its name.
    pub owner: String,
    /// The reasons for which it is fenced, sorted; none means open.
    pub fences: Vec<String>,
    /// The version its processes know, in the current epoch.
    pub acknowledged: Option<u64>,
    /// Whether it must acknowledge the published version before anything is granted to it.
    pub needs_acknowledgement: bool,
    /// Its acquires that are parked.
    pub parked: u32,
    /// Its open leases.
    pub outstanding: u32,
    /// Its open leases per backend; backends without any are left out.
    pub per_backend: Vec<(Arc<BackendInfo>, u32)>,
}

mod owners;

pub(crate) use owners::{DEFAULT, Owners, check_name};
