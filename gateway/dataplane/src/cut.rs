//! Ending an answer that will never be complete, so that the client can tell and loses nothing that came before.

use crate::client_io::ClientSignals;
use std::fmt;
use std::sync::Arc;
use std::task::Poll;

/// The answer's source broke: hyper ends the client's connection without the end of the message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cut;

impl fmt::Display for Cut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the source of the answer broke")
    }
}

impl std::error::Error for Cut {}

/// Delays the [`Cut`] until everything handed to hyper has been written: at an error hyper drops its buffer, and the
/// head or the last event of the answer with it.
#[derive(Debug)]
pub(crate) struct PendingCut {
    signals: Arc<ClientSignals>,
    /// How often hyper's buffer had been empty when nothing more was to be said.
    flushes: Option<u64>,
}

impl PendingCut {
    pub(crate) fn new(signals: Arc<ClientSignals>) -> Self {
        Self { signals, flushes: None }
    }

    /// To be polled by the body instead of its source; the connection's task is woken by the socket.
    pub(crate) fn poll(&mut self) -> Poll<Cut> {
        let seen = self.signals.flushes();
        let before = *self.flushes.get_or_insert(seen);
        if seen > before {
            return Poll::Ready(Cut);
        }
        self.signals.wake_at_flush();
        Poll::Pending
    }
}
