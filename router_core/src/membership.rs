//! Backends and their incarnations.
//!
//! An engine that is removed and comes back at the same address is another *incarnation*: executions of the old one
//! may still be running, and must neither disturb the new one's counts nor be lost. So everything that outlives a
//! critical section (leases, pins, probe results) names an incarnation by [`BackendRef`], never an address, and a
//! removed incarnation stays until its last lease is settled. Generations are unique within a pool, so a reference to
//! a forgotten incarnation never matches a later one.

use crate::address::Address;
use crate::error::Error;
use crate::health::{Health, Vitals};
use crate::load::Capacity;
use crate::select::Standing;
use crate::stats::OutcomeCounts;
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use std::sync::Arc;

/// The longest backend id, in bytes.
pub const MAX_ID_BYTES: usize = 256;

/// Names one incarnation of one backend of one pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BackendRef {
    slot: u32,
    generation: u32,
}

impl BackendRef {
    /// Unique within the pool, and increasing with every registration; the first one is 1.
    #[must_use]
    pub const fn generation(self) -> u32 {
        self.generation
    }

    #[inline]
    pub(crate) const fn slot(self) -> u32 {
        self.slot
    }
}

/// What is asked for when a backend is registered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackendSpec {
    /// Its name; the address' authority when `None`.
    pub id: Option<String>,
    /// Where it listens.
    pub address: Address,
    /// How much it can take, relative to the others.
    pub capacity: Capacity,
    /// Whether it is eligible at once (`true`) or after its first sign of life.
    pub proven: bool,
    /// The version its weights are known to have; see [`crate::version::Weights`].
    pub weight_version: Option<u64>,
}

impl BackendSpec {
    /// A proven backend named after its address.
    ///
    /// Fails with [`Error::InvalidAddress`] or [`Error::InvalidCapacity`].
    pub fn parse(address: &str, capacity: f64) -> Result<Self, Error> {
        Ok(Self {
            id: None,
            address: Address::parse(address)?,
            capacity: Capacity::new(capacity)?,
            proven: true,
            weight_version: None,
        })
    }

    /// The same under another name.
    #[must_use]
    pub fn with_id(mut self, id: impl Into<String>) -> Self {
        self.id = Some(id.into());
        self
    }

    /// The same with weights of this version.
    #[must_use]
    pub const fn with_weight_version(mut self, version: u64) -> Self {
        self.weight_version = Some(version);
        self
    }

    /// The same, not eligible before its first sign of life.
    #[must_use]
    pub const fn unproven(mut self) -> Self {
        self.proven = false;
        self
    }
}

/// The unchanging facts about an incarnation, shared by everyone who works with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackendInfo {
    /// The incarnation.
    pub reference: BackendRef,
    /// Its name: 1 to [`MAX_ID_BYTES`] visible ASCII characters.
    pub id: String,
    /// Where it listens.
    pub address: Address,
    /// How much it can take. A changed capacity makes a new `BackendInfo` with the same reference.
    pub capacity: Capacity,
}

/// Where an incarnation is in its life, whatever its health.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Serving,
    Draining,
    /// Out of every table; kept for its open leases only.
    Removed,
}

/// An incarnation and everything counted about it.
#[derive(Debug)]
pub(crate) struct Backend {
    pub(crate) info: Arc<BackendInfo>,
    pub(crate) phase: Phase,
    pub(crate) vitals: Vitals,
    /// Open leases.
    pub(crate) outstanding: u32,
    /// Sessions pinned here.
    pub(crate) sessions: u32,
    /// Orders backends by their last grant; see [`Standing::recency`].
    pub(crate) recency: u64,
    pub(crate) picks: u64,
    pub(crate) outcomes: OutcomeCounts,
    pub(crate) output_tokens: u64,
}

impl Backend {
    pub(crate) fn is_eligible(&self) -> bool {
        self.phase == Phase::Serving && matches!(self.vitals.health(), Health::Up | Health::Suspect)
    }

    /// What selection compares, or `None` when no execution may start here.
    pub(crate) fn standing(&self) -> Option<Standing> {
        self.is_eligible().then(|| Standing {
            suspect: self.vitals.health() == Health::Suspect,
            capacity: self.info.capacity,
            outstanding: self.outstanding,
            sessions: self.sessions,
            recency: self.recency,
        })
    }
}

/// What [`Membership::admit`] did.
pub(crate) enum Admission {
    /// A new incarnation.
    Added(u32),
    /// The live incarnation, whose capacity changed.
    Updated { slot: u32, before: Capacity },
    /// The live incarnation, as it was.
    Unchanged(u32),
}

/// Every incarnation of a pool that is live or has open leases.
#[derive(Debug)]
pub(crate) struct Membership {
    slots: Vec<Option<Backend>>,
    vacant: Vec<u32>,
    by_id: HashMap<String, u32, FixedState>,
    by_address: HashMap<Address, u32, FixedState>,
    last_generation: u32,
}

impl Membership {
    pub(crate) fn new(hash_seed: u64) -> Self {
        let hasher = FixedState::with_seed(hash_seed);
        Self {
            slots: Vec::new(),
            vacant: Vec::new(),
            by_id: HashMap::with_hasher(hasher.clone()),
            by_address: HashMap::with_hasher(hasher),
            last_generation: 0,
        }
    }

