//! The operations of every request: acquire, settle, close.

use super::{AcquireRequest, ClosedSession, Grant, Pool};
use crate::error::{Census, Error};
use crate::event::EventKind;
use crate::health::{Health, Source};
use crate::lease::{Lease, LeaseId, Outcome, Settled, Settlement};
use crate::membership::{BackendRef, Phase};
use crate::select::{PickReason, RepinReason};
use crate::session::MAX_KEY_BYTES;
use crate::slab::Handle;
use crate::time::Timestamp;
use std::sync::Arc;

/// Due sessions that each new session takes out: more than it brings, so a pool that nobody ticks does not grow.
const EXPIRED_PER_NEW_SESSION: usize = 2;

impl Pool {
    /// Picks a backend and reserves an execution on it, in one step.
    ///
    /// A session that is pinned to an eligible backend goes there. A pin to a backend that is removed, draining, down
    /// or excluded is replaced for good, with the reason. Everything else goes to the least loaded backend
    /// ([`crate::select`]).
    ///
    /// Fails with [`Error::InvalidSessionKey`], [`Error::AtCapacity`] or [`Error::NoEligibleBackend`]; then nothing
    /// changed, and a pin stays where it was.
    pub fn acquire(&mut self, request: &AcquireRequest<'_>, now: Timestamp) -> Result<Grant, Error> {
        let now = self.advance(now);
        if let Some(key) = request.session
            && !(1..=MAX_KEY_BYTES).contains(&key.len())
        {
            return Err(Error::InvalidSessionKey { length: key.len() });
        }
        if let Some(limit) = self.config.max_outstanding
            && self.leases.len() >= limit
        {
            return Err(Error::AtCapacity {
                outstanding: self.leases.len(),
                limit,
            });
        }
        let Some(key) = request.session else {
            let slot = self.choose(request.exclude)?;
            return Ok(self.grant(slot, None, PickReason::NoSession));
        };
        let hash = self.sessions.hash(key);
        match self.sessions.find(hash, key) {
            Some(session) => self.acquire_known(session, request.exclude, now),
            None => self.acquire_new(hash, key, request.exclude, now),
        }
    }

    #[inline]
    fn acquire_known(&mut self, session: Handle, exclude: &[BackendRef], now: Timestamp) -> Result<Grant, Error> {
        let pin = self.sessions.pin(session);
        let expired = self.sessions.has_expired(session, now);
        let why = match self.obstacle(pin, exclude) {
            None if !expired => {
                self.sessions.open_lease(session);
                return Ok(self.grant(pin.slot(), Some(session), PickReason::Sticky));
            }
            obstacle => obstacle,
        };
        let slot = self.choose(exclude)?;
        self.unpin(pin);
        let to = self.backends.at_mut(slot);
        to.sessions += 1;
        let to = Arc::clone(&to.info);
        self.sessions.set_pin(session, to.reference);
        self.sessions.open_lease(session);
        let reason = match why {
            Some(why) if !expired => {
                self.record(EventKind::SessionsRepinned {
                    from: pin,
                    why,
                    count: 1,
                });
                PickReason::Repin(why)
            }
            // The old session is over; this one only happens to have the same key.
            _ => {
                self.note_expired(1);
                PickReason::New
            }
        };
        Ok(self.grant(slot, Some(session), reason))
    }

    fn acquire_new(&mut self, hash: u64, key: &str, exclude: &[BackendRef], now: Timestamp) -> Result<Grant, Error> {
        self.expire_sessions(EXPIRED_PER_NEW_SESSION, now);
        let slot = self.choose(exclude)?;
        if self.sessions.is_full() && !self.evict_session() {
            return Ok(self.grant(slot, None, PickReason::TableFull));
        }
        let backend = self.backends.at_mut(slot);
        backend.sessions += 1;
        let session = self.sessions.insert(hash, key, backend.info.reference);
        Ok(self.grant(slot, Some(session), PickReason::New))
    }

    /// Why a pin cannot be used, if it cannot.
    #[inline]
    fn obstacle(&self, pin: BackendRef, exclude: &[BackendRef]) -> Option<RepinReason> {
        let Some(backend) = self.backends.get(pin) else {
            return Some(RepinReason::Removed);
        };
        match (backend.phase, backend.vitals.health()) {
            (Phase::Removed, _) => Some(RepinReason::Removed),
            (Phase::Draining, _) => Some(RepinReason::Draining),
            (Phase::Serving, Health::Down | Health::Unproven) => Some(RepinReason::Down),
            (Phase::Serving, Health::Up | Health::Suspect) => exclude.contains(&pin).then_some(RepinReason::Excluded),
        }
    }

    /// The slot of the least loaded eligible backend that is not excluded.
    #[inline]
    fn choose(&mut self, exclude: &[BackendRef]) -> Result<u32, Error> {
        if !exclude.is_empty() {
            return self.choose_excluding(exclude);
        }
        self.tournament
            .winner()
            .ok_or_else(|| Error::NoEligibleBackend { census: self.census() })
    }

