//! I1 to I7, and exact agreement with the [`model`](crate::model), over random interleavings of every operation of
//! senders, owners and controllers, with duplicates, stale numbers, late probes and silent processes.
//!
//! `TRIMTAB_PROPERTY_CASES` sets how many cases are run, of 350 operations on average; by default 300, which is more
//! than 100,000 operations.

use crate::model::{Life, Model, Phase};
use crate::operations::operation;
use crate::trial::{Setting, Trial};
use proptest::prelude::*;
use router_core::config::OnAmbiguous;

fn cases() -> u32 {
    let asked = std::env::var("TRIMTAB_PROPERTY_CASES").ok();
    asked.and_then(|text| text.parse().ok()).unwrap_or(300)
}

fn setting() -> impl Strategy<Value = Setting> {
    let policy = prop::sample::select(vec![OnAmbiguous::Settle, OnAmbiguous::Resolve, OnAmbiguous::FailPool]);
    (policy, any::<bool>(), any::<bool>()).prop_map(|(policy, reports_timeouts, awaits)| Setting {
        policy,
        reports_timeouts,
        awaits,
    })
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: cases(),
        max_shrink_iters: 20_000,
        ..ProptestConfig::default()
    })]

    /// I1 to I7: the pool agrees with the model after every operation, and ends empty.
    #[test]
    fn i1_to_i7_any_interleaving_agrees_with_the_model(
        setting in setting(),
        operations in prop::collection::vec(operation(), 1..700),
    ) {
        let mut trial = Trial::new(setting);
        for operation in &operations {
            trial.apply(operation)?;
            trial.check()?;
        }
        trial.finish()?;
    }
}

/// The model is of use only if the interesting states are reached.
#[test]
fn interleavings_reach_every_state() {
    use proptest::strategy::ValueTree;
    use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

    let rng = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let mut runner = TestRunner::new_with_rng(Config::default(), rng);
    let (mut published, mut replays, mut told, mut failed, mut conflicts) = (0, 0, 0, 0, 0);
    for _ in 0..60 {
        let setting = setting().new_tree(&mut runner).expect("a setting").current();
        let operations = prop::collection::vec(operation(), 200..600).new_tree(&mut runner);
        let mut trial = Trial::new(setting);
        for operation in operations.expect("operations").current() {
            trial.apply(&operation).expect("agreement");
        }
        let model: &Model = &trial.model;
        let is_published = |update: &&crate::model::Update| update.phase == Phase::Published;
        published += model.results.iter().filter(is_published).count();
        failed += usize::from(model.life == Life::Failed);
        replays += trial.seen("replayed");
        told += trial.seen("woken");
        conflicts += trial.seen("idempotency_conflict") + trial.seen("outcome_conflict");
    }
    for (what, count) in [
        ("publications", published),
        ("replays", replays),
        ("wakes", told),
        ("failures", failed),
        ("conflicts", conflicts),
    ] {
        assert!(count >= 10, "{what}: {count}");
    }
}
