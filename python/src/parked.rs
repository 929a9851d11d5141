//! Waiting for a grant from Python: a parked acquire, and how its caller is woken.
//!
//! A grant is made in whatever thread lifts the obstacle, often one of the data plane, which must never wait for the
//! interpreter. So a wake-up only puts the callback into a queue, and one thread of ours, started by the first wait,
//! calls it: `loop.call_soon_threadsafe` for a coroutine, `Event.set` for a thread.

use std::future::Future;
use std::pin::Pin;
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;

use dataplane::ParkedCall;
use dataplane::shared::{LeaseGuard, SharedPool};
use pyo3::prelude::*;
use pyo3::types::PyString;
use router_core::error::Error;
use router_core::pool::Grant;

use crate::errors;
use crate::lease::Lease;

/// An acquire that waits in the pool's queue.
#[pyclass(frozen, module = "trimtab._core")]
pub(crate) struct ParkedAcquire {
    pool: Arc<SharedPool>,
    session: Option<Py<PyString>>,
    reason: &'static str,
    call: Mutex<Option<ParkedCall>>,
}

/// What an acquire that may wait gives at once.
#[derive(IntoPyObject)]
pub(crate) enum Acquired {
    Lease(Lease),
    Parked(ParkedAcquire),
}

impl ParkedAcquire {
    pub(crate) fn new(pool: Arc<SharedPool>, call: ParkedCall, session: Option<Py<PyString>>) -> Self {
        Self {
            pool,
            session,
            reason: call.parked().reason.as_str(),
            call: Mutex::new(Some(call)),
        }
    }

    fn lease(&self, py: Python<'_>, answer: Result<Grant, Error>) -> PyResult<Lease> {
        let grant = answer.map_err(|error| errors::from_core(py, &error))?;
        let session = self.session.as_ref().map(|session| session.clone_ref(py));
        Ok(Lease::new(LeaseGuard::new(Arc::clone(&self.pool), grant), session))
    }

    fn take(&self, py: Python<'_>) -> PyResult<ParkedCall> {
        let call = self.call.lock().unwrap_or_else(PoisonError::into_inner).take();
        call.ok_or_else(|| errors::invalid_request(py, "this wait is over: acquire again"))
    }
}

#[pymethods]
impl ParkedAcquire {
    #[getter]
    fn reason(&self) -> &'static str {
        self.reason
    }

    fn poll(&self, py: Python<'_>, wake: Py<PyAny>) -> PyResult<Option<Lease>> {
        let waker = Waker::from(Arc::new(Callback(Mutex::new(Some(wake)))));
        let mut call = self.take(py)?;
        match Pin::new(&mut call).poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(answer) => self.lease(py, answer).map(Some),
            Poll::Pending => {
                *self.call.lock().unwrap_or_else(PoisonError::into_inner) = Some(call);
                Ok(None)
            }
        }
    }

    fn give_up(&self, py: Python<'_>) -> PyResult<Lease> {
        let call = self.take(py)?;
        self.lease(py, call.give_up())
    }

    fn abandon(&self) {
        drop(self.call.lock().unwrap_or_else(PoisonError::into_inner).take());
    }

    fn __repr__(&self) -> String {
        format!("ParkedAcquire(reason={:?})", self.reason)
    }
}

/// A Python callable to be called once.
struct Callback(Mutex<Option<Py<PyAny>>>);

impl Wake for Callback {
    fn wake(self: Arc<Self>) {
        if let Some(callback) = self.0.lock().unwrap_or_else(PoisonError::into_inner).take() {
            // The receiver lives as long as the process; without it there is nobody left to wake.
            let _ = queue().send(callback);
        }
    }
}

fn queue() -> &'static Sender<Py<PyAny>> {
    static QUEUE: OnceLock<Sender<Py<PyAny>>> = OnceLock::new();
    QUEUE.get_or_init(|| {
        let (sender, receiver) = mpsc::channel();
        let spawned = thread::Builder::new()
            .name("trimtab-wakes".to_owned())
            .spawn(move || serve(&receiver));
        // Without the thread nobody would ever be woken: a process that cannot start one cannot go on.
        spawned.expect("a thread can be started");
        sender
    })
}

fn serve(callbacks: &Receiver<Py<PyAny>>) {
    while let Ok(first) = callbacks.recv() {
        // Nothing to do when the interpreter is going away.
        let _ = Python::try_attach(|py| {
            for callback in std::iter::once(first).chain(callbacks.try_iter()) {
                if let Err(error) = callback.call0(py) {
                    error.write_unraisable(py, Some(callback.bind(py)));
                }
            }
        });
    }
}
