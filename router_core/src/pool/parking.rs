//! Parked acquires: how a shell waits for a grant.

use super::placing::Claimant;
use super::traffic::check_session_key;
use super::{AcquireRequest, Grant, Pool};
use crate::error::Error;
use crate::lease::{Outcome, Settlement};
use crate::sender::{Answer, Record};
use crate::session::{COMMON, Name};
use crate::time::Timestamp;
use crate::waiters::{Acquisition, ParkReason, Parked, Ticket, Waiter};

use super::keyed::Recalled;
use crate::health::Evidence;

impl Pool {
    /// Like [`Self::acquire`], but parks what cannot be granted now and may be until `deadline`.
    ///
    /// A call with the key of a parked request joins it: it keeps its place, waits until the later deadline, and both
    /// calls get the same lease.
    ///
    /// Fails like [`Self::acquire`] where waiting cannot help (an acquire that excludes every eligible backend does not
    /// wait either), with the reason at once when `deadline` has passed, and with [`Error::TooManyWaiters`].
    pub fn acquire_or_park(
        &mut self,
        request: &AcquireRequest<'_>,
        deadline: Timestamp,
        now: Timestamp,
    ) -> Result<Acquisition, Error> {
        let now = self.advance(now);
        check_session_key(request.session)?;
        let claimant = match &request.key {
            None => Claimant::unkeyed(request),
            Some(key) => match self.recall(request, key, now)? {
                Recalled::Granted(grant) => return Ok(Acquisition::Granted(grant)),
                Recalled::Parked(ticket) => return self.join(ticket, deadline, now),
                Recalled::New(claimant) => claimant,
            },
        };
        match self.place(&claimant, now) {
            Ok(grant) => Ok(Acquisition::Granted(grant)),
            Err(why) => self.park(&claimant, why, deadline, now),
        }
    }

    /// Like [`Self::acquire`], but waits for a place for the pool's own `queue_timeout` while `max_outstanding` run. For
    /// callers that have not said how long they wait: everything else is still refused at once.
    ///
    /// Queued is in order of arrival, with those who wait for a place by [`Self::acquire_or_park`]. What begins to be in
    /// the way while one is queued (a fence, an update) keeps one waiting, and is the error at the deadline if it lasts.
    ///
    /// Fails like [`Self::acquire`], and with [`Error::TooManyWaiters`] when `queue_size` wait already.
    pub fn acquire_or_queue(&mut self, request: &AcquireRequest<'_>, now: Timestamp) -> Result<Acquisition, Error> {
        match (self.acquire(request, now), self.config.queue_timeout) {
            (Ok(grant), _) => Ok(Acquisition::Granted(grant)),
            (Err(Error::AtCapacity { .. }), Some(patience)) => self.acquire_or_park(request, now.after(patience), now),
            (Err(error), _) => Err(error),
        }
    }

    fn park(
        &mut self,
        claimant: &Claimant<'_>,
        why: Error,
        deadline: Timestamp,
        now: Timestamp,
    ) -> Result<Acquisition, Error> {
        let Some(reason) = why.park_reason().filter(|_| deadline > now) else {
            return Err(why);
        };
        self.check_queue(reason)?;
        let hold = claimant
            .session
            .and_then(|name| self.sessions.find(self.sessions.hash(name), name))
            .filter(|session| !self.sessions.has_expired(*session, now));
        if let Some(session) = hold
            && let Some(slot) = self.open_session_lease(session)
        {
            self.refresh(slot);
        }
        let ticket = self.waiters.park(Waiter {
            owner: claimant.owner,
            namespace: claimant.session.map_or(COMMON, |name| name.namespace),
            session: claimant.session.map(|name| name.key.into()),
            hold,
            exclude: claimant.exclude.into(),
            request: claimant.request,
            expect_version: claimant.expect_version,
            fingerprint: claimant.fingerprint,
            deadline,
            why,
            since: now,
            calls: 1,
            answer: None,
            told: false,
        });
        if let Some((request, fingerprint)) = claimant.request {
            let answer = Answer::Parked(ticket);
            let sender = self.senders.at_mut(request.sender);
            sender.records.insert(request.seq, Record { fingerprint, answer });
        }
        self.totals.parked.add(reason);
        Ok(Acquisition::Parked(Parked {
            ticket,
            reason,
            deadline,
        }))
    }

