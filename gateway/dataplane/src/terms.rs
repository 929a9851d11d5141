//! On what terms a client takes a lease: how long it waits for one, and on which weights it wants to run.
//!
//! While weights are updated nothing is granted. A client that says nothing is refused at once, which is what a load
//! balancer in front of us needs, but for what the pool's own queue allows while all places are taken; one that says how long it can wait is parked in the pool's queue, and answered the
//! moment its lease is granted. Leaving ends the wait: see [`crate::parked::ParkedCall`].

use crate::error::{Code, Failure};
use crate::headers::Asked;
use crate::parked::ParkedCall;
use crate::plane::Plane;
use crate::shared::{LeaseGuard, SharedPool};
use http::HeaderValue;
use router_core::error::Error;
use router_core::pool::{AcquireRequest, Grant};
use router_core::waiters::{Acquisition, Parked};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Waiting for longer is waiting for ever; more would not fit into a timer.
const LONGEST_WAIT: Duration = Duration::from_secs(365 * 24 * 3600);

/// What a client asks of its lease.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Terms {
    /// How long it waits for the grant. Zero is not nothing: such a client understands "too early".
    pub(crate) wait: Option<Duration>,
    /// The only version it wants to run on.
    pub(crate) version: Option<u64>,
}

impl Terms {
    pub(crate) fn read<'a>(asked: &Asked<'a>) -> Result<Self, Failure> {
        let text = |value: Option<&'a HeaderValue>| value.map(|value| value.to_str().unwrap_or_default().trim());
        let wait = text(asked.wait).map(|text| {
            let seconds = text.parse().ok().filter(|seconds: &f64| *seconds >= 0.0)?;
            Duration::try_from_secs_f64(seconds).ok()
        });
        let version = text(asked.version).map(|text| text.parse().ok());
        match (wait, version) {
            (Some(None), _) => Err(Failure::new(
                Code::InvalidWait,
                "x-trimtab-wait must be a number of seconds, 0 or more; a fraction is allowed",
            )),
            (_, Some(None)) => Err(Failure::new(
                Code::InvalidWeightVersion,
                "x-trimtab-weight-version must be the number of a published version",
            )),
            (wait, version) => Ok(Self {
                wait: wait.flatten(),
                version: version.flatten(),
            }),
        }
    }
}

/// When a wait that begins now is over: no later than the whole request.
pub(crate) fn until(wait: Duration, total: Option<Instant>) -> Instant {
    let until = Instant::now() + wait.min(LONGEST_WAIT);
    total.map_or(until, |total| total.min(until))
}

/// Acquires a lease, waiting for it as long as the client says, or else as the pool's queue does; in any case no longer
/// than `total`. A data plane that shuts down waits no more.
pub(crate) async fn acquire(
    plane: &Plane,
    pool: &Arc<SharedPool>,
    request: &AcquireRequest<'_>,
    until: Option<Instant>,
    total: Option<Instant>,
) -> Result<LeaseGuard, Error> {
    let acquired = pool.with(|pool, now| match until {
        None => pool.acquire_or_queue(request, now),
        Some(until) => {
            let deadline = now.after(until.saturating_duration_since(Instant::now()));
            pool.acquire_or_park(request, deadline, now)
        }
    })?;
    let grant = match acquired {
        Acquisition::Granted(grant) => grant,
        // Boxed, so that its state does not grow that of requests that do not wait.
        Acquisition::Parked(parked) => Box::pin(wait(plane, pool, parked, total)).await?,
    };
    Ok(LeaseGuard::new(Arc::clone(pool), grant))
}

async fn wait(plane: &Plane, pool: &Arc<SharedPool>, parked: Parked, total: Option<Instant>) -> Result<Grant, Error> {
    let patience = parked.deadline.since(pool.now());
    let mut call = ParkedCall::new(Arc::clone(pool), parked);
    let in_time = tokio::select! {
        biased;
        answer = &mut call => Some(answer),
        () = plane.lease_api.time_is_up(until(patience, total)) => None,
    };
    in_time.unwrap_or_else(|| call.give_up())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::headers::{WAIT, WEIGHT_VERSION};
    use http::{HeaderMap, HeaderName};

    fn read(name: HeaderName, value: &str) -> Result<Terms, Failure> {
        let value = HeaderValue::from_bytes(value.as_bytes()).expect("a header's value");
        Terms::read(&Asked::of(&HeaderMap::from_iter([(name, value)])))
    }

    /// Seconds may be fractions; what is no time to wait is refused, never taken for another.
    #[test]
    fn waits_are_seconds() {
        let wait = |value| read(WAIT, value).map(|terms| terms.wait).ok();
        assert_eq!(wait("0"), Some(Some(Duration::ZERO)));
        assert_eq!(wait(" 1.5 "), Some(Some(Duration::from_millis(1500))));
        assert_eq!(wait("1e3"), Some(Some(Duration::from_secs(1000))));
        for refused in ["", "-1", "soon", "inf", "nan", "1e300", "1s", "1,5", "\u{e9}"] {
            assert_eq!(wait(refused), None, "{refused:?}");
        }
        assert!(until(Duration::MAX, None) > Instant::now());
        let total = Instant::now();
        assert_eq!(until(Duration::from_secs(9), Some(total)), total);
    }

    /// A version is a whole number.
    #[test]
    fn versions_are_numbers() {
        let version = |value| read(WEIGHT_VERSION, value).map(|terms| terms.version).ok();
        assert_eq!(version("7"), Some(Some(7)));
        for refused in ["", "-1", "7.0", "default", "99999999999999999999"] {
            assert_eq!(version(refused), None, "{refused:?}");
        }
        assert_eq!(Terms::read(&Asked::of(&HeaderMap::new())).ok(), Some(Terms::default()));
    }
}
