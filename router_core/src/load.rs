//! Capacity, and the exact comparison of load per capacity.

use crate::error::Error;
use std::cmp::Ordering;
use std::fmt;
use std::num::NonZeroU64;

/// Units of [`Capacity`] per 1.0.
const UNITS: u64 = 1_000_000;
/// The largest capacity, in units: 1e9.
const MAX_UNITS: f64 = 1e15;

/// What selection takes for the load of a backend, always compared per capacity.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LoadSignal {
    /// Executions after one more was placed: `(outstanding + 1) / capacity`. The default.
    #[default]
    Outstanding,
    /// Executions now: `outstanding / capacity`. The same as the default when all capacities are equal.
    Plain,
    /// Like the default, with an idle session counted as a fraction of an execution that will come back: a session that
    /// waits for its tool makes its backend look emptier than it is. Only for callers that close their sessions; of
    /// others the dead ones count until they expire, and hide where the work is.
    OutstandingAndSessions {
        /// Millionths of an execution per idle session.
        millionths: u32,
    },
}

/// How much work a backend can take, relative to the others of its pool.
///
/// Stored as whole millionths, so that `outstanding / capacity` of two backends is compared by cross-multiplied
/// integers: 3/8 and 1/2 are never confused by rounding, and 0.1 against 0.3 is exactly 1 to 3.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Capacity(NonZeroU64);

impl Capacity {
    /// The capacity of a backend that states none.
    pub const ONE: Self = Self(NonZeroU64::new(UNITS).unwrap());

    /// A capacity rounded to millionths.
    ///
    /// Fails with [`Error::InvalidCapacity`] unless `value` is finite and between 0.000001 and 1000000000.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "the range is checked before the cast, and both bounds are exact in f64"
    )]
    pub fn new(value: f64) -> Result<Self, Error> {
        let units = (value * UNITS as f64).round();
        // A NaN compares false with everything, so it is refused here as well.
        if !(1.0..=MAX_UNITS).contains(&units) {
            return Err(Error::InvalidCapacity { value });
        }
        NonZeroU64::new(units as u64)
            .map(Self)
            .ok_or(Error::InvalidCapacity { value })
    }

    /// The capacity as a number, exact to the millionth.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "at most 1e15 units, exact in f64")]
    pub fn as_f64(self) -> f64 {
        self.0.get() as f64 / UNITS as f64
    }

    const fn units(self) -> u64 {
        self.0.get()
    }
}

impl Default for Capacity {
    fn default() -> Self {
        Self::ONE
    }
}

impl fmt::Display for Capacity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_f64().fmt(f)
    }
}

impl LoadSignal {
    /// The load of a backend, to be compared per capacity with others of the same signal.
    #[inline]
    pub(crate) fn measure(self, outstanding: u32, idle_sessions: u32) -> u64 {
        match self {
            Self::Outstanding => u64::from(outstanding) + 1,
            Self::Plain => u64::from(outstanding),
            Self::OutstandingAndSessions { millionths } => (u64::from(outstanding) + 1)
                .saturating_mul(UNITS)
                .saturating_add(u64::from(idle_sessions).saturating_mul(u64::from(millionths))),
        }
    }
}

/// An amount of something (executions, sessions) on a backend of some capacity; compared as `amount / capacity`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Share {
    pub(crate) amount: u64,
    /// What shares it.
    pub(crate) capacity: Capacity,
}

impl Share {
    /// Compares by cross-multiplication, exactly.
    #[inline]
    pub(crate) fn cmp(&self, other: &Self) -> Ordering {
        let scaled = |amount: u64, by: Capacity| u128::from(amount) * u128::from(by.units());
        scaled(self.amount, other.capacity).cmp(&scaled(other.amount, self.capacity))
    }

    /// Whether this is more than `times` the other.
    pub(crate) fn exceeds(&self, times: u32, other: &Self) -> bool {
        // A capacity has at most 50 bits and an amount 64, so only the factor could overflow.
        let scaled = |amount: u64, by: Capacity| u128::from(amount) * u128::from(by.units());
        let threshold = scaled(other.amount, self.capacity).saturating_mul(u128::from(times));
        scaled(self.amount, other.capacity) > threshold
    }
}

#[cfg(test)]
mod tests;
