//! Open leases, and the tombstones of settled ones.

use super::{LeaseId, Mark, Outcome};
use crate::membership::BackendRef;
use crate::select::PickReason;
use crate::slab::{Handle, Slab};
use crate::time::Timestamp;
use crate::version::Published;

/// The request of a sender for which a lease was granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    /// The sender; stale when that one is gone.
    pub(crate) sender: Handle,
    pub(crate) seq: u64,
}

/// One open lease: what settling has to give back, and what a repeated acquire is answered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lease {
    /// The incarnation that runs the execution; it is not forgotten while this lease is open.
    pub(crate) backend: BackendRef,
    /// The session it belongs to; stale when that session was closed meanwhile.
    pub(crate) session: Option<Handle>,
    pub(crate) owner: u32,
    pub(crate) request: Option<Request>,
    pub(crate) reason: PickReason,
    pub(crate) version: Option<Published>,
    /// Whether its engine had named a version when it was last asked before the grant.
    pub(crate) names_version: bool,
    /// Of the pool, at the grant.
    pub(crate) pool_generation: u32,
    /// Which trial of a half-open backend this is; 0 when it is none.
    pub(crate) trial: u32,
    pub(crate) granted: Timestamp,
    /// Its id in an earlier router process, for an adopted one.
    pub(crate) presented: Option<LeaseId>,
    /// Whether its end is known to be unknown.
    pub(crate) ambiguous: bool,
}

/// What the ledger knows about a lease id.
#[derive(Debug)]
pub(crate) enum Entry {
    Open(Lease),
    /// The tombstone of a sender's lease.
    Settled(Outcome),
}

/// Every open lease of a pool, and every tombstone.
#[derive(Debug)]
pub(crate) struct Ledger {
    mark: Mark,
    entries: Slab<Entry>,
    open: u32,
    /// Open leases whose end is known to be unknown.
    ambiguous: u32,
}

impl Ledger {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            mark: Mark::new(seed),
            entries: Slab::default(),
            open: 0,
            ambiguous: 0,
        }
    }

    pub(crate) fn open(&mut self, lease: Lease) -> LeaseId {
        self.open += 1;
        self.mark.id(self.entries.insert(Entry::Open(lease)))
    }

    #[inline]
    pub(crate) fn find(&self, id: LeaseId) -> Option<&Entry> {
        self.entries.get(self.mark.handle(id))
    }

    /// The lease, when it is open.
    pub(crate) fn get(&self, id: LeaseId) -> Option<&Lease> {
        match self.find(id) {
            Some(Entry::Open(lease)) => Some(lease),
            _ => None,
        }
    }

    /// Keeps an open lease counted until its end is known.
    pub(crate) fn mark_ambiguous(&mut self, id: LeaseId) {
        if let Some(Entry::Open(lease)) = self.entries.get_mut(self.mark.handle(id))
            && !lease.ambiguous
        {
            lease.ambiguous = true;
            self.ambiguous += 1;
        }
    }

    /// Closes an open lease for good.
    pub(crate) fn close(&mut self, id: LeaseId) {
        self.note_closed(id);
        self.entries.remove(self.mark.handle(id));
    }

    /// Closes an open lease and keeps how.
    pub(crate) fn bury(&mut self, id: LeaseId, outcome: Outcome) {
        self.note_closed(id);
        if let Some(entry) = self.entries.get_mut(self.mark.handle(id)) {
            *entry = Entry::Settled(outcome);
        }
    }

    /// Forgets a tombstone.
    pub(crate) fn forget(&mut self, id: LeaseId) {
        debug_assert!(self.get(id).is_none(), "an open lease is never forgotten");
        self.entries.remove(self.mark.handle(id));
    }

    #[inline]
    fn note_closed(&mut self, id: LeaseId) {
        let lease = self.get(id).expect("only open leases are closed");
        self.ambiguous -= u32::from(lease.ambiguous);
        self.open -= 1;
    }

    /// Open leases.
    #[inline]
    pub(crate) const fn len(&self) -> u32 {
        self.open
    }

    pub(crate) const fn tombstones(&self) -> u32 {
        self.entries.len() - self.open
    }

    pub(crate) const fn ambiguous(&self) -> u32 {
        self.ambiguous
    }

    /// Names the epoch of leases that were adopted before it was known.
    pub(crate) fn set_epoch(&mut self, epoch: u64) {
        if self.open > 0 {
            for entry in self.entries.iter_mut() {
                if let Entry::Open(Lease {
                    version: Some(version), ..
                }) = entry
                {
                    version.epoch = epoch;
                }
            }
        }
    }

    /// Every open lease, in slot order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (LeaseId, &Lease)> {
        self.entries.iter().filter_map(|(handle, entry)| match entry {
            Entry::Open(lease) => Some((self.mark.id(handle), lease)),
            Entry::Settled(_) => None,
        })
    }
}
