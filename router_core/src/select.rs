//! Choosing a backend for an execution that is not pinned.
//!
//! Among eligible backends, suspects last, the choice minimises `(outstanding + 1) / capacity`; ties go to the smaller
//! `(sessions + 1) / capacity`, further ties to the least recently granted backend. Everything is compared as
//! integers, so ties are exact and a pool of equals is filled evenly, whatever the order of arrivals.
//!
//! The answer is kept, not searched: a *tournament tree* over the backends' slots holds the winner of every pair, so
//! the root is the choice. A change to one backend replays the matches on its path to the root and stops as soon as a
//! match has the same winner as before and that winner is not the changed backend: O(log n) at worst, usually one or
//! two matches. A heap would need back-pointers for the same, and sampling (power of two choices) would give up the
//! exactness that makes 1,000 acquires on eight engines differ by at most one.

use crate::load::{Capacity, Share};
use crate::slab::NIL;
use std::cmp::Ordering;
use std::fmt;

/// Why a lease went to its backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PickReason {
    /// The session is pinned there.
    Sticky,
    /// First turn of a session (or the first one after it expired or was closed).
    New,
    /// The request has no session.
    NoSession,
    /// The session table is full of live sessions; this one is served without a pin.
    TableFull,
    /// The session was idle and its backend crowded, so it moved for good; see [`crate::config::Spill`].
    Spill,
    /// The session's pin could not be used, so it moved for good.
    Repin(RepinReason),
}

/// Why a pin could not be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RepinReason {
    /// The incarnation was removed.
    Removed,
    /// The backend is being drained.
    Draining,
    /// The backend is down.
    Down,
    /// The caller excluded the backend from this attempt.
    Excluded,
    /// The backend does not run the published version.
    Weights,
    /// A new version was published; see [`crate::config::PoolConfig::rebind_on_publish`].
    Published,
}

impl RepinReason {
    /// The lower-case name used in snapshots and metrics, after `repin:`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Removed => "removed",
            Self::Draining => "draining",
            Self::Down => "down",
            Self::Excluded => "excluded",
            Self::Weights => "weights",
            Self::Published => "published",
        }
    }
}

impl PickReason {
    /// Every reason, in the order of snapshots.
    pub const ALL: [Self; 11] = [
        Self::Sticky,
        Self::New,
        Self::NoSession,
        Self::TableFull,
        Self::Spill,
        Self::Repin(RepinReason::Removed),
        Self::Repin(RepinReason::Draining),
        Self::Repin(RepinReason::Down),
        Self::Repin(RepinReason::Excluded),
        Self::Repin(RepinReason::Weights),
        Self::Repin(RepinReason::Published),
    ];

    /// The lower-case name used in snapshots, metrics and APIs.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Sticky => "sticky",
            Self::New => "new",
            Self::NoSession => "no_session",
            Self::TableFull => "table_full",
            Self::Spill => "spill",
            Self::Repin(RepinReason::Removed) => "repin:removed",
            Self::Repin(RepinReason::Draining) => "repin:draining",
            Self::Repin(RepinReason::Down) => "repin:down",
            Self::Repin(RepinReason::Excluded) => "repin:excluded",
            Self::Repin(RepinReason::Weights) => "repin:weights",
            Self::Repin(RepinReason::Published) => "repin:published",
        }
    }

    /// Position in [`Self::ALL`].
    pub(crate) const fn index(self) -> usize {
        match self {
            Self::Sticky => 0,
            Self::New => 1,
            Self::NoSession => 2,
            Self::TableFull => 3,
            Self::Spill => 4,
            Self::Repin(why) => 5 + why as usize,
        }
    }
}

impl fmt::Display for PickReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Display for RepinReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// How gladly a backend is chosen, whatever its load; the first is best.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Tier {
    Ready,
    Suspect,
}

