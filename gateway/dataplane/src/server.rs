//! The running data plane: listener, connection tasks, threads, and an orderly end.

use crate::client_io::{ClientIo, ClientSignals};
use crate::config::Config;
use crate::crowd::{Crowd, LONGEST_REFUSAL};
use crate::failure_log::FailureSummary;
use crate::lag;
use crate::lease_socket::{self, LeaseSocket};
use crate::plane::Plane;
use crate::probe;
use crate::resolve;
use crate::service::{Connection, answer};
use crate::socket;
use crate::stats::{DataPlaneStatistics, Gauge, add};
use crate::stream::Stream;
use crate::trace::{FinishedTrace, TraceLog};
use crate::tracker::Token;
use crate::upstream::EngineNote;
use crate::version_log::VersionMismatch;
use hyper::body::{Body, Incoming};
use hyper::rt::{Read, Write};
use hyper::server::conn::http1;
use hyper::service::{HttpService, service_fn};
use parking_lot::Mutex;
use router_core::histogram::Histogram;
use socket2::{Domain, Protocol, Socket, Type};
use std::fmt;
use std::future::{Future, poll_fn};
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
use tokio::sync::{OwnedSemaphorePermit, watch};

/// Connections the kernel holds for us between two turns of the accept loop.
pub(crate) const ACCEPT_BACKLOG: i32 = 4096;
/// Pause after a failed accept: descriptors that ran out come back when a request ends, not when we spin.
pub(crate) const ACCEPT_RETRY: Duration = Duration::from_millis(20);
/// Longest request head; also what is read and buffered at once per client connection.
pub(crate) const BUFFER_BYTES: usize = 128 * 1024;
/// A client that has not shaken hands by then holds a descriptor for nothing; so does, where descriptors are short, one
/// that has not sent the head of its first request this long after.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// What the threads get to leave after everything was told to end (only name resolution can be that slow).
const THREAD_JOIN: Duration = Duration::from_secs(1);

/// Why a data plane did not start.
#[derive(Debug)]
#[non_exhaustive]
pub enum StartError {
    /// The configuration contradicts itself.
    InvalidConfig {
        /// What is wrong and where.
        message: String,
    },
    /// The address cannot be listened on.
    Listen {
        /// `host:port` as configured.
        address: String,
        /// The system's answer.
        source: io::Error,
    },
    /// The lease socket cannot be listened on.
    LeaseSocket {
        /// As configured.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// The threads could not be started.
    Runtime {
        /// The system's answer.
        source: io::Error,
    },
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InvalidConfig { message } => f.write_str(message),
            Self::Listen { address, source } if source.kind() == io::ErrorKind::AddrInUse => write!(
                f,
                "cannot listen on {address}: the port is taken; stop the process that holds it, or choose another port \
                 (0 takes a free one)"
            ),
            Self::Listen { address, source } => write!(
                f,
                "cannot listen on {address}: {source}; give a host of this machine and a port you may bind"
            ),
            Self::LeaseSocket { path, source } if source.kind() == io::ErrorKind::AddrInUse => write!(
                f,
                "cannot listen on the lease socket {}: somebody listens there already, or the file is no socket; stop the \
                 process that holds it, or choose another path",
                path.display()
            ),
            Self::LeaseSocket { path, source } => write!(
                f,
                "cannot listen on the lease socket {}: {source}; give a path of at most 107 bytes in a directory you may \
                 write to",
                path.display()
            ),
            Self::Runtime { source } => write!(f, "cannot start the data plane's threads: {source}"),
        }
    }
}

impl std::error::Error for StartError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::InvalidConfig { .. } => None,
            Self::Listen { source, .. } | Self::LeaseSocket { source, .. } | Self::Runtime { source } => Some(source),
        }
    }
}

/// Where the data plane is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Serving,
    /// No new connection, no keep-alive; what runs may finish.
    Draining,
    /// Whatever still runs is dropped, which settles its lease.
    Cut,
}

/// A running data plane. Dropping it cuts what is in flight; see [`DataPlane::shutdown`].
pub struct DataPlane {
    local_addr: SocketAddr,
    plane: Arc<Plane>,
    phase: watch::Sender<Phase>,
    running: Mutex<Option<Runtime>>,
}

