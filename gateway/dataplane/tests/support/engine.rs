//! A raw TCP engine that follows a script and remembers what it saw.

use socket2::SockRef;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::{AbortHandle, JoinHandle, JoinSet};

/// One thing the engine does with a request it has read.
#[derive(Clone)]
pub(crate) enum Step {
    /// Writes these bytes.
    Send(Vec<u8>),
    /// Waits until the test adds a permit.
    Wait(Arc<Semaphore>),
    /// Sends nothing and waits for the peer to close.
    Hold,
    /// Sends this again and again until the peer closes.
    Flood(Vec<u8>),
    /// Ends the connection with a reset.
    Reset,
    /// Ends the connection.
    Fin,
    /// Ends the engine: its listener and every connection.
    Die,
}

/// A request the engine has read completely.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
    pub(crate) connection: usize,
}

impl Seen {
    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).expect("a JSON body")
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| {
            let (key, value) = line.split_once(": ")?;
            key.eq_ignore_ascii_case(name).then_some(value)
        })
    }
}

#[derive(Default)]
struct Memory {
    connections: usize,
    closed: usize,
    seen: Vec<Seen>,
    aborts: Vec<String>,
    flooded: usize,
    loads: Loads,
    looks: u64,
    refuses_aborts: bool,
    life: Option<AbortHandle>,
}

/// What the engine says that it runs.
#[derive(Clone, Copy, Default)]
pub(crate) enum Loads {
    /// Nothing: it has no `/v1/loads`.
    #[default]
    Unsaid,
    /// So many executions, in a snapshot that is new at every look.
    Running(u64),
    /// So many executions, in a snapshot that stays as it is; the engine says that it is paused.
    Frozen(u64),
}

impl Memory {
    /// The answer to a GET.
    fn inform(&mut self, head: &str) -> Vec<u8> {
        let (running, at) = match self.loads {
            Loads::Frozen(_) if head.starts_with("GET /ready ") => return answer("503 Service Unavailable", ""),
            _ if !head.starts_with("GET /v1/loads ") => return answer("200 OK", "{}"),
            Loads::Unsaid => return answer("404 Not Found", "{}"),
            Loads::Running(running) => (running, self.looks + 1),
            Loads::Frozen(running) => (running, 0),
        };
        self.looks += 1;
        let rank = format!("{{\"timestamp\":{at}.5,\"num_running_reqs\":{running},\"num_waiting_reqs\":0}}");
        answer("200 OK", &format!("{{\"loads\":[{rank}]}}"))
    }
}

type Script = dyn Fn(&Seen, usize) -> Vec<Step> + Send + Sync;

pub(crate) struct Engine {
    address: SocketAddr,
    memory: Arc<Mutex<Memory>>,
    task: JoinHandle<()>,
}

impl Engine {
    /// The script is asked for the steps of every generation, with its number (from 0).
    pub(crate) async fn start(script: impl Fn(&Seen, usize) -> Vec<Step> + Send + Sync + 'static) -> Self {
        Self::start_reading(None, script).await
    }

