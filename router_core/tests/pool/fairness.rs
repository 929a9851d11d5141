//! Invariant I8: with equal scores picks differ by at most one; with capacities they follow the ratio.

use crate::support::{Bench, spread};
use proptest::prelude::*;
use router_core::lease::Outcome;
use router_core::pool::PoolConfig;

proptest! {
    /// Held leases on equal backends never differ by more than one while only acquiring.
    #[test]
    fn i8_equal_backends_fill_evenly(backends in 1usize..40, acquires in 0usize..200, with_session in any::<bool>()) {
        let mut bench = Bench::new(PoolConfig::default(), &vec![1.0; backends]);
        for number in 0..acquires {
            if with_session {
                bench.acquire(&format!("s{number}"));
            } else {
                bench.acquire_unpinned();
            }
        }
        prop_assert!(spread(&bench.per_backend(|backend| backend.outstanding.into())) <= 1);
    }

    /// Requests in rounds of any size are granted evenly over time, too.
    #[test]
    fn i8_equal_backends_are_picked_evenly(backends in 1usize..40, rounds in prop::collection::vec(1usize..10, 0..40)) {
        let mut bench = Bench::new(PoolConfig::default(), &vec![1.0; backends]);
        for size in rounds {
            let leases: Vec<_> = (0..size).map(|_| bench.acquire_unpinned().lease).collect();
            for lease in leases {
                bench.settle(lease, Outcome::Completed);
            }
            prop_assert!(spread(&bench.per_backend(|backend| backend.picks)) <= 1);
        }
    }

    /// With capacities, nobody would be better off by one execution moved: the load of each is at most what any other
    /// would have with one more. So each gets at least its exact share, rounded down.
    #[test]
    fn i8_capacities_are_followed(sizes in prop::collection::vec(1u32..20, 1..12), acquires in 0u64..300) {
        let capacities: Vec<f64> = sizes.iter().copied().map(f64::from).collect();
        let mut bench = Bench::new(PoolConfig::default(), &capacities);
        for _ in 0..acquires {
            bench.acquire_unpinned();
        }
        let outstanding = bench.per_backend(|backend| backend.outstanding.into());
        let total: u64 = sizes.iter().copied().map(u64::from).sum();
        for (count, size) in outstanding.iter().zip(&sizes) {
            for (other, other_size) in outstanding.iter().zip(&sizes) {
                prop_assert!(count * u64::from(*other_size) <= (other + 1) * u64::from(*size), "{outstanding:?} of {sizes:?}");
            }
            prop_assert!(*count >= acquires * u64::from(*size) / total, "{outstanding:?} of {sizes:?}");
        }
    }
}
