//! Attached senders and the records of their requests.

use crate::interval::IntervalSet;
use crate::lease::LeaseId;
use crate::slab::{Handle, Slab};
use crate::time::Timestamp;
use crate::waiters::Ticket;
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use std::collections::BTreeMap;

/// What was answered to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// Nothing yet.
    Parked(Ticket),
    /// This lease, open or settled; with the ticket while a call has not claimed it.
    Leased { lease: LeaseId, ticket: Option<Ticket> },
}

/// One request that is still remembered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Record {
    /// Tells requests with the same number and different bodies apart.
    pub(crate) fingerprint: u64,
    pub(crate) answer: Answer,
}

/// One attached process.
#[derive(Debug)]
pub(crate) struct Sender {
    pub(crate) name: Box<str>,
    pub(crate) incarnation: Box<str>,
    pub(crate) owner: u32,
    /// Of its sessions.
    pub(crate) namespace: u32,
    pub(crate) settled: IntervalSet,
    /// By number. Ordered, so that an interval finds its records without looking at the others.
    pub(crate) records: BTreeMap<u64, Record>,
    pub(crate) held: u32,
    pub(crate) tombstones: u32,
    pub(crate) heard: Timestamp,
}

/// Every attached sender of a pool.
#[derive(Debug)]
pub(crate) struct Senders {
    attached: Slab<Sender>,
    by_name: HashMap<Box<str>, Handle, FixedState>,
}

impl Senders {
    pub(crate) fn new(hash_seed: u64) -> Self {
        Self {
            attached: Slab::default(),
            by_name: HashMap::with_hasher(FixedState::with_seed(hash_seed)),
        }
    }

    pub(crate) fn insert(
        &mut self,
        name: &str,
        incarnation: &str,
        owner: u32,
        namespace: u32,
        now: Timestamp,
    ) -> Handle {
        let handle = self.attached.insert(Sender {
            name: name.into(),
            incarnation: incarnation.into(),
            owner,
            namespace,
            settled: IntervalSet::default(),
            records: BTreeMap::new(),
            held: 0,
            tombstones: 0,
            heard: now,
        });
        self.by_name.insert(name.into(), handle);
        handle
    }

    #[inline]
    pub(crate) fn find(&self, name: &str) -> Option<Handle> {
        self.by_name.get(name).copied()
    }

    #[inline]
    pub(crate) fn get(&self, sender: Handle) -> Option<&Sender> {
        self.attached.get(sender)
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, sender: Handle) -> Option<&mut Sender> {
        self.attached.get_mut(sender)
    }

    /// A sender that is known to be attached.
    #[inline]
    pub(crate) fn at(&self, sender: Handle) -> &Sender {
        self.attached.at(sender.index).1
    }

    /// A sender that is known to be attached.
    #[inline]
    pub(crate) fn at_mut(&mut self, sender: Handle) -> &mut Sender {
        self.attached.at_mut(sender.index)
    }

    pub(crate) fn remove(&mut self, sender: Handle) -> Option<Sender> {
        let removed = self.attached.remove(sender)?;
        self.by_name.remove(&removed.name);
        Some(removed)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (Handle, &Sender)> {
        self.attached.iter()
    }
}