    /// Reads only the head and `limit` bytes of every generation's body before it acts.
    pub(crate) async fn start_reading(
        limit: Option<usize>,
        script: impl Fn(&Seen, usize) -> Vec<Step> + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("bound");
        let address = listener.local_addr().expect("bound");
        let memory: Arc<Mutex<Memory>> = Arc::default();
        let script: Arc<Script> = Arc::new(script);
        let remembered = Arc::clone(&memory);
        let task = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                let Ok((stream, _)) = listener.accept().await else {
                    return;
                };
                let connection = {
                    let mut memory = remembered.lock().expect("no panic");
                    memory.connections += 1;
                    memory.connections - 1
                };
                connections.spawn(serve(
                    stream,
                    connection,
                    limit,
                    Arc::clone(&script),
                    Arc::clone(&remembered),
                ));
            }
        });
        memory.lock().expect("no panic").life = Some(task.abort_handle());
        Self { address, memory, task }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Generations read so far.
    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.memory.lock().expect("no panic").seen.clone()
    }

    pub(crate) fn connections(&self) -> usize {
        self.memory.lock().expect("no panic").connections
    }

    /// Connections the peer has closed.
    pub(crate) fn closed(&self) -> usize {
        self.memory.lock().expect("no panic").closed
    }

    /// Bodies of the abort requests.
    pub(crate) fn aborts(&self) -> Vec<String> {
        self.memory.lock().expect("no panic").aborts.clone()
    }

    /// From now on it says so in `/v1/loads`.
    pub(crate) fn says(&self, loads: Loads) {
        self.memory.lock().expect("no panic").loads = loads;
    }

    /// How often it was asked for its loads.
    pub(crate) fn looks(&self) -> u64 {
        self.memory.lock().expect("no panic").looks
    }

    /// From now on it answers aborts with an error.
    pub(crate) fn refuses_aborts(&self) {
        self.memory.lock().expect("no panic").refuses_aborts = true;
    }

    /// Bytes written by [`Step::Flood`].
    pub(crate) fn flooded(&self) -> usize {
        self.memory.lock().expect("no panic").flooded
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(
    mut stream: TcpStream,
    connection: usize,
    limit: Option<usize>,
    script: Arc<Script>,
    memory: Arc<Mutex<Memory>>,
) {
    let mut buffer = Vec::new();
    loop {
        let Some(seen) = read_request(&mut stream, &mut buffer, connection, limit).await else {
            memory.lock().expect("no panic").closed += 1;
            return;
        };
        if seen.head.starts_with("GET ") {
            let reply = memory.lock().expect("no panic").inform(&seen.head);
            let _ = stream.write_all(&reply).await;
            continue;
        }
        if seen.head.starts_with("POST /abort_request ") {
            let body = String::from_utf8_lossy(&seen.body).into_owned();
            let refuses = {
                let mut memory = memory.lock().expect("no panic");
                memory.aborts.push(body);
                memory.refuses_aborts
            };
            let status = if refuses { "500 Internal Server Error" } else { "200 OK" };
            let _ = stream.write_all(&answer(status, "")).await;
            continue;
        }
        let number = {
            let mut memory = memory.lock().expect("no panic");
            memory.seen.push(seen.clone());
            memory.seen.len() - 1
        };
        for step in script(&seen, number) {
            if !perform(&mut stream, step, &memory).await {
                return;
            }
        }
    }
}

/// Performs a step; `false` when the connection is over.
async fn perform(stream: &mut TcpStream, step: Step, memory: &Mutex<Memory>) -> bool {
    match step {
        Step::Send(bytes) => {
            if stream.write_all(&bytes).await.is_err() {
                memory.lock().expect("no panic").closed += 1;
                return false;
            }
        }
        Step::Wait(gate) => gate.acquire().await.expect("an open gate").forget(),
        Step::Hold => {
            let mut waste = [0; 4096];
            while stream.read(&mut waste).await.is_ok_and(|count| count > 0) {}
            memory.lock().expect("no panic").closed += 1;
            return false;
        }
        Step::Flood(bytes) => loop {
            let written = stream.write_all(&bytes).await;
            let mut memory = memory.lock().expect("no panic");
            if written.is_err() {
                memory.closed += 1;
                return false;
            }
            memory.flooded += bytes.len();
        },
        Step::Reset => {
            let _ = SockRef::from(&*stream).set_linger(Some(Duration::ZERO));
            return false;
        }
        Step::Fin => return false,
        Step::Die => {
            let life = memory.lock().expect("no panic").life.take();
            life.expect("set at the start").abort();
            // Ended from outside, like all the others.
            std::future::pending::<()>().await;
        }
    }
    true
}

async fn read_request(
    stream: &mut TcpStream,
    buffer: &mut Vec<u8>,
    connection: usize,
    limit: Option<usize>,
) -> Option<Seen> {
    let end = loop {
        if let Some(at) = buffer.windows(4).position(|window| window == b"\r\n\r\n") {
            break at + 4;
        }
        if stream.read_buf(buffer).await.ok()? == 0 {
            return None;
        }
    };
    let head = String::from_utf8_lossy(&buffer[..end]).into_owned();
    let mut seen = Seen {
        head,
        body: Vec::new(),
        connection,
    };
    let length: usize = seen
        .header("content-length")
        .map_or(0, |value| value.parse().expect("a length"));
    let length = limit.map_or(length, |limit| limit.min(length));
    while buffer.len() < end + length {
        if stream.read_buf(buffer).await.ok()? == 0 {
            return None;
        }
    }
    seen.body = buffer[end..end + length].to_vec();
    buffer.drain(..end + length);
    Some(seen)
}

/// A complete response with a length.
pub(crate) fn answer(status: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    format!("HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}")
        .into_bytes()
}

/// The head of a chunked event stream.
pub(crate) fn stream_head() -> Vec<u8> {
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n".to_vec()
}

/// `bytes` as one chunk; empty bytes end the message.
pub(crate) fn chunk(bytes: &str) -> Vec<u8> {
    format!("{:x}\r\n{bytes}\r\n", bytes.len()).into_bytes()
}
