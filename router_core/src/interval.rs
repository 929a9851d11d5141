//! Sets of sequence numbers as intervals: what a sender has settled.
//!
//! A sender numbers its requests without gaps and repeats the settled numbers with every call. A plain watermark would
//! stop below one execution that lasts hours, and the records above it would pile up; intervals say exactly what may
//! be forgotten, and cost one entry per open request at most.

use std::collections::BTreeMap;

/// Sequence numbers from the first to the second, both included.
pub type Interval = (u64, u64);

/// A set of sequence numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IntervalSet {
    /// End by start; no two touch.
    intervals: BTreeMap<u64, u64>,
}

impl IntervalSet {
    /// Whether `number` is in the set.
    #[must_use]
    pub fn contains(&self, number: u64) -> bool {
        self.intervals
            .range(..=number)
            .next_back()
            .is_some_and(|(_, end)| *end >= number)
    }

    /// Adds every number of `interval`; whether any of them is new. An interval that ends before it starts is empty.
    pub fn insert(&mut self, (start, end): Interval) -> bool {
        if start > end {
            return false;
        }
        let (mut start, mut end) = (start, end);
        let before = self
            .intervals
            .range(..=start)
            .next_back()
            .map(|(start, end)| (*start, *end));
        if let Some((first, last)) = before {
            if last >= end {
                return false;
            }
            if last >= start.saturating_sub(1) {
                self.intervals.remove(&first);
                start = first;
            }
        }
        // Those that begin inside, or right behind the end, become one with it.
        while let Some((&first, &last)) = self.intervals.range(start..=end.saturating_add(1)).next() {
            self.intervals.remove(&first);
            end = end.max(last);
        }
        self.intervals.insert(start, end);
        true
    }

    /// The intervals, ascending, no two touching.
    pub fn iter(&self) -> impl Iterator<Item = Interval> + '_ {
        self.intervals.iter().map(|(start, end)| (*start, *end))
    }

    /// How many intervals there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.intervals.len()
    }

    /// Whether the set has no numbers.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.intervals.is_empty()
    }
}

#[cfg(test)]
mod tests;
