//! What the requests of senders cost: with a key, with what is settled sent along, repeated, and parked.
//!
//! Groups: `keyed` (the next turn of a known session of a sender, settled, with the settled interval of the turn before
//! sent along), `replay` (an acquire that is told again), `park_wake` (one acquire parks, is woken, claims and settles,
//! while so many others stay parked: the cost must not depend on their number) and `unfence` (so many are woken at
//! once).
//!
//! Run `cargo bench -p router_core --bench keyed`; add `-- --quick` for a rough answer.

use criterion::{BatchSize, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use router_core::fence::DEFAULT_OWNER;
use router_core::lease::{Outcome, Settlement};
use router_core::membership::BackendSpec;
use router_core::pool::{AcquireRequest, Pool, PoolConfig};
use router_core::sender::{Attach, RequestKey};
use router_core::time::Timestamp;
use router_core::waiters::{Acquisition, Ticket};
use std::hint::black_box;

const NOW: Timestamp = Timestamp::ZERO;
const SENDER: &str = "proxy-rollout/3";
const INCARNATION: &str = "0f8fad5b-d9cb-469f-a165-70867728950e";

fn pool(backends: u32) -> Pool {
    let mut pool = Pool::new(PoolConfig::default());
    for number in 0..backends {
        let spec = BackendSpec::parse(&format!("10.0.0.1:{}", number + 1), f64::from(1 + number % 3));
        pool.add_backend(spec.expect("a valid backend"), NOW)
            .expect("a new backend");
    }
    pool.attach_sender(&Attach::new(SENDER, INCARNATION, "train"), NOW)
        .expect("a new sender");
    pool.publish("first", 1, None, NOW).expect("a first version");
    pool.ack("train", 1, NOW).expect("a known owner");
    pool
}

const fn key(seq: u64) -> RequestKey<'static> {
    RequestKey {
        sender: SENDER,
        incarnation: INCARNATION,
        seq,
    }
}

fn settle(pool: &mut Pool, lease: router_core::lease::LeaseId) {
    pool.settle(lease, Settlement::new(Outcome::Completed), NOW)
        .expect("an open lease");
}

fn keyed(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("keyed");
    for backends in [16, 1000] {
        let mut pool = pool(backends);
        let sessions: Vec<String> = (0..1024).map(|number| format!("traj-{number:031}")).collect();
        group.bench_function(BenchmarkId::from_parameter(backends), |bencher| {
            let mut turns = sessions.iter().cycle();
            let mut base = pool.statistics().control.senders[0]
                .settled
                .last()
                .map_or(0, |(_, last)| *last);
            bencher.iter(|| {
                let session = turns.next().expect("endless");
                pool.heartbeat(SENDER, INCARNATION, &[(0, base)], NOW)
                    .expect("attached");
                base += 1;
                let request = AcquireRequest::for_session(session).keyed(key(base));
                let grant = pool.acquire(black_box(&request), NOW).expect("granted");
                settle(&mut pool, grant.lease);
                black_box(grant.backend);
            });
            // The last one was settled and never reported: the next round begins behind it.
            pool.heartbeat(SENDER, INCARNATION, &[(0, base)], NOW)
                .expect("attached");
        });
    }
    group.finish();
}

fn replay(criterion: &mut Criterion) {
    criterion.bench_function("replay", |bencher| {
        let mut pool = pool(16);
        let request = AcquireRequest::for_session("traj-17").keyed(key(1));
        pool.acquire(&request, NOW).expect("granted");
        bencher.iter(|| black_box(pool.acquire(black_box(&request), NOW)).expect("told again"));
    });
}

fn park(pool: &mut Pool, request: &AcquireRequest<'_>) -> Ticket {
    match pool.acquire_or_park(request, Timestamp::MAX, NOW) {
        Ok(Acquisition::Parked(parked)) => parked.ticket,
        other => panic!("not parked: {other:?}"),
    }
}

fn park_wake(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("park_wake");
    for others in [0, 1_000, 50_000] {
        let mut pool = pool(16);
        pool.fence("train", "pause", None, NOW).expect("a known owner");
        for seq in 0..others {
            park(&mut pool, &AcquireRequest::unpinned().keyed(key(seq)));
        }
        group.bench_function(BenchmarkId::from_parameter(others), |bencher| {
            let request = AcquireRequest::unpinned();
            bencher.iter(|| {
                pool.fence(DEFAULT_OWNER, "pause", None, NOW).expect("known");
                let ticket = park(&mut pool, &request);
                pool.unfence(DEFAULT_OWNER, "pause", None, NOW).expect("known");
                black_box(pool.take_wakes());
                let grant = pool.claim(ticket, NOW).expect("woken").expect("granted");
                settle(&mut pool, grant.lease);
            });
        });
    }
    group.finish();
}

fn unfence(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("unfence");
    for waiters in [100_u64, 1_000, 10_000] {
        group.throughput(Throughput::Elements(waiters));
        group.bench_function(BenchmarkId::from_parameter(waiters), |bencher| {
            let prepare = || {
                let mut pool = pool(16);
                pool.fence("train", "pause", None, NOW).expect("a known owner");
                for seq in 0..waiters {
                    park(&mut pool, &AcquireRequest::unpinned().keyed(key(seq)));
                }
                pool
            };
            let wake = |mut pool: Pool| {
                pool.unfence("train", "pause", None, NOW).expect("a known owner");
                (pool.take_wakes(), pool)
            };
            bencher.iter_batched(prepare, wake, BatchSize::LargeInput);
        });
    }
    group.finish();
}

criterion_group!(benches, keyed, replay, park_wake, unfence);
criterion_main!(benches);
