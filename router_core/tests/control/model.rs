//! Owners, senders, leases and updates by definition: lists, sets and scans, as slow and as plain as possible.
//!
//! It shares no code with the core and predicts the code of every answer and the order of every wake. It does not say
//! which backend is chosen (the model of the other test does), only whether anybody is eligible.

pub(crate) use crate::facts::{Backend, Code, Lease, Life, Owner, Phase, Record, Sender, Update, Waiter, Weights};
use router_core::config::OnAmbiguous;
use router_core::lease::{LeaseId, Outcome};
use router_core::waiters::Ticket;
use std::collections::BTreeMap;

#[derive(Debug)]
pub(crate) struct Model {
    pub(crate) policy: OnAmbiguous,
    pub(crate) reports_timeouts: bool,
    pub(crate) limit: usize,
    pub(crate) sender_ttl: u64,
    pub(crate) now: u64,
    pub(crate) life: Life,
    pub(crate) paused_for: Option<u32>,
    /// Epoch and version.
    pub(crate) published: Option<(u64, u64)>,
    pub(crate) results: Vec<Update>,
    /// The default owner first.
    pub(crate) owners: Vec<Owner>,
    pub(crate) senders: BTreeMap<u8, Sender>,
    pub(crate) leases: BTreeMap<u64, Lease>,
    /// Those that no call was told of have no known id.
    pub(crate) tombstones: BTreeMap<u64, (Option<LeaseId>, Outcome)>,
    /// Everybody who waits, or whose answer was not claimed by all, in order of arrival.
    pub(crate) waiters: Vec<Waiter>,
    pub(crate) backends: Vec<Backend>,
    pub(crate) sessions: BTreeMap<(u64, u8), u64>,
    pub(crate) settled: u64,
    /// Tickets in the order in which they must be woken next.
    pub(crate) wakes: Vec<Ticket>,
    last_number: u64,
}

impl Model {
    pub(crate) fn new(
        policy: OnAmbiguous,
        reports_timeouts: bool,
        awaits: bool,
        limit: usize,
        sender_ttl: u64,
    ) -> Self {
        Self {
            policy,
            reports_timeouts,
            limit,
            sender_ttl,
            now: 0,
            life: if awaits { Life::Init } else { Life::Serving },
            paused_for: None,
            published: None,
            results: Vec::new(),
            owners: vec![Owner::default(); 3],
            senders: BTreeMap::new(),
            leases: BTreeMap::new(),
            tombstones: BTreeMap::new(),
            waiters: Vec::new(),
            backends: Vec::new(),
            sessions: BTreeMap::new(),
            settled: 0,
            wakes: Vec::new(),
            last_number: 0,
        }
    }

    pub(crate) fn number(&mut self) -> u64 {
        self.last_number += 1;
        self.last_number
    }

    pub(crate) fn over(&self) -> Option<Code> {
        match self.life {
            Life::Failed => Some("pool_failed"),
            Life::Closed => Some("pool_closed"),
            _ => None,
        }
    }

    /// I2, as far as it is about the owner: why nothing may be granted to it.
    pub(crate) fn gate(&self, owner: usize) -> Option<Code> {
        let (standing, version) = (&self.owners[owner], self.published.map(|(_, version)| version));
        if let Some(over) = self.over() {
            Some(over)
        } else if !standing.fences.is_empty() {
            Some("fenced")
        } else if self.life != Life::Serving || self.paused_for.is_some() {
            Some("not_serving")
        } else if owner != 0 && version.is_some() && standing.acknowledged < version {
            Some("version_not_acked")
        } else {
            None
        }
    }

    pub(crate) fn fits(&self, weights: Weights) -> bool {
        match (weights, self.published) {
            (Weights::Tainted, _) | (Weights::Unknown, Some(_)) => false,
            (_, None) => true,
            (Weights::Version(version), Some((_, published))) => version == published,
        }
    }

    pub(crate) fn is_eligible(&self, backend: &Backend) -> bool {
        !backend.removed && !backend.draining && self.fits(backend.weights)
    }

    /// Why nothing may be granted to the owner, whatever the reason.
    pub(crate) fn obstacle(&self, owner: usize) -> Option<Code> {
        self.gate(owner)
            .or_else(|| (self.leases.len() >= self.limit).then_some("at_capacity"))
            .or_else(|| {
                let nobody = !self.backends.iter().any(|backend| self.is_eligible(backend));
                nobody.then_some("no_eligible_backend")
            })
    }

    pub(crate) fn live(&mut self, number: u8) -> Option<&mut Backend> {
        self.backends
            .iter_mut()
            .find(|backend| backend.number == number && !backend.removed)
    }

    pub(crate) fn sender_of(&mut self, namespace: u64) -> Option<&mut Sender> {
        self.senders.values_mut().find(|sender| sender.namespace == namespace)
    }

    /// Opens a lease; every condition must hold.
    pub(crate) fn grant(&mut self, owner: usize, request: Option<(u64, u64)>, session: (u64, u8)) -> u64 {
        assert_eq!(self.obstacle(owner), None, "I2");
        let number = self.number();
        let new_session = self.number();
        self.sessions.entry(session).or_insert(new_session);
        let lease = Lease {
            id: None,
            backend: None,
            owner,
            request,
            version: self.published,
            ambiguous: false,
        };
        self.leases.insert(number, lease);
        if let Some((namespace, seq)) = request {
            let sender = self.sender_of(namespace).expect("attached");
            sender.records.insert(seq, (session.1, Record::Leased(number)));
        }
        number
    }

