//! Senders: coming, being alive, and going.

use super::traffic::check_session_key;
use super::{ClosedSession, Pool};
use crate::config::Recovery;
use crate::error::Error;
use crate::event::EventKind;
use crate::fence::check_name;
use crate::interval::Interval;
use crate::lease::{Lease, LeaseId, Outcome, Request};
use crate::select::PickReason;
use crate::sender::{Answer, Attach, Attached, HeldLease, Record, SenderStatus};
use crate::session::Name;
use crate::slab::Handle;
use crate::state::Cause;
use crate::time::Timestamp;
use crate::update::UpdatePhase;
use crate::version::Published;
use std::time::Duration;

/// Intervals in one message at most: one per open request, and a client has few of those.
const MAX_INTERVALS: usize = 65_536;

/// Sessions of a departed sender that are taken out at once; ticks and new sessions take out the others.
const ENDED_PER_DEPARTURE: usize = 1024;

impl Pool {
    /// Makes a sender known, with the leases and pins it holds from an earlier router process.
    ///
    /// The same incarnation again is a heartbeat. Another incarnation means that the old process is gone: each lease
    /// that one held is ambiguous, and its records are dropped.
    pub fn attach_sender(&mut self, attach: &Attach<'_>, now: Timestamp) -> Result<Attached, Error> {
        let now = self.advance(now);
        self.lifecycle.check_alive()?;
        check_name("sender name", attach.sender)?;
        check_name("sender incarnation", attach.incarnation)?;
        let known = self.sender(attach.sender, attach.incarnation).ok();
        if known.is_some_and(|sender| *self.owners.at(self.senders.at(sender).owner).name != *attach.owner) {
            return Err(Error::IdempotencyConflict { what: "sender" });
        }
        let owner = self.owners.attach(attach.owner, self.lifecycle.published)?;
        let sender = if let Some(sender) = known {
            self.senders.at_mut(sender).heard = now;
            sender
        } else {
            if let Some(old) = self.senders.find(attach.sender) {
                self.lose_sender(old, "another process of it came");
                self.forget_departed(ENDED_PER_DEPARTURE);
                self.lifecycle.check_alive()?;
            }
            self.record(EventKind::SenderAttached {
                sender: attach.sender.to_owned(),
                owner: attach.owner.to_owned(),
            });
            self.changed();
            let namespace = self.sessions.open_namespace();
            self.senders
                .insert(attach.sender, attach.incarnation, owner, namespace, now)
        };
        let adopted: Vec<_> = attach.held.iter().map(|held| self.take_over(sender, held)).collect();
        let lost = adopted.iter().filter(|lease| lease.is_err()).count();
        if lost > 0 {
            self.note_uncertain(Cause::LeasesLost {
                sender: attach.sender.to_owned(),
                leases: u32::try_from(lost).unwrap_or(u32::MAX),
            });
        }
        let pins = attach
            .pins
            .iter()
            .filter(|(key, backend)| self.adopt_pin(sender, key, backend));
        let pins_adopted = u32::try_from(pins.count()).unwrap_or(u32::MAX);
        Ok(Attached {
            published: self.lifecycle.published,
            ttl: self.config.sender_ttl,
            already: known.is_some(),
            adopted,
            pins_adopted,
        })
    }

    /// Takes in a sign of life of a sender and what it says to be settled: records of those requests are deleted, and
    /// their numbers are refused from now on.
    ///
    /// Fails with [`Error::UnknownSender`] or [`Error::InvalidArgument`].
    pub fn heartbeat(
        &mut self,
        sender: &str,
        incarnation: &str,
        settled: &[Interval],
        now: Timestamp,
    ) -> Result<SenderStatus, Error> {
        self.note_heard(sender, incarnation, settled, now)
            .map(|handle| self.status_of_sender(handle))
    }

    /// The same without an answer: for what comes along with every other message of a sender. Call it before the
    /// message itself, in the same critical section.
    pub fn report_settled(
        &mut self,
        sender: &str,
        incarnation: &str,
        settled: &[Interval],
        now: Timestamp,
    ) -> Result<(), Error> {
        self.note_heard(sender, incarnation, settled, now).map(|_| ())
    }

    fn note_heard(
        &mut self,
        sender: &str,
        incarnation: &str,
        settled: &[Interval],
        now: Timestamp,
    ) -> Result<Handle, Error> {
        let now = self.advance(now);
        let handle = self.sender(sender, incarnation)?;
        if settled.len() > MAX_INTERVALS || settled.iter().any(|(first, last)| first > last) {
            return Err(Error::InvalidArgument {
                what: "list of settled intervals",
                rule: "it has at most 65536 intervals, each with its first number before its last",
            });
        }
        self.senders.at_mut(handle).heard = now;
        for interval in settled {
            self.note_settled(handle, *interval);
        }
        Ok(handle)
    }

    /// Leaves `time` out of the silence of every sender: nobody listened, since this process was suspended. What they
    /// said meanwhile is still on its way.
    pub fn excuse_silence(&mut self, time: Duration, now: Timestamp) {
        let now = self.advance(now);
        let senders: Vec<Handle> = self.senders.iter().map(|(sender, _)| sender).collect();
        for sender in senders {
            let sender = self.senders.at_mut(sender);
            sender.heard = sender.heard.after(time).min(now);
        }
    }

