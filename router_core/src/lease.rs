//! Leases: the right to run one execution on one backend, settled exactly once.
//!
//! The ledger is a slab: opening and settling a lease is O(1) and allocates only when more leases are open than ever
//! before. A [`LeaseId`] carries the slot's generation, so an id that was settled never names a later lease; nor does one
//! of another pool or another router process, as a mark of the ledger's own lies over it.
//!
//! A lease of a sender leaves a *tombstone* when it is settled, so that repeated messages get the answer of the first,
//! until the sender says that it knows. A lease without a sender leaves nothing.

mod ledger;

use crate::error::Error;
use crate::membership::BackendInfo;
use crate::slab::Handle;
use std::fmt;
use std::num::NonZeroU64;
use std::str::FromStr;
use std::sync::Arc;

pub(crate) use ledger::{Entry, Lease, Ledger, Request};

/// Names one lease of one pool; written as 16 hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeaseId(NonZeroU64);

/// Lies over the ids of one ledger: under another mark they name slots that do not exist or generations that never were,
/// but for one chance in 2^63 for each lease that is open.
#[derive(Clone, Copy, Debug)]
struct Mark(u64);

impl Mark {
    /// No slot has so high an index, so no marked handle is 0.
    const BEYOND_INDEXES: u64 = 1 << 31;

    const fn new(seed: u64) -> Self {
        Self(seed | Self::BEYOND_INDEXES)
    }

    fn id(self, handle: Handle) -> LeaseId {
        let number = u64::from(handle.generation) << 32 | u64::from(handle.index);
        LeaseId(NonZeroU64::new(number ^ self.0).expect("a pool has fewer than 2^31 open leases"))
    }

    #[expect(
        clippy::cast_possible_truncation,
        reason = "takes the number apart into its two halves"
    )]
    const fn handle(self, id: LeaseId) -> Handle {
        let number = id.0.get() ^ self.0;
        Handle {
            index: number as u32,
            generation: (number >> 32) as u32,
        }
    }
}

impl LeaseId {
    /// The 16 hexadecimal digits that name it outside, as [`fmt::Display`] writes them.
    #[must_use]
    pub fn to_hex(self) -> [u8; 16] {
        let bytes = self.0.get().to_be_bytes();
        std::array::from_fn(|digit| {
            let nibble = bytes[digit / 2] >> (4 * (1 - digit % 2)) & 0xf;
            b"0123456789abcdef"[usize::from(nibble)]
        })
    }
}

impl fmt::Display for LeaseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(std::str::from_utf8(&self.to_hex()).map_err(|_| fmt::Error)?)
    }
}

impl FromStr for LeaseId {
    type Err = Error;

    /// Reads what [`fmt::Display`] writes; anything else names no lease ([`Error::UnknownLease`]).
    fn from_str(text: &str) -> Result<Self, Error> {
        if text.len() != 16 || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(Error::UnknownLease);
        }
        u64::from_str_radix(text, 16)
            .ok()
            .and_then(NonZeroU64::new)
            .map(Self)
            .ok_or(Error::UnknownLease)
    }
}

/// How an execution ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Outcome {
    /// A complete 2xx answer that stopped by itself or at its length.
    Completed,
    /// A complete 2xx answer that the engine cut short (finish reason "abort").
    Aborted,
    /// A 4xx answer: final, and no failure of the engine.
    Rejected,
    /// A complete 5xx answer: the execution is known to be over.
    Failed,
    /// No byte of the request was written (refused, not resolved, connect timeout): it may be retried.
    NotSent,
    /// The caller went away.
    Cancelled,
    /// Bytes were written and the end is unknown: the execution may have happened.
    Ambiguous,
    /// Its end was unknown; now it is known to be over, with its result lost.
    Lost,
}

impl Outcome {
    /// Every outcome, in the order of declaration.
    pub const ALL: [Self; 8] = [
        Self::Completed,
        Self::Aborted,
        Self::Rejected,
        Self::Failed,
        Self::NotSent,
        Self::Cancelled,
        Self::Ambiguous,
        Self::Lost,
    ];

    /// The lower-case name used in snapshots, metrics and APIs.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::Aborted => "aborted",
            Self::Rejected => "rejected",
            Self::Failed => "failed",
            Self::NotSent => "not_sent",
            Self::Cancelled => "cancelled",
            Self::Ambiguous => "ambiguous",
            Self::Lost => "lost",
        }
    }

    /// The outcome called `name`, if there is one.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|outcome| outcome.as_str() == name)
    }

    /// Position in [`Self::ALL`].
    pub(crate) const fn index(self) -> usize {
        self as usize
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What the caller reports when an execution is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settlement {
    /// How it ended.
    pub outcome: Outcome,
    /// Tokens the engine reported to have generated, when it did.
    pub output_tokens: Option<u64>,
    /// Whether the outcome says something about the backend. Not when the caller lost the lease or its own time was up.
    pub is_evidence: bool,
    /// Tokens of the session's context after it (prompt and output), when the caller knows; see
    /// [`crate::config::Spill`].
    pub context_tokens: Option<u32>,
    /// The fingerprint of what ran, when its end is unknown and the caller knows it; see [`crate::poison`].
    pub fingerprint: Option<u64>,
    /// Whether the engine had answered something, though the end is unknown.
    pub answered: bool,
}

/// The answer to a settlement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settled {
    /// The outcome that counts.
    pub outcome: Outcome,
    /// Whether the lease was settled with this outcome before.
    pub already: bool,
}

/// A lease whose end is unknown and that stays counted: abort the execution by its id, ask until the engine no longer
/// knows it, then settle it as [`Outcome::Lost`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unresolved {
    /// What to settle.
    pub lease: LeaseId,
    /// The id under which the engine may know the execution, unless it was granted under another one.
    pub presented: Option<LeaseId>,
    /// Where it ran.
    pub backend: Arc<BackendInfo>,
}

impl Settlement {
    /// A settlement without a token count.
    #[must_use]
    pub const fn new(outcome: Outcome) -> Self {
        Self {
            outcome,
            output_tokens: None,
            is_evidence: true,
            context_tokens: None,
            fingerprint: None,
            answered: false,
        }
    }

    /// The same, saying nothing about the backend's health.
    #[must_use]
    pub const fn without_evidence(mut self) -> Self {
        self.is_evidence = false;
        self
    }

    /// The same with the number of generated tokens.
    #[must_use]
    pub const fn with_output_tokens(mut self, tokens: u64) -> Self {
        self.output_tokens = Some(tokens);
        self
    }

    /// The same, of a body with this fingerprint, which was answered in part or not at all.
    #[must_use]
    pub const fn of_print(mut self, fingerprint: Option<u64>, answered: bool) -> Self {
        (self.fingerprint, self.answered) = (fingerprint, answered);
        self
    }

    /// The same with the length of the session's context.
    #[must_use]
    pub const fn with_context_tokens(mut self, tokens: u32) -> Self {
        self.context_tokens = Some(tokens);
        self
    }
}

#[cfg(test)]
mod tests;
