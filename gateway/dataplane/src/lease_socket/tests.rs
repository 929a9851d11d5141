use super::*;
use std::os::unix::net::UnixListener as StdListener;

/// A path for one test, below the system's directory for such: a socket's path is at most 107 bytes long.
fn path(name: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("trimtab-{}-{name}.sock", std::process::id()));
    let _ = fs::remove_file(&path);
    path
}

/// Only its owner may connect, and the file goes with the socket.
#[tokio::test]
async fn the_file_is_private_and_is_removed() {
    let path = path("private");
    let socket = LeaseSocket::bind(&path).expect("bound");
    let found = fs::symlink_metadata(&path).expect("a file");
    assert!(found.file_type().is_socket());
    assert_eq!(found.permissions().mode() & 0o777, 0o600);
    drop(socket);
    assert!(!path.exists());
}

/// What a killed process left behind is replaced.
#[tokio::test]
async fn an_abandoned_socket_is_replaced() {
    let path = path("abandoned");
    drop(StdListener::bind(&path).expect("bound"));
    assert!(path.exists(), "closing a socket leaves its file");
    let _socket = LeaseSocket::bind(&path).expect("bound in its place");
    UnixStream::connect(&path).await.expect("somebody listens");
}

/// A socket that is served is left alone, by the one that came too late also when it goes.
#[tokio::test]
async fn a_served_socket_is_left_alone() {
    let path = path("served");
    let first = LeaseSocket::bind(&path).expect("bound");
    let refused = LeaseSocket::bind(&path).err().expect("taken");
    assert_eq!(refused.kind(), io::ErrorKind::AddrInUse);
    UnixStream::connect(&path).await.expect("the first one still listens");
    drop(first);
}

/// A file that is no socket is nobody's to remove.
#[tokio::test]
async fn another_file_is_left_alone() {
    let path = path("file");
    fs::write(&path, "precious").expect("written");
    assert!(LeaseSocket::bind(&path).is_err());
    assert_eq!(fs::read_to_string(&path).expect("still there"), "precious");
    fs::remove_file(&path).expect("removed");
}

/// A file that took the place of ours meanwhile stays.
#[tokio::test]
async fn a_successor_keeps_its_file() {
    let path = path("successor");
    let first = LeaseSocket::bind(&path).expect("bound");
    fs::remove_file(&path).expect("removed by somebody");
    let _second = LeaseSocket::bind(&path).expect("bound");
    drop(first);
    UnixStream::connect(&path).await.expect("the second one still listens");
}
