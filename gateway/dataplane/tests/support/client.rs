//! A raw HTTP/1.1 client that can stop at any byte.

use super::DEADLINE;
use dataplane::DataPlane;
use socket2::SockRef;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

pub(crate) struct Client {
    stream: TcpStream,
    buffer: Vec<u8>,
}

/// An answer, as far as it came.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
    /// It ended as its framing promised.
    pub(crate) complete: bool,
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| {
            let (key, value) = line.split_once(": ")?;
            key.eq_ignore_ascii_case(name).then_some(value)
        })
    }

    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).expect("UTF-8")
    }

    pub(crate) fn error(&self) -> serde_json::Value {
        let body: serde_json::Value = serde_json::from_slice(&self.body).expect("a JSON body");
        body["error"].clone()
    }
}

/// A POST request with a length.
pub(crate) fn post(path: &str, body: &str) -> String {
    post_with(path, "", body)
}

/// A POST request with additional header lines, each ending in CRLF.
pub(crate) fn post_with(path: &str, headers: &str, body: &str) -> String {
    let length = body.len();
    format!("POST {path} HTTP/1.1\r\nhost: gateway\r\n{headers}content-length: {length}\r\n\r\n{body}")
}

impl Client {
    pub(crate) async fn connect(plane: &DataPlane) -> Self {
        let stream = TcpStream::connect(plane.local_addr()).await.expect("connected");
        stream.set_nodelay(true).expect("a socket");
        Self {
            stream,
            buffer: Vec::new(),
        }
    }

    pub(crate) async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream.write_all(bytes.as_ref()).await.expect("written");
    }

    pub(crate) async fn try_send(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.stream.write_all(bytes).await
    }

    /// Sends a request and reads the whole answer.
    pub(crate) async fn ask(&mut self, request: impl AsRef<[u8]>) -> Answer {
        self.send(request).await;
        self.answer().await
    }

    /// Leaves with a reset instead of an orderly end.
    pub(crate) fn reset(self) {
        SockRef::from(&self.stream)
            .set_linger(Some(Duration::ZERO))
            .expect("a socket");
    }

    /// Reads until `text` has arrived.
    pub(crate) async fn read_until(&mut self, text: &str) -> String {
        loop {
            let sofar = String::from_utf8_lossy(&self.buffer).into_owned();
            if sofar.contains(text) {
                return sofar;
            }
            assert!(
                self.more().await,
                "the connection ended before {text:?}; so far {sofar:?}"
            );
        }
    }

    /// Whether the peer has closed or will, without sending more.
    pub(crate) async fn is_closed(&mut self) -> bool {
        !self.more().await
    }

    pub(crate) async fn answer(&mut self) -> Answer {
        self.read_until("\r\n\r\n").await;
        let end = self
            .buffer
            .windows(4)
            .position(|window| window == b"\r\n\r\n")
            .expect("a head")
            + 4;
        let head = String::from_utf8(self.buffer.drain(..end).collect()).expect("text");
        let mut answer = Answer {
            status: head[9..12].parse().expect("a status"),
            head,
            body: Vec::new(),
            complete: false,
        };
        if answer.status < 200 {
            return answer;
        }
        if let Some(length) = answer
            .header("content-length")
            .map(|value| value.parse::<usize>().expect("a length"))
        {
            while self.buffer.len() < length && self.more().await {}
            answer.complete = self.buffer.len() >= length;
            answer.body = self.buffer.drain(..length.min(self.buffer.len())).collect();
        } else if answer.header("transfer-encoding").is_some() {
            answer.complete = self.chunks(&mut answer.body).await;
        } else {
            while self.more().await {}
            answer.body = std::mem::take(&mut self.buffer);
            answer.complete = true;
        }
        answer
    }

    /// Reads a chunked body; `false` when it ends without its last chunk.
    async fn chunks(&mut self, body: &mut Vec<u8>) -> bool {
        loop {
            let line = loop {
                if let Some(at) = self.buffer.windows(2).position(|window| window == b"\r\n") {
                    break at;
                }
                if !self.more().await {
                    return false;
                }
            };
            let size = std::str::from_utf8(&self.buffer[..line]).expect("text");
            let size = usize::from_str_radix(size, 16).expect("a chunk size");
            while self.buffer.len() < line + 2 + size + 2 {
                if !self.more().await {
                    return false;
                }
            }
            body.extend_from_slice(&self.buffer[line + 2..line + 2 + size]);
            self.buffer.drain(..line + 2 + size + 2);
            if size == 0 {
                return true;
            }
        }
    }

    async fn more(&mut self) -> bool {
        let read = timeout(DEADLINE, self.stream.read_buf(&mut self.buffer))
            .await
            .expect("bytes or an end in time");
        read.is_ok_and(|count| count > 0)
    }
}
