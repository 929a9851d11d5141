//! Connections to engines, one set per backend *incarnation*.
//!
//! A connection is taken from the top of the stack (the most recently used one, so that the others grow old and are
//! closed) or opened. There is no limit on their number: admission is the pool's task, and a limit here would make
//! requests wait while engines idle. A connection goes back only after a complete exchange; any other end closes it.

use crate::body::Outgoing;
use crate::config::Timeouts;
use crate::headers;
use crate::link::Link;
use crate::shared::SharedPool;
use crate::socket;
use crate::stats::{Counters, Gauge, add};
use crate::stream::Stream;
use crate::tls::EngineTls;
use crate::via::Via;
use foldhash::fast::RandomState;
use http::header::{AUTHORIZATION, VIA};
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode, Uri};
use parking_lot::{Mutex, RwLock};
use router_core::address::Address;
use router_core::address::rules::is_forbidden;
use router_core::health::ProbeKind;
use router_core::membership::{BackendInfo, BackendRef};
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};
use tokio::net::TcpStream;

pub(crate) type EngineLink = Link<Stream, Outgoing>;

/// An answer to a probe or an abort longer than this is not read to its end.
const MAX_CALL_BODY_BYTES: usize = 1 << 20;

/// The engines of one pool.
pub(crate) struct Upstreams {
    shared: Arc<SharedPool>,
    by_backend: RwLock<HashMap<BackendRef, Arc<Upstream>, RandomState>>,
    counters: Arc<Counters>,
    connect_timeout: Duration,
    keepalive: Duration,
    tls: Arc<EngineTls>,
    via: Arc<Via>,
}

/// One backend incarnation.
pub(crate) struct Upstream {
    pub(crate) reference: BackendRef,
    pub(crate) id: String,
    address: Address,
    /// The address, when it is no name that has to be resolved.
    ip: Option<IpAddr>,
    tls: Arc<EngineTls>,
    via: Arc<Via>,
    /// Values that go into every request and answer, made once.
    pub(crate) host_header: HeaderValue,
    pub(crate) id_header: HeaderValue,
    idle: Mutex<Idle>,
    /// Response bytes were seen since housekeeping looked last: evidence of life that costs one store.
    heard: AtomicBool,
    /// How often housekeeping found `heard` set.
    heard_rounds: AtomicU64,
    pub(crate) probing: AtomicBool,
    /// The status of the last answer to a probe, per kind; 0 before the first.
    answered: Answered,
    /// Why the last call found an engine that cannot be trusted, or does not speak TLS.
    untrusted: Mutex<Option<String>>,
    connect_timeout: Duration,
    keepalive: Duration,
    counters: Arc<Counters>,
}

#[derive(Default)]
struct Answered {
    model_info: AtomicU16,
    generate: AtomicU16,
}

#[derive(Default)]
struct Idle {
    /// The backend is gone; nothing is kept any more.
    closed: bool,
    links: Vec<(EngineLink, Instant)>,
}

/// Why no connection could be opened. Nothing was sent.
#[derive(Debug)]
pub(crate) enum ConnectError {
    Timeout(Duration),
    /// Refused, unreachable, or a name without an address.
    Refused(io::Error),
    /// This machine ran out of descriptors, ports or memory: no fault of the engine.
    Exhausted(io::Error),
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Timeout(limit) => write!(f, "no connection within {} s", limit.as_secs_f64()),
            Self::Refused(error) => write!(f, "{error}"),
            Self::Exhausted(error) => write!(f, "the gateway's machine is exhausted: {error}"),
        }
    }
}

/// What is odd about an engine that is there, by the last probe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EngineNote {
    /// The name of the pool.
    pub pool: String,
    /// The id of the engine.
    pub backend: String,
    /// What, and what to do about it.
    pub note: String,
}

/// In whose name an engine is called.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Caller<'a> {
    authorization: Option<&'a HeaderValue>,
    /// The headers of the request that is passed on.
    headers: Option<&'a HeaderMap>,
}

/// The answer to a call (probe, abort).
pub(crate) struct Reply {
    pub(crate) status: StatusCode,
    /// As far as it was read.
    pub(crate) body: Vec<u8>,
}

/// Why a call (probe, abort) has no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoAnswer {
    /// The engine gave none.
    Silent,
    /// Nobody listens at its address.
    Refused,
    /// The engine was not asked, because this machine ran out of descriptors, ports or memory.
    NotAsked,
}

