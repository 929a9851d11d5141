//! The queues of the owners, and the answers that calls have not claimed.

use super::Ticket;
use crate::error::Error;
use crate::lease::{LeaseId, Request};
use crate::membership::BackendRef;
use crate::slab::{Handle, NIL, Slab};
use crate::time::Timestamp;

impl Ticket {
    fn from_handle(handle: Handle) -> Self {
        Self(u64::from(handle.generation) << 32 | u64::from(handle.index))
    }

    #[expect(
        clippy::cast_possible_truncation,
        reason = "takes the number apart into its two halves"
    )]
    const fn handle(self) -> Handle {
        Handle {
            index: self.0 as u32,
            generation: (self.0 >> 32) as u32,
        }
    }
}

/// An acquire that waits, or whose answer waits to be claimed.
#[derive(Debug)]
pub(crate) struct Waiter {
    pub(crate) owner: u32,
    pub(crate) namespace: u32,
    pub(crate) session: Option<Box<str>>,
    /// The session, when it is known: it counts one more lease while this waits, so that it does not expire.
    pub(crate) hold: Option<Handle>,
    pub(crate) exclude: Box<[BackendRef]>,
    /// Of what is to run, when it is known.
    pub(crate) fingerprint: Option<u64>,
    /// The request of a sender, with what tells its calls apart.
    pub(crate) request: Option<(Request, u64)>,
    pub(crate) expect_version: Option<u64>,
    /// Of the call that waits longest.
    pub(crate) deadline: Timestamp,
    /// What it was refused for when it came.
    pub(crate) why: Error,
    /// When it came.
    pub(crate) since: Timestamp,
    /// Calls that wait for this answer.
    pub(crate) calls: u32,
    /// The answer, once there is one.
    pub(crate) answer: Option<Result<LeaseId, Error>>,
    /// Whether a call was told the answer.
    pub(crate) told: bool,
}

#[derive(Debug)]
struct Place {
    waiter: Waiter,
    /// Its number in the order of all arrivals.
    arrival: u64,
    /// Neighbours in the queue of the owner, or [`NIL`].
    previous: u32,
    next: u32,
}

#[derive(Clone, Copy, Debug)]
struct Queue {
    first: u32,
    last: u32,
    length: u32,
}

const EMPTY: Queue = Queue {
    first: NIL,
    last: NIL,
    length: 0,
};

/// Every waiter of a pool.
#[derive(Debug, Default)]
pub(crate) struct Waiters {
    places: Slab<Place>,
    /// By owner.
    queues: Vec<Queue>,
    queued: u32,
    wakes: Vec<Ticket>,
    arrivals: u64,
}

impl Waiters {
    /// How many wait.
    #[inline]
    pub(crate) const fn queued(&self) -> u32 {
        self.queued
    }

    pub(crate) fn queued_of(&self, owner: u32) -> u32 {
        self.queues.get(owner as usize).map_or(0, |queue| queue.length)
    }

    /// Waiters, and answers not yet claimed.
    #[cfg(test)]
    pub(crate) const fn len(&self) -> u32 {
        self.places.len()
    }

    #[inline]
    pub(crate) fn has_wakes(&self) -> bool {
        !self.wakes.is_empty()
    }

    pub(crate) fn take_wakes(&mut self) -> Vec<Ticket> {
        std::mem::take(&mut self.wakes)
    }

    /// Puts a waiter at the end of its owner's queue.
    pub(crate) fn park(&mut self, waiter: Waiter) -> Ticket {
        let owner = waiter.owner as usize;
        if owner >= self.queues.len() {
            self.queues.resize(owner + 1, EMPTY);
        }
        self.arrivals += 1;
        let last = self.queues[owner].last;
        let handle = self.places.insert(Place {
            waiter,
            arrival: self.arrivals,
            previous: last,
            next: NIL,
        });
        let queue = &mut self.queues[owner];
        queue.last = handle.index;
        queue.length += 1;
        if last == NIL {
            queue.first = handle.index;
        } else {
            self.places.at_mut(last).next = handle.index;
        }
        self.queued += 1;
        Ticket::from_handle(handle)
    }

    pub(crate) fn get(&self, ticket: Ticket) -> Option<&Waiter> {
        self.places.get(ticket.handle()).map(|place| &place.waiter)
    }

    pub(crate) fn get_mut(&mut self, ticket: Ticket) -> Option<&mut Waiter> {
        self.places.get_mut(ticket.handle()).map(|place| &mut place.waiter)
    }

    /// The head of an owner's queue, with its number in the order of all arrivals.
    pub(crate) fn head(&self, owner: u32) -> Option<(u64, Ticket)> {
        let first = self.queues.get(owner as usize)?.first;
        (first != NIL).then(|| {
            let (handle, place) = self.places.at(first);
            (place.arrival, Ticket::from_handle(handle))
        })
    }

    /// Answers a waiter: takes it out of its queue and has its calls woken.
    pub(crate) fn answer(&mut self, ticket: Ticket, answer: Result<LeaseId, Error>) {
        self.unqueue(ticket);
        if let Some(waiter) = self.get_mut(ticket) {
            waiter.answer = Some(answer);
            self.wakes.push(ticket);
        }
    }

    /// Takes a waiter that has no calls any more out.
    pub(crate) fn remove(&mut self, ticket: Ticket) -> Option<Waiter> {
        self.unqueue(ticket);
        self.places.remove(ticket.handle()).map(|place| place.waiter)
    }

    fn unqueue(&mut self, ticket: Ticket) {
        let Some(place) = self.places.get(ticket.handle()) else {
            return;
        };
        if place.waiter.answer.is_some() {
            return;
        }
        let (owner, previous, next) = (place.waiter.owner as usize, place.previous, place.next);
        let queue = &mut self.queues[owner];
        queue.length -= 1;
        if previous == NIL {
            queue.first = next;
        } else {
            self.places.at_mut(previous).next = next;
        }
        if next == NIL {
            queue.last = previous;
        } else {
            self.places.at_mut(next).previous = previous;
        }
        self.queued -= 1;
    }
}

#[cfg(test)]
mod tests;