    /// Registers `spec`, or updates the live backend it names.
    pub(crate) fn admit(&mut self, spec: BackendSpec) -> Result<Admission, Error> {
        let id = spec.id.unwrap_or_else(|| spec.address.authority().to_owned());
        if let Some(rule) = broken_id_rule(&id) {
            return Err(Error::InvalidBackendId { id, rule });
        }
        match (self.by_id.get(&id), self.by_address.get(&spec.address)) {
            (Some(named), Some(located)) if named == located => Ok(self.update(*named, spec.capacity)),
            (Some(_), _) => Err(Error::InvalidBackendId {
                id,
                rule: "it names a backend at another address",
            }),
            (None, Some(_)) => Err(Error::InvalidBackendId {
                id,
                rule: "its address belongs to a backend with another id",
            }),
            (None, None) => Ok(Admission::Added(self.add(id, spec.address, spec.capacity, spec.proven))),
        }
    }

    fn add(&mut self, id: String, address: Address, capacity: Capacity, proven: bool) -> u32 {
        self.last_generation = self
            .last_generation
            .checked_add(1)
            .expect("fewer than 2^32 registrations per pool");
        let slot = self.vacant.pop().unwrap_or_else(|| {
            self.slots.push(None);
            u32::try_from(self.slots.len() - 1).expect("fewer than 2^32 backends per pool")
        });
        let reference = BackendRef {
            slot,
            generation: self.last_generation,
        };
        self.by_id.insert(id.clone(), slot);
        self.by_address.insert(address.clone(), slot);
        self.slots[slot as usize] = Some(Backend {
            info: Arc::new(BackendInfo {
                reference,
                id,
                address,
                capacity,
            }),
            phase: Phase::Serving,
            vitals: Vitals::new(proven),
            outstanding: 0,
            sessions: 0,
            recency: u64::from(reference.generation),
            picks: 0,
            outcomes: OutcomeCounts::default(),
            output_tokens: 0,
        });
        slot
    }

    fn update(&mut self, slot: u32, capacity: Capacity) -> Admission {
        let backend = self.at_mut(slot);
        let before = backend.info.capacity;
        if before == capacity {
            return Admission::Unchanged(slot);
        }
        backend.info = Arc::new(BackendInfo {
            capacity,
            ..BackendInfo::clone(&backend.info)
        });
        Admission::Updated { slot, before }
    }

    /// The slot of the live backend called `id`.
    pub(crate) fn slot_of(&self, id: &str) -> Result<u32, Error> {
        self.by_id
            .get(id)
            .copied()
            .ok_or_else(|| Error::UnknownBackend { id: id.to_owned() })
    }

    /// Takes the live backend at `slot` out of every table; its incarnation stays until [`Self::forget`].
    pub(crate) fn retire(&mut self, slot: u32) {
        let backend = self.slots[slot as usize].as_mut().expect("a live backend has a slot");
        backend.phase = Phase::Removed;
        self.by_id.remove(&backend.info.id);
        self.by_address.remove(&backend.info.address);
    }

    /// Gives the slot of a removed incarnation without leases back.
    pub(crate) fn forget(&mut self, slot: u32) -> Option<Backend> {
        let backend = self.slots[slot as usize].take();
        if backend.is_some() {
            self.vacant.push(slot);
        }
        backend
    }

    /// The incarnation, unless it is forgotten.
    #[inline]
    pub(crate) fn get(&self, reference: BackendRef) -> Option<&Backend> {
        self.slots
            .get(reference.slot as usize)?
            .as_ref()
            .filter(|backend| backend.info.reference.generation == reference.generation)
    }

    /// The incarnation, unless it is forgotten.
    #[inline]
    pub(crate) fn get_mut(&mut self, reference: BackendRef) -> Option<&mut Backend> {
        self.slots
            .get_mut(reference.slot as usize)?
            .as_mut()
            .filter(|backend| backend.info.reference.generation == reference.generation)
    }

    /// The backend in a slot that is known to be taken.
    #[inline]
    pub(crate) fn at(&self, slot: u32) -> &Backend {
        self.slots[slot as usize]
            .as_ref()
            .expect("leases and indexes name taken slots only")
    }

    /// The backend in a slot that is known to be taken.
    #[inline]
    pub(crate) fn at_mut(&mut self, slot: u32) -> &mut Backend {
        self.slots[slot as usize]
            .as_mut()
            .expect("leases and indexes name taken slots only")
    }

    /// Every incarnation, removed ones included, in slot order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Backend> {
        self.slots.iter().flatten()
    }

    /// Every incarnation that is not removed, in slot order.
    pub(crate) fn live(&self) -> impl Iterator<Item = &Backend> {
        self.iter().filter(|backend| backend.phase != Phase::Removed)
    }
}

fn broken_id_rule(id: &str) -> Option<&'static str> {
    if id.is_empty() {
        Some("it is empty")
    } else if id.len() > MAX_ID_BYTES {
        Some("it is longer than 256 bytes")
    } else if !id.bytes().all(|byte| byte.is_ascii_graphic()) {
        // Ids travel in HTTP headers and metric labels.
        Some("it may have only visible ASCII characters and no spaces")
    } else {
        None
    }
}
