//! What the data plane could not serve, for the operator's log.
//!
//! The client that got a 502 sees which engine broke; the operator has to see it too, without a line per request when an
//! engine takes a thousand of them with it. So failures are counted per code and engine, with the last one as the
//! example, until the shell takes them. The memory is bounded by the codes and the configured engines.

use crate::error::Failure;
use parking_lot::Mutex;
use std::collections::BTreeMap;

/// Failures of one kind since they were last taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailureSummary {
    /// The machine-readable code, as in the answers.
    pub code: &'static str,
    /// The id of the engine, when one was chosen.
    pub backend: Option<String>,
    /// How many requests failed so.
    pub count: u64,
    /// The message of the last one.
    pub message: String,
    /// The lease of the last one, when there was one.
    pub lease: Option<String>,
    /// The session of the last one, when it had one.
    pub session: Option<String>,
}

#[derive(Default)]
pub(crate) struct FailureLog {
    by_kind: Mutex<BTreeMap<(&'static str, Option<String>), FailureSummary>>,
}

impl FailureLog {
    /// Notes a failure of the fleet or of ours; what a client did wrong is in its answer and nowhere else.
    pub(crate) fn note(&self, failure: &Failure) {
        if !failure.concerns_operator() {
            return;
        }
        let [backend, lease, session] = failure.labels();
        let mut by_kind = self.by_kind.lock();
        let summary = by_kind
            .entry((failure.code().as_str(), backend.clone()))
            .or_insert_with(|| FailureSummary {
                code: failure.code().as_str(),
                backend,
                count: 0,
                message: String::new(),
                lease: None,
                session: None,
            });
        summary.count += 1;
        failure.message().clone_into(&mut summary.message);
        summary.lease = lease;
        summary.session = session;
    }

    /// Takes what was noted, ordered by code and engine.
    pub(crate) fn take(&self) -> Vec<FailureSummary> {
        std::mem::take(&mut *self.by_kind.lock()).into_values().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Code;
    use http::HeaderValue;

    /// A thousand equal failures are one entry with the last example; a client's mistake is none.
    #[test]
    fn equal_failures_are_counted() {
        let log = FailureLog::default();
        let engine = HeaderValue::from_static("e1");
        for number in 0..1000 {
            let lease = HeaderValue::from(number);
            log.note(
                &Failure::new(Code::UpstreamBroken, format!("{number}"))
                    .of_backend(&engine)
                    .of_lease(lease),
            );
        }
        log.note(&Failure::new(Code::NoEligibleBackend, "none"));
        log.note(&Failure::new(Code::UnknownModel, "a client's mistake"));
        let taken = log.take();
        let shown: Vec<_> = taken
            .iter()
            .map(|each| (each.code, each.backend.as_deref(), each.count))
            .collect();
        assert_eq!(
            shown,
            [("no_eligible_backend", None, 1), ("upstream_broken", Some("e1"), 1000)]
        );
        assert_eq!(
            (taken[1].message.as_str(), taken[1].lease.as_deref()),
            ("999", Some("999"))
        );
        assert!(log.take().is_empty());
    }
}
