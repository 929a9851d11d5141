//! Parked acquires: how a shell waits for a grant.

use super::{AcquireRequest, Grant, Pool};
use crate::error::Error;
use crate::time::Timestamp;
use crate::waiters::{Acquisition, Ticket};

impl Pool {
    /// Like [`Self::acquire`], but parks what cannot be granted now and may be until `deadline`.
    ///
    /// A call with the key of a parked request joins it: it keeps its place, waits until the later deadline, and both
    /// calls get the same lease.
    ///
    /// Fails like [`Self::acquire`] where waiting cannot help, with the reason at once when `deadline` has passed, and
    /// with [`Error::TooManyWaiters`].
    pub fn acquire_or_park(
        &mut self,
        request: &AcquireRequest<'_>,
        deadline: Timestamp,
        now: Timestamp,
    ) -> Result<Acquisition, Error> {
        todo!()
    }

    /// The tickets that got their answer since the last call, in the order of the answers. Call it before the lock is
    /// given back, and wake the calls that wait with these tickets: each then [`claims`](Self::claim) its answer.
    pub fn take_wakes(&mut self) -> Vec<Ticket> {
        todo!()
    }

    /// Whether [`Self::take_wakes`] has something: one comparison, for after every operation.
    #[must_use]
    pub fn has_wakes(&self) -> bool {
        todo!()
    }

    /// The answer for a ticket, or `None` while it is parked. With an answer, the ticket is used up for this call.
    pub fn claim(&mut self, ticket: Ticket, now: Timestamp) -> Option<Result<Grant, Error>> {
        todo!()
    }

    /// Ends the wait of a call at its deadline: the grant, when it was made meanwhile, else why it waited.
    pub fn give_up(&mut self, ticket: Ticket, now: Timestamp) -> Result<Grant, Error> {
        todo!()
    }

    /// Ends the wait of a call whose client went away. A lease that was granted for it meanwhile, and that nobody was
    /// told of, is settled as [`crate::lease::Outcome::NotSent`], which says nothing about the backend.
    pub fn abandon(&mut self, ticket: Ticket, now: Timestamp) {
        todo!()
    }
}