impl<'a> Caller<'a> {
    /// Whoever has this key.
    pub(crate) const fn with_key(authorization: Option<&'a HeaderValue>) -> Self {
        Self {
            authorization,
            headers: None,
        }
    }

    /// The same, as a request with these headers asks for it.
    pub(crate) const fn asked_by(mut self, headers: &'a HeaderMap) -> Self {
        self.headers = Some(headers);
        self
    }

    fn hops(&self) -> impl Iterator<Item = &'a HeaderValue> + use<'a> {
        self.headers.into_iter().flat_map(|headers| headers.get_all(VIA))
    }
}

impl Upstreams {
    pub(crate) fn new(
        shared: Arc<SharedPool>,
        counters: Arc<Counters>,
        timeouts: &Timeouts,
        tls: Arc<EngineTls>,
        via: Arc<Via>,
    ) -> Self {
        Self {
            shared,
            by_backend: RwLock::default(),
            counters,
            connect_timeout: timeouts.connect,
            keepalive: timeouts.engine_keepalive,
            tls,
            via,
        }
    }

    pub(crate) fn shared(&self) -> &Arc<SharedPool> {
        &self.shared
    }

    /// The connections of `backend`.
    pub(crate) fn of(&self, backend: &BackendInfo) -> Arc<Upstream> {
        if let Some(known) = self.by_backend.read().get(&backend.reference) {
            return Arc::clone(known);
        }
        let mut table = self.by_backend.write();
        let entry = table
            .entry(backend.reference)
            .or_insert_with(|| Arc::new(Upstream::new(backend, self)));
        Arc::clone(entry)
    }

    /// Forgets backends that left the pool, and closes connections that were idle too long.
    ///
    /// Returns the backends that engines' bytes proved alive since the last call.
    pub(crate) fn sweep(&self, live: &HashSet<BackendRef>) -> Vec<BackendRef> {
        self.by_backend.write().retain(|reference, upstream| {
            let stays = live.contains(reference);
            if !stays {
                upstream.close_idle(true);
            }
            stays
        });
        let table = self.by_backend.read();
        table
            .values()
            .filter(|upstream| upstream.sweep())
            .map(|upstream| upstream.reference)
            .collect()
    }

    /// What is odd about the engines, by their last probes.
    pub(crate) fn notes(&self) -> Vec<EngineNote> {
        let table = self.by_backend.read();
        let mut notes: Vec<EngineNote> = table
            .values()
            .filter_map(|upstream| {
                Some(EngineNote {
                    pool: self.shared.name().to_owned(),
                    backend: upstream.id.clone(),
                    note: upstream.note()?,
                })
            })
            .collect();
        notes.sort_unstable_by(|one, other| one.backend.cmp(&other.backend));
        notes
    }

    pub(crate) fn close_idle(&self, for_good: bool) {
        for upstream in self.by_backend.read().values() {
            upstream.close_idle(for_good);
        }
    }
}

impl Upstream {
    fn new(backend: &BackendInfo, owner: &Upstreams) -> Self {
        let header = |text: &str| {
            HeaderValue::from_str(text)
                .or_else(|_| HeaderValue::from_str(&text.escape_default().to_string()))
                .unwrap_or_else(|_| HeaderValue::from_static("unprintable"))
        };
        Self {
            reference: backend.reference,
            id: backend.id.clone(),
            ip: backend.address.host().parse().ok(),
            host_header: header(backend.address.authority()),
            id_header: header(&backend.id),
            address: backend.address.clone(),
            idle: Mutex::default(),
            heard: AtomicBool::new(false),
            heard_rounds: AtomicU64::new(0),
            probing: AtomicBool::new(false),
            answered: Answered::default(),
            untrusted: Mutex::default(),
            connect_timeout: owner.connect_timeout,
            keepalive: owner.keepalive,
            counters: Arc::clone(&owner.counters),
            tls: Arc::clone(&owner.tls),
            via: Arc::clone(&owner.via),
        }
    }

    /// `id (host:port)`, for messages.
    pub(crate) fn describe(&self) -> String {
        let authority = self.address.authority();
        if self.id == authority {
            format!("engine {authority}")
        } else {
            format!("engine {} ({authority})", self.id)
        }
    }

    /// Notes that the engine sent something.
    pub(crate) fn hear(&self) {
        // Looking first keeps the cache line shared between the threads.
        if !self.heard.load(Relaxed) {
            self.heard.store(true, Relaxed);
        }
    }

