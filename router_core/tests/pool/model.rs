//! The pool by definition: lists, scans and fractions, as slow and as plain as possible.
//!
//! It shares no code with the core and knows nothing of slots, trees or chains. Health alone is not modelled (it has
//! tests of its own): callers say which backends are up, suspect or down.

use router_core::health::Health;
use router_core::lease::LeaseId;
use std::collections::BTreeMap;

/// Registered at some time, and live or still running something.
#[derive(Clone, Debug)]
pub(crate) struct Incarnation {
    pub(crate) generation: u32,
    pub(crate) port: u16,
    pub(crate) capacity: u64,
    pub(crate) draining: bool,
    pub(crate) removed: bool,
    pub(crate) health: Health,
    /// The one execution that runs while it is half open.
    pub(crate) trial: Option<LeaseId>,
    /// Number of the last grant; 0 for none.
    pub(crate) last_grant: u64,
}

impl Incarnation {
    pub(crate) fn is_eligible(&self) -> bool {
        let admits = match self.health {
            Health::Up | Health::Suspect => true,
            Health::HalfOpen => self.trial.is_none(),
            Health::Unproven | Health::Down => false,
        };
        admits && !self.removed && !self.draining
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Session {
    /// Unique over all time, unlike the key.
    number: u64,
    pub(crate) key: u8,
    pub(crate) pin: u32,
}

/// What an acquire must answer: the generation and the name of the reason, or the code of the error.
pub(crate) type Expected = Result<(u32, &'static str), &'static str>;

#[derive(Debug)]
pub(crate) struct Model {
    pub(crate) incarnations: Vec<Incarnation>,
    pub(crate) sessions: Vec<Session>,
    /// Generation and session number of each open lease.
    pub(crate) leases: BTreeMap<LeaseId, (u32, Option<u64>)>,
    /// Idle sessions and since when, the longest idle first.
    idle: Vec<(u64, u64)>,
    pub(crate) now: u64,
    pub(crate) ttl: u64,
    pub(crate) cap: usize,
    pub(crate) limit: usize,
    grants: u64,
    last_session: u64,
}

impl Model {
    pub(crate) fn new(ttl: u64, cap: usize, limit: usize) -> Self {
        Self {
            incarnations: Vec::new(),
            sessions: Vec::new(),
            leases: BTreeMap::new(),
            idle: Vec::new(),
            now: 0,
            ttl,
            cap,
            limit,
            grants: 0,
            last_session: 0,
        }
    }

    pub(crate) fn find(&self, generation: u32) -> Option<&Incarnation> {
        self.incarnations
            .iter()
            .find(|incarnation| incarnation.generation == generation)
    }

    pub(crate) fn live_at(&mut self, port: u16) -> Option<&mut Incarnation> {
        self.incarnations
            .iter_mut()
            .find(|incarnation| incarnation.port == port && !incarnation.removed)
    }

    pub(crate) fn outstanding(&self, generation: u32) -> usize {
        self.leases
            .values()
            .filter(|(backend, _)| *backend == generation)
            .count()
    }

    pub(crate) fn sessions_on(&self, generation: u32) -> usize {
        self.sessions.iter().filter(|session| session.pin == generation).count()
    }

    /// Drops removed incarnations without leases.
    pub(crate) fn forget(&mut self) {
        let running: Vec<u32> = self.leases.values().map(|(generation, _)| *generation).collect();
        self.incarnations
            .retain(|incarnation| !incarnation.removed || running.contains(&incarnation.generation));
    }

    /// The first of the eligible ones in the order of the design's rules.
    fn choose(&self, exclude: &[u32]) -> Option<u32> {
        let eligible = |candidate: &&Incarnation| candidate.is_eligible() && !exclude.contains(&candidate.generation);
        let score = |candidate: &Incarnation| {
            let outstanding = self.outstanding(candidate.generation) as u64 + 1;
            let sessions = self.sessions_on(candidate.generation) as u64 + 1;
            (outstanding, sessions, candidate.capacity)
        };
        let mut best: Option<&Incarnation> = None;
        for candidate in self.incarnations.iter().filter(eligible) {
            let wins = best.is_none_or(|best| {
                let (outstanding, sessions, capacity) = score(candidate);
                let (best_outstanding, best_sessions, best_capacity) = score(best);
                let key = (
                    candidate.health == Health::Suspect,
                    outstanding * best_capacity,
                    sessions * best_capacity,
                    candidate.last_grant,
                    candidate.generation,
                );
                let best_key = (
                    best.health == Health::Suspect,
                    best_outstanding * capacity,
                    best_sessions * capacity,
                    best.last_grant,
                    best.generation,
                );
                key < best_key
            });
            if wins {
                best = Some(candidate);
            }
        }
        best.map(|best| best.generation)
    }

    fn open_leases(&self, session: u64) -> usize {
        self.leases
            .values()
            .filter(|(_, owner)| *owner == Some(session))
            .count()
    }

    fn is_expired(&self, session: u64) -> bool {
        self.idle
            .iter()
            .any(|(number, since)| *number == session && self.now - since > self.ttl)
    }

    fn end(&mut self, session: u64) {
        self.sessions.retain(|other| other.number != session);
        self.idle.retain(|(number, _)| *number != session);
    }

    pub(crate) fn expire(&mut self, limit: usize) {
        for _ in 0..limit {
            match self.idle.first() {
                Some((session, since)) if self.now - since > self.ttl => self.end(*session),
                _ => break,
            }
        }
    }

    /// What acquiring must answer. Sessions that are over are dropped, as that may happen at any time; nothing else
    /// changes before [`Self::grant`].
    pub(crate) fn expect(&mut self, key: Option<u8>, exclude: &[u32]) -> Expected {
        if self.leases.len() >= self.limit {
            return Err("at_capacity");
        }
        let nobody = "no_eligible_backend";
        let Some(key) = key else {
            return self
                .choose(exclude)
                .map(|generation| (generation, "no_session"))
                .ok_or(nobody);
        };
        let Some(session) = self.sessions.iter().find(|session| session.key == key).cloned() else {
            self.expire(2);
            let generation = self.choose(exclude).ok_or(nobody)?;
            let has_room = self.sessions.len() < self.cap || !self.idle.is_empty();
            return Ok((generation, if has_room { "new" } else { "table_full" }));
        };
        let expired = self.is_expired(session.number);
        let why = match self.find(session.pin) {
            None => Some("repin:removed"),
            Some(pin) if pin.removed => Some("repin:removed"),
            Some(pin) if pin.draining => Some("repin:draining"),
            Some(pin) if !pin.is_eligible() => Some("repin:down"),
            Some(pin) if exclude.contains(&pin.generation) => Some("repin:excluded"),
            Some(_) => None,
        };
        match why {
            None if !expired => Ok((session.pin, "sticky")),
            _ => {
                let generation = self.choose(exclude).ok_or(nobody)?;
                Ok((generation, if expired { "new" } else { why.unwrap_or("new") }))
            }
        }
    }

    /// Records a grant that was expected.
    pub(crate) fn grant(&mut self, lease: LeaseId, key: Option<u8>, generation: u32, reason: &str) {
        let known = self.sessions.iter().position(|session| Some(session.key) == key);
        let session = match (key, known, reason) {
            (Some(key), None, "new") => {
                if self.sessions.len() >= self.cap {
                    self.end(self.idle[0].0);
                }
                self.last_session += 1;
                self.sessions.push(Session {
                    number: self.last_session,
                    key,
                    pin: generation,
                });
                Some(self.last_session)
            }
            (Some(_), Some(position), _) => {
                self.sessions[position].pin = generation;
                Some(self.sessions[position].number)
            }
            _ => None,
        };
        self.idle.retain(|(number, _)| Some(*number) != session);
        self.grants += 1;
        let grants = self.grants;
        if let Some(incarnation) = self
            .incarnations
            .iter_mut()
            .find(|other| other.generation == generation)
        {
            incarnation.last_grant = grants;
            if incarnation.health == Health::HalfOpen {
                incarnation.trial = Some(lease);
            }
        }
        assert_eq!(
            self.leases.insert(lease, (generation, session)),
            None,
            "a lease id is given out once"
        );
    }

    /// Takes an open lease out.
    pub(crate) fn settle(&mut self, lease: LeaseId) {
        let (_, session) = self.leases.remove(&lease).expect("an open lease");
        for incarnation in &mut self.incarnations {
            incarnation.trial = incarnation.trial.filter(|trial| *trial != lease);
        }
        if let Some(session) = session
            && self.sessions.iter().any(|other| other.number == session)
            && self.open_leases(session) == 0
        {
            self.idle.push((session, self.now));
        }
        self.forget();
    }

    /// Ends a session; says whether it lived and how many leases it has open.
    pub(crate) fn close(&mut self, key: u8) -> (bool, usize) {
        let Some(session) = self.sessions.iter().find(|session| session.key == key).cloned() else {
            return (false, 0);
        };
        let known = !self.is_expired(session.number);
        let open = self.open_leases(session.number);
        self.end(session.number);
        (known, open)
    }
}