    /// Refuses when as many wait as may: at all, and for a place.
    fn check_queue(&self, reason: ParkReason) -> Result<(), Error> {
        let (limit, queue_size) = (self.config.waiter_cap, self.config.queue_size);
        if self.waiters.queued() >= limit {
            return Err(Error::TooManyWaiters { limit });
        }
        if reason == ParkReason::AtCapacity && self.queued_for_a_place() >= queue_size {
            return Err(Error::TooManyWaiters { limit: queue_size });
        }
        Ok(())
    }

    /// How many would be granted a lease if there were places: those whose owner is open.
    fn queued_for_a_place(&self) -> u32 {
        let owners = self.owners.indexes().filter(|owner| self.is_open(*owner));
        owners.map(|owner| self.waiters.queued_of(owner)).sum()
    }

    /// Lets another call with the same key wait for the same answer.
    fn join(&mut self, ticket: Ticket, deadline: Timestamp, now: Timestamp) -> Result<Acquisition, Error> {
        let why = self.why_parked(ticket);
        let (Some(reason), Some(waiter)) = (why.park_reason(), self.waiters.get_mut(ticket)) else {
            return Err(why);
        };
        if deadline <= now {
            return Err(why);
        }
        waiter.calls += 1;
        waiter.deadline = waiter.deadline.max(deadline);
        Ok(Acquisition::Parked(Parked {
            ticket,
            reason,
            deadline,
        }))
    }

    /// The tickets that got their answer since the last call, in the order of the answers. Call it before the lock is
    /// given back, and wake the calls that wait with these tickets: each then [`claims`](Self::claim) its answer.
    pub fn take_wakes(&mut self) -> Vec<Ticket> {
        self.waiters.take_wakes()
    }

    /// Whether [`Self::take_wakes`] has something: one comparison, for after every operation.
    #[must_use]
    pub fn has_wakes(&self) -> bool {
        self.waiters.has_wakes()
    }

    /// The answer for a ticket, or `None` while it is parked. With an answer, the ticket is used up for this call.
    pub fn claim(&mut self, ticket: Ticket, now: Timestamp) -> Option<Result<Grant, Error>> {
        self.advance(now);
        let Some(waiter) = self.waiters.get_mut(ticket) else {
            return Some(Err(Error::UnknownLease));
        };
        let answer = waiter.answer.clone()?;
        let replayed = std::mem::replace(&mut waiter.told, true);
        self.leave(ticket);
        Some(answer.and_then(|lease| self.grant_of(lease, replayed)))
    }

    /// Ends the wait of a call at its deadline: the grant, when it was made meanwhile, else why it waited.
    pub fn give_up(&mut self, ticket: Ticket, now: Timestamp) -> Result<Grant, Error> {
        if let Some(answer) = self.claim(ticket, now) {
            return answer;
        }
        let why = self.why_parked(ticket);
        self.leave(ticket);
        Err(why)
    }

    /// Ends the wait of a call whose client went away. A lease that was granted for it meanwhile, and that nobody was
    /// told of, is settled as [`Outcome::NotSent`], which says nothing about the backend.
    pub fn abandon(&mut self, ticket: Ticket, now: Timestamp) {
        let now = self.advance(now);
        let untold = self
            .waiters
            .get(ticket)
            .filter(|waiter| waiter.calls == 1 && !waiter.told)
            .and_then(|waiter| waiter.answer.clone()?.ok());
        self.leave(ticket);
        if let Some(lease) = untold
            && let Some(open) = self.leases.get(lease).copied()
        {
            self.finish(lease, &open, &Settlement::new(Outcome::NotSent), Evidence::None, now);
            self.after_settling();
        }
    }

    /// Counts one call less; the last one takes the waiter along.
    fn leave(&mut self, ticket: Ticket) {
        let Some(waiter) = self.waiters.get_mut(ticket) else {
            return;
        };
        waiter.calls -= 1;
        if waiter.calls > 0 {
            return;
        }
        self.release_hold(ticket);
        let Some(waiter) = self.waiters.remove(ticket) else {
            return;
        };
        let Some((request, _)) = waiter.request else { return };
        let Some(sender) = self.senders.get_mut(request.sender) else {
            return;
        };
        match sender.records.get_mut(&request.seq).map(|record| &mut record.answer) {
            Some(Answer::Parked(parked)) if *parked == ticket => {
                sender.records.remove(&request.seq);
            }
            Some(Answer::Leased { ticket: told, .. }) if *told == Some(ticket) => *told = None,
            _ => {}
        }
    }

