//! Whether the threads of the data plane keep up.
//!
//! A timer that runs late says that tasks waited for a thread: there is more work than the threads can do, or one of
//! them is held up. The timers here have a resolution of a millisecond, so that a lag of one means nothing.

use crate::plane::Plane;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep_until};

const PERIOD: Duration = Duration::from_millis(100);

pub(crate) async fn run(plane: Arc<Plane>) {
    loop {
        let due = Instant::now() + PERIOD;
        sleep_until(due).await;
        plane.lag.lock().record(due.elapsed());
    }
}
