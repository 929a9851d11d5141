//! How every TCP connection of the data plane is set up, to clients and to engines.

use socket2::{SockRef, TcpKeepalive};
use std::io;
use std::time::Duration;
use tokio::net::TcpStream;

/// Silence after which the kernel asks whether the other machine still exists. A long prefill is silent too, so
/// without this a request to a machine that lost power would wait for ever.
const ALIVE_AFTER: Duration = Duration::from_secs(15);
const ALIVE_EVERY: Duration = Duration::from_secs(5);

pub(crate) fn prepare(stream: &TcpStream) -> io::Result<()> {
    // Otherwise an event of 40 bytes may wait for the acknowledgement of the one before.
    stream.set_nodelay(true)?;
    let keepalive = TcpKeepalive::new().with_time(ALIVE_AFTER).with_interval(ALIVE_EVERY);
    SockRef::from(stream).set_tcp_keepalive(&keepalive)
}