/// Binds, starts the threads, and serves until [`DataPlane::shutdown`].
pub fn start(config: Config) -> Result<DataPlane, StartError> {
    let (host, port, worker_threads) = (config.host.clone(), config.port, config.worker_threads.max(1));
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(worker_threads)
        .thread_name("trimtab-data")
        .enable_all()
        .build()
        .map_err(|source| StartError::Runtime { source })?;
    let listen_error = |source| StartError::Listen {
        address: format!("{host}:{port}"),
        source,
    };
    let listener = listen(&host, port).map_err(listen_error)?;
    let (listener, local_addr) = {
        let _context = runtime.enter();
        let listener = TcpListener::from_std(listener.into()).map_err(listen_error)?;
        let local_addr = listener.local_addr().map_err(listen_error)?;
        (listener, local_addr)
    };
    let lease_socket = config.lease_socket.clone().map(|path| {
        let _context = runtime.enter();
        LeaseSocket::bind(&path).map_err(|source| StartError::LeaseSocket { path, source })
    });
    let lease_socket = lease_socket.transpose()?;
    let (phase, watcher) = watch::channel(Phase::Serving);
    let plane = Plane::new(config, local_addr, watcher.clone(), runtime.handle().clone())?;
    if let Some(socket) = lease_socket {
        runtime.spawn(lease_socket::accept(Arc::clone(&plane), socket, watcher.clone()));
    }
    let crowd = Crowd::new(plane.config.limits.max_clients, phase.clone());
    runtime.spawn(accept(Arc::clone(&plane), listener, crowd, watcher));
    runtime.spawn(probe::run(Arc::clone(&plane)));
    runtime.spawn(lag::run(Arc::clone(&plane)));
    for pool in plane.pools.iter().filter(|pool| pool.shared().resolves()) {
        runtime.spawn(resolve::run(Arc::clone(&plane), Arc::clone(pool)));
    }
    Ok(DataPlane {
        local_addr,
        plane,
        phase,
        running: Mutex::new(Some(runtime)),
    })
}

impl DataPlane {
    /// The address it listens on, with the real port when 0 was asked for.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.local_addr
    }

    /// A snapshot of the counters; also valid after [`DataPlane::shutdown`].
    #[must_use]
    pub fn statistics(&self) -> DataPlaneStatistics {
        self.plane.counters.snapshot()
    }

    /// How much later than due timers ran: what a thread that is held up costs everybody.
    #[must_use]
    pub fn loop_lag(&self) -> Histogram {
        self.plane.lag.lock().clone()
    }

    /// Takes the executions of traced requests that ended since the last call, and how many more found no room; nothing
    /// unless [`Config::traces`] is set.
    #[must_use]
    pub fn take_traces(&self) -> (Vec<FinishedTrace>, u64) {
        self.plane.traces.as_ref().map(TraceLog::take).unwrap_or_default()
    }

    /// Takes what could not be served since the last call, counted per code and engine.
    #[must_use]
    pub fn take_failures(&self) -> Vec<FailureSummary> {
        self.plane.failures.take()
    }

    /// Takes the answers since the last call whose engines ran other weights than their leases say, counted per engine.
    #[must_use]
    pub fn take_version_mismatches(&self) -> Vec<VersionMismatch> {
        self.plane.mismatches.take()
    }

    /// What is odd about engines that are alive: `/model_info` or a probing generation was refused.
    #[must_use]
    pub fn engine_notes(&self) -> Vec<EngineNote> {
        self.plane.pools.iter().flat_map(|pool| pool.notes()).collect()
    }

    /// Stops accepting, lets what is in flight finish for `grace`, then cuts it; every lease is settled and every
    /// thread joined when this returns. It takes at most `grace`, plus the abort grace for executions that were cut.
    ///
    /// A second call returns when the first is done; one without grace ends the grace of the first.
    pub fn shutdown(&self, grace: Duration) {
        if grace.is_zero() {
            self.phase.send_replace(Phase::Cut);
        }
        let mut slot = self.running.lock();
        let Some(runtime) = slot.take() else { return };
        let (plane, phase) = (Arc::clone(&self.plane), self.phase.clone());
        // A thread of its own: waiting for a runtime is forbidden on threads that belong to another one.
        let stopper = std::thread::spawn(move || stop(runtime, &plane, &phase, grace));
        // An error is a panic in `stop`; the runtime was then dropped by unwinding, which is what remained to do.
        let _ = stopper.join();
    }
}

