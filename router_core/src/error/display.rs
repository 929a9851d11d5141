//! The messages: what was refused, which one, and what to do.

use super::{Census, Error};
use std::fmt;

impl fmt::Display for Census {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} registered", self.registered)?;
        for (count, what) in [
            (self.eligible, "eligible"),
            (self.unproven, "not reached yet"),
            (self.down, "down"),
            (self.draining, "draining"),
            (self.pending_version, "pending version"),
            (self.tainted, "tainted"),
            (self.excluded, "already tried"),
        ] {
            if count > 0 {
                write!(f, ", {count} {what}")?;
            }
        }
        Ok(())
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InvalidAddress { value, rule } => write!(
                f,
                "engine address {value:?} is refused: {rule}; expected [http://]host:port, for example http://10.0.0.1:30000"
            ),
            Self::InvalidCapacity { value } => write!(
                f,
                "capacity {value} is refused: it must be a finite number between 0.000001 and 1000000000"
            ),
            Self::InvalidBackendId { id, rule } => write!(f, "backend id {id:?} is refused: {rule}"),
            Self::InvalidSessionKey { length } => write!(
                f,
                "session key of {length} bytes is refused: it must have 1 to {} bytes",
                crate::session::MAX_KEY_BYTES
            ),
            Self::UnknownBackend { id } => write!(f, "no backend {id:?} in this pool"),
            Self::UnknownLease => f.write_str("the lease is not open: it was settled before or never existed"),
            Self::NoEligibleBackend { census } => {
                write!(f, "no backend can take a new execution now ({census})")
            }
            Self::AtCapacity { outstanding, limit } => write!(
                f,
                "{outstanding} executions are outstanding and max_concurrent is {limit}"
            ),
            other => other.describe_control(f),
        }
    }
}

impl Error {
    /// The messages about leases, owners and updates.
    fn describe_control(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InvalidArgument { what, rule } => write!(f, "the {what} is refused: {rule}"),
            Self::UnknownOwner { owner } => write!(f, "no owner {owner:?} in this pool: attach it first"),
            Self::UnknownSender { sender } => {
                write!(
                    f,
                    "no sender {sender:?} is attached with this incarnation: attach it (again)"
                )
            }
            Self::UnknownUpdate { id } => write!(f, "no update {id:?} is in progress or among the last results"),
            Self::IdempotencyConflict { what } => write!(f, "this {what} key was used before for something else"),
            Self::RequestSettled { outcome } => {
                write!(
                    f,
                    "the lease of this request is settled ({outcome}): use the next number"
                )
            }
            Self::StaleRequest { seq } => write!(f, "the sender said that request {seq} is settled"),
            Self::StaleVersion { expected, published } => {
                write!(f, "the request expects version {expected}, but ")?;
                match published {
                    Some(published) => write!(f, "{published} is published"),
                    None => f.write_str("none is published"),
                }
            }
            Self::OutcomeConflict { recorded, reported } => {
                write!(
                    f,
                    "the lease was settled as {recorded}, which {reported} does not change"
                )
            }
            Self::UpdateInProgress { id, phase, age } => {
                write!(f, "update {id} is in progress ({phase}, began {} s ago)", age.as_secs())
            }
            Self::InvalidTransition { operation, state } => write!(f, "{operation} is not possible now: {state}"),
            Self::VersionRegression { requested, published } => {
                write!(
                    f,
                    "version {requested} is refused: {published} is published; declare a new epoch to count anew"
                )
            }
            Self::BackendBusy { id, outstanding } => {
                write!(f, "backend {id} is draining, {outstanding} executions are outstanding")
            }
            Self::SessionClosed => f.write_str("the session was closed while this request was parked"),
            Self::PoolFailed { failure } => write!(f, "the pool failed: {failure}"),
            Self::PoolClosed => f.write_str("the pool is closed"),
            other => other.describe_waiting(f),
        }
    }

    /// The messages about what an acquire or a drain waited for.
    fn describe_waiting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fenced { owner, reasons } => write!(f, "owner {owner} is fenced ({})", reasons.join(", ")),
            Self::VersionNotAcked {
                owner,
                published,
                acknowledged,
            } => {
                write!(
                    f,
                    "owner {owner} has not acknowledged version {published}; its last is "
                )?;
                match acknowledged {
                    Some(version) => write!(f, "{version}"),
                    None => f.write_str("none"),
                }
            }
            Self::NotServing {
                state,
                server_paused,
                update,
            } => {
                write!(f, "the pool is {state}")?;
                if *server_paused {
                    f.write_str(" and its servers are paused")?;
                }
                match update {
                    Some(update) => write!(f, " (update {update})"),
                    None => Ok(()),
                }
            }
            Self::TooManyTombstones { limit } => write!(
                f,
                "the sender has {limit} settled requests that it did not report as settled: send the settled intervals"
            ),
            Self::TooManyWaiters { limit } => write!(f, "{limit} requests wait already"),
            Self::PoisonSuspected { entry } => write!(
                f,
                "{entry}; it is refused for another {} s, so that it kills no more: change the request, or clear entry {}",
                entry.expires_in.as_secs(),
                entry.name()
            ),
            Self::DrainTimeout {
                update,
                outstanding: 0,
                engines,
                ..
            } if !engines.is_empty() => {
                write!(
                    f,
                    "update {update} has no lease outstanding, but engines still run something: {}; find out who sends \
                     there past the router, or abort it",
                    engines.join(", ")
                )
            }
            Self::DrainTimeout {
                update,
                outstanding,
                blockers,
                ..
            } => {
                write!(f, "update {update} still has {outstanding} executions outstanding")?;
                match blockers.first() {
                    Some(oldest) => write!(
                        f,
                        "; the oldest is lease {} on {}, {} s old",
                        oldest.lease,
                        oldest.backend.id,
                        oldest.age.as_secs()
                    ),
                    None => Ok(()),
                }
            }
            _ => f.write_str(self.code()),
        }
    }
}

impl std::error::Error for Error {}
