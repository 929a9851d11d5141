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
    /// Like the default, with an idle session counted as a fraction of an execution that will come back.
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

/// A number of things (executions, sessions) on a backend of some capacity.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Share {
    /// How many there are now.
    pub(crate) count: u32,
    /// What they share.
    pub(crate) capacity: Capacity,
}

impl Share {
    /// Compares `(count + 1) / capacity`, that is the load *after* one more was placed, exactly.
    #[inline]
    pub(crate) fn compare_after_one_more(self, other: Self) -> Ordering {
        let scaled = |count: u32, by: Capacity| (u128::from(count) + 1) * u128::from(by.units());
        scaled(self.count, other.capacity).cmp(&scaled(other.count, self.capacity))
    }
}

#[cfg(test)]
mod tests;