    /// What was sent so far says nothing about what comes now.
    pub(crate) fn forget_heard(&self) {
        self.heard.store(false, Relaxed);
    }

    /// A mark to ask later whether the engine sent anything since; see [`Upstream::heard_since`].
    pub(crate) fn heard_mark(&self) -> u64 {
        self.heard_rounds.load(Relaxed)
    }

    pub(crate) fn heard_since(&self, mark: u64) -> bool {
        self.heard.load(Relaxed) || self.heard_rounds.load(Relaxed) != mark
    }

    /// Remembers how a probe was answered.
    pub(crate) fn note_answer(&self, kind: ProbeKind, status: StatusCode) {
        match kind {
            ProbeKind::Liveness => self.answered.model_info.store(status.as_u16(), Relaxed),
            ProbeKind::Generate => self.answered.generate.store(status.as_u16(), Relaxed),
        }
    }

    fn note(&self) -> Option<String> {
        if let Some(error) = &*self.untrusted.lock() {
            return Some(format!("no connection over TLS: {error}"));
        }
        let odd = |status: &AtomicU16| Some(status.load(Relaxed)).filter(|status| !matches!(status, 0 | 200..=299));
        let (call, status) = match (odd(&self.answered.model_info), odd(&self.answered.generate)) {
            (Some(status), _) => ("GET /model_info", status),
            (None, Some(status)) => ("POST /generate (a probe)", status),
            (None, None) => return None,
        };
        let advice = match status {
            401 | 403 => ": is engine_key the key of this engine?",
            404 | 405 => ": is this an SGLang engine?",
            508 => ": this gateway is its own engine; take the address out of its engines",
            _ => "",
        };
        Some(format!("{call} was answered {status}{advice}"))
    }

    /// A pooled connection that is still usable.
    pub(crate) fn take_idle(&self) -> Option<EngineLink> {
        loop {
            let (mut link, since) = self.idle.lock().links.pop()?;
            self.counters.upstream_idle.fetch_sub(1, Relaxed);
            if since.elapsed() < self.keepalive && link.is_idle() {
                add(&self.counters.upstream_reused);
                return Some(link);
            }
        }
    }

    /// Keeps `link` for the next request, if it can take one.
    pub(crate) fn give_back(&self, mut link: EngineLink) {
        if !link.is_idle() {
            return;
        }
        let mut idle = self.idle.lock();
        if !idle.closed {
            idle.links.push((link, Instant::now()));
            add(&self.counters.upstream_idle);
        }
    }

    fn close_idle(&self, for_good: bool) {
        let mut idle = self.idle.lock();
        idle.closed |= for_good;
        let links = std::mem::take(&mut idle.links);
        drop(idle);
        self.counters.upstream_idle.fetch_sub(links.len() as u64, Relaxed);
    }

    /// Closes connections that are too old or that the engine has closed. Tells whether the engine was heard.
    fn sweep(&self) -> bool {
        let mut idle = self.idle.lock();
        let old = idle
            .links
            .iter()
            .take_while(|(_, since)| since.elapsed() >= self.keepalive)
            .count();
        let closed: Vec<_> = idle.links.drain(..old).collect();
        drop(idle);
        self.counters.upstream_idle.fetch_sub(closed.len() as u64, Relaxed);
        let heard = self.heard.swap(false, Relaxed);
        if heard {
            add(&self.heard_rounds);
        }
        heard
    }

