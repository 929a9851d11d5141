//! A pool with a clock that tests move by hand, and the calls of senders and controllers in short.

use router_core::config::{OnAmbiguous, PoolConfig};
use router_core::error::Error;
use router_core::fence::OwnerStatus;
use router_core::interval::Interval;
use router_core::lease::{LeaseId, Outcome, Settled, Settlement};
use router_core::membership::{BackendInfo, BackendRef, BackendSpec};
use router_core::pool::{AcquireRequest, Grant, Pool};
use router_core::sender::{Attach, Attached, RequestKey};
use router_core::stats::{BackendStatistics, ControlStatistics, PoolStatistics};
use router_core::time::Timestamp;
use router_core::update::{BeginUpdate, UpdateKind, UpdateStatus};
use router_core::waiters::{Acquisition, ParkReason, Parked, Ticket};
use std::sync::Arc;
use std::time::Duration;

pub(crate) const fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

/// A configuration in which whatever is uncertain fails the pool.
pub(crate) fn strict() -> PoolConfig {
    PoolConfig {
        on_ambiguous: OnAmbiguous::FailPool,
        ..PoolConfig::default()
    }
}

/// A configuration in which whatever is uncertain waits to be resolved.
pub(crate) fn resolving() -> PoolConfig {
    PoolConfig {
        on_ambiguous: OnAmbiguous::Resolve,
        ..PoolConfig::default()
    }
}

pub(crate) struct Desk {
    pub(crate) pool: Pool,
    pub(crate) now: Timestamp,
}

impl Desk {
    /// A pool with backends `e0`, `e1`, ... of capacity 1.
    pub(crate) fn new(config: PoolConfig, backends: usize) -> Self {
        let mut desk = Self {
            pool: Pool::new(config),
            now: Timestamp::ZERO,
        };
        for number in 0..backends {
            desk.add(number);
        }
        desk
    }

    /// The same with the senders `t` of owner `train` and `v` of owner `eval`, and version 0 published and known.
    pub(crate) fn training(config: PoolConfig, backends: usize) -> Self {
        let mut desk = Self::new(config, backends);
        desk.attach("t", "train");
        desk.attach("v", "eval");
        desk.publish("first", 0).expect("the first version");
        desk.ack("train", 0);
        desk.ack("eval", 0);
        desk
    }

    pub(crate) fn spec(number: usize) -> BackendSpec {
        BackendSpec::parse(&format!("10.0.0.1:{}", 1000 + number), 1.0)
            .expect("a valid backend")
            .with_id(format!("e{number}"))
    }

    pub(crate) fn add(&mut self, number: usize) -> Arc<BackendInfo> {
        self.pool
            .add_backend(Self::spec(number), self.now)
            .expect("new or equal")
    }

    pub(crate) fn advance(&mut self, duration: Duration) {
        self.now = self.now.after(duration);
    }

    /// Lets time pass in ticks of a second.
    pub(crate) fn pass(&mut self, count: u64) {
        for _ in 0..count {
            self.advance(seconds(1));
            self.pool.tick(self.now);
        }
    }

    pub(crate) fn attach(&mut self, sender: &str, owner: &str) -> Attached {
        self.attach_as(sender, "1", owner).expect("attached")
    }

    pub(crate) fn attach_as(&mut self, sender: &str, incarnation: &str, owner: &str) -> Result<Attached, Error> {
        self.pool
            .attach_sender(&Attach::new(sender, incarnation, owner), self.now)
    }

