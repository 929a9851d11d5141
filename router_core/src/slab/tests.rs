use super::{Handle, NIL, Slab};
use proptest::prelude::*;
use std::collections::BTreeMap;

/// A handle that was removed reaches neither the empty slot nor its next occupant.
#[test]
fn old_handles_are_stale() {
    let mut slab = Slab::default();
    let first = slab.insert("first");
    assert_eq!(slab.remove(first), Some("first"));
    assert_eq!((slab.get(first), slab.len()), (None, 0));
    assert_eq!(slab.remove(first), None);
    let second = slab.insert("second");
    assert_eq!(second.index, first.index);
    assert_eq!(slab.get(first), None);
    assert_eq!(slab.get_mut(first), None);
    assert_eq!(slab.remove(first), None);
    assert_eq!(slab.get(second), Some(&"second"));
}

/// A handle that never existed is as stale as any.
#[test]
fn foreign_handles_are_stale() {
    let mut slab = Slab::default();
    slab.insert(1);
    assert_eq!(
        slab.get(Handle {
            index: 7,
            generation: 1
        }),
        None
    );
    assert_eq!(
        slab.get(Handle {
            index: NIL,
            generation: 0
        }),
        None
    );
}

/// A slot whose generations are used up is left alone, so that no handle is ever given out twice.
#[test]
fn exhausted_slots_are_not_reused() {
    let mut slab = Slab::default();
    let young = slab.insert('a');
    slab.slots[young.index as usize].generation = u32::MAX;
    let last = Handle {
        generation: u32::MAX,
        ..young
    };
    assert_eq!(slab.remove(last), Some('a'));
    assert_eq!(slab.len(), 0);
    assert_ne!(slab.insert('b').index, last.index);
    assert_eq!(slab.get(last), None);
}

proptest! {
    /// A slab behaves like a map from handles to values, in any order of operations.
    #[test]
    fn behaves_like_a_map(operations in prop::collection::vec((any::<bool>(), any::<prop::sample::Index>()), 0..200)) {
        let mut slab = Slab::default();
        let mut expected: BTreeMap<(u32, u32), usize> = BTreeMap::new();
        let mut issued: Vec<Handle> = Vec::new();
        for (number, (insert, which)) in operations.into_iter().enumerate() {
            if insert || issued.is_empty() {
                let handle = slab.insert(number);
                prop_assert_eq!(expected.insert((handle.index, handle.generation), number), None);
                issued.push(handle);
            } else {
                let handle = *which.get(&issued);
                prop_assert_eq!(slab.remove(handle), expected.remove(&(handle.index, handle.generation)));
            }
            prop_assert_eq!(slab.len() as usize, expected.len());
        }
        for handle in issued {
            prop_assert_eq!(slab.get(handle), expected.get(&(handle.index, handle.generation)));
        }
    }
}
