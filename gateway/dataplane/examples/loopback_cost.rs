//! What one request costs the data plane in CPU time: `cargo run --release --example loopback_cost [connections] [requests]`.
//!
//! A trivial engine and raw clients run in the same process on loopback. Only the time of the data plane's own threads
//! is counted (from the kernel's scheduler statistics), so the clients' share does not matter. Linux only.
#![expect(clippy::print_stdout, reason = "an example that reports to a person")]

mod support;

use dataplane::{Config, RoleConfig, SharedPool};
use router_core::membership::BackendSpec;
use router_core::pool::PoolConfig;
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use support::data_plane_cpu;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

const BODY_BYTES: usize = 2048;
const EVENTS: usize = 64;

fn main() {
    let mut arguments = std::env::args().skip(1).map(|text| text.parse().expect("a number"));
    let connections: usize = arguments.next().unwrap_or(16);
    let requests: usize = arguments.next().unwrap_or(40_000);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("threads");
    let engine = runtime.block_on(start_engine());
    let pool = SharedPool::new("r/m", PoolConfig::default());
    let spec = BackendSpec::parse(&engine.to_string(), 1.0).expect("an address");
    pool.with(|pool, now| pool.add_backend(spec, now)).expect("added");
    let plane = dataplane::start(Config::new(vec![RoleConfig::single("r", "m", pool)])).expect("started");
    let target = plane.local_addr();
    for (name, stream, count) in [("complete answer", false, requests), ("64 events", true, requests / 16)] {
        runtime.block_on(load(target, connections, count / 10, stream));
        let (before, start) = (data_plane_cpu(), Instant::now());
        runtime.block_on(load(target, connections, count, stream));
        let (cpu, wall) = (data_plane_cpu().saturating_sub(before), start.elapsed());
        let total = u32::try_from(count / connections * connections).expect("fewer");
        println!(
            "{name}: {:.1} us CPU per request, {:.0} requests/s over {connections} connections",
            (cpu / total).as_secs_f64() * 1e6,
            f64::from(total) / wall.as_secs_f64(),
        );
    }
    plane.shutdown(Duration::from_secs(1));
}

async fn load(target: SocketAddr, connections: usize, requests: usize, stream: bool) {
    let text = "x".repeat(BODY_BYTES);
    let body = format!("{{\"text\":\"{text}\",\"stream\":{stream}}}");
    let length = body.len();
    let head =
        "POST /generate HTTP/1.1\r\nhost: g\r\naccept: */*\r\nuser-agent: load\r\ncontent-type: application/json\r\n";
    let mut clients = Vec::new();
    for number in 0..connections {
        let request = format!("{head}x-session-id: s{number}\r\ncontent-length: {length}\r\n\r\n{body}");
        clients.push(tokio::spawn(async move {
            let mut socket = TcpStream::connect(target).await.expect("connected");
            socket.set_nodelay(true).expect("a socket");
            let mut buffer = Vec::with_capacity(1 << 16);
            let end: &[u8] = if stream { b"0\r\n\r\n" } else { b"\n}" };
            for _ in 0..requests / connections {
                socket.write_all(request.as_bytes()).await.expect("written");
                buffer.clear();
                while !buffer.ends_with(end) {
                    assert!(
                        socket.read_buf(&mut buffer).await.expect("read") > 0,
                        "the answer ended early"
                    );
                }
            }
        }));
    }
    for client in clients {
        client.await.expect("no error");
    }
}

async fn start_engine() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("bound");
    let address = listener.local_addr().expect("bound");
    tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            tokio::spawn(serve(socket));
        }
    });
    address
}

async fn serve(mut socket: TcpStream) {
    let _ = socket.set_nodelay(true);
    let text = "y".repeat(BODY_BYTES);
    let body = format!("{{\"text\":\"{text}\",\"meta_info\":{{\"completion_tokens\":9}}\n}}");
    let answer = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    let mut buffer = Vec::with_capacity(1 << 16);
    loop {
        // Every request of this program ends with its body's closing brace; a probe has no body.
        while !(buffer.ends_with(b"}") || buffer.ends_with(b"\r\n\r\n") && buffer.starts_with(b"GET")) {
            if socket.read_buf(&mut buffer).await.unwrap_or(0) == 0 {
                return;
            }
        }
        let sent = if buffer.ends_with(b"\"stream\":true}") {
            events(&mut socket).await
        } else {
            socket.write_all(answer.as_bytes()).await
        };
        if sent.is_err() {
            return;
        }
        buffer.clear();
    }
}

async fn events(socket: &mut TcpStream) -> std::io::Result<()> {
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
    socket.write_all(head.as_bytes()).await?;
    for _ in 0..EVENTS {
        socket
            .write_all(b"28\r\ndata: {\"text\":\"yyyyyyyyyyyyyyyyyyyyy\"}\n\n\r\n")
            .await?;
        tokio::task::yield_now().await;
    }
    socket.write_all(b"0\r\n\r\n").await
}
