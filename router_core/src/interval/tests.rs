use super::{Interval, IntervalSet};
use proptest::prelude::*;
use std::collections::BTreeSet;

fn set(intervals: &[Interval]) -> IntervalSet {
    let mut set = IntervalSet::default();
    for interval in intervals {
        set.insert(*interval);
    }
    set
}

/// Neighbours become one, whichever comes first.
#[test]
fn neighbours_merge() {
    for order in [
        [(0, 3), (5, 7), (4, 4)],
        [(5, 7), (4, 4), (0, 3)],
        [(4, 4), (0, 3), (5, 7)],
    ] {
        assert_eq!(set(&order).iter().collect::<Vec<_>>(), [(0, 7)]);
    }
}

/// What is there already, and an interval that ends before it starts, add nothing.
#[test]
fn nothing_new_is_said() {
    let mut numbers = set(&[(2, 9)]);
    assert!(!numbers.insert((2, 9)) && !numbers.insert((3, 3)) && !numbers.insert((9, 2)));
    assert!(numbers.insert((0, 0)));
}

/// The ends of the number line do not overflow.
#[test]
fn the_last_number_fits() {
    let mut numbers = set(&[(u64::MAX, u64::MAX), (0, 0)]);
    assert!(numbers.contains(u64::MAX) && numbers.contains(0) && !numbers.contains(1));
    numbers.insert((0, u64::MAX));
    assert_eq!(numbers.iter().collect::<Vec<_>>(), [(0, u64::MAX)]);
}

proptest! {
    /// The intervals hold the numbers that a plain set holds, in the fewest pieces.
    #[test]
    fn agrees_with_a_plain_set(intervals in prop::collection::vec((0u64..60, 0u64..8), 0..20)) {
        let mut numbers = IntervalSet::default();
        let mut plain = BTreeSet::new();
        for (start, length) in intervals {
            let added = (start..=start + length).filter(|number| plain.insert(*number)).count();
            prop_assert_eq!(numbers.insert((start, start + length)), added > 0);
        }
        for number in 0..70 {
            prop_assert_eq!(numbers.contains(number), plain.contains(&number));
        }
        let pieces: Vec<Interval> = numbers.iter().collect();
        prop_assert!(pieces.windows(2).all(|pair| pair[0].1 + 1 < pair[1].0));
        prop_assert_eq!(numbers.len(), pieces.len());
        prop_assert_eq!(numbers.is_empty(), plain.is_empty());
    }
}
