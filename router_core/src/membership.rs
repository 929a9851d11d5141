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
use crate::poison::Death;
use crate::stats::OutcomeCounts;
use crate::time::Timestamp;
use crate::version::{Published, Weights};
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use std::sync::Arc;
use std::time::Duration;

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

    /// The name it gets.
    pub(crate) fn name(&self) -> &str {
        self.id.as_deref().unwrap_or_else(|| self.address.authority())
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
    /// Takes nothing new until it is resumed.
    Draining,
    /// Takes nothing new until it is removed: whoever retires it waits for nothing else.
    Retiring,
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
    /// Those of them whose end is known to be unknown.
    pub(crate) unresolved: u32,
    /// Nothing more runs here until those are resolved.
    pub(crate) held_back: bool,
    /// Sessions pinned here.
    pub(crate) sessions: u32,
    /// Those of them without an open lease.
    pub(crate) idle_sessions: u32,
    /// Orders backends by their last grant; see [`crate::select::Standing::recency`].
    pub(crate) recency: u64,
    pub(crate) picks: u64,
    pub(crate) outcomes: OutcomeCounts,
    pub(crate) output_tokens: u64,
    pub(crate) weights: Weights,
    /// Whether it ran the published version when the update in progress began, and was not heard to differ since.
    pub(crate) is_in_update: bool,
    /// The version that its engine named when it was last asked.
    pub(crate) named_version: Option<u64>,
    /// On the active clock, when an execution was last heard of, or begun on an idle backend.
    pub(crate) heard: Duration,
    /// Until when it counts as a part of its capacity, or did; none while it is not in use.
    pub(crate) ramp_end: Option<Timestamp>,
    /// The latest probe begun.
    pub(crate) probe_seq: u32,
    /// Its servers were paused and no probe has answered since: the next failure of one means little.
    pub(crate) is_waking: bool,
    /// Its process is known to be dead, and nothing was heard of it since.
    pub(crate) death: Option<Arc<Death>>,
}

impl Backend {
    /// Whether an execution may start here while `published` is.
    #[inline]
    pub(crate) fn is_eligible(&self, published: Option<Published>) -> bool {
        self.is_in_service() && self.weights.fit(published)
    }

    /// The same, whatever its weights.
    #[inline]
    pub(crate) fn is_in_service(&self) -> bool {
        self.phase == Phase::Serving && !self.held_back && self.vitals.admits()
    }

    pub(crate) fn is_suspect(&self) -> bool {
        self.vitals.health() == Health::Suspect
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
    pub(crate) fn admit(&mut self, spec: BackendSpec, active: Duration) -> Result<Admission, Error> {
        if let Some(slot) = self.find(&spec)? {
            return Ok(self.update(slot, spec.capacity));
        }
        let id = spec.name().to_owned();
        let vitals = Vitals::new(spec.proven, active);
        let slot = self.add(id, spec.address, spec.capacity, vitals);
        let backend = self.at_mut(slot);
        backend.heard = active;
        if let Some(version) = spec.weight_version {
            backend.weights = Weights::Version(version);
        }
        Ok(Admission::Added(slot))
    }

    /// The live backend that `spec` names, if any; refuses a `spec` that can name none.
    pub(crate) fn find(&self, spec: &BackendSpec) -> Result<Option<u32>, Error> {
        let id = spec.name();
        let refused = |rule| Error::InvalidBackendId {
            id: id.to_owned(),
            rule,
        };
        if let Some(rule) = broken_id_rule(id) {
            return Err(refused(rule));
        }
        match (self.by_id.get(id), self.by_address.get(&spec.address)) {
            (Some(named), Some(located)) if named == located => Ok(Some(*named)),
            (Some(_), _) => Err(refused("it names a backend at another address")),
            (None, Some(_)) => Err(refused("its address belongs to a backend with another id")),
            (None, None) => Ok(None),
        }
    }

    fn add(&mut self, id: String, address: Address, capacity: Capacity, vitals: Vitals) -> u32 {
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
            vitals,
            outstanding: 0,
            unresolved: 0,
            held_back: false,
            sessions: 0,
            idle_sessions: 0,
            recency: u64::from(reference.generation),
            picks: 0,
            outcomes: OutcomeCounts::default(),
            output_tokens: 0,
            weights: Weights::Unknown,
            is_in_update: false,
            named_version: None,
            heard: Duration::ZERO,
            ramp_end: None,
            probe_seq: 0,
            is_waking: false,
            death: None,
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

    /// The slots of every incarnation that is not removed.
    pub(crate) fn live_slots(&self) -> Vec<u32> {
        self.live().map(|backend| backend.info.reference.slot()).collect()
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
