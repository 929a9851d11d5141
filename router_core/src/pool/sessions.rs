//! Sessions: their pins, their idleness and their ends.

use super::Pool;
use crate::event::EventKind;
use crate::load::{LoadSignal, Share};
use crate::membership::BackendRef;
use crate::select::{PickReason, RepinReason, Tier};
use crate::slab::Handle;
use crate::time::Timestamp;
use std::sync::Arc;
use std::time::Duration;

const MINUTE: Duration = Duration::from_secs(60);

impl Pool {
    /// Counts one more lease of a session that stays where it is; returns the slot whose load that changes.
    #[inline]
    pub(super) fn open_session_lease(&mut self, session: Handle) -> Option<u32> {
        let pin = self.sessions.open_lease(session).then(|| self.sessions.pin(session))?;
        self.count_idle(pin, false)
    }

    /// Counts one lease less; returns the slot whose load that changes.
    #[inline]
    pub(super) fn close_session_lease(&mut self, session: Handle, now: Timestamp) -> Option<u32> {
        let pin = self.sessions.close_lease(session, now)?;
        self.count_idle(pin, true)
    }

    /// Counts one idle session more or less on its backend, if that incarnation is not forgotten.
    #[inline]
    fn count_idle(&mut self, pin: BackendRef, more: bool) -> Option<u32> {
        let backend = self.backends.get_mut(pin)?;
        if more {
            backend.idle_sessions += 1;
        } else {
            backend.idle_sessions -= 1;
        }
        matches!(self.config.load, LoadSignal::OutstandingAndSessions { .. }).then(|| pin.slot())
    }

    /// Pins a session to the backend at `slot` for good, with one more lease open.
    pub(super) fn move_session(&mut self, session: Handle, from: BackendRef, slot: u32) {
        self.unpin(from, self.sessions.is_idle(session));
        let to = self.backends.at_mut(slot);
        to.sessions += 1;
        let to = to.info.reference;
        self.sessions.set_pin(session, to, self.lifecycle.publications);
        self.sessions.open_lease(session);
    }

    pub(super) fn note_repinned(&mut self, from: BackendRef, why: RepinReason) {
        self.record(EventKind::SessionsRepinned { from, why, count: 1 });
    }

    /// Where a session whose pin is usable should rather go.
    #[inline]
    pub(super) fn better_place(
        &mut self,
        session: Handle,
        pin: BackendRef,
        exclude: &[BackendRef],
    ) -> Option<(u32, PickReason)> {
        // Only idle sessions move: an execution that runs still needs its cache. A retry goes where it can.
        if !self.sessions.is_idle(session) || !exclude.is_empty() {
            return None;
        }
        let best = self.tournament.winner()?;
        let publications = self.lifecycle.publications;
        let rebinds = self.config.rebind_on_publish && self.sessions.publications(session) != publications;
        if best == pin.slot() {
            if rebinds {
                // Chosen anew, and the same.
                self.sessions.set_pin(session, pin, publications);
            }
            return None;
        }
        if rebinds {
            self.note_repinned(pin, RepinReason::Published);
            return Some((best, PickReason::Repin(RepinReason::Published)));
        }
        self.spills_to(session, pin, best).then(|| {
            self.spills.1 += 1;
            (best, PickReason::Spill)
        })
    }

    /// Whether the pin is so crowded, and the context so short, that computing it again elsewhere pays.
    fn spills_to(&mut self, session: Handle, pin: BackendRef, best: u32) -> bool {
        let Some(spill) = self.config.spill else { return false };
        let (ours, theirs) = (
            self.backends.at(pin.slot()).outstanding,
            self.backends.at(best).outstanding,
        );
        // Nearly every turn ends here. Moving must not be worth moving back: a margin, and at least a factor of two.
        if ours.saturating_sub(theirs) < spill.margin {
            return false;
        }
        let short = self
            .sessions
            .context_tokens(session)
            .is_some_and(|tokens| tokens <= spill.max_context_tokens);
        let Some(standing) = self.tournament.standing(best) else {
            return false;
        };
        let there = Share {
            amount: standing.load,
            capacity: standing.capacity,
        };
        // By what it runs, also while it ramps: that keeps others away, and drives nobody out.
        let backend = self.backends.at(pin.slot());
        let here = Share {
            amount: self.config.load.measure(backend.outstanding, backend.idle_sessions),
            capacity: backend.info.capacity,
        };
        let ready = standing.tier == Tier::Ready;
        let crowded = here.exceeds(spill.ratio.max(2), &there);
        if self.clock.since(self.spills.0) >= MINUTE {
            self.spills = (self.clock, 0);
        }
        short && ready && crowded && self.spills.1 < spill.per_minute
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

    pub(super) fn note_expired(&mut self, count: usize) {
        if count > 0 {
            self.totals.sessions_expired += count as u64;
            self.record(EventKind::SessionsExpired { count: count as u64 });
        }
    }

    /// Takes out sessions of senders that departed; looks at no more than `limit`.
    pub(super) fn forget_departed(&mut self, limit: usize) {
        for session in self.sessions.take_departed(limit) {
            self.unpin(session.backend, session.open_leases == 0);
        }
    }

    /// Makes room for one session; false when none is idle.
    pub(super) fn evict_session(&mut self) -> bool {
        let Some(session) = self.sessions.longest_idle() else {
            return false;
        };
        self.end_session(session);
        self.totals.sessions_evicted += 1;
        self.record(EventKind::SessionsEvicted { count: 1 });
        true
    }

    /// Takes a session out of the table; returns its open leases.
    pub(super) fn end_session(&mut self, session: Handle) -> u32 {
        let Some(ended) = self.sessions.remove(session) else {
            return 0;
        };
        self.unpin(ended.backend, ended.open_leases == 0);
        ended.open_leases
    }

    /// Counts one session less on its backend, if that incarnation is not forgotten.
    fn unpin(&mut self, reference: BackendRef, is_idle: bool) {
        if let Some(backend) = self.backends.get_mut(reference) {
            backend.sessions -= 1;
            backend.idle_sessions -= u32::from(is_idle);
            self.refresh(reference.slot());
        }
    }

    /// Gives the slot of a removed incarnation without leases back.
    pub(super) fn forget(&mut self, slot: u32) {
        if let Some(backend) = self.backends.forget(slot) {
            self.record(EventKind::BackendForgotten {
                backend: Arc::clone(&backend.info),
            });
        }
    }
}
