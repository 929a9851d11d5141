//! What one acquire and its settlement over the lease API cost in CPU time: `cargo run --release --example lease_cost
//! [connections] [leases]`.
//!
//! Raw clients run in the same process on loopback, each a sender with a connection of its own. Only the time of the data
//! plane's own thread is counted (from the kernel's scheduler statistics), so the clients' share does not matter. Linux
//! only.
#![expect(clippy::print_stdout, reason = "an example that reports to a person")]

mod support;

use dataplane::{Config, RoleConfig, SharedPool};
use router_core::membership::BackendSpec;
use router_core::pool::PoolConfig;
use router_core::sender::Attach;
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use support::data_plane_cpu;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const BACKENDS: u16 = 16;

fn main() {
    let mut arguments = std::env::args().skip(1).map(|text| text.parse().expect("a number"));
    let connections: usize = arguments.next().unwrap_or(16);
    let leases: usize = arguments.next().unwrap_or(40_000);
    let pool = SharedPool::new("r/m", PoolConfig::default());
    for port in 1..=BACKENDS {
        let spec = BackendSpec::parse(&format!("10.0.0.1:{port}"), 1.0).expect("an address");
        pool.with(|pool, now| pool.add_backend(spec, now)).expect("added");
    }
    for sender in 0..connections {
        let attached = pool.with(|pool, now| pool.attach_sender(&Attach::new(&format!("s{sender}"), "1", "o"), now));
        attached.expect("attached");
    }
    let mut config = Config::new(vec![RoleConfig::single("r", "m", pool)]);
    config.worker_threads = 1;
    config.timeouts.probe_interval = Duration::from_secs(3600);
    let plane = dataplane::start(config).expect("started");
    let runtime = tokio::runtime::Runtime::new().expect("threads");
    let target = plane.local_addr();
    runtime.block_on(load(target, connections, 0, leases / 10));
    let (before, start) = (data_plane_cpu(), Instant::now());
    runtime.block_on(load(target, connections, leases, leases));
    let (cpu, wall) = (data_plane_cpu().saturating_sub(before), start.elapsed());
    let total = u32::try_from(leases / connections * connections).expect("fewer");
    println!(
        "acquire and settle: {:.1} us CPU, {:.0} per second over {connections} connections",
        (cpu / total).as_secs_f64() * 1e6,
        f64::from(total) / wall.as_secs_f64(),
    );
    plane.shutdown(Duration::from_secs(1));
}

/// `count` leases on all connections together; the numbers of the requests begin above `first`.
async fn load(target: SocketAddr, connections: usize, first: usize, count: usize) {
    let mut clients = Vec::new();
    for sender in 0..connections {
        clients.push(tokio::spawn(async move {
            let mut client = Client {
                socket: TcpStream::connect(target).await.expect("connected"),
                buffer: Vec::with_capacity(1 << 12),
            };
            client.socket.set_nodelay(true).expect("a socket");
            for seq in first + 1..=first + count / connections {
                // Whatever is below this number is settled, which is what keeps the router's records short.
                let settled = seq - 1;
                let acquire = format!(
                    "{{\"sender\":\"s{sender}\",\"incarnation\":\"1\",\"seq\":{seq},\"session\":\"k{}\",\
                     \"settled\":[[0,{settled}]],\"wait_ms\":30000}}",
                    seq / 8
                );
                let answer = client.post("/leases", &acquire).await;
                let (_, rest) = answer.split_once("\"lease_id\":\"").expect("a lease");
                let path = format!("/leases/{}/settle", &rest[..16]);
                client
                    .post(&path, "{\"outcome\":\"completed\",\"output_tokens\":512}")
                    .await;
            }
        }));
    }
    for client in clients {
        client.await.expect("no error");
    }
}

struct Client {
    socket: TcpStream,
    buffer: Vec<u8>,
}

impl Client {
    async fn post(&mut self, path: &str, body: &str) -> String {
        let length = body.len();
        let request = format!(
            "POST /v1/router/pools/r/m{path} HTTP/1.1\r\nhost: r\r\ncontent-type: application/json\r\n\
             content-length: {length}\r\n\r\n{body}"
        );
        self.socket.write_all(request.as_bytes()).await.expect("written");
        self.buffer.clear();
        // Every answer is one object in one piece, and no member of it ends in two braces.
        while !self.buffer.ends_with(b"}") {
            let read = self.socket.read_buf(&mut self.buffer).await.expect("read");
            assert!(read > 0, "the answer ended early");
        }
        let answer = String::from_utf8_lossy(&self.buffer).into_owned();
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        answer
    }
}