    /// Closes a lease.
    pub(crate) fn close(&mut self, number: u64, outcome: Outcome) {
        let lease = self.leases.remove(&number).expect("an open lease");
        self.settled += 1;
        let Some((namespace, seq)) = lease.request else { return };
        let Some(sender) = self.sender_of(namespace) else {
            return;
        };
        if sender.settled.contains(&seq) {
            sender.records.remove(&seq);
        } else {
            self.tombstones.insert(number, (lease.id, outcome));
        }
    }

    /// What follows when a lease was closed.
    pub(crate) fn after_settling(&mut self) {
        if let Life::Updating(update) = &mut self.life
            && update.phase == Phase::Quiescing
            && self.leases.is_empty()
        {
            update.phase = Phase::Drained;
        }
        self.pump();
    }

    pub(crate) fn answer(&mut self, ticket: Ticket, answer: Result<u64, Code>) {
        let waiter = self.waiters.iter_mut().find(|waiter| waiter.ticket == ticket);
        let waiter = waiter.expect("a waiter");
        assert_eq!(waiter.answer, None);
        waiter.answer = Some(answer);
        self.wakes.push(ticket);
        if answer.is_err()
            && let Some((namespace, seq)) = waiter.request
            && let Some(sender) = self.sender_of(namespace)
        {
            sender.records.remove(&seq);
        }
    }

    /// Serves whoever waits, in order of arrival.
    pub(crate) fn pump(&mut self) {
        loop {
            let next = self
                .waiters
                .iter()
                .find(|waiter| waiter.answer.is_none() && self.obstacle(waiter.owner).is_none());
            let Some(waiter) = next.cloned() else { return };
            let is_closed = waiter.hold.is_some() && waiter.hold != self.sessions.get(&waiter.session).copied();
            if waiter.deadline <= self.now {
                self.answer(waiter.ticket, Err(waiter.why));
            } else if is_closed {
                self.answer(waiter.ticket, Err("session_closed"));
            } else {
                let lease = self.grant(waiter.owner, waiter.request, waiter.session);
                self.answer(waiter.ticket, Ok(lease));
            }
        }
    }

    /// Ends every wait.
    fn refuse_all(&mut self, why: Code) {
        for owner in 0..self.owners.len() {
            let waiting = self.waiters.iter().filter(|waiter| waiter.owner == owner);
            let waiting: Vec<Ticket> = waiting
                .filter(|waiter| waiter.answer.is_none())
                .map(|waiter| waiter.ticket)
                .collect();
            for ticket in waiting {
                self.answer(ticket, Err(why));
            }
        }
    }

    fn keep(&mut self, update: Update) {
        self.results.push(update);
        if self.results.len() > 16 {
            self.results.remove(0);
        }
    }

    pub(crate) fn end_update(&mut self, phase: Phase, next: Life) {
        if let Life::Updating(update) = self.life {
            self.keep(Update { phase, ..update });
        }
        self.life = next;
    }

    pub(crate) fn at_rest(&self, awaits: bool) -> Life {
        if awaits && self.published.is_none() {
            Life::Init
        } else {
            Life::Serving
        }
    }

    /// The pool fails, if it can.
    pub(crate) fn fail(&mut self) {
        if self.over().is_none() {
            self.end_update(Phase::Failed, Life::Failed);
            self.refuse_all("pool_failed");
        }
    }

    pub(crate) fn shut(&mut self) {
        if self.over().is_none() {
            self.end_update(Phase::Cancelled, Life::Closed);
            self.refuse_all("pool_closed");
        }
    }

    pub(crate) fn find_update(&self, id: u32) -> Option<Update> {
        let current = match self.life {
            Life::Updating(update) => Some(update),
            _ => None,
        };
        let results = self.results.iter().copied();
        current.into_iter().chain(results).find(|update| update.id == id)
    }

    /// Forgets a sender; returns its open leases, and whether a call was told of each.
    pub(crate) fn drop_sender(&mut self, name: u8) -> Vec<(u64, bool)> {
        let sender = self.senders.remove(&name).expect("attached");
        let mut open = Vec::new();
        for (_, record) in sender.records.values() {
            match record {
                Record::Parked(ticket) => self.answer(*ticket, Err("unknown_sender")),
                Record::Leased(number) if self.leases.contains_key(number) => {
                    let untold = self
                        .waiters
                        .iter()
                        .any(|waiter| waiter.answer == Some(Ok(*number)) && !waiter.told);
                    open.push((*number, !untold));
                }
                Record::Leased(number) => drop(self.tombstones.remove(number)),
            }
        }
        self.sessions.retain(|(namespace, _), _| *namespace != sender.namespace);
        open
    }

    /// Loses a sender: what it held is uncertain.
    pub(crate) fn lose_sender(&mut self, name: u8) {
        let mut uncertain = false;
        for (number, told) in self.drop_sender(name) {
            uncertain |= told;
            if !told {
                self.close(number, Outcome::NotSent);
            } else if self.leases[&number].ambiguous {
            } else if self.policy == OnAmbiguous::Resolve {
                self.leases.get_mut(&number).expect("open").ambiguous = true;
            } else {
                self.close(number, Outcome::Ambiguous);
            }
        }
        if uncertain && self.policy == OnAmbiguous::FailPool {
            self.fail();
        }
        self.after_settling();
    }

    /// One call of a ticket is done.
    pub(crate) fn leave(&mut self, ticket: Ticket) {
        let position = self.waiters.iter().position(|waiter| waiter.ticket == ticket);
        let position = position.expect("a waiter");
        self.waiters[position].calls -= 1;
        if self.waiters[position].calls > 0 {
            return;
        }
        let waiter = self.waiters.remove(position);
        if waiter.answer.is_none()
            && let Some((namespace, seq)) = waiter.request
            && let Some(sender) = self.sender_of(namespace)
        {
            sender.records.remove(&seq);
        }
    }
}
