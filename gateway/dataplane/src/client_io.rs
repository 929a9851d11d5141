//! The client's socket as hyper sees it, with four things hyper does not do by itself.
//!
//! * **Seeing a client leave.** While a request is being answered hyper reads ahead to notice the end of the client's
//!   stream, but not when its buffer already holds bytes of a next request (pipelining, or a stray line break after a
//!   body). Then this type peeks into the socket, so that every client that leaves is seen.
//! * **Telling when everything was written**, so that the last words to a client (an error event) are out before the
//!   connection is cut.
//! * **Lingering** after an answer that did not wait for the whole request (413, 431): closing a socket with unread bytes
//!   resets it, and the reset would destroy the answer on its way.
//! * **Giving up a client that takes nothing** when its request has a total time: nobody else is asked then.

use crate::stream::Stream;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep, sleep_until};

/// How long a client may go on sending a request that was answered already.
const LINGER: Duration = Duration::from_secs(1);

/// What the socket and the request on it tell each other. All of it is used by the one task of the connection.
#[derive(Debug, Default)]
pub(crate) struct ClientSignals {
    flushes: AtomicU64,
    wake_at_flush: AtomicBool,
    linger: AtomicBool,
    /// When the answer must have been taken.
    deadline: Mutex<Option<Instant>>,
}

impl ClientSignals {
    /// How often hyper's write buffer was seen empty.
    pub(crate) fn flushes(&self) -> u64 {
        self.flushes.load(Relaxed)
    }

    /// Wakes the connection's task the next time the write buffer is empty.
    pub(crate) fn wake_at_flush(&self) {
        self.wake_at_flush.store(true, Relaxed);
    }

    /// A client that has not taken its answer by then is cut off.
    pub(crate) fn answer_by(&self, deadline: Option<Instant>) {
        *self.deadline.lock() = deadline;
    }

    /// Has the rest of the request read and dropped before the connection closes.
    pub(crate) fn linger(&self) {
        self.linger.store(true, Relaxed);
    }
}

pub(crate) struct ClientIo {
    stream: TokioIo<Stream>,
    signals: Arc<ClientSignals>,
    /// hyper waits for bytes itself, so it will see the client leave.
    watched: bool,
    lingering: Option<Pin<Box<Sleep>>>,
    /// Runs while the client takes nothing, when there is a deadline for that.
    stall: Option<Pin<Box<Sleep>>>,
}

impl ClientIo {
    pub(crate) fn new(stream: Stream, signals: Arc<ClientSignals>) -> Self {
        Self {
            stream: TokioIo::new(stream),
            signals,
            watched: false,
            lingering: None,
            stall: None,
        }
    }

    /// Where a client is seen to leave. Under TLS its farewell is bytes like others here, so that only hyper sees it.
    fn socket(&self) -> &TcpStream {
        self.stream.inner().socket()
    }

    /// An error when the client has left and hyper is not looking.
    fn check_client(&self, cx: &mut Context<'_>) -> io::Result<()> {
        if self.watched {
            return Ok(());
        }
        let mut byte = [0];
        match self.socket().poll_peek(cx, &mut ReadBuf::new(&mut byte)) {
            Poll::Ready(Ok(0)) => Err(io::ErrorKind::ConnectionAborted.into()),
            Poll::Ready(Err(error)) => Err(error),
            // When there is nothing to peek at, the peek has registered the task to be woken, and it looks again.
            Poll::Ready(Ok(_)) | Poll::Pending => Ok(()),
        }
    }

    /// Nothing can be written now: an error when the client has left, or has had its time.
    fn check_stalled(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        self.check_client(cx)?;
        let Some(deadline) = *self.signals.deadline.lock() else {
            return Ok(());
        };
        let stall = self.stall.get_or_insert_with(|| Box::pin(sleep_until(deadline)));
        if stall.deadline() != deadline {
            stall.as_mut().reset(deadline);
        }
        match stall.as_mut().poll(cx) {
            Poll::Ready(()) => Err(io::ErrorKind::TimedOut.into()),
            Poll::Pending => Ok(()),
        }
    }

    fn has_unread_bytes(&self, cx: &mut Context<'_>) -> bool {
        let mut byte = [0];
        let peeked = self.socket().poll_peek(cx, &mut ReadBuf::new(&mut byte));
        matches!(peeked, Poll::Ready(Ok(1..)))
    }

    fn poll_linger(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let deadline = self
            .lingering
            .get_or_insert_with(|| Box::pin(tokio::time::sleep(LINGER)));
        if deadline.as_mut().poll(cx).is_ready() {
            return Poll::Ready(());
        }
        let mut waste = [0; 16 * 1024];
        loop {
            let mut buffer = ReadBuf::new(&mut waste);
            let read = Pin::new(self.stream.inner_mut()).poll_read(cx, &mut buffer);
            if ready!(read).is_err() || buffer.filled().is_empty() {
                return Poll::Ready(());
            }
        }
    }
}

impl Read for ClientIo {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: ReadBufCursor<'_>) -> Poll<io::Result<()>> {
        let read = Pin::new(&mut self.stream).poll_read(cx, buffer);
        self.watched = read.is_pending();
        read
    }
}

impl Write for ClientIo {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        if written.is_pending() {
            self.check_stalled(cx)?;
        }
        written
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, slices);
        if written.is_pending() {
            self.check_stalled(cx)?;
        }
        written
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    /// hyper calls this in every pass over the connection in which its write buffer is empty.
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(Pin::new(&mut self.stream).poll_flush(cx))?;
        self.signals.flushes.fetch_add(1, Relaxed);
        if self.signals.wake_at_flush.swap(false, Relaxed) {
            cx.waker().wake_by_ref();
        }
        Poll::Ready(self.check_client(cx))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.lingering.is_none() {
            ready!(Pin::new(&mut self.stream).poll_shutdown(cx))?;
            if !self.signals.linger.load(Relaxed) && !self.has_unread_bytes(cx) {
                return Poll::Ready(Ok(()));
            }
        }
        self.poll_linger(cx).map(Ok)
    }
}
