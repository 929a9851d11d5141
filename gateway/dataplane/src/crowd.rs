//! More clients than descriptors: who is let in, and how the others are told.
//!
//! Each client that is served needs two descriptors, its own and one to an engine. A listener that takes whatever comes
//! spends the last descriptor on a client, and then nobody whom it has let in can be served. So only as many are let in
//! as leave room for the engines' side. A few of those over that are taken in turn, get an answer (503, or the truth
//! about `/live` and `/ready`) and the end of the connection; the rest wait in the kernel's queue for their turn.
//!
//! While it is full, connections are given up by those who have them: idle ones at once, the others with the end of
//! their answer. Without that, clients that keep theirs open would lock out everybody else for good.

use crate::plane::Plane;
use crate::server::Phase;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::Instant;

/// How many are turned away at a time; each needs a descriptor.
pub(crate) const AT_THE_DOOR: usize = 16;
/// How long one may take to be turned away.
pub(crate) const LONGEST_REFUSAL: Duration = Duration::from_secs(2);
/// Pause between two calls to give up connections.
const RELIEF: Duration = Duration::from_secs(1);

/// The door of a listener.
pub(crate) struct Crowd {
    limit: Option<u64>,
    door: Arc<Semaphore>,
    phase: watch::Sender<Phase>,
    relieved: Option<Instant>,
}

impl Crowd {
    pub(crate) fn new(limit: Option<u64>, phase: watch::Sender<Phase>) -> Self {
        Self {
            limit,
            door: Arc::new(Semaphore::new(AT_THE_DOOR)),
            phase,
            relieved: None,
        }
    }

    fn is_full(&self, plane: &Plane) -> bool {
        self.limit
            .is_some_and(|limit| plane.counters.connections.load(Relaxed) >= limit)
    }

    /// Before the next client is accepted. `Some` when it has to be turned away, once there is a place for that; `None`
    /// when it is let in.
    pub(crate) async fn place_at_the_door(&mut self, plane: &Plane) -> Option<OwnedSemaphorePermit> {
        if !self.is_full(plane) {
            return None;
        }
        let place = Arc::clone(&self.door).acquire_owned().await.ok();
        // Somebody may have left meanwhile.
        place.filter(|_| self.is_full(plane))
    }

    /// Somebody was turned away: calls for relief, from time to time.
    pub(crate) fn call_for_relief(&mut self) {
        let now = Instant::now();
        if self.relieved.is_none_or(|last| now.duration_since(last) >= RELIEF) {
            self.relieved = Some(now);
            // The same phase again is the call; see `serve`.
            self.phase.send_if_modified(|phase| *phase == Phase::Serving);
        }
    }
}
