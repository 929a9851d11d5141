//! The one error type of the core: what went wrong, with what, and whether asking again can help.

use std::fmt;

/// Why an operation was refused. Nothing changed in the pool when one of these is returned.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Error {
    /// An address breaks a rule of [`crate::address`].
    InvalidAddress {
        /// The text as given, with user information masked.
        value: String,
        /// The rule it breaks, as a sentence fragment ("the port is missing").
        rule: &'static str,
    },
    /// A capacity is not finite, not positive, or outside the representable range.
    InvalidCapacity {
        /// The number as given.
        value: f64,
    },
    /// A backend id is empty, too long, or already used by a backend at another address.
    InvalidBackendId {
        /// The id as given.
        id: String,
        /// The rule it breaks.
        rule: &'static str,
    },
    /// A session key is empty or longer than [`crate::session::MAX_KEY_BYTES`].
    InvalidSessionKey {
        /// Length of the key in bytes.
        length: usize,
    },
    /// No such backend in this pool (or only an older incarnation of it).
    UnknownBackend {
        /// The id as given.
        id: String,
    },
    /// The lease is not open: it was settled before, or never existed.
    UnknownLease,
    /// No backend may take a new execution now.
    NoEligibleBackend {
        /// Why, counted per cause.
        census: Census,
    },
    /// The pool is at its [`crate::pool::PoolConfig::max_outstanding`], which users set as `max_concurrent`.
    AtCapacity {
        /// Executions outstanding in the pool.
        outstanding: u32,
        /// The configured limit.
        limit: u32,
    },
}

/// Where the backends of a pool stand: the evidence behind [`Error::NoEligibleBackend`] and readiness.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Census {
    /// Registered backends that are not yet forgotten or removed.
    pub registered: u32,
    /// Backends that may take a new execution.
    pub eligible: u32,
    /// Backends waiting for their first proof of life.
    pub unproven: u32,
    /// Backends marked down.
    pub down: u32,
    /// Backends being drained.
    pub draining: u32,
    /// Eligible backends that the caller excluded from this attempt.
    pub excluded: u32,
}

impl fmt::Display for Census {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} registered", self.registered)?;
        for (count, what) in [
            (self.eligible, "eligible"),
            (self.unproven, "not reached yet"),
            (self.down, "down"),
            (self.draining, "draining"),
            (self.excluded, "already tried"),
        ] {
            if count > 0 {
                write!(f, ", {count} {what}")?;
            }
        }
        Ok(())
    }
}

impl Error {
    /// The machine-readable code, the same in HTTP answers, Python exceptions and logs.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::InvalidAddress { .. } => "invalid_address",
            Self::InvalidCapacity { .. } => "invalid_capacity",
            Self::InvalidBackendId { .. } | Self::InvalidSessionKey { .. } => "invalid_request",
            Self::UnknownBackend { .. } => "unknown_backend",
            Self::UnknownLease => "unknown_lease",
            Self::NoEligibleBackend { .. } => "no_eligible_backend",
            Self::AtCapacity { .. } => "at_capacity",
        }
    }

    /// Whether the same call can succeed later without any change by the caller.
    #[must_use]
    pub const fn retryable(&self) -> bool {
        matches!(self, Self::NoEligibleBackend { .. } | Self::AtCapacity { .. })
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
        }
    }
}

impl std::error::Error for Error {}
