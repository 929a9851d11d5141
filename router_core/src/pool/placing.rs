//! Placing an execution: the grant condition, the choice of a backend, and the reservation.

use super::{AcquireRequest, Grant, Pool};
use crate::error::{Census, Error};
use crate::fence::DEFAULT;
use crate::health::Health;
use crate::lease::{Lease, Request};
use crate::membership::{BackendRef, Phase};
use crate::select::{PickReason, RepinReason};
use crate::sender::{Answer, Record};
use crate::session::{COMMON, Name};
use crate::slab::Handle;
use crate::time::Timestamp;
use crate::waiters::Ticket;
use std::sync::Arc;

/// Sessions that expired, and such whose sender departed, that each new session takes out: more than it brings, so a
/// pool that nobody ticks does not grow.
const ENDED_PER_NEW_SESSION: usize = 2;

/// Who wants to run what.
#[derive(Clone, Copy, Debug)]
pub(super) struct Claimant<'a> {
    pub(super) owner: u32,
    pub(super) session: Option<Name<'a>>,
    pub(super) exclude: &'a [BackendRef],
    pub(super) expect_version: Option<u64>,
    /// Of what is to run, when it is known.
    pub(super) fingerprint: Option<u64>,
    /// The request of a sender, with what tells its calls apart.
    pub(super) request: Option<(Request, u64)>,
    /// The ticket, when it was parked.
    pub(super) ticket: Option<Ticket>,
}

impl<'a> Claimant<'a> {
    /// A request without a sender.
    #[inline]
    pub(super) const fn unkeyed(request: &AcquireRequest<'a>) -> Self {
        let session = match request.session {
            Some(key) => Some(Name { namespace: COMMON, key }),
            None => None,
        };
        Self {
            owner: DEFAULT,
            session,
            exclude: request.exclude,
            expect_version: request.expect_version,
            fingerprint: request.fingerprint,
            request: None,
            ticket: None,
        }
    }
}

impl Pool {
    /// Whether leases may be granted to the owner, as far as backends are not concerned.
    #[inline]
    pub(super) fn is_open(&self, owner: u32) -> bool {
        let owner = self.owners.at(owner);
        self.lifecycle.grants() && owner.fences.is_empty() && owner.knows(self.lifecycle.published)
    }

    /// Why nothing is granted to the owner.
    #[cold]
    pub(super) fn refusal(&self, owner: u32) -> Error {
        if let Err(over) = self.lifecycle.check_alive() {
            return over;
        }
        let owner = self.owners.at(owner);
        if !owner.fences.is_empty() {
            return Error::Fenced {
                owner: owner.name.to_string(),
                reasons: owner.fences.iter().map(ToString::to_string).collect(),
            };
        }
        match self.lifecycle.published {
            Some(published) if self.lifecycle.grants() => Error::VersionNotAcked {
                owner: owner.name.to_string(),
                published: published.version,
                acknowledged: owner.acknowledged,
            },
            _ => {
                let state = self.lifecycle.state();
                Error::NotServing {
                    state: state.as_str(),
                    server_paused: self.lifecycle.paused_for.is_some(),
                    update: state
                        .update()
                        .or(self.lifecycle.paused_for.as_ref())
                        .map(ToString::to_string),
                }
            }
        }
    }

    /// Refuses when the pool runs as many executions as it may.
    #[inline]
    pub(super) fn check_capacity(&self) -> Result<(), Error> {
        match self.config.max_outstanding {
            Some(limit) if self.leases.len() >= limit => Err(Error::AtCapacity {
                outstanding: self.leases.len(),
                limit,
            }),
            _ => Ok(()),
        }
    }

    /// Grants a lease, if every condition holds at this instant.
    pub(super) fn place(&mut self, claimant: &Claimant<'_>, now: Timestamp) -> Result<Grant, Error> {
        if self.poison.has_suspects() {
            self.check_poison(claimant)?;
        }
        if !self.is_open(claimant.owner) {
            return Err(self.refusal(claimant.owner));
        }
        if let Some(expected) = claimant.expect_version
            && self.lifecycle.published.map(|published| published.version) != Some(expected)
        {
            return Err(Error::StaleVersion {
                expected,
                published: self.lifecycle.published,
            });
        }
        self.check_capacity()?;
        let Some(name) = claimant.session else {
            let slot = self.choose(claimant.exclude)?;
            return Ok(self.grant(claimant, slot, None, PickReason::NoSession));
        };
        let hash = self.sessions.hash(name);
        match self.sessions.find(hash, name) {
            Some(session) => self.place_known(claimant, session, now),
            None => self.place_new(claimant, hash, name, now),
        }
    }

