//! The rule by definition, over random deaths, neighbours, pauses and pardons.

use super::{Bench, QUARANTINE};
use crate::membership::BackendSpec;
use crate::poison::YOUNG;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::time::Duration;

const LIMIT: u32 = 4;

#[derive(Clone, Debug)]
enum Step {
    /// An engine dies under these requests; of each, whether it had answered something, and whether it was young.
    Death(BTreeMap<u64, (bool, bool)>),
    /// The same requests break off, and the engine lives.
    Break(u64),
    Pass(u64),
    Clear(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let print = || 1u64..5;
    prop_oneof![
        5 => prop::collection::btree_map(print(), any::<(bool, bool)>(), 1..4).prop_map(Step::Death),
        1 => print().prop_map(Step::Break),
        4 => prop_oneof![0u64..30, 200u64..700].prop_map(Step::Pass),
        1 => print().prop_map(Step::Clear),
    ]
}

/// What is held against one request: when, and how many halves.
#[derive(Default)]
struct Held {
    strikes: Vec<(Duration, u32)>,
    refused: bool,
}

impl Held {
    fn forget(&mut self, now: Duration) {
        if self
            .strikes
            .last()
            .is_none_or(|(at, _)| now.saturating_sub(*at) >= QUARANTINE)
        {
            *self = Self::default();
        }
    }

    fn strike(&mut self, now: Duration, halves: u32) {
        if !self.refused {
            self.strikes.retain(|(at, _)| now.saturating_sub(*at) < QUARANTINE);
        }
        self.strikes.push((now, halves));
        self.refused |= self.strikes.iter().map(|(_, halves)| halves).sum::<u32>() >= LIMIT;
    }
}

fn run(steps: Vec<Step>) -> Result<(), TestCaseError> {
    let mut bench = Bench::new(0);
    let mut model: BTreeMap<u64, Held> = BTreeMap::new();
    for (number, step) in steps.into_iter().enumerate() {
        match step {
            Step::Death(prints) => {
                let spec = BackendSpec::parse(&format!("h:{}", number + 1), 1.0).expect("valid");
                let engine = bench.pool.add_backend(spec, bench.now).expect("new").reference;
                let mut running = Vec::new();
                for (print, (answered, young)) in prints {
                    match bench.try_acquire(None, print) {
                        Ok(grant) => running.push((grant, print, answered, young)),
                        Err(error) => prop_assert_eq!(error.code(), "poison_suspected"),
                    }
                }
                let granted = bench.now;
                for (grant, print, answered, _) in running.iter().filter(|(.., young)| *young) {
                    bench.break_off(grant, *print, *answered);
                }
                bench.now = bench.now.after(YOUNG + Duration::from_millis(1));
                for (grant, print, answered, _) in running.iter().filter(|(.., young)| !*young) {
                    bench.break_off(grant, *print, *answered);
                }
                bench.die(engine);
                bench
                    .pool
                    .remove_backend(&format!("h:{}", number + 1), bench.now)
                    .expect("known");
                let now = bench.now.since(crate::time::Timestamp::ZERO);
                prop_assert!(bench.now > granted);
                for (_, print, answered, young) in running {
                    let halves = if young && !answered { 2 } else { 1 };
                    let held = model.entry(print).or_default();
                    held.forget(now);
                    held.strike(now, halves);
                }
            }
            Step::Break(print) => {
                let spec = BackendSpec::parse(&format!("h:{}", number + 1), 1.0).expect("valid");
                let engine = bench.pool.add_backend(spec, bench.now).expect("new").reference;
                if let Ok(grant) = bench.try_acquire(None, print) {
                    bench.break_off(&grant, print, false);
                }
                bench.pool.report_probe(engine, true, bench.now);
                bench.die(engine);
                bench
                    .pool
                    .remove_backend(&format!("h:{}", number + 1), bench.now)
                    .expect("known");
            }
            Step::Pass(seconds) => bench.pass(Duration::from_secs(seconds)),
            Step::Clear(print) => {
                bench.pool.clear_poison(Some(print), bench.now);
                model.remove(&print);
            }
        }
        let now = bench.now.since(crate::time::Timestamp::ZERO);
        for print in 1..5 {
            let held = model.entry(print).or_default();
            held.forget(now);
            let code = bench.try_acquire(None, print).expect_err("no engine").code();
            let expected = if held.refused {
                "poison_suspected"
            } else {
                "no_eligible_backend"
            };
            prop_assert_eq!(code, expected, "request {}", print);
        }
        let listed = bench.pool.poison_entries(bench.now);
        prop_assert!(listed.iter().all(|entry| !entry.refused || entry.strikes.len() >= 2));
    }
    Ok(())
}

proptest! {
    #[test]
    fn whoever_coincided_with_enough_deaths_is_refused_and_nobody_else(steps in prop::collection::vec(step(), 1..40)) {
        run(steps)?;
    }
}
