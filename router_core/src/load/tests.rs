use super::{Capacity, Share};
use crate::error::Error;
use proptest::prelude::*;
use std::cmp::Ordering;

fn share(count: u32, capacity: f64) -> Share {
    Share {
        amount: u64::from(count) + 1,
        capacity: Capacity::new(capacity).expect("a valid capacity"),
    }
}

/// Numbers that are no capacity are refused with the number in the error.
#[test]
fn only_positive_finite_numbers_are_capacities() {
    for value in [
        0.0,
        -0.0,
        -1.0,
        f64::INFINITY,
        f64::NEG_INFINITY,
        1e-7,
        4e-7,
        1.1e9,
        f64::MAX,
    ] {
        assert_eq!(Capacity::new(value), Err(Error::InvalidCapacity { value }));
    }
    // NaN is not equal to itself, so the error cannot be compared.
    assert!(matches!(Capacity::new(f64::NAN), Err(Error::InvalidCapacity { value }) if value.is_nan()));
}

/// The accepted range is what the error message says, and a capacity reads back as it was given.
#[test]
fn capacities_read_back() {
    for value in [0.000_001, 0.1, 0.3, 1.0, 2.5, 8.0, 1e9] {
        let capacity = Capacity::new(value).expect("in range");
        assert!((capacity.as_f64() - value).abs() < f64::EPSILON * value, "{value}");
    }
    assert_eq!(Capacity::new(1.0), Ok(Capacity::ONE));
    assert_eq!(Capacity::default(), Capacity::ONE);
    assert_eq!(Capacity::new(2.5).expect("in range").to_string(), "2.5");
}

/// A tie is a tie even where binary fractions are not exact, and the largest numbers do not overflow.
#[test]
fn comparison_is_exact() {
    assert_eq!(share(2, 0.3).cmp(&share(0, 0.1)), Ordering::Equal);
    assert_eq!(share(2, 8.0).cmp(&share(0, 2.0)), Ordering::Less);
    assert_eq!(share(3, 8.0).cmp(&share(0, 2.0)), Ordering::Equal);
    assert_eq!(share(u32::MAX, 1e9).cmp(&share(u32::MAX, 1e-6)), Ordering::Less);
    assert_eq!(share(u32::MAX, 1e9).cmp(&share(u32::MAX, 1e9)), Ordering::Equal);
}

proptest! {
    /// Whole capacities compare like fractions.
    #[test]
    fn comparison_agrees_with_fractions(a in 0u32.., b in 0u32.., p in 1u32..1000, q in 1u32..1000) {
        let by_fraction = ((u64::from(a) + 1) * u64::from(q)).cmp(&((u64::from(b) + 1) * u64::from(p)));
        prop_assert_eq!(share(a, f64::from(p)).cmp(&share(b, f64::from(q))), by_fraction);
    }
}
