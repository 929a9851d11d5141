//! Deaths of engines, and what is refused because of them. See [`crate::poison`].

use super::placing::Claimant;
use super::{AcquireRequest, Pool};
use crate::error::Error;
use crate::event::EventKind;
use crate::health::Health;
use crate::lease::{Lease, Settlement};
use crate::membership::{BackendInfo, BackendRef};
use crate::poison::{Break, Death, Guard, PoisonEntry, Verdict, Who};
use crate::sender::Senders;
use crate::session::COMMON;
use crate::time::Timestamp;
use std::sync::Arc;

impl Pool {
    /// Takes in that the process of a backend is dead, by whoever runs it: it is down until a probe or an execution gets
    /// an answer, and what was in flight on it is suspect. `evidence` is how it died ("exit code -9"). A death that is
    /// known changes nothing. Ignored for an incarnation that is gone; whether it was taken in.
    pub fn report_death(&mut self, backend: BackendRef, evidence: &str, now: Timestamp) -> bool {
        self.advance(now);
        if !self.is_live(backend) {
            return false;
        }
        let at = self.instant();
        self.examine(backend.slot(), |vitals| vitals.note_dead(at));
        self.bury_backend(backend, evidence);
        true
    }

    /// Takes in that nobody listens at a backend's address any more. By itself that is no failure of the backend: what
    /// was to be sent, or probed, tells of that. Ignored for an incarnation that is gone.
    pub fn note_refused(&mut self, backend: BackendRef, now: Timestamp) {
        self.advance(now);
        if self.is_live(backend) {
            self.bury_backend(backend, "it refuses connections");
        }
    }

    fn bury_backend(&mut self, backend: BackendRef, evidence: &str) {
        let known = self.backends.at(backend.slot());
        // What was never reached has not come up yet.
        let has_lived = known.vitals.health() != Health::Unproven;
        if !self.poison.is_on() || !has_lived || known.death.is_some() {
            return;
        }
        let target = self.backends.at_mut(backend.slot());
        let death = Arc::new(Death {
            backend: target.info.id.clone(),
            generation: backend.generation(),
            at: self.clock,
            evidence: evidence.to_owned(),
        });
        target.death = Some(Arc::clone(&death));
        let verdict = self.poison.note_death(backend, &death);
        self.announce(&death, verdict);
    }

    fn announce(&mut self, death: &Arc<Death>, verdict: Verdict) {
        if verdict.suspects > 0 {
            self.record(EventKind::BackendDied {
                death: Arc::clone(death),
                suspects: verdict.suspects,
                condemned: verdict.condemned,
            });
        }
    }

    /// Takes in that a backend was asked at `since`, and answered: it did not die of what broke off before.
    pub fn note_answered(&mut self, backend: BackendRef, since: Timestamp, now: Timestamp) {
        self.advance(now);
        if self.is_live(backend) {
            self.revive(backend, since);
        }
    }

    pub(super) fn revive(&mut self, backend: BackendRef, since: Timestamp) {
        let target = self.backends.at_mut(backend.slot());
        if target.death.as_ref().is_some_and(|death| death.at <= since) {
            target.death = None;
        }
        self.poison.absolve(backend, since);
    }

    /// Takes in that an execution broke off.
    #[cold]
    pub(super) fn note_break(&mut self, open: &Lease, settlement: &Settlement) {
        if !self.poison.is_on() {
            return;
        }
        let by_fingerprint = settlement.fingerprint.map(Guard::by_fingerprint);
        let who: Vec<Who> = by_fingerprint.into_iter().chain(self.session_of(open)).collect();
        if who.is_empty() {
            return;
        }
        let backend = self.backends.at(open.backend.slot());
        let broken = Break::new(&backend.info, open.granted, settlement.answered, who, self.clock);
        match backend.death.clone().filter(|death| open.granted <= death.at) {
            None => self.poison.note_break(broken),
            Some(death) => {
                let verdict = self.poison.note_late_break(&broken, &death);
                if !verdict.condemned.is_empty() {
                    self.announce(&death, verdict);
                }
            }
        }
    }

    fn session_of(&self, open: &Lease) -> Option<Who> {
        let key = self.sessions.key(open.session?)?;
        let sender = open.request.and_then(|request| self.senders.get(request.sender));
        Some(self.poison.by_session(sender.map(|sender| &*sender.name), &key))
    }

    /// Refuses what is suspected to kill engines.
    #[cold]
    pub(super) fn check_poison(&mut self, claimant: &Claimant<'_>) -> Result<(), Error> {
        let by_session = claimant.session.map(|name| {
            let sender = sender_of(&self.senders, claimant);
            debug_assert!(
                sender.is_some() || name.namespace == COMMON,
                "only senders have namespaces"
            );
            self.poison.session_id(sender, name.key)
        });
        for id in [claimant.fingerprint, by_session].into_iter().flatten() {
            if let Some(entry) = self.poison.refuse(id, self.clock) {
                return Err(Error::PoisonSuspected { entry: Arc::new(entry) });
            }
        }
        Ok(())
    }

    /// The engines that `request` may have killed, when it depends on them whether it is refused: ask each of them
    /// whether it lives ([`Self::note_answered`], [`Self::note_refused`]) before it is acquired for. Nearly always none.
    #[must_use]
    pub fn poison_doubts(&self, request: &AcquireRequest<'_>, now: Timestamp) -> Vec<Arc<BackendInfo>> {
        if !self.poison.is_watchful() {
            return Vec::new();
        }
        let now = self.clock.max(now);
        let sender = request.key.as_ref().map(|key| key.sender);
        let by_session = request.session.map(|key| self.poison.session_id(sender, key));
        let ids: Vec<u64> = [request.fingerprint, by_session].into_iter().flatten().collect();
        let mut doubted = self.poison.doubts(&ids, now);
        doubted.retain(|backend| self.is_live(backend.reference));
        doubted
    }

    /// Whether requests should be acquired for with their fingerprints: something broke off lately, or is suspect.
    #[must_use]
    #[inline]
    pub fn is_watchful(&self) -> bool {
        self.poison.is_watchful()
    }

    /// What is suspected to kill engines: the refused ones first, the latest first.
    #[must_use]
    pub fn poison_entries(&self, now: Timestamp) -> Vec<PoisonEntry> {
        self.poison.entries(self.clock.max(now))
    }

    /// Forgets one suspect, or all of them: they may run again. How many were forgotten.
    pub fn clear_poison(&mut self, id: Option<u64>, now: Timestamp) -> usize {
        self.advance(now);
        let cleared = self.poison.clear(id);
        if cleared > 0 {
            self.record(EventKind::PoisonCleared { count: cleared });
        }
        cleared
    }
}

fn sender_of<'a>(senders: &'a Senders, claimant: &Claimant<'_>) -> Option<&'a str> {
    let (request, _) = claimant.request?;
    Some(&*senders.get(request.sender)?.name)
}
