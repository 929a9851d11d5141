//! The session table: which backend holds a session's prefix, and which sessions can be forgotten.
//!
//! A session lives until it is closed, or has been idle (no open lease) for longer than the TTL. Time to live is
//! counted from the end of its last execution, never from its start or its registration, so a turn that runs for an
//! hour keeps its session. At the cap the session idle for longest makes room; when none is idle, nobody is evicted.
//!
//! Idle sessions, and only they, are chained in the order in which they became idle (`idle`). With one TTL for all
//! that is also the order in which they expire, so finding the next one to expire or evict is O(1), and exact. Sessions
//! live in a slab, found by indexes of slot numbers, one per sender (`namespaces`); keys of up to 38 bytes (a UUID
//! has 36) are stored in place. A turn of a known session allocates nothing.
//!
//! What a turn costs with a million sessions is the memory it touches: the index, the session, and the links of the
//! chain, each in a vector of its own, of which only that of the sessions is too large for a cache.

mod idle;
mod index;
mod namespaces;

use crate::membership::BackendRef;
use crate::slab::{Handle, Slab};
use crate::time::Timestamp;
use foldhash::fast::FixedState;
use idle::IdleChain;
use namespaces::Namespaces;
use std::hash::{BuildHasher, Hasher};
use std::time::Duration;

pub(crate) use namespaces::COMMON;

/// The longest session key, in bytes; the shortest has one.
pub const MAX_KEY_BYTES: usize = 256;

const INLINE_BYTES: usize = 38;

/// The length of a context that nobody reported: longer than any.
const UNKNOWN: u32 = u32::MAX;

/// What names a session.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Name<'a> {
    /// The sender's, or [`COMMON`].
    pub(crate) namespace: u32,
    pub(crate) key: &'a str,
}

#[derive(Debug)]
enum Key {
    Inline { length: u8, bytes: [u8; INLINE_BYTES] },
    Boxed(Box<[u8]>),
}

impl Key {
    fn new(text: &str) -> Self {
        let text = text.as_bytes();
        match u8::try_from(text.len()) {
            Ok(length) if text.len() <= INLINE_BYTES => {
                let mut bytes = [0; INLINE_BYTES];
                bytes[..text.len()].copy_from_slice(text);
                Self::Inline { length, bytes }
            }
            _ => Self::Boxed(text.into()),
        }
    }

    #[inline]
    fn as_bytes(&self) -> &[u8] {
        match self {
            Self::Inline { length, bytes } => &bytes[..usize::from(*length)],
            Self::Boxed(bytes) => bytes,
        }
    }
}

#[derive(Debug)]
struct Session {
    key: Key,
    /// Whose session it is.
    namespace: u32,
    backend: BackendRef,
    /// Open leases and parked acquires; the session is in the idle chain exactly when this is 0.
    open: u32,
    /// Tokens of its context as last reported; [`UNKNOWN`] when nobody did.
    context_tokens: u32,
    /// How often the pool had published when the pin was chosen.
    publications: u32,
    idle_since: Timestamp,
}

/// What the caller has to account for when a session ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ended {
    pub(crate) backend: BackendRef,
    pub(crate) open_leases: u32,
}

/// Every live session of a pool.
#[derive(Debug)]
pub(crate) struct SessionTable {
    hasher: FixedState,
    namespaces: Namespaces,
    sessions: Slab<Session>,
    idle: IdleChain,
    ttl: Duration,
    cap: usize,
}

impl SessionTable {
    pub(crate) fn new(ttl: Duration, cap: usize, hash_seed: u64) -> Self {
        Self {
            hasher: FixedState::with_seed(hash_seed),
            namespaces: Namespaces::new(),
            sessions: Slab::default(),
            idle: IdleChain::new(),
            ttl,
            cap,
        }
    }

    /// Sessions that are not taken out: the live ones, and what departed senders left.
    pub(crate) fn len(&self) -> usize {
        self.sessions.len() as usize
    }

    pub(crate) fn is_full(&self) -> bool {
        self.len() >= self.cap
    }

    /// A namespace for a new sender.
    pub(crate) fn open_namespace(&mut self) -> u32 {
        self.namespaces.open()
    }

    /// Ends every session of a namespace: nobody finds them any more. [`Self::take_departed`] takes them out.
    pub(crate) fn close_namespace(&mut self, namespace: u32) {
        self.namespaces.close(namespace);
    }

    /// Takes out sessions of closed namespaces; looks at no more than `limit`.
    pub(crate) fn take_departed(&mut self, limit: usize) -> Vec<Ended> {
        let mut ended = Vec::new();
        for _ in 0..limit {
            let Some((slot, namespace)) = self.namespaces.next_departed() else {
                break;
            };
            // It may have ended, and another one be in its slot by now.
            if let Some((session, entry)) = self.sessions.occupant(slot)
                && entry.namespace == namespace
            {
                ended.extend(self.remove(session));
            }
        }
        ended
    }

    #[inline]
    pub(crate) fn hash(&self, name: Name<'_>) -> u64 {
        hash_key(&self.hasher, name.key.as_bytes())
    }

