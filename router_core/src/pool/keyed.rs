//! Requests with a key: one effect, however often they are sent.

use super::placing::Claimant;
use super::{AcquireRequest, Grant, Pool};
use crate::error::Error;
use crate::interval::Interval;
use crate::lease::{Entry, LeaseId, Request};
use crate::sender::{Answer, RequestKey};
use crate::session::Name;
use crate::slab::Handle;
use crate::time::Timestamp;
use crate::waiters::Ticket;
use std::sync::Arc;

/// What is known about a request.
pub(super) enum Recalled<'a> {
    /// It was granted this, and it is not settled.
    Granted(Grant),
    Parked(Ticket),
    New(Claimant<'a>),
}

impl Pool {
    pub(super) fn acquire_keyed(
        &mut self,
        request: &AcquireRequest<'_>,
        key: &RequestKey<'_>,
        now: Timestamp,
    ) -> Result<Grant, Error> {
        match self.recall(request, key, now)? {
            Recalled::Granted(grant) => Ok(grant),
            // Another call waits for it; this one does not want to.
            Recalled::Parked(ticket) => Err(self.why_parked(ticket)),
            Recalled::New(claimant) => self.place(&claimant, now),
        }
    }

    /// Looks a request up, and refuses one that is over or not what it was.
    pub(super) fn recall<'a>(
        &mut self,
        request: &AcquireRequest<'a>,
        key: &RequestKey<'_>,
        now: Timestamp,
    ) -> Result<Recalled<'a>, Error> {
        let handle = self.sender(key.sender, key.incarnation)?;
        let fingerprint = self.sessions.fingerprint(request.session, request.expect_version);
        let sender = self.senders.at_mut(handle);
        sender.heard = now;
        if sender.settled.contains(key.seq) {
            return Err(Error::StaleRequest { seq: key.seq });
        }
        if let Some(record) = sender.records.get(&key.seq) {
            if record.fingerprint != fingerprint {
                return Err(Error::IdempotencyConflict { what: "request" });
            }
            self.totals.replays.acquires += 1;
            return match record.answer {
                Answer::Parked(ticket) => Ok(Recalled::Parked(ticket)),
                Answer::Leased { lease, ticket } => self.replay(lease, ticket).map(Recalled::Granted),
            };
        }
        if sender.tombstones >= self.config.tombstone_cap {
            return Err(Error::TooManyTombstones {
                limit: self.config.tombstone_cap,
            });
        }
        let seq = key.seq;
        let namespace = sender.namespace;
        Ok(Recalled::New(Claimant {
            owner: sender.owner,
            session: request.session.map(|key| Name { namespace, key }),
            exclude: request.exclude,
            expect_version: request.expect_version,
            fingerprint: request.fingerprint,
            request: Some((Request { sender: handle, seq }, fingerprint)),
            ticket: None,
        }))
    }

    /// The grant of an earlier call, which this call is told as well.
    fn replay(&mut self, lease: LeaseId, ticket: Option<Ticket>) -> Result<Grant, Error> {
        if let Some(waiter) = ticket.and_then(|ticket| self.waiters.get_mut(ticket)) {
            waiter.told = true;
        }
        self.grant_of(lease, true)
    }

    /// The grant of an open lease, told again.
    pub(super) fn grant_of(&self, lease: LeaseId, replayed: bool) -> Result<Grant, Error> {
        match self.leases.find(lease) {
            None => Err(Error::UnknownLease),
            Some(Entry::Settled(outcome)) => Err(Error::RequestSettled { outcome: *outcome }),
            Some(Entry::Open(open)) => Ok(Grant {
                lease,
                backend: Arc::clone(&self.backends.at(open.backend.slot()).info),
                reason: open.reason,
                version: open.version,
                names_version: open.names_version,
                granted: open.granted,
                replayed,
            }),
        }
    }

    /// The sender, if this very process of it is attached.
    pub(super) fn sender(&self, name: &str, incarnation: &str) -> Result<Handle, Error> {
        self.senders
            .find(name)
            .filter(|handle| *self.senders.at(*handle).incarnation == *incarnation)
            .ok_or_else(|| Error::UnknownSender {
                sender: name.to_owned(),
            })
    }

    /// Takes in what a sender says to be settled: deletes exactly those records, whose numbers are refused from now on.
    /// A number whose lease is still open keeps it; that leaves nothing when it is settled.
    pub(super) fn note_settled(&mut self, handle: Handle, (first, last): Interval) {
        let sender = self.senders.at_mut(handle);
        if !sender.settled.insert((first, last)) {
            return;
        }
        let due: Vec<(u64, Answer)> = sender
            .records
            .range(first..=last)
            .map(|(seq, record)| (*seq, record.answer))
            .collect();
        for (seq, answer) in due {
            match answer {
                Answer::Parked(ticket) => self.refuse_waiter(ticket, Error::StaleRequest { seq }),
                Answer::Leased { lease, .. } if self.leases.get(lease).is_none() => {
                    self.leases.forget(lease);
                    let sender = self.senders.at_mut(handle);
                    sender.records.remove(&seq);
                    sender.tombstones -= 1;
                }
                Answer::Leased { .. } => {}
            }
        }
    }
}