/// What an eligible backend brings to a match.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Standing {
    pub(crate) tier: Tier,
    pub(crate) capacity: Capacity,
    /// By the pool's [`LoadSignal`](crate::load::LoadSignal), to be compared per capacity.
    pub(crate) load: u64,
    pub(crate) sessions: u32,
    /// Unique among the backends of a pool; smaller means granted longer ago, and never granted is smallest.
    pub(crate) recency: u64,
}

impl Standing {
    /// Whether `self` is to be chosen before `other`. Never true both ways, as recencies differ.
    #[inline]
    fn beats(&self, other: &Self) -> bool {
        let share = |standing: &Self, amount| Share {
            amount,
            capacity: standing.capacity,
        };
        let by_load = || share(self, self.load).cmp(&share(other, other.load));
        let after_one_more = |standing: &Self| share(standing, u64::from(standing.sessions) + 1);
        self.tier
            .cmp(&other.tier)
            .then_with(by_load)
            .then_with(|| after_one_more(self).cmp(&after_one_more(other)))
            .then_with(|| self.recency.cmp(&other.recency))
            == Ordering::Less
    }
}

/// The tournament over all backend slots; ineligible slots do not play.
#[derive(Debug)]
pub(crate) struct Tournament {
    /// By slot; as many as `width`.
    players: Vec<Option<Standing>>,
    /// Node 1 is the root, node `n` has the children `2n` and `2n + 1`, node `width + slot` is the leaf of a slot.
    /// Each holds the slot that wins below it, or [`NIL`].
    winners: Vec<u32>,
    /// Slots there is room for: a power of two.
    width: usize,
}

impl Tournament {
    pub(crate) fn new() -> Self {
        Self {
            players: vec![None],
            winners: vec![NIL; 2],
            width: 1,
        }
    }

    /// The slot to choose, if any backend is eligible.
    #[inline]
    pub(crate) fn winner(&self) -> Option<u32> {
        let root = self.winners[1];
        (root != NIL).then_some(root)
    }

    /// How the backend at `slot` stands, if it plays.
    pub(crate) fn standing(&self, slot: u32) -> Option<&Standing> {
        self.players.get(slot as usize)?.as_ref()
    }

    /// Whether the backend at `slot` plays, that is, is eligible.
    pub(crate) fn plays(&self, slot: u32) -> bool {
        self.standing(slot).is_some()
    }

    /// Records that the backend at `slot` now stands so, or does not play.
    pub(crate) fn update(&mut self, slot: u32, standing: Option<Standing>) {
        if slot as usize >= self.width {
            self.widen(slot as usize + 1);
        }
        let mut node = self.width + slot as usize;
        self.winners[node] = if standing.is_some() { slot } else { NIL };
        self.players[slot as usize] = standing;
        while node > 1 {
            node /= 2;
            let winner = self.play(self.winners[2 * node], self.winners[2 * node + 1]);
            // The matches above saw this winner before, and its standing is what it was.
            if winner == self.winners[node] && winner != slot {
                break;
            }
            self.winners[node] = winner;
        }
    }

    #[inline]
    fn play(&self, left: u32, right: u32) -> u32 {
        let player = |slot: u32| self.players.get(slot as usize).and_then(Option::as_ref);
        match (player(left), player(right)) {
            (Some(first), Some(second)) if second.beats(first) => right,
            (None, _) => right,
            _ => left,
        }
    }

    fn widen(&mut self, slots: usize) {
        self.width = slots.next_power_of_two();
        self.players.resize(self.width, None);
        self.winners = vec![NIL; 2 * self.width];
        for (slot, leaf) in (0u32..).zip(&mut self.winners[self.width..]) {
            *leaf = if self.players[slot as usize].is_some() {
                slot
            } else {
                NIL
            };
        }
        for node in (1..self.width).rev() {
            self.winners[node] = self.play(self.winners[2 * node], self.winners[2 * node + 1]);
        }
    }
}

#[cfg(test)]
mod tests;
