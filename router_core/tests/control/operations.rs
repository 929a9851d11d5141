//! What can happen to a pool, in any order.

use proptest::prelude::*;
use proptest::sample::Index;
use router_core::lease::Outcome;

#[derive(Clone, Debug)]
pub(crate) enum Operation {
    /// A request of a sender: its incarnation and number as it believes them, whether it would wait, and for how long.
    Acquire {
        sender: u8,
        incarnation: u8,
        seq: u64,
        session: u8,
        wait: Option<u64>,
    },
    Plain {
        session: u8,
        wait: Option<u64>,
    },
    /// Of an open lease or, rarely, of one that was settled.
    Settle {
        lease: Index,
        outcome: Outcome,
    },
    SettleAgain {
        lease: Index,
        outcome: Outcome,
    },
    /// Says that numbers are settled.
    Heartbeat {
        sender: u8,
        from: u64,
        count: u64,
    },
    Attach {
        sender: u8,
        incarnation: u8,
    },
    Detach {
        sender: u8,
    },
    CloseSession {
        sender: Option<u8>,
        session: u8,
    },
    Fence {
        owner: u8,
        reason: u8,
    },
    Unfence {
        owner: u8,
        reason: u8,
    },
    /// Acknowledges the published version, or some other.
    Ack {
        owner: u8,
        ahead: i8,
    },
    Begin {
        id: u8,
        offload: bool,
    },
    Drain {
        id: u8,
        patience: u64,
    },
    Resume {
        id: u8,
    },
    /// Publishes so many versions ahead, in so many epochs ahead.
    Publish {
        id: u8,
        ahead: i8,
        epochs: i8,
    },
    Cancel {
        id: u8,
    },
    FailUpdate {
        id: u8,
    },
    AddBackend {
        number: u8,
        ahead: Option<i8>,
    },
    DrainBackend {
        number: u8,
    },
    ResumeBackend {
        number: u8,
    },
    RemoveBackend {
        number: u8,
    },
    Taint {
        backend: Index,
    },
    Report {
        backend: Index,
        ahead: i8,
        reloaded: bool,
    },
    BeginProbe {
        backend: Index,
    },
    FinishProbe {
        probe: Index,
        alive: bool,
    },
    Claim {
        ticket: Index,
    },
    GiveUp {
        ticket: Index,
    },
    Abandon {
        ticket: Index,
    },
    Pass {
        seconds: u64,
    },
    Tick,
    Close,
}

pub(crate) fn operation() -> impl Strategy<Value = Operation> {
    let index = any::<Index>;
    let wait = || prop::option::of(1u64..40);
    let id = || 0u8..6;
    let number = || 0u8..4;
    let outcome = || prop::sample::select(&Outcome::ALL);
    // Mostly the right one.
    let incarnation = || prop_oneof![12 => Just(0u8), 1 => Just(1u8)];
    let traffic = prop_oneof![
        30 => (0u8..3, incarnation(), 0u64..30, 0u8..4, wait()).prop_map(
            |(sender, incarnation, seq, session, wait)| Operation::Acquire { sender, incarnation, seq, session, wait }
        ),
        4 => (0u8..4, wait()).prop_map(|(session, wait)| Operation::Plain { session, wait }),
        20 => (index(), outcome()).prop_map(|(lease, outcome)| Operation::Settle { lease, outcome }),
        3 => (index(), outcome()).prop_map(|(lease, outcome)| Operation::SettleAgain { lease, outcome }),
        8 => index().prop_map(|ticket| Operation::Claim { ticket }),
        2 => index().prop_map(|ticket| Operation::GiveUp { ticket }),
        2 => index().prop_map(|ticket| Operation::Abandon { ticket }),
    ];
    let senders = prop_oneof![
        4 => (0u8..3, 0u64..30, 0u64..6).prop_map(|(sender, from, count)| Operation::Heartbeat { sender, from, count }),
        6 => (0u8..3, incarnation()).prop_map(|(sender, incarnation)| Operation::Attach { sender, incarnation }),
        1 => (0u8..3).prop_map(|sender| Operation::Detach { sender }),
        2 => (prop::option::of(0u8..3), 0u8..4).prop_map(|(sender, session)| Operation::CloseSession { sender, session }),
    ];
    let control = prop_oneof![
        3 => (0u8..3, 0u8..2).prop_map(|(owner, reason)| Operation::Fence { owner, reason }),
        14 => (0u8..3, 0u8..2).prop_map(|(owner, reason)| Operation::Unfence { owner, reason }),
        8 => (0u8..3, prop_oneof![6 => Just(0i8), 1 => -1i8..2]).prop_map(|(owner, ahead)| Operation::Ack { owner, ahead }),
        5 => (id(), prop::bool::weighted(0.3)).prop_map(|(id, offload)| Operation::Begin { id, offload }),
        8 => (id(), 1u64..40).prop_map(|(id, patience)| Operation::Drain { id, patience }),
        8 => id().prop_map(|id| Operation::Resume { id }),
        8 => (id(), -1i8..3, prop_oneof![9 => Just(0i8), 1 => -1i8..2])
            .prop_map(|(id, ahead, epochs)| Operation::Publish { id, ahead, epochs }),
        5 => id().prop_map(|id| Operation::Cancel { id }),
    ];
    let backends = prop_oneof![
        4 => (number(), prop::option::of(0i8..2)).prop_map(|(number, ahead)| Operation::AddBackend { number, ahead }),
        1 => number().prop_map(|number| Operation::DrainBackend { number }),
        1 => number().prop_map(|number| Operation::ResumeBackend { number }),
        1 => number().prop_map(|number| Operation::RemoveBackend { number }),
        1 => index().prop_map(|backend| Operation::Taint { backend }),
        6 => (index(), prop_oneof![4 => Just(0i8), 1 => -1i8..2], any::<bool>())
            .prop_map(|(backend, ahead, reloaded)| Operation::Report { backend, ahead, reloaded }),
        2 => index().prop_map(|backend| Operation::BeginProbe { backend }),
        2 => (index(), any::<bool>()).prop_map(|(probe, alive)| Operation::FinishProbe { probe, alive }),
    ];
    let time = prop_oneof![
        6 => (0u64..20).prop_map(|seconds| Operation::Pass { seconds }),
        6 => Just(Operation::Tick),
    ];
    let ends = prop_oneof![1 => Just(Operation::Close), 2 => id().prop_map(|id| Operation::FailUpdate { id })];
    prop_oneof![
        500 => traffic,
        120 => senders,
        180 => control,
        120 => backends,
        60 => time,
        1 => ends,
    ]
}
