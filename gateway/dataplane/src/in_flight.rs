//! Which requests are in flight through this gateway, by the ids they can be aborted by, and which ended a moment ago.
//!
//! An engine says yes to every abort, whether it knows the id or not, and aborts by *prefix*. So the gateway itself has
//! to know who runs what: [`Execution`] is held by whatever works on a request, and is in the [`Directory`] for as long
//! as anybody holds it.
//!
//! Ids are kept as 64-bit hashes with a key of this process: entering, leaving and remembering cost one map operation
//! and one store. The end of a request is remembered in a table of fixed size, where a later end may take its place.

use crate::few::Few;
use crate::json::unescape;
use crate::request_id::{AbortIds, ID_DIGITS};
use crate::upstream::Upstream;
use foldhash::{fast, quality};
use http::HeaderValue;
use parking_lot::Mutex;
use router_core::lease::LeaseId;
use std::borrow::Cow;
use std::collections::HashMap;
use std::collections::hash_map::Entry as Slot;
use std::hash::BuildHasher;
use std::sync::{Arc, Weak};

/// Ends that are remembered at most; at 1,000 requests a second about half a minute of them.
const REMEMBERED: usize = 1 << 15;

/// The requests in flight.
pub(crate) struct Directory {
    hasher: quality::RandomState,
    state: Mutex<State>,
}

struct State {
    /// By hashes that nobody outside can choose, so that a second hash of quality would add nothing.
    running: HashMap<u64, Entry, fast::RandomState>,
    /// The hash of an ended request at the place its low bits name; 0 where there is none.
    ended: Box<[u64]>,
}

/// Who uses an id now: nearly always one request, more when a client uses an id twice.
struct Entry {
    first: Weak<Execution>,
    others: Vec<Weak<Execution>>,
}

/// A request in flight, from when its ids are known to its settlement or its abort, whichever is later.
pub(crate) struct Execution {
    ids: AbortIds,
    keys: Few<u64>,
    place: Mutex<Option<Place>>,
    directory: Arc<Directory>,
}

/// Where an execution runs.
#[derive(Clone)]
pub(crate) struct Place {
    pub(crate) upstream: Arc<Upstream>,
    /// What the engine accepted for the execution, and so for its abort.
    pub(crate) authorization: Option<HeaderValue>,
    pub(crate) lease: LeaseId,
}

/// What is known of an id.
pub(crate) enum Found {
    Running(Vec<Arc<Execution>>),
    Ended,
    Unknown,
}

impl Directory {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            hasher: quality::RandomState::default(),
            state: Mutex::new(State {
                running: HashMap::default(),
                ended: vec![0; REMEMBERED].into_boxed_slice(),
            }),
        })
    }

    /// Enters a request of `role`.
    pub(crate) fn enter(self: &Arc<Self>, role: &str, ids: AbortIds) -> Arc<Execution> {
        let keys: Few<u64> = ids.iter().map(|id| self.key(role, &text_of(id))).collect();
        let execution = Arc::new(Execution {
            ids,
            keys,
            place: Mutex::new(None),
            directory: Arc::clone(self),
        });
        let mut state = self.state.lock();
        for key in execution.keys.iter() {
            let first = Arc::downgrade(&execution);
            match state.running.entry(*key) {
                Slot::Occupied(slot) => slot.into_mut().others.push(first),
                Slot::Vacant(slot) => {
                    let others = Vec::new();
                    slot.insert(Entry { first, others });
                }
            }
        }
        drop(state);
        execution
    }

    /// Looks `id` up among the requests of `role`.
    pub(crate) fn find(&self, role: &str, id: &str) -> Found {
        let key = self.key(role, id.as_bytes());
        // What is upgraded here is dropped after the lock: the last holder of an execution takes the lock itself.
        let (running, ended) = {
            let state = self.state.lock();
            let running: Vec<Arc<Execution>> = state.running.get(&key).map(Entry::holders).unwrap_or_default();
            (running, state.ended[place_of(key)] == key)
        };
        let running: Vec<_> = running.into_iter().filter(|execution| execution.is(id)).collect();
        match (running.is_empty(), ended) {
            (false, _) => Found::Running(running),
            (true, true) => Found::Ended,
            (true, false) => Found::Unknown,
        }
    }

    /// How many other requests on `upstream` have an id that begins with `id`: an engine would abort them too.
    pub(crate) fn also_hit(&self, upstream: &Upstream, id: &str) -> usize {
        let all: Vec<Arc<Execution>> = {
            let state = self.state.lock();
            state.running.values().flat_map(Entry::holders).collect()
        };
        let there = |execution: &&Arc<Execution>| {
            let place = execution.place.lock();
            place
                .as_ref()
                .is_some_and(|place| std::ptr::eq(Arc::as_ptr(&place.upstream), upstream))
        };
        let hit = |execution: &&Arc<Execution>| {
            let texts = execution.ids.iter().map(text_of);
            !execution.is(id) && texts.into_iter().any(|text| text.starts_with(id.as_bytes()))
        };
        all.iter().filter(hit).filter(there).count()
    }

    /// Whether an abort by `id`, a JSON string literal, would end other requests on `upstream`, too.
    pub(crate) fn is_shared(&self, upstream: &Upstream, id: &bytes::Bytes) -> bool {
        let text = text_of(id);
        // Ours, and those of clients that take the same care: none begins another.
        let is_unique = text.len() == ID_DIGITS && text.iter().all(u8::is_ascii_hexdigit);
        !is_unique && self.also_hit(upstream, &String::from_utf8_lossy(&text)) > 0
    }

    /// Never 0, which stands for no request.
    fn key(&self, role: &str, id: &[u8]) -> u64 {
        self.hasher.hash_one((role, id)) | 1
    }
}

