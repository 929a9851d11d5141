//! One HTTP/1.1 connection to an engine or the control app, driven by the task that uses it.
//!
//! hyper splits a client connection into a handle and a driver that is usually spawned as a task of its own. Here the
//! driver is polled by whoever waits for the response. So dropping a [`Link`] closes its socket at once, a pooled
//! connection costs no task, and a byte from an engine wakes exactly one task: the one that writes it to the client.
//! Because driver and handle share a task, the channels between them never need to wake anyone, and they are polled
//! with a waker that does nothing.

use crate::stats::Gauge;
use bytes::Bytes;
use http::{Request, Response};
use http_body::{Body, Frame};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, Connection, SendRequest};
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::rt::TokioIo;
use std::error::Error;
use std::future::Future;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll, Waker, ready};
use tokio::io::{AsyncRead, AsyncWrite};

/// Most bytes buffered per direction; also the longest response head.
const BUFFER_BYTES: usize = 256 * 1024;

pub(crate) struct Link<T, B>
where
    T: AsyncRead + AsyncWrite + Unpin,
    B: Body + 'static,
{
    sender: SendRequest<B>,
    /// `None` once the connection has ended.
    driver: Option<Box<Connection<LinkIo<T>, B>>>,
    written: Arc<AtomicU64>,
    _open: Option<Gauge>,
}

impl<T, B> Link<T, B>
where
    T: AsyncRead + AsyncWrite + Unpin,
    B: Body<Data = Bytes> + Unpin + 'static,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    /// Prepares `stream` for requests; sends nothing yet. `open` is held as long as the connection.
    pub(crate) async fn open(stream: T, open: Option<Gauge>) -> hyper::Result<Self> {
        let written = Arc::new(AtomicU64::new(0));
        let io = LinkIo {
            stream: TokioIo::new(stream),
            written: Arc::clone(&written),
            deaf: false,
        };
        let (sender, driver) = http1::Builder::new().max_buf_size(BUFFER_BYTES).handshake(io).await?;
        Ok(Self {
            sender,
            driver: Some(Box::new(driver)),
            written,
            _open: open,
        })
    }

    /// Bytes that the peer's side of the socket has accepted from us so far.
    pub(crate) fn written(&self) -> u64 {
        self.written.load(Relaxed)
    }

    /// The connection is between two requests and its peer has not closed it (as far as one can see from here).
    pub(crate) fn is_idle(&mut self) -> bool {
        let mut nobody = Context::from_waker(Waker::noop());
        // The first pass may end a message, the second one then asks for the next request.
        for _ in 0..2 {
            self.drive(&mut nobody);
            if self.driver.is_none() {
                return false;
            }
            if self.sender.is_ready() {
                return true;
            }
        }
        false
    }

    /// Sends `request` and waits for the response head.
    pub(crate) fn send(&mut self, request: Request<B>) -> impl Future<Output = hyper::Result<Response<Incoming>>> {
        // Not part of the future, which would carry it about.
        let response = self.sender.send_request(request);
        let driver = &mut self.driver;
        async move {
            let mut response = pin!(response);
            std::future::poll_fn(|cx| {
                drive(driver, cx);
                // Once the driver has ended and is dropped, hyper resolves the response with its error.
                response.as_mut().poll(&mut Context::from_waker(Waker::noop()))
            })
            .await
        }
    }

    /// The next part of a response body.
    pub(crate) fn poll_frame(
        &mut self,
        body: &mut Incoming,
        cx: &mut Context<'_>,
    ) -> Poll<Option<hyper::Result<Frame<Bytes>>>> {
        let mut nobody = Context::from_waker(Waker::noop());
        if let Poll::Ready(frame) = Pin::new(&mut *body).poll_frame(&mut nobody) {
            return Poll::Ready(frame);
        }
        self.drive(cx);
        Pin::new(body).poll_frame(&mut nobody)
    }

    fn drive(&mut self, cx: &mut Context<'_>) {
        drive(&mut self.driver, cx);
    }
}

/// Lets the connection read and write what it can, and drops it when it has ended.
fn drive<F: Future + Unpin>(driver: &mut Option<F>, cx: &mut Context<'_>) {
    if let Some(running) = driver
        && Pin::new(running).poll(cx).is_ready()
    {
        // What went wrong is told to the response or its body.
        *driver = None;
    }
}

/// The peer's socket as hyper sees it.
struct LinkIo<T> {
    stream: TokioIo<T>,
    /// Counts what was really handed over, so that "not one byte was written" is a fact and not a guess.
    written: Arc<AtomicU64>,
    /// A write has failed. An engine that refuses a body early (413, 400) answers and closes while we still write; its
    /// answer waits in our receive buffer. So the failure is not told to hyper: the rest of the body goes nowhere, and
    /// reading brings the answer or the end.
    deaf: bool,
}

impl<T: AsyncRead + AsyncWrite + Unpin> LinkIo<T> {
    /// What hyper is told of a write of `length` bytes.
    fn note(&mut self, written: Option<usize>, length: usize) -> usize {
        let Some(count) = written else {
            self.deaf = true;
            return length;
        };
        self.written.fetch_add(count as u64, Relaxed);
        count
    }
}

impl<T: AsyncRead + AsyncWrite + Unpin> Read for LinkIo<T> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: ReadBufCursor<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl<T: AsyncRead + AsyncWrite + Unpin> Write for LinkIo<T> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if self.deaf {
            return Poll::Ready(Ok(bytes.len()));
        }
        let written = ready!(Pin::new(&mut self.stream).poll_write(cx, bytes));
        Poll::Ready(Ok(self.note(written.ok(), bytes.len())))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let length = slices.iter().map(|slice| slice.len()).sum();
        if self.deaf {
            return Poll::Ready(Ok(length));
        }
        let written = ready!(Pin::new(&mut self.stream).poll_write_vectored(cx, slices));
        Poll::Ready(Ok(self.note(written.ok(), length)))
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
