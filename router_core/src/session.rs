//! The session table: which backend holds a session's prefix, and which sessions can be forgotten.
//!
//! A session lives until it is closed, or has been idle (no open lease) for longer than the TTL. Time to live is
//! counted from the end of its last execution, never from its start or its registration, so a turn that runs for an
//! hour keeps its session. At the cap the session idle for longest makes room; when none is idle, nobody is evicted.
//!
//! Idle sessions, and only they, are chained in the order in which they became idle. With one TTL for all that is
//! also the order in which they expire, so finding the next one to expire or evict is O(1), and exact. Sessions live
//! in a slab, found by a hash table of slot numbers; keys of up to 38 bytes (a UUID has 36) are stored in place. A
//! turn of a known session allocates nothing.

use crate::membership::BackendRef;
use crate::slab::{Handle, NIL, Slab};
use crate::time::Timestamp;
use foldhash::fast::FixedState;
use hashbrown::HashTable;
use std::hash::{BuildHasher, Hasher};
use std::time::Duration;

/// The longest session key, in bytes; the shortest has one.
pub const MAX_KEY_BYTES: usize = 256;

const INLINE_BYTES: usize = 38;

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
    backend: BackendRef,
    /// Open leases; the session is in the idle chain exactly when this is 0.
    open: u32,
    idle_since: Timestamp,
    /// Neighbours in the idle chain, or [`NIL`].
    previous: u32,
    next: u32,
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
    index: HashTable<u32>,
    sessions: Slab<Session>,
    longest_idle: u32,
    latest_idle: u32,
    ttl: Duration,
    cap: usize,
}

impl SessionTable {
    pub(crate) fn new(ttl: Duration, cap: usize, hash_seed: u64) -> Self {
        Self {
            hasher: FixedState::with_seed(hash_seed),
            index: HashTable::new(),
            sessions: Slab::default(),
            longest_idle: NIL,
            latest_idle: NIL,
            ttl,
            cap,
        }
    }

    pub(crate) fn len(&self) -> usize {
        debug_assert_eq!(
            self.index.len(),
            self.sessions.len() as usize,
            "every session is in the index"
        );
        self.index.len()
    }

    pub(crate) fn is_full(&self) -> bool {
        self.index.len() >= self.cap
    }

    #[inline]
    pub(crate) fn hash(&self, key: &str) -> u64 {
        hash_bytes(&self.hasher, key.as_bytes())
    }

    /// The session called `key`, whose hash is `hash`. It may have expired; see [`Self::has_expired`].
    #[inline]
    pub(crate) fn find(&self, hash: u64, key: &str) -> Option<Handle> {
        let matches = |index: &u32| self.sessions.at(*index).1.key.as_bytes() == key.as_bytes();
        self.index.find(hash, matches).map(|index| self.sessions.at(*index).0)
    }

    /// Where the session is pinned.
    #[inline]
    pub(crate) fn pin(&self, session: Handle) -> BackendRef {
        self.sessions.at(session.index).1.backend
    }

    pub(crate) fn set_pin(&mut self, session: Handle, backend: BackendRef) {
        self.sessions.at_mut(session.index).backend = backend;
    }

    /// Whether the session was idle for longer than the TTL.
    #[inline]
    pub(crate) fn has_expired(&self, session: Handle, now: Timestamp) -> bool {
        let session = self.sessions.at(session.index).1;
        session.open == 0 && now.since(session.idle_since) > self.ttl
    }

    /// The session that has been idle for longest.
    pub(crate) fn longest_idle(&self) -> Option<Handle> {
        (self.longest_idle != NIL).then(|| self.sessions.at(self.longest_idle).0)
    }

    /// Adds a session with its first lease open.
    pub(crate) fn insert(&mut self, hash: u64, key: &str, backend: BackendRef) -> Handle {
        let session = Session {
            key: Key::new(key),
            backend,
            open: 1,
            idle_since: Timestamp::ZERO,
            previous: NIL,
            next: NIL,
        };
        let handle = self.sessions.insert(session);
        let (hasher, sessions) = (&self.hasher, &self.sessions);
        self.index.insert_unique(hash, handle.index, |index| {
            hash_bytes(hasher, sessions.at(*index).1.key.as_bytes())
        });
        handle
    }

    /// Counts one more lease.
    #[inline]
    pub(crate) fn open_lease(&mut self, session: Handle) {
        let entry = self.sessions.at_mut(session.index);
        entry.open += 1;
        if entry.open == 1 {
            self.unchain(session.index);
        }
    }

    /// Counts one lease less. Nothing happens when the session was closed meanwhile.
    #[inline]
    pub(crate) fn close_lease(&mut self, session: Handle, now: Timestamp) {
        let Some(entry) = self.sessions.get_mut(session) else {
            return;
        };
        entry.open -= 1;
        if entry.open == 0 {
            entry.idle_since = now;
            self.chain_last(session.index);
        }
    }

    /// Takes a session out, open leases or not.
    pub(crate) fn remove(&mut self, session: Handle) -> Option<Ended> {
        let entry = self.sessions.get(session)?;
        let hash = hash_bytes(&self.hasher, entry.key.as_bytes());
        let ended = Ended {
            backend: entry.backend,
            open_leases: entry.open,
        };
        if let Ok(found) = self.index.find_entry(hash, |index| *index == session.index) {
            found.remove();
        }
        if ended.open_leases == 0 {
            self.unchain(session.index);
        }
        self.sessions.remove(session);
        Some(ended)
    }

    fn chain_last(&mut self, index: u32) {
        let last = std::mem::replace(&mut self.latest_idle, index);
        let entry = self.sessions.at_mut(index);
        (entry.previous, entry.next) = (last, NIL);
        if last == NIL {
            self.longest_idle = index;
        } else {
            self.sessions.at_mut(last).next = index;
        }
    }

    fn unchain(&mut self, index: u32) {
        let entry = self.sessions.at_mut(index);
        let (previous, next) = (entry.previous, entry.next);
        if previous == NIL {
            self.longest_idle = next;
        } else {
            self.sessions.at_mut(previous).next = next;
        }
        if next == NIL {
            self.latest_idle = previous;
        } else {
            self.sessions.at_mut(next).previous = previous;
        }
    }
}

#[inline]
fn hash_bytes(hasher: &FixedState, bytes: &[u8]) -> u64 {
    let mut state = hasher.build_hasher();
    state.write(bytes);
    state.finish()
}

#[cfg(test)]
mod tests;