impl Drop for DataPlane {
    fn drop(&mut self) {
        self.shutdown(Duration::ZERO);
    }
}

impl fmt::Debug for DataPlane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DataPlane")
            .field("local_addr", &self.local_addr)
            .finish_non_exhaustive()
    }
}

fn stop(runtime: Runtime, plane: &Plane, phase: &watch::Sender<Phase>, grace: Duration) {
    phase.send_if_modified(|phase| {
        let serves = *phase == Phase::Serving;
        if serves {
            *phase = Phase::Draining;
        }
        serves
    });
    runtime.block_on(async {
        let mut watcher = phase.subscribe();
        tokio::select! {
            _ = tokio::time::timeout(grace, plane.tasks.idle()) => {}
            _ = watcher.wait_for(|phase| *phase == Phase::Cut) => {}
        }
        phase.send_replace(Phase::Cut);
        // Cutting a connection starts the aborts of its execution, which get their usual time.
        let aborts = plane.config.timeouts.abort_grace + ACCEPT_RETRY;
        let _ = tokio::time::timeout(aborts, plane.tasks.idle()).await;
    });
    plane.close_idle_connections();
    runtime.shutdown_timeout(THREAD_JOIN);
}

/// A listening socket on the first address `host` stands for that can be bound.
fn listen(host: &str, port: u16) -> io::Result<Socket> {
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let mut refusal = io::Error::new(io::ErrorKind::NotFound, "the host name stands for no address");
    for address in (host, port).to_socket_addrs()? {
        match bind(address) {
            Ok(socket) => return Ok(socket),
            Err(error) => refusal = error,
        }
    }
    Err(refusal)
}

fn bind(address: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(ACCEPT_BACKLOG)?;
    Ok(socket)
}

async fn accept(plane: Arc<Plane>, listener: TcpListener, mut crowd: Crowd, phase: watch::Receiver<Phase>) {
    let mut changes = phase.clone();
    loop {
        let next = async {
            let at_door = crowd.place_at_the_door(&plane).await;
            (at_door, listener.accept().await)
        };
        let (at_door, accepted) = tokio::select! {
            biased;
            _ = changes.wait_for(|phase| *phase != Phase::Serving) => return,
            next = next => next,
        };
        if let Ok((stream, _peer)) = accepted {
            add(&plane.counters.connections_total);
            // Somebody may have left meanwhile.
            let at_door = at_door.filter(|_| crowd.is_full(&plane));
            if at_door.is_some() {
                add(&plane.counters.turned_away);
                crowd.call_for_relief();
            }
            let client = Client::new(&plane, stream, phase.clone());
            if let Some(at_door) = at_door {
                tokio::spawn(turn_away(client, at_door));
            } else {
                // Counted before the next one is looked at.
                let open = Gauge::raise(&plane.counters, |counters| &counters.connections);
                tokio::spawn(async move {
                    serve(client, false).await;
                    drop(open);
                });
            }
        } else {
            add(&plane.counters.accept_errors);
            tokio::time::sleep(ACCEPT_RETRY).await;
        }
    }
}

/// A connection that was accepted.
struct Client {
    plane: Arc<Plane>,
    stream: TcpStream,
    phase: watch::Receiver<Phase>,
    running: Token,
}

impl Client {
    fn new(plane: &Arc<Plane>, stream: TcpStream, mut phase: watch::Receiver<Phase>) -> Self {
        // Calls for relief that came before it are not for it.
        phase.mark_unchanged();
        if *phase.borrow() != Phase::Serving {
            phase.mark_changed();
        }
        Self {
            running: plane.tasks.enter(),
            plane: Arc::clone(plane),
            stream,
            phase,
        }
    }
}

