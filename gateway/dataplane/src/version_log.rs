//! Answers that were made with other weights than their leases say, for the operator's log.
//!
//! Such an answer is complete and useless: whoever trains on it believes the wrong thing. The request is not failed for
//! it, because its caller can read the engine's own label; but somebody has to know. So it is counted per pool and
//! engine, with the last one as the example, until the shell takes it.

use parking_lot::Mutex;
use std::collections::BTreeMap;

/// Engines remembered between two looks.
const ENGINES: usize = 1024;

/// Answers of one engine whose weights were not those of their leases, since they were last taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VersionMismatch {
    /// The name of the pool.
    pub pool: String,
    /// The id of the engine.
    pub backend: String,
    /// The version of the last one's lease.
    pub expected: u64,
    /// The version the engine said to have used for it; `None` when it named none, though it had named one before: it
    /// was started anew.
    pub observed: Option<u64>,
    /// The lease of the last one.
    pub lease: String,
    /// How many answers there were.
    pub count: u64,
}

#[derive(Default)]
pub(crate) struct VersionLog {
    by_engine: Mutex<BTreeMap<(String, String), VersionMismatch>>,
}

impl VersionLog {
    pub(crate) fn note(&self, mismatch: VersionMismatch) {
        let key = (mismatch.pool.clone(), mismatch.backend.clone());
        let mut by_engine = self.by_engine.lock();
        if let Some(known) = by_engine.get_mut(&key) {
            let count = known.count + mismatch.count;
            *known = VersionMismatch { count, ..mismatch };
        } else if by_engine.len() < ENGINES {
            by_engine.insert(key, mismatch);
        }
    }

    /// Takes what was noted, ordered by pool and engine.
    pub(crate) fn take(&self) -> Vec<VersionMismatch> {
        std::mem::take(&mut *self.by_engine.lock()).into_values().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Equal ones are one entry with the last example, and memory is bounded.
    #[test]
    fn mismatches_are_counted() {
        let log = VersionLog::default();
        let mismatch = |backend: usize, lease: &str| VersionMismatch {
            pool: "p".to_owned(),
            backend: format!("{backend:04}"),
            expected: 8,
            observed: Some(7),
            lease: lease.to_owned(),
            count: 1,
        };
        for backend in 0..2 * ENGINES {
            log.note(mismatch(backend, "first"));
        }
        log.note(mismatch(0, "last"));
        let taken = log.take();
        assert_eq!(taken.len(), ENGINES);
        assert_eq!((taken[0].count, taken[0].lease.as_str()), (2, "last"));
        assert_eq!((taken[1].count, taken[1].lease.as_str()), (1, "first"));
        assert!(log.take().is_empty());
    }
}