    /// Tells the bodies of requests apart.
    pub(crate) fn fingerprint(&self, session: Option<&str>, expect_version: Option<u64>) -> u64 {
        let mut state = self.hasher.build_hasher();
        if let Some(key) = session {
            state.write(key.as_bytes());
        }
        state.write_u8(u8::from(session.is_some()));
        state.write_u64(expect_version.unwrap_or(0));
        state.write_u8(u8::from(expect_version.is_some()));
        state.finish()
    }

    /// The session of this name, whose hash is `hash`. It may have expired; see [`Self::has_expired`].
    #[inline]
    pub(crate) fn find(&self, hash: u64, name: Name<'_>) -> Option<Handle> {
        let matches = |slot: &u32| self.sessions.at(*slot).1.key.as_bytes() == name.key.as_bytes();
        let slot = self.namespaces.get(name.namespace)?.find(hash, matches)?;
        Some(self.sessions.at(slot).0)
    }

    /// The key of a session, unless it ended.
    pub(crate) fn key(&self, session: Handle) -> Option<String> {
        let session = self.sessions.get(session)?;
        Some(String::from_utf8_lossy(session.key.as_bytes()).into_owned())
    }

    pub(crate) fn is_live(&self, session: Handle) -> bool {
        self.sessions.get(session).is_some()
    }

    /// Whether the session has no open lease.
    #[inline]
    pub(crate) fn is_idle(&self, session: Handle) -> bool {
        self.sessions.at(session.index).1.open == 0
    }

    /// Tokens of its context, when they are known.
    pub(crate) fn context_tokens(&self, session: Handle) -> Option<u32> {
        let tokens = self.sessions.at(session.index).1.context_tokens;
        (tokens != UNKNOWN).then_some(tokens)
    }

    /// Takes in the length of the context. Nothing happens when the session was closed meanwhile.
    pub(crate) fn note_context(&mut self, session: Handle, tokens: u32) {
        if let Some(session) = self.sessions.get_mut(session) {
            session.context_tokens = tokens.min(UNKNOWN - 1);
        }
    }

    /// How often the pool had published when the pin was chosen.
    #[inline]
    pub(crate) fn publications(&self, session: Handle) -> u32 {
        self.sessions.at(session.index).1.publications
    }

    /// Where the session is pinned.
    #[inline]
    pub(crate) fn pin(&self, session: Handle) -> BackendRef {
        self.sessions.at(session.index).1.backend
    }

    pub(crate) fn set_pin(&mut self, session: Handle, backend: BackendRef, publications: u32) {
        let session = self.sessions.at_mut(session.index);
        (session.backend, session.publications) = (backend, publications);
    }

    /// Whether the session was idle for longer than the TTL.
    #[inline]
    pub(crate) fn has_expired(&self, session: Handle, now: Timestamp) -> bool {
        let session = self.sessions.at(session.index).1;
        session.open == 0 && now.since(session.idle_since) > self.ttl
    }

    /// The session that has been idle for longest.
    pub(crate) fn longest_idle(&self) -> Option<Handle> {
        self.idle.first().map(|slot| self.sessions.at(slot).0)
    }

    /// Adds a session with its first lease open.
    pub(crate) fn insert(&mut self, hash: u64, name: Name<'_>, backend: BackendRef, publications: u32) -> Handle {
        let session = Session {
            key: Key::new(name.key),
            namespace: name.namespace,
            backend,
            open: 1,
            context_tokens: UNKNOWN,
            publications,
            idle_since: Timestamp::ZERO,
        };
        let handle = self.sessions.insert(session);
        let (hasher, sessions) = (&self.hasher, &self.sessions);
        let index = self.namespaces.get_mut(name.namespace);
        index
            .expect("who departed begins no session")
            .insert(hash, handle.index, |slot| {
                hash_key(hasher, sessions.at(*slot).1.key.as_bytes())
            });
        handle
    }

    /// Counts one more lease; whether the session was idle before.
    #[inline]
    pub(crate) fn open_lease(&mut self, session: Handle) -> bool {
        let entry = self.sessions.at_mut(session.index);
        entry.open += 1;
        let was_idle = entry.open == 1;
        if was_idle {
            self.idle.remove(session.index);
        }
        was_idle
    }

    /// Counts one lease less; the pin, when the session is idle now. Nothing happens when it was closed meanwhile.
    #[inline]
    pub(crate) fn close_lease(&mut self, session: Handle, now: Timestamp) -> Option<BackendRef> {
        let entry = self.sessions.get_mut(session)?;
        entry.open -= 1;
        if entry.open > 0 {
            return None;
        }
        entry.idle_since = now;
        let pin = entry.backend;
        self.idle.push(session.index);
        Some(pin)
    }

    /// Takes a session out, open leases or not.
    pub(crate) fn remove(&mut self, session: Handle) -> Option<Ended> {
        let entry = self.sessions.get(session)?;
        let hash = hash_key(&self.hasher, entry.key.as_bytes());
        let ended = Ended {
            backend: entry.backend,
            open_leases: entry.open,
        };
        if let Some(index) = self.namespaces.get_mut(entry.namespace) {
            index.remove(hash, session.index);
        }
        if ended.open_leases == 0 {
            self.idle.remove(session.index);
        }
        self.sessions.remove(session);
        Some(ended)
    }
}

#[inline]
fn hash_key(hasher: &FixedState, bytes: &[u8]) -> u64 {
    let mut state = hasher.build_hasher();
    state.write(bytes);
    state.finish()
}

#[cfg(test)]
mod tests;
