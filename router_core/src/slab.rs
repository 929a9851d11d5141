//! A vector of reusable slots whose handles go stale: an old handle never reaches a later occupant.

/// Marks the end of a chain of slots.
pub(crate) const NIL: u32 = u32::MAX;

/// Names one occupancy of one slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Handle {
    pub(crate) index: u32,
    pub(crate) generation: u32,
}

/// The first generation of a slot; not 0, so that no handle is all zeros, which readers of logs take for "none".
const FIRST_GENERATION: u32 = 1;

#[derive(Debug)]
enum Content<T> {
    Occupied(T),
    /// The next vacant slot, or [`NIL`].
    Vacant(u32),
}

#[derive(Debug)]
struct Slot<T> {
    generation: u32,
    content: Content<T>,
}

/// Slots for `T`, with O(1) insert, lookup and removal. Vacant slots form a chain, so removal never allocates.
#[derive(Debug)]
pub(crate) struct Slab<T> {
    slots: Vec<Slot<T>>,
    first_vacant: u32,
    occupied: u32,
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Self {
            slots: Vec::new(),
            first_vacant: NIL,
            occupied: 0,
        }
    }
}

impl<T> Slab<T> {
    pub(crate) const fn len(&self) -> u32 {
        self.occupied
    }

    pub(crate) fn insert(&mut self, value: T) -> Handle {
        self.occupied += 1;
        if self.first_vacant == NIL {
            let index = u32::try_from(self.slots.len()).unwrap_or(NIL);
            assert!(index < NIL, "a pool has fewer than 2^32 - 1 sessions and open leases");
            self.slots.push(Slot {
                generation: FIRST_GENERATION,
                content: Content::Occupied(value),
            });
            return Handle {
                index,
                generation: FIRST_GENERATION,
            };
        }
        let index = self.first_vacant;
        let slot = &mut self.slots[index as usize];
        if let Content::Vacant(next) = std::mem::replace(&mut slot.content, Content::Occupied(value)) {
            self.first_vacant = next;
        }
        Handle {
            index,
            generation: slot.generation,
        }
    }

    #[inline]
    pub(crate) fn get(&self, handle: Handle) -> Option<&T> {
        match self.slots.get(handle.index as usize) {
            Some(Slot {
                generation,
                content: Content::Occupied(value),
            }) if *generation == handle.generation => Some(value),
            _ => None,
        }
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, handle: Handle) -> Option<&mut T> {
        match self.slots.get_mut(handle.index as usize) {
            Some(Slot {
                generation,
                content: Content::Occupied(value),
            }) if *generation == handle.generation => Some(value),
            _ => None,
        }
    }

    /// The occupant of a slot that is known to be occupied, and its handle.
    #[inline]
    pub(crate) fn at(&self, index: u32) -> (Handle, &T) {
        let slot = &self.slots[index as usize];
        match &slot.content {
            Content::Occupied(value) => (
                Handle {
                    index,
                    generation: slot.generation,
                },
                value,
            ),
            Content::Vacant(_) => unreachable!("links and indexes point at occupied slots only"),
        }
    }

    /// The occupant of a slot that may be vacant.
    pub(crate) fn occupant(&self, index: u32) -> Option<(Handle, &T)> {
        let slot = self.slots.get(index as usize)?;
        match &slot.content {
            Content::Occupied(value) => {
                let generation = slot.generation;
                Some((Handle { index, generation }, value))
            }
            Content::Vacant(_) => None,
        }
    }

    /// Like [`Self::at`], to change the occupant.
    #[inline]
    pub(crate) fn at_mut(&mut self, index: u32) -> &mut T {
        match &mut self.slots[index as usize].content {
            Content::Occupied(value) => value,
            Content::Vacant(_) => unreachable!("links and indexes point at occupied slots only"),
        }
    }

    /// Every occupant with its handle, in slot order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Handle, &T)> {
        (0u32..).zip(&self.slots).filter_map(|(index, _)| self.occupant(index))
    }

    /// Every occupant, in slot order, to change it.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.slots.iter_mut().filter_map(|slot| match &mut slot.content {
            Content::Occupied(value) => Some(value),
            Content::Vacant(_) => None,
        })
    }

    pub(crate) fn remove(&mut self, handle: Handle) -> Option<T> {
        self.get(handle)?;
        let slot = &mut self.slots[handle.index as usize];
        // A slot whose generations are used up is never chained again: 2^32 leases cost one slot, no id repeats.
        let next = if let Some(generation) = slot.generation.checked_add(1) {
            slot.generation = generation;
            std::mem::replace(&mut self.first_vacant, handle.index)
        } else {
            NIL
        };
        self.occupied -= 1;
        match std::mem::replace(&mut slot.content, Content::Vacant(next)) {
            Content::Occupied(value) => Some(value),
            Content::Vacant(_) => None,
        }
    }
}

#[cfg(test)]
mod tests;