impl Entry {
    fn holders(&self) -> Vec<Arc<Execution>> {
        let all = std::iter::once(&self.first).chain(&self.others);
        all.filter_map(Weak::upgrade).collect()
    }
}

impl Execution {
    pub(crate) fn ids(&self) -> &AbortIds {
        &self.ids
    }

    /// It is sent to an engine.
    pub(crate) fn runs_at(&self, place: Place) {
        *self.place.lock() = Some(place);
    }

    /// Where it runs; `None` while it waits for an engine.
    pub(crate) fn place(&self) -> Option<Place> {
        self.place.lock().clone()
    }

    fn is(&self, id: &str) -> bool {
        self.ids.iter().any(|literal| *text_of(literal) == *id.as_bytes())
    }
}

impl Drop for Execution {
    fn drop(&mut self) {
        let me: *const Self = self;
        let mut state = self.directory.state.lock();
        for key in self.keys.iter() {
            state.ended[place_of(*key)] = *key;
            let Slot::Occupied(mut slot) = state.running.entry(*key) else {
                continue;
            };
            let entry = slot.get_mut();
            entry.others.retain(|other| !std::ptr::eq(other.as_ptr(), me));
            if std::ptr::eq(entry.first.as_ptr(), me) {
                match entry.others.pop() {
                    Some(other) => entry.first = other,
                    None => drop(slot.remove()),
                }
            }
        }
    }
}

const fn place_of(key: u64) -> usize {
    // Not the lowest bit, which is always 1.
    (key >> 1) as usize & (REMEMBERED - 1)
}

/// The text of a JSON string literal.
fn text_of(literal: &bytes::Bytes) -> Cow<'_, [u8]> {
    let text = &literal[1..literal.len() - 1];
    if memchr::memchr(b'\\', text).is_none() {
        return Cow::Borrowed(text);
    }
    Cow::Owned(unescape(text).unwrap_or_default().into_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(literal: &'static str) -> AbortIds {
        AbortIds::of_client(&bytes::Bytes::from_static(literal.as_bytes()))
    }

    fn what(directory: &Directory, role: &str, id: &str) -> &'static str {
        match directory.find(role, id) {
            Found::Running(_) => "running",
            Found::Ended => "ended",
            Found::Unknown => "unknown",
        }
    }

    /// A request is found by each of its ids while somebody holds it, then as ended, and only under its role.
    #[test]
    fn from_entry_to_end() {
        let directory = Directory::new();
        let execution = directory.enter("r", ids(r#"["job-1","job-\u0032"]"#));
        for id in ["job-1", "job-2"] {
            assert_eq!(what(&directory, "r", id), "running");
            assert_eq!(what(&directory, "other", id), "unknown");
        }
        assert_eq!(what(&directory, "r", "job-"), "unknown");
        let holder = Arc::clone(&execution);
        drop(execution);
        assert_eq!(what(&directory, "r", "job-1"), "running");
        drop(holder);
        assert_eq!(what(&directory, "r", "job-2"), "ended");
        assert!(directory.state.lock().running.is_empty());
    }

    /// An id that is used twice is running until its last user has ended, whoever ends first.
    #[test]
    fn an_id_used_twice() {
        for first_ends_first in [true, false] {
            let directory = Directory::new();
            let one = directory.enter("r", ids(r#""job-1""#));
            let two = directory.enter("r", ids(r#""job-1""#));
            let (early, late) = if first_ends_first { (one, two) } else { (two, one) };
            assert!(matches!(directory.find("r", "job-1"), Found::Running(both) if both.len() == 2));
            drop(early);
            assert_eq!(what(&directory, "r", "job-1"), "running");
            drop(late);
            assert_eq!(what(&directory, "r", "job-1"), "ended");
        }
    }

    /// What is remembered does not grow with the number of requests.
    #[test]
    fn memory_is_bounded() {
        let directory = Directory::new();
        for number in 0..3 * REMEMBERED {
            let literal = bytes::Bytes::from(format!("\"job-{number:08}\""));
            drop(directory.enter("r", AbortIds::of_client(&literal)));
        }
        assert_eq!(
            what(&directory, "r", &format!("job-{:08}", 3 * REMEMBERED - 1)),
            "ended"
        );
        let remembered =
            (0..3 * REMEMBERED).filter(|number| what(&directory, "r", &format!("job-{number:08}")) == "ended");
        assert!(remembered.count() <= REMEMBERED);
        assert!(directory.state.lock().running.is_empty());
    }
}
