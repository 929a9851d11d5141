//! Which sessions a sender has: one index per namespace.
//!
//! Sessions of different senders are different, whatever they are called, and end when their sender departs. So each
//! sender has an index of its own, and its departure only closes that index: nobody finds those sessions any more. They
//! are taken out of the table a bounded number at a time, since a sender may leave a million of them, and the pool
//! serves others meanwhile.

use super::index::{Index, Slots};
use crate::slab::Slab;

/// The namespace of requests without a sender, which never closes.
pub(crate) const COMMON: u32 = 0;

#[derive(Debug)]
enum Namespace {
    Open(Index),
    /// What is left to be taken out. Slots whose session ended meanwhile are still among it.
    Departed(Slots),
}

/// The indexes of all namespaces.
#[derive(Debug)]
pub(super) struct Namespaces {
    namespaces: Slab<Namespace>,
    departed: Vec<u32>,
}

impl Namespaces {
    pub(super) fn new() -> Self {
        let mut new = Self {
            namespaces: Slab::default(),
            departed: Vec::new(),
        };
        let common = new.open();
        debug_assert_eq!(common, COMMON);
        new
    }

    /// A new namespace. Its number is used again only when nothing is left of an earlier one.
    pub(super) fn open(&mut self) -> u32 {
        self.namespaces.insert(Namespace::Open(Index::new())).index
    }

    /// Ends a namespace; see [`Self::next_departed`].
    pub(super) fn close(&mut self, namespace: u32) {
        let slot = self.namespaces.at_mut(namespace);
        if let Namespace::Open(index) = slot {
            *slot = Namespace::Departed(std::mem::replace(index, Index::new()).into_slots());
            self.departed.push(namespace);
        }
    }

    /// The index of a namespace, unless that is departed.
    #[inline]
    pub(super) fn get(&self, namespace: u32) -> Option<&Index> {
        match self.namespaces.at(namespace).1 {
            Namespace::Open(index) => Some(index),
            Namespace::Departed(_) => None,
        }
    }

    #[inline]
    pub(super) fn get_mut(&mut self, namespace: u32) -> Option<&mut Index> {
        match self.namespaces.at_mut(namespace) {
            Namespace::Open(index) => Some(index),
            Namespace::Departed(_) => None,
        }
    }

    /// A slot in which a departed namespace had a session when it closed, with the number of the namespace. Each is
    /// given once, and its session is to be removed before the next is asked for.
    pub(super) fn next_departed(&mut self) -> Option<(u32, u32)> {
        loop {
            let namespace = *self.departed.last()?;
            if let Namespace::Departed(slots) = self.namespaces.at_mut(namespace)
                && let Some(slot) = slots.next()
            {
                return Some((slot, namespace));
            }
            self.departed.pop();
            let handle = self.namespaces.at(namespace).0;
            self.namespaces.remove(handle);
        }
    }
}
