//! Long polls: look, and look again after each change, until there is something to say or the time is up.
//!
//! Each poll waits on the pool's revision and on one timer of tokio's wheel; nothing scans those who wait. A data plane
//! that shuts down answers its polls at once: the caller asks again, somewhere else.

use super::{ApiPool, LeaseApi};
use crate::server::Phase;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;
use tokio::time::Instant;

/// The longest wait of one call; a client asks again with the same key.
pub(super) const MAX_WAIT: Duration = Duration::from_secs(30);

/// Why a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    /// One of the pools has changed.
    Changed,
    TimeIsUp,
    /// The data plane no longer serves.
    Leaving,
}

impl LeaseApi {
    /// Ready once the data plane no longer serves.
    pub(super) async fn leaving(&self) {
        let mut phase = self.phase.clone();
        // An error is the end of the data plane.
        let _ = phase.wait_for(|phase| *phase != Phase::Serving).await;
    }

    /// Ready at `deadline`, or when the data plane no longer serves.
    pub(crate) async fn time_is_up(&self, deadline: Instant) {
        tokio::select! {
            () = tokio::time::sleep_until(deadline) => {}
            () = self.leaving() => {}
        }
    }
}

/// Receives the changes of some pools. Made before the first look, so that no change falls in between.
pub(super) struct Changes(Vec<tokio::sync::watch::Receiver<u64>>);

impl Changes {
    pub(super) fn of<'a>(pools: impl Iterator<Item = &'a ApiPool>) -> Self {
        Self(pools.map(|pool| pool.shared.subscribe()).collect())
    }

    /// Waits until one of the pools has changed since the last call, but not beyond `deadline`.
    pub(super) async fn next(&mut self, api: &LeaseApi, deadline: Instant) -> Ended {
        let mut changes: Vec<Pin<Box<_>>> = self.0.iter_mut().map(|receiver| Box::pin(receiver.changed())).collect();
        let any = poll_fn(|cx| {
            let any_is_ready = changes.iter_mut().any(|change| change.as_mut().poll(cx).is_ready());
            if any_is_ready { Poll::Ready(()) } else { Poll::Pending }
        });
        tokio::select! {
            biased;
            () = any => Ended::Changed,
            () = tokio::time::sleep_until(deadline) => Ended::TimeIsUp,
            () = api.leaving() => Ended::Leaving,
        }
    }
}
