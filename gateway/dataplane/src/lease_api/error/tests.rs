//! The vocabulary against the table it is promised by.

use super::*;
use router_core::lease::Outcome;
use router_core::poison::{PoisonEntry, PoisonSubject};
use router_core::state::{Cause, Failure};
use router_core::time::Timestamp;
use router_core::update::UpdatePhase;
use router_core::version::Published;
use std::sync::Arc;
use std::time::Duration;

fn failed() -> Error {
    Error::PoolFailed {
        failure: Arc::new(Failure {
            cause: Cause::Reported {
                reason: "why".to_owned(),
            },
            at: Timestamp::ZERO,
        }),
    }
}

fn core_errors() -> Vec<Error> {
    let published = Published { epoch: 0, version: 7 };
    let text = || "x".to_owned();
    vec![
        Error::InvalidAddress {
            value: text(),
            rule: "rule",
        },
        Error::InvalidCapacity { value: 0.0 },
        Error::InvalidBackendId {
            id: text(),
            rule: "rule",
        },
        Error::InvalidSessionKey { length: 0 },
        Error::InvalidArgument {
            what: "what",
            rule: "rule",
        },
        Error::UnknownOwner { owner: text() },
        Error::UnknownBackend { id: text() },
        Error::UnknownLease,
        Error::UnknownSender { sender: text() },
        Error::UnknownUpdate { id: text() },
        Error::IdempotencyConflict { what: "request" },
        Error::RequestSettled {
            outcome: Outcome::Completed,
        },
        Error::StaleRequest { seq: 1 },
        Error::StaleVersion {
            expected: 6,
            published: Some(published),
        },
        Error::OutcomeConflict {
            recorded: Outcome::Completed,
            reported: Outcome::Failed,
        },
        Error::UpdateInProgress {
            id: text(),
            phase: UpdatePhase::Quiescing,
            age: Duration::ZERO,
        },
        Error::InvalidTransition {
            operation: "publish",
            state: text(),
        },
        Error::VersionRegression {
            requested: 6,
            published,
        },
        Error::BackendBusy {
            id: text(),
            outstanding: 1,
        },
        Error::SessionClosed,
        Error::PoolClosed,
        Error::Fenced {
            owner: text(),
            reasons: vec![text()],
        },
        Error::VersionNotAcked {
            owner: text(),
            published: 7,
            acknowledged: None,
        },
        Error::NoEligibleBackend {
            census: Census::default(),
        },
        Error::NotServing {
            state: "quiescing",
            server_paused: true,
            update: None,
        },
        Error::TooManyTombstones { limit: 1 },
        Error::TooManyWaiters { limit: 1 },
        Error::PoisonSuspected {
            entry: Arc::new(PoisonEntry {
                id: 1,
                subject: PoisonSubject::Fingerprint,
                refused: true,
                strikes: Vec::new(),
                refusals: 1,
                expires_in: Duration::ZERO,
            }),
        },
        Error::AtCapacity {
            outstanding: 1,
            limit: 1,
        },
        Error::DrainTimeout {
            update: text(),
            outstanding: 1,
            blockers: Vec::new(),
            engines: Vec::new(),
            failed: true,
        },
        failed(),
    ]
}

/// Every (status, code) the API can answer with.
pub(in crate::lease_api) fn vocabulary() -> Vec<(u16, &'static str)> {
    let mut words: Vec<(u16, &'static str)> = Problem::ALL
        .iter()
        .map(|problem| (problem.status().as_u16(), problem.code()))
        .chain(
            core_errors()
                .iter()
                .map(|error| (status_of(error, Side::Control).as_u16(), error.code())),
        )
        .chain([(status_of(&failed(), Side::Acquire).as_u16(), failed().code())])
        .collect();
    words.sort_unstable();
    words.dedup();
    words
}

/// The table of statuses and codes is exactly the promised one.
#[test]
fn statuses() {
    let promised: &[(u16, &[&str])] = &[
        (400, &["invalid_request"]),
        (401, &["unauthenticated"]),
        (403, &["forbidden"]),
        (
            404,
            &[
                "not_found",
                "unknown_backend",
                "unknown_lease",
                "unknown_pool",
                "unknown_sender",
                "unknown_update",
            ],
        ),
        (405, &["method_not_allowed"]),
        (408, &["request_timeout"]),
        (
            409,
            &[
                "backend_busy",
                "idempotency_conflict",
                "invalid_transition",
                "managed",
                "outcome_conflict",
                "pool_closed",
                "pool_failed",
                "request_settled",
                "router_restarted",
                "session_closed",
                "stale_request",
                "update_in_progress",
                "version_regression",
            ],
        ),
        (413, &["body_too_large"]),
        (
            422,
            &[
                "invalid_address",
                "invalid_capacity",
                "invalid_request",
                "poison_suspected",
            ],
        ),
        (
            425,
            &["fenced", "no_eligible_backend", "not_serving", "version_not_acked"],
        ),
        (429, &["at_capacity", "too_many_tombstones", "too_many_waiters"]),
        (503, &["pool_failed"]),
        (504, &["drain_timeout"]),
    ];
    let promised: Vec<(u16, &str)> = promised
        .iter()
        .flat_map(|(status, codes)| codes.iter().map(|code| (*status, *code)))
        .collect();
    assert_eq!(vocabulary(), promised);
}

/// What cannot succeed later forbids a retry; what can says when to come back.
#[test]
fn retries() {
    for error in core_errors() {
        let retryable = error.retryable();
        let response = Refusal::of(&error, Side::Acquire).into_response("incarnation", None);
        let headers = response.headers();
        assert_eq!(headers.contains_key(headers::SHOULD_RETRY), !retryable, "{error}");
        assert_eq!(
            headers.contains_key(RETRY_AFTER),
            retryable && matches!(response.status().as_u16(), 425 | 429 | 503),
            "{error}"
        );
        assert_eq!(headers[headers::ERROR], error.code());
    }
}
