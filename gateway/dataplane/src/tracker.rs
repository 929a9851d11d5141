//! Counts the tasks that shutdown must wait for.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use tokio::sync::Notify;

/// How many client connections and aborts are still running.
#[derive(Default)]
pub(crate) struct Tracker {
    open: AtomicUsize,
    none_left: Notify,
}

/// One running task; dropping it (also by a panic) ends it.
pub(crate) struct Token(Arc<Tracker>);

impl Tracker {
    pub(crate) fn enter(self: &Arc<Self>) -> Token {
        self.open.fetch_add(1, SeqCst);
        Token(Arc::clone(self))
    }

    /// Waits until no task is running.
    pub(crate) async fn idle(&self) {
        loop {
            let none_left = self.none_left.notified();
            let mut none_left = std::pin::pin!(none_left);
            // Registered before the count is read, so that the last task's notification cannot fall in between.
            none_left.as_mut().enable();
            if self.open.load(SeqCst) == 0 {
                return;
            }
            none_left.await;
        }
    }
}

impl Drop for Token {
    fn drop(&mut self) {
        if self.0.open.fetch_sub(1, SeqCst) == 1 {
            self.0.none_left.notify_waiters();
        }
    }
}