    #[inline]
    fn place_known(&mut self, claimant: &Claimant<'_>, session: Handle, now: Timestamp) -> Result<Grant, Error> {
        let pin = self.sessions.pin(session);
        let expired = self.sessions.has_expired(session, now);
        let obstacle = self.obstacle(pin, claimant.exclude);
        if obstacle.is_none() && !expired {
            let may_move = self.config.spill.is_some() || self.config.rebind_on_publish;
            if may_move && let Some((slot, reason)) = self.better_place(session, pin, claimant.exclude) {
                self.move_session(session, pin, slot);
                return Ok(self.grant(claimant, slot, Some(session), reason));
            }
            // The grant refreshes the standing of the same slot.
            self.open_session_lease(session);
            return Ok(self.grant(claimant, pin.slot(), Some(session), PickReason::Sticky));
        }
        let slot = self.choose(claimant.exclude)?;
        self.move_session(session, pin, slot);
        let reason = match obstacle {
            Some(why) if !expired => {
                self.note_repinned(pin, why);
                PickReason::Repin(why)
            }
            // The old session is over; this one only happens to have the same key.
            _ => {
                self.note_expired(1);
                PickReason::New
            }
        };
        Ok(self.grant(claimant, slot, Some(session), reason))
    }

    fn place_new(
        &mut self,
        claimant: &Claimant<'_>,
        hash: u64,
        name: Name<'_>,
        now: Timestamp,
    ) -> Result<Grant, Error> {
        self.expire_sessions(ENDED_PER_NEW_SESSION, now);
        self.forget_departed(ENDED_PER_NEW_SESSION);
        let slot = self.choose(claimant.exclude)?;
        if self.sessions.is_full() && !self.evict_session() {
            return Ok(self.grant(claimant, slot, None, PickReason::TableFull));
        }
        let backend = self.backends.at_mut(slot);
        backend.sessions += 1;
        let (pin, publications) = (backend.info.reference, self.lifecycle.publications);
        let session = self.sessions.insert(hash, name, pin, publications);
        Ok(self.grant(claimant, slot, Some(session), PickReason::New))
    }

    /// Why a pin cannot be used, if it cannot.
    #[inline]
    fn obstacle(&self, pin: BackendRef, exclude: &[BackendRef]) -> Option<RepinReason> {
        let Some(backend) = self.backends.get(pin) else {
            return Some(RepinReason::Removed);
        };
        match (backend.phase, backend.vitals.health()) {
            (Phase::Removed, _) => Some(RepinReason::Removed),
            (Phase::Draining | Phase::Retiring, _) => Some(RepinReason::Draining),
            (Phase::Serving, _) if backend.held_back => Some(RepinReason::Draining),
            (Phase::Serving, Health::Down | Health::Unproven) => Some(RepinReason::Down),
            // Its only execution is the trial of somebody else.
            (Phase::Serving, Health::HalfOpen) if !backend.vitals.admits() => Some(RepinReason::Down),
            (Phase::Serving, _) if !backend.weights.fit(self.lifecycle.published) => Some(RepinReason::Weights),
            (Phase::Serving, _) => exclude.contains(&pin).then_some(RepinReason::Excluded),
        }
    }

    /// The slot of the least loaded eligible backend that is not excluded.
    #[inline]
    pub(super) fn choose(&mut self, exclude: &[BackendRef]) -> Result<u32, Error> {
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
    fn grant(&mut self, claimant: &Claimant<'_>, slot: u32, session: Option<Handle>, reason: PickReason) -> Grant {
        self.last_recency += 1;
        let active = self.active.elapsed();
        let backend = self.backends.at_mut(slot);
        if backend.outstanding == 0 {
            backend.heard = active;
        }
        let trial = backend.vitals.note_start();
        let names_version = backend.named_version.is_some();
        backend.outstanding += 1;
        backend.picks += 1;
        backend.recency = self.last_recency;
        let info = Arc::clone(&backend.info);
        self.totals.picks.add(reason);
        self.refresh(slot);
        self.owners.at_mut(claimant.owner).outstanding += 1;
        let version = self.lifecycle.published;
        let lease = self.leases.open(Lease {
            backend: info.reference,
            session,
            owner: claimant.owner,
            request: claimant.request.map(|(request, _)| request),
            reason,
            version,
            names_version,
            pool_generation: self.lifecycle.generation,
            trial,
            granted: self.clock,
            presented: None,
            ambiguous: false,
        });
        if let Some((request, fingerprint)) = claimant.request {
            let sender = self.senders.at_mut(request.sender);
            sender.held += 1;
            let ticket = claimant.ticket;
            let answer = Answer::Leased { lease, ticket };
            sender.records.insert(request.seq, Record { fingerprint, answer });
        }
        Grant {
            lease,
            backend: info,
            reason,
            version,
            names_version,
            granted: self.clock,
            replayed: false,
        }
    }
}
