use super::{COMMON, Ended, INLINE_BYTES, MAX_KEY_BYTES, Name, Session, SessionTable};
use crate::membership::{BackendRef, BackendSpec, Membership};
use crate::slab::Handle;
use crate::time::Timestamp;
use proptest::prelude::*;
use std::time::Duration;

const TTL: Duration = Duration::from_nanos(10);

fn table() -> SessionTable {
    SessionTable::new(TTL, 100, 7)
}

fn some_backend() -> BackendRef {
    let mut membership = Membership::new(0);
    membership
        .admit(BackendSpec::parse("h:1", 1.0).expect("valid"), Duration::ZERO)
        .expect("new");
    membership.at(0).info.reference
}

fn name(key: &str) -> Name<'_> {
    let namespace = COMMON;
    Name { namespace, key }
}

fn begin(table: &mut SessionTable, key: &str) -> Handle {
    table.insert(table.hash(name(key)), name(key), some_backend(), 0)
}

fn find(table: &SessionTable, key: &str) -> Option<Handle> {
    table.find(table.hash(name(key)), name(key))
}

/// Keys around the in-place size, and the longest, are told apart by every byte.
#[test]
fn keys_of_every_length() {
    let mut table = table();
    let lengths = [1, INLINE_BYTES - 1, INLINE_BYTES, INLINE_BYTES + 1, MAX_KEY_BYTES];
    let keys = lengths.map(|length| ("x".repeat(length), "x".repeat(length - 1) + "y"));
    for (one, other) in &keys {
        let handles = (begin(&mut table, one), begin(&mut table, other));
        assert_eq!(
            (find(&table, one), find(&table, other)),
            (Some(handles.0), Some(handles.1))
        );
    }
    assert_eq!(table.len(), 2 * keys.len());
    assert_eq!(find(&table, ""), None);
}

/// The same key in another namespace is another session, which nobody finds once that namespace is closed.
#[test]
fn namespaces_are_apart() {
    let mut table = table();
    let ours = begin(&mut table, "s");
    let namespace = table.open_namespace();
    let theirs = Name { namespace, key: "s" };
    assert_eq!(table.find(table.hash(theirs), theirs), None);
    let other = table.insert(table.hash(theirs), theirs, some_backend(), 0);
    assert_eq!(table.find(table.hash(theirs), theirs), Some(other));
    table.close_namespace(namespace);
    assert_eq!(table.find(table.hash(theirs), theirs), None);
    let ended = Ended {
        backend: some_backend(),
        open_leases: 1,
    };
    assert_eq!(table.take_departed(9), [ended]);
    assert_eq!(table.take_departed(9), []);
    assert_eq!(
        (find(&table, "s"), table.is_live(other), table.len()),
        (Some(ours), false, 1)
    );
}

/// What departed senders left is taken out in portions, without harm to sessions that are in their slots by now.
#[test]
fn departed_sessions_go_in_portions() {
    let mut table = table();
    let mut handles = Vec::new();
    for _ in 0..3 {
        let namespace = table.open_namespace();
        for key in ["a", "b", "c", "d"] {
            let name = Name { namespace, key };
            handles.push(table.insert(table.hash(name), name, some_backend(), 0));
        }
        table.close_namespace(namespace);
    }
    table.remove(handles[0]);
    let new = begin(&mut table, "a");
    assert_eq!(new.index, handles[0].index);
    let portions = [5, 5, 5].map(|limit| table.take_departed(limit).len());
    assert!(
        portions == [5, 5, 1] || portions == [4, 5, 2] || portions == [5, 4, 2],
        "{portions:?}"
    );
    assert_eq!((find(&table, "a"), table.len()), (Some(new), 1));
}

/// A table that outgrows its first index loses nobody, and neither does the end of one that did.
#[test]
fn large_tables_find_everybody() {
    let mut table = SessionTable::new(TTL, 20_000, 7);
    for namespace in [COMMON, table.open_namespace()] {
        let keys: Vec<String> = (0..9000).map(|number| number.to_string()).collect();
        for key in &keys {
            let name = Name { namespace, key };
            table.insert(table.hash(name), name, some_backend(), 0);
        }
        for (position, key) in keys.iter().enumerate() {
            let name = Name { namespace, key };
            let found = table.find(table.hash(name), name).expect("inserted");
            assert_eq!(table.key(found).as_ref(), Some(key));
            if position % 3 == 0 {
                table.remove(found);
                assert_eq!(table.find(table.hash(name), name), None);
            }
        }
        table.close_namespace(namespace);
        assert_eq!(table.take_departed(usize::MAX).len(), 6000);
    }
    assert_eq!(table.len(), 0);
}

