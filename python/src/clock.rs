//! `VirtualClock`: time that passes when a test says so.

use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use dataplane::clock::{Clock, ManualClock};
use dataplane::shared::SharedPool;
use pyo3::prelude::*;
use router_core::pool::{Pool as CorePool, PoolConfig};
use router_core::time::Timestamp;

use crate::errors;

/// How often a data plane ticks: the active clock of a pool counts at most a few seconds a tick.
const TICK: Duration = Duration::from_secs(1);

/// The clock of pools that were made with it.
#[pyclass(frozen, module = "trimtab._core")]
pub(crate) struct VirtualClock {
    clock: Arc<ManualClock>,
    pools: Mutex<Vec<Weak<SharedPool>>>,
}

impl VirtualClock {
    /// A pool on this clock.
    pub(crate) fn pool(&self, name: &str, config: PoolConfig) -> Arc<SharedPool> {
        let pool = SharedPool::with_clock(name, config, Clock::Manual(Arc::clone(&self.clock)));
        let mut pools = self.pools.lock().unwrap_or_else(PoisonError::into_inner);
        pools.retain(|known| known.strong_count() > 0);
        pools.push(Arc::downgrade(&pool));
        pool
    }

    fn pass(&self, duration: Duration) {
        let pools: Vec<_> = {
            let known = self.pools.lock().unwrap_or_else(PoisonError::into_inner);
            known.iter().filter_map(Weak::upgrade).collect()
        };
        let mut left = duration;
        while !left.is_zero() {
            let step = left.min(TICK);
            left -= step;
            self.clock.advance(step);
            for pool in &pools {
                pool.with(CorePool::tick);
            }
        }
    }
}

#[pymethods]
impl VirtualClock {
    #[new]
    fn new() -> Self {
        Self {
            clock: Arc::default(),
            pools: Mutex::default(),
        }
    }

    #[getter]
    fn now_s(&self) -> f64 {
        self.clock.now().since(Timestamp::ZERO).as_secs_f64()
    }

    fn advance(&self, py: Python<'_>, seconds: f64) -> PyResult<()> {
        let duration = errors::seconds(py, "seconds", seconds)?;
        py.detach(|| self.pass(duration));
        Ok(())
    }

    fn __repr__(&self) -> String {
        format!("VirtualClock(now_s={})", self.now_s())
    }
}
