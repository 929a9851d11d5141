//! Calls that wait for a grant: one waker per call, woken in the order in which the core answered.
//!
//! The core decides who is granted what, and in which order; it knows nothing about tasks. So a call that was parked
//! leaves a [`Waker`] under its ticket. Wakers are kept under the pool's own lock, so that a call either sees its answer
//! or is registered before the answer is made: no wake-up is lost. (Any executor will do: Python's event loop wakes
//! through the same type.)
//!
//! A call that is dropped leaves the queue. Was it granted at that very moment, the core settles the lease as `not_sent`,
//! since nobody was told of it.

use crate::shared::SharedPool;
use router_core::error::Error;
use router_core::pool::Grant;
use router_core::waiters::{Parked, Ticket};
use std::collections::HashMap;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

/// The wakers of every parked call of one pool. Several calls can share a ticket: a repeated request joins the first.
#[derive(Debug, Default)]
pub(crate) struct Wakers {
    by_ticket: HashMap<Ticket, Vec<(CallId, Waker)>>,
    last_call: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CallId(u64);

impl Wakers {
    fn register(&mut self, ticket: Ticket, call: Option<CallId>, waker: &Waker) -> CallId {
        let call = call.unwrap_or_else(|| {
            self.last_call += 1;
            CallId(self.last_call)
        });
        let calls = self.by_ticket.entry(ticket).or_default();
        match calls.iter_mut().find(|(known, _)| *known == call) {
            Some((_, registered)) => registered.clone_from(waker),
            None => calls.push((call, waker.clone())),
        }
        call
    }

    fn forget(&mut self, ticket: Ticket, call: CallId) {
        if let Some(calls) = self.by_ticket.get_mut(&ticket) {
            calls.retain(|(known, _)| *known != call);
            if calls.is_empty() {
                self.by_ticket.remove(&ticket);
            }
        }
    }

    /// The wakers of `tickets`, in their order.
    pub(crate) fn take(&mut self, tickets: &[Ticket]) -> Vec<Waker> {
        tickets
            .iter()
            .filter_map(|ticket| self.by_ticket.remove(ticket))
            .flatten()
            .map(|(_, waker)| waker)
            .collect()
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.by_ticket.values().map(Vec::len).sum()
    }
}

/// A call that waits for its grant. It ends by being ready, by [`ParkedCall::give_up`], or by being dropped.
///
/// It keeps no time: who waits decides for how long, and gives up.
#[must_use = "a parked call that is dropped has left the queue"]
pub struct ParkedCall {
    pool: Arc<SharedPool>,
    parked: Parked,
    call: Option<CallId>,
    /// The core still knows this call.
    open: bool,
}

impl ParkedCall {
    /// The wait for an answer of [`router_core::pool::Pool::acquire_or_park`] of `pool`.
    pub fn new(pool: Arc<SharedPool>, parked: Parked) -> Self {
        Self {
            pool,
            parked,
            call: None,
            open: true,
        }
    }

    /// What was parked: its ticket, reason and deadline.
    #[must_use]
    pub fn parked(&self) -> &Parked {
        &self.parked
    }

    /// Ends the wait: the grant, when it was made meanwhile, else the reason of the wait.
    pub fn give_up(mut self) -> Result<Grant, Error> {
        self.open = false;
        let (ticket, call) = (self.parked.ticket, self.call);
        self.pool.with_wakers(|pool, wakers, now| {
            if let Some(call) = call {
                wakers.forget(ticket, call);
            }
            pool.give_up(ticket, now)
        })
    }
}

impl Future for ParkedCall {
    type Output = Result<Grant, Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        assert!(self.open, "a parked call was polled after its answer");
        let (ticket, call) = (self.parked.ticket, self.call);
        let claimed = self
            .pool
            .with_wakers(|pool, wakers, now| match pool.claim(ticket, now) {
                Some(answer) => {
                    if let Some(call) = call {
                        wakers.forget(ticket, call);
                    }
                    Ok(answer)
                }
                None => Err(wakers.register(ticket, call, cx.waker())),
            });
        match claimed {
            Ok(answer) => {
                self.open = false;
                Poll::Ready(answer)
            }
            Err(call) => {
                self.call = Some(call);
                Poll::Pending
            }
        }
    }
}

impl Drop for ParkedCall {
    fn drop(&mut self) {
        if self.open {
            let (ticket, call) = (self.parked.ticket, self.call);
            self.pool.with_wakers(|pool, wakers, now| {
                if let Some(call) = call {
                    wakers.forget(ticket, call);
                }
                pool.abandon(ticket, now);
            });
        }
    }
}

impl fmt::Debug for ParkedCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ParkedCall")
            .field("parked", &self.parked)
            .field("open", &self.open)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
