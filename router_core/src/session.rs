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

/// The length of a context that nobody reported: longer than any.
const UNKNOWN: u32 = u32::MAX;

/// What names a session.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Name<'a> {
    /// 0 for requests without a sender.
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
    /// Whose session it is: sessions of different senders are different, whatever they are called.
    namespace: u32,
    backend: BackendRef,
    /// Open leases and parked acquires; the session is in the idle chain exactly when this is 0.
    open: u32,
    /// Tokens of its context as last reported; [`UNKNOWN`] when nobody did.
    context_tokens: u32,
    /// How often the pool had published when the pin was chosen.
    publications: u32,
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
    pub(crate) fn hash(&self, name: Name<'_>) -> u64 {
        hash_name(&self.hasher, name.namespace, name.key.as_bytes())
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
        let matches = |index: &u32| {
            let session = self.sessions.at(*index).1;
            session.key.as_bytes() == name.key.as_bytes() && session.namespace == name.namespace
        };
        self.index.find(hash, matches).map(|index| self.sessions.at(*index).0)
    }

    /// The key of a session, unless it ended.
    pub(crate) fn key(&self, session: Handle) -> Option<String> {
        let session = self.sessions.get(session)?;
        Some(String::from_utf8_lossy(session.key.as_bytes()).into_owned())
    }

    pub(crate) fn is_live(&self, session: Handle) -> bool {
        self.sessions.get(session).is_some()
    }

    /// Every session of a namespace.
    pub(crate) fn of_namespace(&self, namespace: u32) -> Vec<Handle> {
        let sessions = self.sessions.iter();
        sessions
            .filter(|(_, session)| session.namespace == namespace)
            .map(|(handle, _)| handle)
            .collect()
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
        (self.longest_idle != NIL).then(|| self.sessions.at(self.longest_idle).0)
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
            previous: NIL,
            next: NIL,
        };
        let handle = self.sessions.insert(session);
        let (hasher, sessions) = (&self.hasher, &self.sessions);
        self.index.insert_unique(hash, handle.index, |index| {
            let session = sessions.at(*index).1;
            hash_name(hasher, session.namespace, session.key.as_bytes())
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
            self.unchain(session.index);
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
        self.chain_last(session.index);
        Some(pin)
    }

    /// Takes a session out, open leases or not.
    pub(crate) fn remove(&mut self, session: Handle) -> Option<Ended> {
        let entry = self.sessions.get(session)?;
        let hash = hash_name(&self.hasher, entry.namespace, entry.key.as_bytes());
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
fn hash_name(hasher: &FixedState, namespace: u32, bytes: &[u8]) -> u64 {
    let mut state = hasher.build_hasher();
    state.write_u32(namespace);
    state.write(bytes);
    state.finish()
}

#[cfg(test)]
mod tests;
