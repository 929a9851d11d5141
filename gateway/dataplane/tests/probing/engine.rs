//! An engine that answers probes as it is told, and remembers them.

use bytes::Bytes;
use http::header::AUTHORIZATION;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use tokio::net::TcpListener;
use tokio::task::{JoinHandle, JoinSet};

/// What an engine says to a call.
#[derive(Clone, Copy)]
pub(crate) enum Says {
    Answer(u16, &'static str),
    /// Nothing, ever.
    Nothing,
}

/// A call the engine has read.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) path: String,
    pub(crate) authorization: Option<String>,
    pub(crate) body: String,
}

struct State {
    model_info: Says,
    generate: Says,
    seen: Vec<Seen>,
}

pub(crate) struct ProbedEngine {
    address: SocketAddr,
    state: Arc<Mutex<State>>,
    task: JoinHandle<()>,
}

impl ProbedEngine {
    /// One that is alive and generates.
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("bound");
        let address = listener.local_addr().expect("bound");
        let state = Arc::new(Mutex::new(State {
            model_info: Says::Answer(200, "{}"),
            generate: Says::Answer(200, "{}"),
            seen: Vec::new(),
        }));
        let shared = Arc::clone(&state);
        let task = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let state = Arc::clone(&shared);
                let service = service_fn(move |request| serve(Arc::clone(&state), request));
                connections.spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
            }
        });
        Self { address, state, task }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(crate) fn describes_itself(&self, says: Says) {
        self.state.lock().expect("no panic").model_info = says;
    }

    pub(crate) fn generates(&self, says: Says) {
        self.state.lock().expect("no panic").generate = says;
    }

    /// The calls of this path so far.
    pub(crate) fn seen(&self, path: &str) -> Vec<Seen> {
        let state = self.state.lock().expect("no panic");
        state.seen.iter().filter(|seen| seen.path == path).cloned().collect()
    }
}

impl Drop for ProbedEngine {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(state: Arc<Mutex<State>>, request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let (parts, body) = request.into_parts();
    let body = body
        .collect()
        .await
        .map(http_body_util::Collected::to_bytes)
        .unwrap_or_default();
    let path = parts.uri.path().to_owned();
    let authorization = parts.headers.get(AUTHORIZATION);
    let says = {
        let mut state = state.lock().expect("no panic");
        state.seen.push(Seen {
            path: path.clone(),
            authorization: authorization.map(|value| value.to_str().expect("text").to_owned()),
            body: String::from_utf8_lossy(&body).into_owned(),
        });
        match path.as_str() {
            "/model_info" => state.model_info,
            "/generate" => state.generate,
            _ => Says::Answer(200, ""),
        }
    };
    match says {
        Says::Answer(status, body) => {
            let mut response = Response::new(Full::from(body));
            *response.status_mut() = status.try_into().expect("a status");
            Ok(response)
        }
        Says::Nothing => std::future::pending().await,
    }
}
