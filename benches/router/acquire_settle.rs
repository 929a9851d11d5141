//! What one acquire and its settle cost: the whole of the router's work for one request.
//!
//! Groups: `sticky` (the next turn of a known session), `new` (the first turn of a session, which is closed again),
//! `no_session` (least loaded, no pin), each with 4, 16, 64 and 1,000 backends that carry some load, and
//! `sticky_million` (random turns of 1,000,000 sessions, which do not fit in any cache).
//!
//! Run `cargo bench -p router_core`; add `-- --quick` for a rough answer, `-- --test` to see that it runs at all.

use criterion::{BenchmarkGroup, BenchmarkId, Criterion, criterion_group, criterion_main, measurement::WallTime};
use router_core::lease::{Outcome, Settlement};
use router_core::membership::BackendSpec;
use router_core::pool::{AcquireRequest, Pool, PoolConfig};
use router_core::time::Timestamp;
use std::hint::black_box;

const BACKENDS: [u32; 4] = [4, 16, 64, 1000];

const MILLION: usize = 1_000_000;

/// A pool in the middle of its work: unequal capacities, three executions outstanding per backend.
fn busy_pool(backends: u32) -> Pool {
    let mut pool = Pool::new(PoolConfig {
        session_cap: 2 * MILLION,
        ..PoolConfig::default()
    });
    for number in 0..backends {
        let spec = BackendSpec::parse(&format!("10.0.0.1:{}", number + 1), f64::from(1 + number % 3));
        pool.add_backend(spec.expect("a valid backend"), Timestamp::ZERO)
            .expect("a new backend");
    }
    for _ in 0..3 * backends {
        pool.acquire(&AcquireRequest::unpinned(), Timestamp::ZERO)
            .expect("an eligible backend");
    }
    pool
}

/// A session key of the usual length: a UUID.
fn uuid(number: usize) -> String {
    format!("{number:08x}-0000-4000-8000-{number:012x}")
}

fn turn(pool: &mut Pool, request: &AcquireRequest<'_>, nanoseconds: u64) {
    let now = Timestamp::from_nanos(nanoseconds);
    let grant = pool.acquire(black_box(request), now).expect("an eligible backend");
    pool.settle(grant.lease, Settlement::new(Outcome::Completed), now)
        .expect("an open lease");
    black_box(grant.backend);
}

fn each_size(criterion: &mut Criterion, name: &str, bench: impl Fn(&mut BenchmarkGroup<'_, WallTime>, u32)) {
    let mut group = criterion.benchmark_group(name);
    for backends in BACKENDS {
        bench(&mut group, backends);
    }
    group.finish();
}

fn sticky(criterion: &mut Criterion) {
    each_size(criterion, "sticky", |group, backends| {
        let mut pool = busy_pool(backends);
        let keys: Vec<String> = (0..1024).map(uuid).collect();
        group.bench_function(BenchmarkId::from_parameter(backends), |bencher| {
            let mut time = 0;
            let mut next = keys.iter().cycle();
            bencher.iter(|| {
                time += 1000;
                let key = next.next().expect("a cycle never ends");
                turn(&mut pool, &AcquireRequest::for_session(key), time);
            });
        });
    });
}

fn new(criterion: &mut Criterion) {
    each_size(criterion, "new", |group, backends| {
        let mut pool = busy_pool(backends);
        let key = uuid(1);
        group.bench_function(BenchmarkId::from_parameter(backends), |bencher| {
            let mut time = 0;
            bencher.iter(|| {
                time += 1000;
                turn(&mut pool, &AcquireRequest::for_session(&key), time);
                pool.close_session(&key, Timestamp::from_nanos(time));
            });
        });
    });
}

fn no_session(criterion: &mut Criterion) {
    each_size(criterion, "no_session", |group, backends| {
        let mut pool = busy_pool(backends);
        group.bench_function(BenchmarkId::from_parameter(backends), |bencher| {
            let mut time = 0;
            bencher.iter(|| {
                time += 1000;
                turn(&mut pool, &AcquireRequest::unpinned(), time);
            });
        });
    });
}

/// Writes the key of session `number` over `key`. A key that was made just now is in the cache, as one that was read
/// from a request is; a list of a million keys would measure the memory behind that list as well.
fn rewrite(key: &mut [u8; 36], number: usize) -> &str {
    for (position, digit) in key[28..].iter_mut().enumerate() {
        *digit = b"0123456789abcdef"[(number >> (4 * position)) & 15];
    }
    std::str::from_utf8(key).expect("hexadecimal digits and dashes")
}

fn sticky_million(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("sticky_million");
    for backends in [16, 1000] {
        // Made only when the group is not filtered out.
        let mut prepared = None;
        let mut key = *b"00000000-0000-4000-8000-000000000000";
        group.bench_function(BenchmarkId::from_parameter(backends), |bencher| {
            let pool = prepared.get_or_insert_with(|| {
                let mut pool = busy_pool(backends);
                for number in 0..MILLION {
                    turn(&mut pool, &AcquireRequest::for_session(rewrite(&mut key, number)), 0);
                }
                pool
            });
            let (mut time, mut random) = (0, 1_u64);
            bencher.iter(|| {
                time += 1000;
                // A linear congruential generator; its upper bits are random enough to defeat caches.
                random = random
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1_442_695_040_888_963_407);
                let number = usize::try_from(random >> 40).expect("24 bits") % MILLION;
                turn(pool, &AcquireRequest::for_session(rewrite(&mut key, number)), time);
            });
        });
    }
    group.finish();
}

criterion_group!(benches, sticky, new, no_session, sticky_million);
criterion_main!(benches);