    /// Lets the session of a waiter be idle again.
    fn release_hold(&mut self, ticket: Ticket) {
        let hold = self.waiters.get_mut(ticket).and_then(|waiter| waiter.hold.take());
        if let Some(session) = hold
            && let Some(slot) = self.close_session_lease(session, self.clock)
        {
            self.refresh(slot);
        }
    }

    /// What a waiter waits for now.
    pub(super) fn why_parked(&self, ticket: Ticket) -> Error {
        let Some(waiter) = self.waiters.get(ticket) else {
            return Error::UnknownLease;
        };
        if !self.is_open(waiter.owner) {
            return self.refusal(waiter.owner);
        }
        if let Err(full) = self.check_capacity() {
            return full;
        }
        if self.tournament.winner().is_none() {
            return Error::NoEligibleBackend { census: self.census() };
        }
        waiter.why.clone()
    }

    /// Grants to whoever waits, in order, as far as it goes. Cheap when nobody waits, or nobody can be served.
    #[inline]
    pub(super) fn pump(&mut self) {
        if self.waiters.queued() > 0 {
            self.serve_waiters();
        }
    }

    #[cold]
    fn serve_waiters(&mut self) {
        while self.check_capacity().is_ok()
            && self.tournament.winner().is_some()
            && let Some(ticket) = self.next_waiter()
        {
            self.serve(ticket);
        }
    }

    /// The one who has waited longest, among those whose owner is open.
    fn next_waiter(&self) -> Option<Ticket> {
        if !self.lifecycle.grants() {
            return None;
        }
        self.owners
            .indexes()
            .filter_map(|owner| Some((self.waiters.head(owner)?, owner)))
            .filter(|(_, owner)| self.is_open(*owner))
            .min()
            .map(|((_, ticket), _)| ticket)
    }

    fn serve(&mut self, ticket: Ticket) {
        self.release_hold_of_live(ticket);
        let Some(waiter) = self.waiters.get_mut(ticket) else {
            return;
        };
        if waiter.deadline <= self.clock {
            let why = waiter.why.clone();
            return self.refuse_waiter(ticket, why);
        }
        if waiter.hold.take().is_some() {
            return self.refuse_waiter(ticket, Error::SessionClosed);
        }
        let (session, exclude) = (waiter.session.take(), std::mem::take(&mut waiter.exclude));
        let claimant = Claimant {
            owner: waiter.owner,
            session: session.as_deref().map(|key| Name {
                namespace: waiter.namespace,
                key,
            }),
            exclude: &exclude,
            expect_version: waiter.expect_version,
            fingerprint: waiter.fingerprint,
            request: waiter.request,
            ticket: Some(ticket),
        };
        let duration = self.clock.since(waiter.since);
        match self.place(&claimant, self.clock) {
            Ok(grant) => {
                self.durations.note_wait(duration);
                self.waiters.answer(ticket, Ok(grant.lease));
            }
            Err(why) => self.refuse_waiter(ticket, why),
        }
    }

    /// Gives the hold on a session back; one on a session that was closed stays, as the sign of that.
    fn release_hold_of_live(&mut self, ticket: Ticket) {
        let hold = self.waiters.get(ticket).and_then(|waiter| waiter.hold);
        if hold.is_some_and(|session| self.sessions.is_live(session)) {
            self.release_hold(ticket);
        }
    }

    /// Ends a wait with an error; the key of the request is free again.
    pub(super) fn refuse_waiter(&mut self, ticket: Ticket, why: Error) {
        self.release_hold(ticket);
        let request = self.waiters.get(ticket).and_then(|waiter| waiter.request);
        if let Some((request, _)) = request
            && let Some(sender) = self.senders.get_mut(request.sender)
        {
            sender.records.remove(&request.seq);
        }
        self.waiters.answer(ticket, Err(why));
    }

    /// Ends every wait with the same error.
    pub(super) fn refuse_all_waiters(&mut self, why: &Error) {
        for owner in self.owners.indexes() {
            while let Some((_, ticket)) = self.waiters.head(owner) {
                self.refuse_waiter(ticket, why.clone());
            }
        }
    }
}
