//! The order in which sessions became idle.
//!
//! A doubly linked chain, with its links in a vector of their own: a turn takes its session out of the middle and puts
//! it at the end, which touches two neighbours that are anywhere. With eight bytes each, the links of a million
//! sessions fit in a cache that is a tenth of what the sessions themselves need.

use crate::slab::NIL;

#[derive(Clone, Copy, Debug)]
struct Link {
    previous: u32,
    next: u32,
}

const UNLINKED: Link = Link {
    previous: NIL,
    next: NIL,
};

/// Slots of the session table in the order in which they came.
#[derive(Debug)]
pub(super) struct IdleChain {
    /// By slot; what stands there for a slot outside the chain means nothing.
    links: Vec<Link>,
    first: u32,
    last: u32,
}

impl IdleChain {
    pub(super) const fn new() -> Self {
        Self {
            links: Vec::new(),
            first: NIL,
            last: NIL,
        }
    }

    /// The slot that has been here for longest.
    #[inline]
    pub(super) fn first(&self) -> Option<u32> {
        (self.first != NIL).then_some(self.first)
    }

    /// Puts a slot that is not in the chain at its end.
    #[inline]
    pub(super) fn push(&mut self, slot: u32) {
        let position = slot as usize;
        if position >= self.links.len() {
            self.links.resize(position + 1, UNLINKED);
        }
        let last = std::mem::replace(&mut self.last, slot);
        self.links[position] = Link {
            previous: last,
            next: NIL,
        };
        if last == NIL {
            self.first = slot;
        } else {
            self.links[last as usize].next = slot;
        }
    }

    /// Takes a slot that is in the chain out of it.
    #[inline]
    pub(super) fn remove(&mut self, slot: u32) {
        let Link { previous, next } = self.links[slot as usize];
        if previous == NIL {
            self.first = next;
        } else {
            self.links[previous as usize].next = next;
        }
        if next == NIL {
            self.last = previous;
        } else {
            self.links[next as usize].previous = previous;
        }
    }
}
