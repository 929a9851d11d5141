//! What an acquire and its settle cost.

use criterion::{Criterion, criterion_group, criterion_main};
use router_core::lease::{Outcome, Settlement};
use router_core::membership::BackendSpec;
use router_core::pool::{AcquireRequest, Pool, PoolConfig};
use router_core::time::Timestamp;

fn sticky(criterion: &mut Criterion) {
    let mut pool = Pool::new(PoolConfig::default());
    for port in 1..=16 {
        let spec = BackendSpec::parse(&format!("10.0.0.1:{port}"), 1.0).expect("a valid address");
        pool.add_backend(spec, Timestamp::ZERO).expect("a new address");
    }
    criterion.bench_function("sticky/16", |bencher| {
        bencher.iter(|| {
            let grant = pool
                .acquire(&AcquireRequest::for_session("s"), Timestamp::ZERO)
                .expect("a backend");
            pool.settle(grant.lease, Settlement::new(Outcome::Completed), Timestamp::ZERO)
                .expect("an open lease");
        });
    });
}

criterion_group!(benches, sticky);
criterion_main!(benches);
