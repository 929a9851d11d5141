//! The operations of every request: acquire and close. Settling is in [`super::settling`].

use super::placing::Claimant;
use super::{AcquireRequest, ClosedSession, Grant, Pool};
use crate::error::Error;
use crate::session::{COMMON, MAX_KEY_BYTES, Name};
use crate::time::Timestamp;

impl Pool {
    /// Picks a backend and reserves an execution on it, in one step. It never waits; see [`Self::acquire_or_park`].
    ///
    /// A session that is pinned to an eligible backend goes there. A pin to a backend that is removed, draining, down,
    /// of other weights or excluded is replaced for good, with the reason. Everything else goes to the least loaded
    /// backend ([`crate::select`]).
    ///
    /// Fails with [`Error::InvalidSessionKey`], [`Error::AtCapacity`] or [`Error::NoEligibleBackend`], with
    /// [`Error::Fenced`], [`Error::NotServing`], [`Error::VersionNotAcked`], [`Error::StaleVersion`] or
    /// [`Error::PoisonSuspected`], on a pool that is over with [`Error::PoolFailed`] or [`Error::PoolClosed`], and for the request of a sender with
    /// [`Error::UnknownSender`], [`Error::IdempotencyConflict`], [`Error::RequestSettled`], [`Error::StaleRequest`] or
    /// [`Error::TooManyTombstones`]. Then nothing changed, and a pin stays where it was.
    pub fn acquire(&mut self, request: &AcquireRequest<'_>, now: Timestamp) -> Result<Grant, Error> {
        let now = self.advance(now);
        check_session_key(request.session)?;
        if let Some(key) = &request.key {
            return self.acquire_keyed(request, key, now);
        }
        let claimant = Claimant::unkeyed(request);
        self.place(&claimant, now)
    }

    /// Ends a session: a later turn with the same key begins a new one. Its open leases run on and are settled as
    /// usual.
    pub fn close_session(&mut self, key: &str, now: Timestamp) -> ClosedSession {
        let namespace = COMMON;
        self.close_named(Name { namespace, key }, now)
    }

    /// Ends the session of this name.
    pub(super) fn close_named(&mut self, name: Name<'_>, now: Timestamp) -> ClosedSession {
        let now = self.advance(now);
        let Some(session) = self.sessions.find(self.sessions.hash(name), name) else {
            return ClosedSession::default();
        };
        let expired = self.sessions.has_expired(session, now);
        let open_leases = self.end_session(session);
        if expired {
            self.note_expired(1);
            return ClosedSession::default();
        }
        ClosedSession {
            known: true,
            open_leases,
        }
    }
}

/// Refuses a session key of impossible length.
pub(super) fn check_session_key(key: Option<&str>) -> Result<(), Error> {
    match key {
        Some(key) if !(1..=MAX_KEY_BYTES).contains(&key.len()) => Err(Error::InvalidSessionKey { length: key.len() }),
        _ => Ok(()),
    }
}