    /// Forgets a sender that holds no leases; its parked acquires fail and its sessions end.
    ///
    /// Fails with [`Error::UnknownSender`], or [`Error::InvalidTransition`] while it holds leases.
    pub fn detach_sender(&mut self, sender: &str, incarnation: &str, now: Timestamp) -> Result<(), Error> {
        self.advance(now);
        let handle = self.sender(sender, incarnation)?;
        let held = self.senders.at(handle).held;
        if held > 0 {
            return Err(Error::InvalidTransition {
                operation: "detaching a sender",
                state: format!("it holds {held} leases: settle them first"),
            });
        }
        self.drop_sender(handle, "it detached");
        self.forget_departed(ENDED_PER_DEPARTURE);
        Ok(())
    }

    /// Ends a session of a sender; see [`Self::close_session`], which ends those of requests without one. Sessions of
    /// different senders are different, whatever they are called.
    ///
    /// Fails with [`Error::UnknownSender`].
    pub fn close_sender_session(&mut self, sender: &str, key: &str, now: Timestamp) -> Result<ClosedSession, Error> {
        self.advance(now);
        let Some(handle) = self.senders.find(sender) else {
            return Err(Error::UnknownSender {
                sender: sender.to_owned(),
            });
        };
        let namespace = self.senders.at(handle).namespace;
        Ok(self.close_named(Name { namespace, key }, now))
    }

    /// Adopts a lease of an earlier router process, or takes it for ambiguous: its number is refused from now on, and it
    /// is counted once, however often it is presented.
    fn take_over(&mut self, sender: Handle, held: &HeldLease<'_>) -> Result<LeaseId, Error> {
        let is_known = self.senders.at(sender).settled.contains(held.seq);
        let adopted = self.adopt_lease(sender, held);
        if adopted.is_err() && !is_known {
            self.note_settled(sender, (held.seq, held.seq));
            self.totals.outcomes.add(Outcome::Ambiguous);
        }
        adopted
    }

    /// Takes over a lease of an earlier router process, if everything about it still holds.
    fn adopt_lease(&mut self, sender: Handle, held: &HeldLease<'_>) -> Result<LeaseId, Error> {
        if let Some(Record {
            answer: Answer::Leased { lease, .. },
            ..
        }) = self.senders.at(sender).records.get(&held.seq)
        {
            return Ok(*lease);
        }
        let is_drained = self
            .lifecycle
            .update()
            .is_some_and(|update| update.phase != UpdatePhase::Quiescing);
        let is_current = match (self.lifecycle.published, held.version) {
            (Some(published), version) => version == Some(published.version),
            (None, _) => true,
        };
        check_session_key(held.session)?;
        if self.config.recovery == Recovery::Restart
            || is_drained
            || !is_current
            || self.senders.at(sender).settled.contains(held.seq)
        {
            return Err(Error::UnknownLease);
        }
        let slot = self.backends.slot_of(held.backend)?;
        let namespace = self.senders.at(sender).namespace;
        let session = held.session.map(|key| self.pin(Name { namespace, key }, slot));
        if let Some(pinned) = session.and_then(|session| self.open_session_lease(session)) {
            self.refresh(pinned);
        }
        let owner = self.senders.at(sender).owner;
        let backend = self.backends.at_mut(slot);
        backend.outstanding += 1;
        let names_version = backend.named_version.is_some();
        let reference = backend.info.reference;
        self.refresh(slot);
        self.owners.at_mut(owner).outstanding += 1;
        let epoch = self.lifecycle.published.map_or(0, |published| published.epoch);
        let lease = self.leases.open(Lease {
            backend: reference,
            session,
            owner,
            request: Some(Request { sender, seq: held.seq }),
            reason: PickReason::Sticky,
            version: held.version.map(|version| Published { epoch, version }),
            names_version,
            pool_generation: self.lifecycle.generation,
            trial: 0,
            granted: self.clock,
            presented: Some(held.lease),
            ambiguous: false,
        });
        let fingerprint = self.sessions.fingerprint(held.session, None);
        let answer = Answer::Leased { lease, ticket: None };
        let sender = self.senders.at_mut(sender);
        sender.held += 1;
        sender.records.insert(held.seq, Record { fingerprint, answer });
        Ok(lease)
    }

    /// Takes over a pin of an earlier router process; whether there was a backend to pin to, and no pin yet.
    fn adopt_pin(&mut self, sender: Handle, key: &str, backend: &str) -> bool {
        let namespace = self.senders.at(sender).namespace;
        let name = Name { namespace, key };
        let is_new = self.sessions.find(self.sessions.hash(name), name).is_none();
        match self.backends.slot_of(backend) {
            Ok(slot) if is_new && check_session_key(Some(key)).is_ok() && !self.sessions.is_full() => {
                self.pin(name, slot);
                true
            }
            _ => false,
        }
    }

    /// The session of this name; a new and idle one, pinned to the backend at `slot`, when there is none.
    fn pin(&mut self, name: Name<'_>, slot: u32) -> Handle {
        let hash = self.sessions.hash(name);
        if let Some(session) = self.sessions.find(hash, name) {
            return session;
        }
        let backend = self.backends.at_mut(slot);
        backend.sessions += 1;
        let (reference, publications) = (backend.info.reference, self.lifecycle.publications);
        let session = self.sessions.insert(hash, name, reference, publications);
        self.close_session_lease(session, self.clock);
        self.refresh(slot);
        session
    }

    pub(super) fn status_of_sender(&self, handle: Handle) -> SenderStatus {
        let sender = self.senders.at(handle);
        SenderStatus {
            sender: sender.name.to_string(),
            incarnation: sender.incarnation.to_string(),
            owner: self.owners.at(sender.owner).name.to_string(),
            held: sender.held,
            tombstones: sender.tombstones,
            settled: sender.settled.iter().collect(),
            silent: self.clock.since(sender.heard),
        }
    }
}