    #[cold]
    fn choose_excluding(&mut self, exclude: &[BackendRef]) -> Result<u32, Error> {
        let mut benched = Vec::with_capacity(exclude.len());
        for reference in exclude {
            // A reference to another incarnation, and one given twice, must not bench (or count) anybody.
            if self.backends.get(*reference).is_some() && self.tournament.plays(reference.slot()) {
                self.tournament.update(reference.slot(), None);
                benched.push(reference.slot());
            }
        }
        let winner = self.tournament.winner();
        for slot in &benched {
            self.refresh(*slot);
        }
        winner.ok_or_else(|| {
            let excluded = u32::try_from(benched.len()).unwrap_or(u32::MAX);
            Error::NoEligibleBackend {
                census: Census {
                    excluded,
                    ..self.census()
                },
            }
        })
    }

    /// Opens a lease on the backend at `slot`; every grant goes through here.
    #[inline]
    fn grant(&mut self, slot: u32, session: Option<Handle>, reason: PickReason) -> Grant {
        self.last_recency += 1;
        let backend = self.backends.at_mut(slot);
        backend.outstanding += 1;
        backend.picks += 1;
        backend.recency = self.last_recency;
        let info = Arc::clone(&backend.info);
        self.totals.picks.add(reason);
        self.refresh(slot);
        let lease = self.leases.open(Lease {
            backend: info.reference,
            session,
        });
        Grant {
            lease,
            backend: info,
            reason,
            version: None,
            replayed: false,
        }
    }

    /// Ends an execution and takes in what its end says about the backend.
    ///
    /// Fails with [`Error::UnknownLease`] when the lease is not open; then nothing changed.
    pub fn settle(&mut self, lease: LeaseId, settlement: Settlement, now: Timestamp) -> Result<Settled, Error> {
        let now = self.advance(now);
        let Lease {
            backend: reference,
            session,
        } = self.leases.settle(lease)?;
        let Settlement { outcome, output_tokens, .. } = settlement;
        let tokens = output_tokens.unwrap_or(0);
        let slot = reference.slot();
        let backend = self.backends.at_mut(slot);
        backend.outstanding -= 1;
        backend.outcomes.add(outcome);
        backend.output_tokens = backend.output_tokens.saturating_add(tokens);
        let is_last_of_removed = backend.phase == Phase::Removed && backend.outstanding == 0;
        self.totals.outcomes.add(outcome);
        self.totals.output_tokens = self.totals.output_tokens.saturating_add(tokens);
        if let Some(session) = session {
            self.sessions.close_lease(session, now);
        }
        if is_last_of_removed {
            self.forget(slot);
            return Ok(Settled { outcome, already: false });
        }
        self.refresh(slot);
        self.take_evidence(slot, outcome, now);
        Ok(Settled { outcome, already: false })
    }

    #[inline]
    fn take_evidence(&mut self, slot: u32, outcome: Outcome, now: Timestamp) {
        if self.backends.at(slot).phase == Phase::Removed {
            return;
        }
        match outcome {
            Outcome::Completed | Outcome::Aborted | Outcome::Rejected => {
                self.examine(slot, |vitals| vitals.note_alive(Source::Execution));
            }
            Outcome::Failed | Outcome::NotSent | Outcome::Ambiguous => {
                let down_after = self.down_after();
                self.examine(slot, |vitals| vitals.note_failure(Source::Execution, down_after, now));
            }
            // The caller's decision says nothing about the engine.
            Outcome::Cancelled | Outcome::Lost => {}
        }
    }

    /// Ends a session: a later turn with the same key begins a new one. Its open leases run on and are settled as usual.
    pub fn close_session(&mut self, key: &str, now: Timestamp) -> ClosedSession {
        let now = self.advance(now);
        let Some(session) = self.sessions.find(self.sessions.hash(key), key) else {
            return ClosedSession::default();
        };
        let expired = self.sessions.has_expired(session, now);
        let open_leases = self.end_session(session);
        if expired {
            self.note_expired(1);
            return ClosedSession::default();
        }
        ClosedSession {
            known: true,
            open_leases,
        }
    }

    /// Takes out at most `limit` sessions that were idle for longer than the TTL, longest first.
    pub(super) fn expire_sessions(&mut self, limit: usize, now: Timestamp) {
        let mut count = 0;
        while count < limit
            && let Some(session) = self.sessions.longest_idle()
            && self.sessions.has_expired(session, now)
        {
            self.end_session(session);
            count += 1;
        }
        self.note_expired(count);
    }

    fn note_expired(&mut self, count: usize) {
        if count > 0 {
            self.totals.sessions_expired += count as u64;
            self.record(EventKind::SessionsExpired { count: count as u64 });
        }
    }

    /// Makes room for one session; false when none is idle.
    fn evict_session(&mut self) -> bool {
        let Some(session) = self.sessions.longest_idle() else {
            return false;
        };
        self.end_session(session);
        self.totals.sessions_evicted += 1;
        self.record(EventKind::SessionsEvicted { count: 1 });
        true
    }

    /// Takes a session out of the table; returns its open leases.
    fn end_session(&mut self, session: Handle) -> u32 {
        let Some(ended) = self.sessions.remove(session) else {
            return 0;
        };
        self.unpin(ended.backend);
        ended.open_leases
    }

    /// Counts one session less on its backend, if that incarnation is not forgotten.
    fn unpin(&mut self, reference: BackendRef) {
        if let Some(backend) = self.backends.get_mut(reference) {
            backend.sessions -= 1;
            self.refresh(reference.slot());
        }
    }
}