    pub(crate) const fn key(sender: &str, seq: u64) -> RequestKey<'_> {
        RequestKey {
            sender,
            incarnation: "1",
            seq,
        }
    }

    pub(crate) fn try_acquire(&mut self, sender: &str, seq: u64, session: &str) -> Result<Grant, Error> {
        let request = AcquireRequest::for_session(session).keyed(Self::key(sender, seq));
        self.pool.acquire(&request, self.now)
    }

    pub(crate) fn acquire(&mut self, sender: &str, seq: u64, session: &str) -> Grant {
        self.try_acquire(sender, seq, session).expect("granted")
    }

    /// Acquires without a sender.
    pub(crate) fn acquire_plain(&mut self, session: &str) -> Grant {
        self.pool
            .acquire(&AcquireRequest::for_session(session), self.now)
            .expect("granted")
    }

    pub(crate) fn try_park(&mut self, sender: &str, seq: u64, session: &str) -> Result<Acquisition, Error> {
        let request = AcquireRequest::for_session(session).keyed(Self::key(sender, seq));
        self.pool
            .acquire_or_park(&request, self.now.after(seconds(60)), self.now)
    }

    /// Acquires for at most a minute, and has to wait.
    pub(crate) fn park(&mut self, sender: &str, seq: u64, session: &str) -> Parked {
        match self.try_park(sender, seq, session) {
            Ok(Acquisition::Parked(parked)) => parked,
            other => panic!("not parked: {other:?}"),
        }
    }

    pub(crate) fn park_for(&mut self, sender: &str, seq: u64, session: &str, reason: ParkReason) -> Ticket {
        let parked = self.park(sender, seq, session);
        assert_eq!(parked.reason, reason);
        parked.ticket
    }

    /// The answer of a ticket that was woken.
    pub(crate) fn claim(&mut self, ticket: Ticket) -> Result<Grant, Error> {
        self.pool.claim(ticket, self.now).expect("an answer")
    }

    pub(crate) fn try_settle(&mut self, lease: LeaseId, outcome: Outcome) -> Result<Settled, Error> {
        self.pool.settle(lease, Settlement::new(outcome), self.now)
    }

    pub(crate) fn settle(&mut self, lease: LeaseId, outcome: Outcome) {
        let settled = self.try_settle(lease, outcome).expect("an open lease");
        assert_eq!(
            settled,
            Settled {
                outcome,
                already: false
            }
        );
    }

    pub(crate) fn heartbeat(&mut self, sender: &str, settled: &[Interval]) {
        self.pool
            .heartbeat(sender, "1", settled, self.now)
            .expect("an attached sender");
    }

    pub(crate) fn fence(&mut self, owner: &str, reason: &str) -> OwnerStatus {
        self.pool.fence(owner, reason, None, self.now).expect("a known owner")
    }

    pub(crate) fn unfence(&mut self, owner: &str, reason: &str) -> OwnerStatus {
        self.pool.unfence(owner, reason, None, self.now).expect("a known owner")
    }

    pub(crate) fn ack(&mut self, owner: &str, version: u64) -> OwnerStatus {
        self.pool.ack(owner, version, self.now).expect("a known owner")
    }

    pub(crate) fn begin(&mut self, id: &str) -> Result<UpdateStatus, Error> {
        self.begin_kind(id, UpdateKind::Weights)
    }

    pub(crate) fn begin_kind(&mut self, id: &str, kind: UpdateKind) -> Result<UpdateStatus, Error> {
        let begin = BeginUpdate {
            id,
            kind,
            to_version: None,
        };
        self.pool.begin_update(&begin, self.now)
    }

    pub(crate) fn drain(&mut self, id: &str) -> Result<UpdateStatus, Error> {
        self.pool.drain(id, self.now.after(seconds(30)), self.now)
    }

    pub(crate) fn resume(&mut self, id: &str) -> Result<UpdateStatus, Error> {
        self.pool.end_server_pause(id, self.now)
    }

    pub(crate) fn publish(&mut self, id: &str, version: u64) -> Result<UpdateStatus, Error> {
        self.pool.publish(id, version, None, self.now)
    }

    /// A whole update of an idle pool, in the order of real controllers, without acknowledgements.
    pub(crate) fn update(&mut self, id: &str, version: u64) {
        self.begin(id).expect("begun");
        self.drain(id).expect("drained");
        self.resume(id).expect("resumed");
        self.publish(id, version).expect("published");
    }

    pub(crate) fn statistics(&self) -> PoolStatistics {
        self.pool.statistics()
    }

    pub(crate) fn control(&self) -> ControlStatistics {
        self.pool.statistics().control
    }

    pub(crate) fn outstanding(&self) -> u32 {
        self.statistics().outstanding
    }

    pub(crate) fn state(&self) -> &'static str {
        self.pool.state().as_str()
    }

    pub(crate) fn reference(&self, id: &str) -> BackendRef {
        self.pool.find_backend(id).expect("a known backend").reference
    }

    pub(crate) fn backend(&self, id: &str) -> BackendStatistics {
        let mut backends = self.statistics().backends.into_iter();
        backends.find(|backend| backend.info.id == id).expect("a known backend")
    }
}

/// The code of a refusal.
pub(crate) fn code<T: std::fmt::Debug>(answer: Result<T, Error>) -> &'static str {
    answer.expect_err("refused").code()
}
