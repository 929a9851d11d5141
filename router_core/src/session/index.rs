//! Finding sessions by the hashes of their keys.
//!
//! A hash table that is full moves to one of twice the size, and reads every key for that: a tenth of a second with a
//! million sessions, during which the pool would serve nobody. So an index that becomes large is split into many tables,
//! chosen by bits of the hash, which fill up at different times and move a few thousand entries each.

use hashbrown::HashTable;
use std::iter::Flatten;
use std::vec::IntoIter;

/// Entries at which an index is split.
const LARGE: usize = 4096;

/// The tables of a large index: a power of two. A million sessions are 4,096 in each.
const TABLES: usize = 256;

/// Slots of the session table.
#[derive(Debug)]
pub(super) struct Index {
    /// One, or [`TABLES`].
    tables: Vec<HashTable<u32>>,
}

/// The slots of an index that is used no more.
pub(super) type Slots = Flatten<IntoIter<HashTable<u32>>>;

impl Index {
    pub(super) fn new() -> Self {
        Self {
            tables: vec![HashTable::new()],
        }
    }

    /// The slot with this hash for which `is_it` holds.
    #[inline]
    pub(super) fn find(&self, hash: u64, is_it: impl FnMut(&u32) -> bool) -> Option<u32> {
        self.tables[self.table_of(hash)].find(hash, is_it).copied()
    }

    /// Adds a slot. `hash_of` is the hash of any slot in here.
    pub(super) fn insert(&mut self, hash: u64, slot: u32, hash_of: impl Fn(&u32) -> u64) {
        if self.tables.len() == 1 && self.tables[0].len() == LARGE {
            let small = std::mem::take(&mut self.tables[0]);
            self.tables.resize_with(TABLES, HashTable::new);
            for slot in small {
                self.put(hash_of(&slot), slot, &hash_of);
            }
        }
        self.put(hash, slot, hash_of);
    }

    fn put(&mut self, hash: u64, slot: u32, hash_of: impl Fn(&u32) -> u64) {
        let table = self.table_of(hash);
        self.tables[table].insert_unique(hash, slot, hash_of);
    }

    pub(super) fn remove(&mut self, hash: u64, slot: u32) {
        let table = self.table_of(hash);
        if let Ok(found) = self.tables[table].find_entry(hash, |other| *other == slot) {
            found.remove();
        }
    }

    pub(super) fn into_slots(self) -> Slots {
        self.tables.into_iter().flatten()
    }

    /// By bits that the tables themselves do not use: they take the lowest ones, and the highest.
    #[inline]
    fn table_of(&self, hash: u64) -> usize {
        (hash >> 32) as usize & (self.tables.len() - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::{Index, LARGE};
    use std::cell::Cell;

    /// However large an index is, one more entry moves a bounded number of others.
    #[test]
    fn growth_never_moves_everything() {
        let mut index = Index::new();
        let spread = |slot: u32| u64::from(slot).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let moved = Cell::new(0);
        for slot in 0..300_000 {
            moved.set(0);
            index.insert(spread(slot), slot, |other| {
                moved.set(moved.get() + 1);
                spread(*other)
            });
            assert!(moved.get() <= 3 * LARGE, "{} moved for slot {slot}", moved.get());
        }
        for slot in 0..300_000 {
            assert_eq!(index.find(spread(slot), |other| *other == slot), Some(slot));
        }
    }
}