/// The number of a closed namespace is used again, and never while sessions of it are left.
#[test]
fn namespaces_do_not_pile_up() {
    let mut table = table();
    let namespace = table.open_namespace();
    let name = Name { namespace, key: "s" };
    table.insert(table.hash(name), name, some_backend(), 0);
    table.close_namespace(namespace);
    assert_ne!(table.open_namespace(), namespace);
    assert_eq!(table.take_departed(2).len(), 1);
    assert_eq!(table.open_namespace(), namespace);
}

/// An entry stays small: with its share of the index it is far below the promised 200 bytes.
#[test]
fn entries_are_small() {
    assert!(size_of::<Session>() <= 88, "{}", size_of::<Session>());
}

/// A session with an open lease never expires; afterwards its time begins anew.
#[test]
fn time_to_live_counts_idleness() {
    let mut table = table();
    let session = begin(&mut table, "s");
    assert!(!table.has_expired(session, Timestamp::MAX));
    assert_eq!(table.longest_idle(), None);
    table.close_lease(session, Timestamp::from_nanos(1000));
    assert!(!table.has_expired(session, Timestamp::from_nanos(1010)));
    assert!(table.has_expired(session, Timestamp::from_nanos(1011)));
    assert_eq!(table.longest_idle(), Some(session));
}

/// Settling a lease of a session that was closed meanwhile touches nobody, even when the slot has a new session.
#[test]
fn leases_outlive_their_session() {
    let mut table = table();
    let old = begin(&mut table, "s");
    let ended = Ended {
        backend: some_backend(),
        open_leases: 1,
    };
    assert_eq!(table.remove(old), Some(ended));
    let new = begin(&mut table, "s");
    table.close_lease(old, Timestamp::ZERO);
    assert_eq!(table.longest_idle(), None);
    assert_eq!(table.remove(old), None);
    assert_eq!(table.remove(new), Some(ended));
}

#[derive(Clone, Debug)]
enum Operation {
    Open(u8),
    Close(u8),
    Remove(u8),
}

proptest! {
    /// The idle chain is exactly the idle sessions, in the order in which they became idle.
    #[test]
    fn the_chain_is_ordered_by_idleness(
        operations in prop::collection::vec(
            (0u8..3, 0u8..8).prop_map(|(kind, key)| match kind {
                0 => Operation::Open(key),
                1 => Operation::Close(key),
                _ => Operation::Remove(key),
            }),
            0..150,
        ),
    ) {
        let mut table = table();
        let mut open = [None::<u32>; 8];
        let mut idle: Vec<u8> = Vec::new();
        for (time, operation) in (0u64..).zip(operations) {
            let (Operation::Open(key) | Operation::Close(key) | Operation::Remove(key)) = operation;
            let name = key.to_string();
            let count = open[usize::from(key)];
            match (operation, find(&table, &name)) {
                (Operation::Open(_), None) => {
                    begin(&mut table, &name);
                    open[usize::from(key)] = Some(1);
                }
                (Operation::Open(_), Some(session)) => {
                    table.open_lease(session);
                    open[usize::from(key)] = count.map(|count| count + 1);
                    idle.retain(|other| *other != key);
                }
                (Operation::Close(_), Some(session)) if count > Some(0) => {
                    table.close_lease(session, Timestamp::from_nanos(time));
                    open[usize::from(key)] = count.map(|count| count - 1);
                    if count == Some(1) {
                        idle.push(key);
                    }
                }
                (Operation::Remove(_), Some(session)) => {
                    table.remove(session);
                    open[usize::from(key)] = None;
                    idle.retain(|other| *other != key);
                }
                _ => {}
            }
            prop_assert_eq!(table.len(), open.iter().flatten().count());
        }
        for key in idle {
            let session = table.longest_idle().expect("as many as expected");
            prop_assert_eq!(Some(session), find(&table, &key.to_string()));
            table.remove(session);
        }
        prop_assert_eq!(table.longest_idle(), None);
    }
}
