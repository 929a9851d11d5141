use super::{CAPACITY, Event, EventKind, EventRing};
use crate::health::Health;
use crate::lease::{Outcome, Settlement};
use crate::membership::BackendSpec;
use crate::pool::{AcquireRequest, Pool, PoolConfig};
use crate::time::Timestamp;

/// A ring that nobody reads keeps the latest events and says how many it lost.
#[test]
fn the_oldest_make_room() {
    let mut pool = Pool::new(PoolConfig::default());
    let spec = BackendSpec::parse("h:1", 1.0).expect("a valid address");
    let backend = pool.add_backend(spec, Timestamp::ZERO).expect("a new address");
    let mut ring = EventRing::default();
    for _ in 0..CAPACITY + 5 {
        ring.push(
            Timestamp::ZERO,
            EventKind::BackendForgotten {
                backend: backend.clone(),
            },
        );
    }
    let (events, dropped) = ring.take();
    assert_eq!((events.len(), dropped), (CAPACITY, 5));
    assert_eq!(ring.take(), (Vec::new(), 0));
}

/// Sessions that expire one after the other are one event, at the time of the first.
#[test]
fn counts_in_a_row_are_one_event() {
    let mut ring = EventRing::default();
    for seconds in 1..=3 {
        ring.push(Timestamp::from_nanos(seconds), EventKind::SessionsExpired { count: 2 });
    }
    ring.push(Timestamp::from_nanos(4), EventKind::SessionsEvicted { count: 1 });
    let (events, _) = ring.take();
    let expected = [
        (1, EventKind::SessionsExpired { count: 6 }),
        (4, EventKind::SessionsEvicted { count: 1 }),
    ]
    .map(|(nanoseconds, kind)| Event {
        at: Timestamp::from_nanos(nanoseconds),
        kind,
    });
    assert_eq!(events, expected);
}

/// Each event is one line that names the incarnation.
#[test]
fn events_read_as_lines() {
    let mut pool = Pool::new(PoolConfig {
        down_after: 1,
        ..PoolConfig::default()
    });
    let now = Timestamp::ZERO;
    let spec = || BackendSpec::parse("h:1", 2.0).expect("a valid address").with_id("e1");
    pool.add_backend(spec(), now).expect("a new address");
    let larger = BackendSpec {
        capacity: crate::load::Capacity::ONE,
        ..spec()
    };
    pool.add_backend(larger, now).expect("the same backend");
    let grant = pool.acquire(&AcquireRequest::for_session("s"), now).expect("a backend");
    pool.drain_backend("e1", now).expect("known");
    pool.remove_backend("e1", now).expect("known");
    let other = pool.add_backend(spec().unproven(), now).expect("a new incarnation");
    pool.report_probe(other.reference, true, now);
    let moved = pool.acquire(&AcquireRequest::for_session("s"), now).expect("a backend");
    pool.settle(grant.lease, Settlement::new(Outcome::Completed), now)
        .expect("open");
    pool.settle(moved.lease, Settlement::new(Outcome::Failed), now)
        .expect("open");
    let (events, dropped) = pool.take_events();
    let lines: Vec<String> = events.iter().map(ToString::to_string).collect();
    assert_eq!(dropped, 0);
    assert_eq!(
        lines,
        [
            "backend e1 (generation 1) added at h:1 with capacity 2, up",
            "backend e1 (generation 1) changed its capacity from 2 to 1",
            "backend e1 (generation 1) is draining, 1 outstanding",
            "backend e1 (generation 1) removed, 1 outstanding",
            "backend e1 (generation 2) added at h:1 with capacity 2, unproven",
            "backend e1 (generation 2) went from unproven to up (0 failures in a row)",
            "1 sessions moved away from generation 1 (removed)",
            "backend e1 (generation 1) forgotten: its last execution ended",
            "backend e1 (generation 2) went from up to down (1 failures in a row)",
        ]
    );
    assert!(matches!(
        events[8].kind,
        EventKind::HealthChanged { to: Health::Down, .. }
    ));
}