    /// Opens a connection.
    pub(crate) async fn connect(&self) -> Result<EngineLink, ConnectError> {
        let stream = match tokio::time::timeout(self.connect_timeout, self.dial()).await {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) if is_local(&error) => return Err(ConnectError::Exhausted(error)),
            Ok(Err(error)) => return Err(ConnectError::Refused(error)),
            Err(_) => return Err(ConnectError::Timeout(self.connect_timeout)),
        };
        let open = Gauge::raise(&self.counters, |counters| &counters.upstream_connections);
        add(&self.counters.upstream_connections_total);
        Link::open(stream, Some(open))
            .await
            .map_err(|error| ConnectError::Refused(io::Error::other(error)))
    }

    async fn dial(&self) -> io::Result<Stream> {
        let stream = match self.ip {
            Some(ip) => TcpStream::connect((ip, self.address.port())).await?,
            None => self.dial_name().await?,
        };
        socket::prepare(&stream)?;
        if self.address.is_tls() {
            // Boxed, so that its state does not grow that of every request.
            return Box::pin(self.tls.secure(self.address.host(), stream)).await;
        }
        Ok(Stream::Plain(stream))
    }

    /// Connects to the first address of the name that answers, and to none that no engine has: a name may be registered
    /// over the network, and what it resolves to is decided later, by somebody else.
    async fn dial_name(&self) -> io::Result<TcpStream> {
        let mut failed = None;
        for address in tokio::net::lookup_host((self.address.host(), self.address.port())).await? {
            let connected = match is_forbidden(address.ip()) {
                Some(rule) => Err(io::Error::other(format!(
                    "the name resolves to {}: {rule}",
                    address.ip()
                ))),
                None => TcpStream::connect(address).await,
            };
            match connected {
                Ok(stream) => return Ok(stream),
                Err(error) => failed = Some(error),
            }
        }
        Err(failed.unwrap_or_else(|| io::Error::other("the name has no address")))
    }

    /// A request of our own, outside any lease. Only for calls that may be repeated: a failure on a pooled connection
    /// is tried once more on a fresh one. The caller sets the deadline.
    pub(crate) async fn call(
        &self,
        method: Method,
        path: &'static str,
        body: Outgoing,
        caller: Caller<'_>,
    ) -> Result<StatusCode, NoAnswer> {
        let reply = self.ask(method, path, body, caller).await?;
        Ok(reply.status)
    }

    /// The same, with the body of the answer.
    pub(crate) async fn ask(
        &self,
        method: Method,
        path: &'static str,
        body: Outgoing,
        caller: Caller<'_>,
    ) -> Result<Reply, NoAnswer> {
        if let Some(link) = self.take_idle()
            && let Ok(reply) = self.call_on(link, &method, path, body.clone(), caller).await
        {
            return Ok(reply);
        }
        let connected = self.connect().await;
        *self.untrusted.lock() = match &connected {
            // What a handshake fails with; others who cannot be reached have nothing odd about them.
            Err(ConnectError::Refused(error)) if error.kind() == io::ErrorKind::InvalidData => Some(error.to_string()),
            _ => None,
        };
        let link = connected.map_err(|error| match error {
            ConnectError::Exhausted(_) => NoAnswer::NotAsked,
            ConnectError::Refused(error) if error.kind() == io::ErrorKind::ConnectionRefused => NoAnswer::Refused,
            ConnectError::Timeout(_) | ConnectError::Refused(_) => NoAnswer::Silent,
        })?;
        self.call_on(link, &method, path, body, caller).await
    }

    async fn call_on(
        &self,
        mut link: EngineLink,
        method: &Method,
        path: &'static str,
        body: Outgoing,
        caller: Caller<'_>,
    ) -> Result<Reply, NoAnswer> {
        let mut map = HeaderMap::new();
        for hop in caller.hops() {
            map.append(VIA, hop.clone());
        }
        self.via.add_to(&mut map);
        headers::address_to_engine(&mut map, &self.host_header, body.length());
        if body.length() > 0 {
            map.insert(http::header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        }
        if let Some(authorization) = caller.authorization {
            map.insert(AUTHORIZATION, authorization.clone());
        }
        let mut request = Request::new(body);
        *request.method_mut() = method.clone();
        *request.uri_mut() = Uri::from_static(path);
        *request.headers_mut() = map;
        let response = link.send(request).await.map_err(|_| NoAnswer::Silent)?;
        let mut reply = Reply {
            status: response.status(),
            body: Vec::new(),
        };
        let mut body = response.into_body();
        while let Some(frame) = std::future::poll_fn(|cx| link.poll_frame(&mut body, cx)).await {
            let frame = frame.map_err(|_| NoAnswer::Silent)?;
            if let Some(bytes) = frame.data_ref() {
                reply.body.extend_from_slice(bytes);
            }
            if reply.body.len() > MAX_CALL_BODY_BYTES {
                return Ok(reply);
            }
        }
        self.give_back(link);
        Ok(reply)
    }
}

/// Errors of this machine, which say nothing about the engine.
fn is_local(error: &io::Error) -> bool {
    // EMFILE, ENFILE, ENOBUFS, ENOMEM and (no free port) EADDRNOTAVAIL of Linux.
    matches!(error.raw_os_error(), Some(24 | 23 | 105 | 12 | 99))
}
