//! Senders: coming, being alive, and going.

use super::{ClosedSession, Pool};
use crate::error::Error;
use crate::interval::Interval;
use crate::lease::Unresolved;
use crate::sender::{Attach, Attached, SenderStatus};
use crate::time::Timestamp;

impl Pool {
    /// Makes a sender known, with the leases and pins it holds from an earlier router process.
    ///
    /// The same incarnation again is a heartbeat. Another incarnation means that the old process is gone: each lease
    /// that one held is ambiguous, and its records are dropped.
    pub fn attach_sender(&mut self, attach: &Attach<'_>, now: Timestamp) -> Result<Attached, Error> {
        todo!()
    }

    /// Takes in a sign of life of a sender and what it says to be settled: records of those requests are deleted, and
    /// their numbers are refused from now on. Call it for every message of a sender, before the message itself.
    ///
    /// Fails with [`Error::UnknownSender`] or [`Error::InvalidArgument`].
    pub fn heartbeat(
        &mut self,
        sender: &str,
        incarnation: &str,
        settled: &[Interval],
        now: Timestamp,
    ) -> Result<SenderStatus, Error> {
        todo!()
    }

    /// Forgets a sender that holds no leases; its parked acquires fail and its sessions end.
    ///
    /// Fails with [`Error::UnknownSender`], or [`Error::InvalidTransition`] while it holds leases.
    pub fn detach_sender(&mut self, sender: &str, incarnation: &str, now: Timestamp) -> Result<(), Error> {
        todo!()
    }

    /// Ends a session of a sender; see [`Self::close_session`], which ends those of requests without one. Sessions of
    /// different senders are different, whatever they are called.
    ///
    /// Fails with [`Error::UnknownSender`].
    pub fn close_sender_session(&mut self, sender: &str, key: &str, now: Timestamp) -> Result<ClosedSession, Error> {
        todo!()
    }

    /// Takes the leases that became ambiguous since the last call and stay counted; see [`Unresolved`].
    pub fn take_unresolved(&mut self) -> Vec<Unresolved> {
        todo!()
    }
}
