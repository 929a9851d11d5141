//! The lease API on a Unix socket, for callers on this machine.
//!
//! A lease costs two small messages, and over loopback TCP most of their CPU time is the kernel's. A Unix socket halves
//! that. It serves the lease API and nothing else, so it needs none of what a proxied request does.
//!
//! The file is the access control: its mode is 0600 before anybody can connect. It is removed at the end, and one that a
//! killed router left behind is replaced, but never one behind which somebody listens.

use crate::access::Origin;
use crate::lease_api;
use crate::plane::Plane;
use crate::server::{ACCEPT_BACKLOG, ACCEPT_RETRY, BUFFER_BYTES, Phase, Relief, serve_until_end};
use crate::stats::{Gauge, add};
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use socket2::{Domain, SockAddr, Socket, Type};
use std::convert::Infallible;
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::watch;

/// A listening socket and its file.
pub(crate) struct LeaseSocket {
    listener: UnixListener,
    _file: SocketFile,
}

/// Removes the file, unless another one is in its place.
struct SocketFile {
    path: PathBuf,
    /// Device and inode.
    identity: (u64, u64),
}

impl LeaseSocket {
    /// Must be called inside a runtime.
    pub(crate) fn bind(path: &Path) -> io::Result<Self> {
        let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
        let address = SockAddr::unix(path)?;
        match socket.bind(&address) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && is_abandoned(path, &address)? => {
                fs::remove_file(path)?;
                socket.bind(&address)?;
            }
            bound => bound?,
        }
        let found = fs::symlink_metadata(path)?;
        let file = SocketFile {
            path: path.to_owned(),
            identity: (found.dev(), found.ino()),
        };
        fs::set_permissions(path, Permissions::from_mode(0o600))?;
        socket.set_nonblocking(true)?;
        // Before this nobody can connect.
        socket.listen(ACCEPT_BACKLOG)?;
        Ok(Self {
            listener: UnixListener::from_std(socket.into())?,
            _file: file,
        })
    }
}

/// Whether `path` is a socket behind which nobody listens.
fn is_abandoned(path: &Path, address: &SockAddr) -> io::Result<bool> {
    if !fs::symlink_metadata(path)?.file_type().is_socket() {
        return Ok(false);
    }
    let caller = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    // A listener with a full queue would hold us.
    caller.set_nonblocking(true)?;
    let answer = caller.connect(address);
    Ok(answer.is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused))
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        let is_ours = fs::symlink_metadata(&self.path).is_ok_and(|found| (found.dev(), found.ino()) == self.identity);
        if is_ours {
            // What cannot be removed is replaced by the next start.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Accepts until the data plane no longer serves.
pub(crate) async fn accept(plane: Arc<Plane>, socket: LeaseSocket, phase: watch::Receiver<Phase>) {
    let mut changes = phase.clone();
    loop {
        let accepted = tokio::select! {
            biased;
            // Not every change: the same phase, said again, is a call to clients of the port.
            _ = changes.wait_for(|phase| *phase != Phase::Serving) => return,
            accepted = socket.listener.accept() => accepted,
        };
        if let Ok((stream, _peer)) = accepted {
            add(&plane.counters.connections_total);
            tokio::spawn(serve(Arc::clone(&plane), stream, phase.clone()));
        } else {
            add(&plane.counters.accept_errors);
            tokio::time::sleep(ACCEPT_RETRY).await;
        }
    }
}

async fn serve(plane: Arc<Plane>, stream: UnixStream, phase: watch::Receiver<Phase>) {
    let _running = plane.tasks.enter();
    let _open = Gauge::raise(&plane.counters, |counters| &counters.connections);
    let service = service_fn(move |request| answer(Arc::clone(&plane), request));
    let connection = http1::Builder::new()
        .max_buf_size(BUFFER_BYTES)
        // Answers are small: to copy one is cheaper than to hand the kernel two pieces.
        .writev(false)
        .serve_connection(TokioIo::new(stream), service);
    serve_until_end(connection, phase, || Relief::Stay).await;
}

async fn answer(plane: Arc<Plane>, request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let _open = Gauge::raise(&plane.counters, |counters| &counters.open_requests);
    // An answer before the end of a request needs no lingering here: closing discards nothing that was sent.
    let (response, _closes) = lease_api::answer(&plane, request, Origin::LeaseSocket).await;
    plane.counters.count_status(response.status());
    Ok(response.map(Full::new))
}

#[cfg(test)]
mod tests;