/// Gives one for whom there is no room an answer, and the end of the connection.
async fn turn_away(client: Client, at_door: OwnedSemaphorePermit) {
    let _ = tokio::time::timeout(LONGEST_REFUSAL, serve(client, true)).await;
    drop(at_door);
}

/// Shakes hands, where the listener speaks TLS; `None` when that fails, takes too long, or we are leaving.
async fn secure(plane: &Plane, stream: TcpStream, phase: &mut watch::Receiver<Phase>) -> Option<Stream> {
    let Some(acceptor) = &plane.tls else {
        return Some(Stream::Plain(stream));
    };
    let handshake = Box::pin(tokio::time::timeout(HANDSHAKE, acceptor.accept(stream)));
    tokio::select! {
        biased;
        _ = phase.wait_for(|phase| *phase != Phase::Serving) => None,
        secured = handshake => Some(Stream::Tls(Box::new(secured.ok()?.ok()?.into()))),
    }
}

/// Serves one client connection until either side closes it.
///
/// Returning drops hyper's connection and with it the request in flight, whose [`crate::exchange::Exchange`] settles
/// the lease; that is the one path for a client that went away, for a shutdown that cuts, and for a panic.
async fn serve(client: Client, turned_away: bool) {
    let Client {
        plane,
        stream,
        mut phase,
        running: _running,
    } = client;
    // Fails when the client has left already.
    if socket::prepare(&stream).is_err() {
        return;
    }
    let Some(stream) = secure(&plane, stream, &mut phase).await else {
        return;
    };
    let signals = Arc::new(ClientSignals::default());
    let io = ClientIo::new(stream, Arc::clone(&signals));
    let connection = Arc::new(Connection {
        plane,
        signals: Arc::clone(&signals),
        turned_away,
    });
    let service = service_fn(move |request| answer(Arc::clone(&connection), request));
    let connection = http1::Builder::new()
        .max_buf_size(BUFFER_BYTES)
        .serve_connection(io, service);
    let since = Instant::now();
    let relief = || {
        if signals.was_used() {
            Relief::Finish
        } else if since.elapsed() < HANDSHAKE {
            // Its first request may be on its way.
            Relief::Stay
        } else {
            Relief::Leave
        }
    };
    serve_until_end(connection, phase, relief).await;
}

/// What becomes of a connection when there is a call to give up connections.
pub(crate) enum Relief {
    Stay,
    /// It ends with the answer that is being given on it, or at once without one.
    Finish,
    /// It ends at once.
    Leave,
}

/// Serves until either side closes `connection`, or the data plane cuts it.
pub(crate) async fn serve_until_end<I, S, B>(
    connection: http1::Connection<I, S>,
    mut phase: watch::Receiver<Phase>,
    relief: impl Fn() -> Relief,
) where
    I: Read + Write + Unpin,
    S: HttpService<Incoming, ResBody = B>,
    S::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    B: Body + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let mut connection = pin!(connection);
    let seen = phase.clone();
    loop {
        let changed = {
            let mut changed = pin!(phase.changed());
            let mut is_registered = false;
            poll_fn(|cx| {
                // The error is for nobody: the client is gone or spoke no HTTP, and hyper has answered what it could.
                if connection.as_mut().poll(cx).is_ready() {
                    return Poll::Ready(None);
                }
                // Nearly every wake-up is for the connection. Once this task is registered for changes of the phase, a
                // look at its version says whether there is one.
                if is_registered && seen.has_changed().is_ok_and(|changed| !changed) {
                    return Poll::Pending;
                }
                is_registered = true;
                changed.as_mut().poll(cx).map(Some)
            })
            .await
        };
        match (changed, *phase.borrow_and_update()) {
            // Said again, it is a call to give up connections.
            (Some(Ok(())), Phase::Serving) => match relief() {
                Relief::Stay => {}
                Relief::Finish => connection.as_mut().graceful_shutdown(),
                Relief::Leave => return,
            },
            (Some(Ok(())), Phase::Draining) => connection.as_mut().graceful_shutdown(),
            (None | Some(Err(_)), _) | (Some(Ok(())), Phase::Cut) => return,
        }
    }
}
