//! The owners of a pool and their latches.

use super::{DEFAULT_OWNER, MAX_NAME_BYTES, MAX_OWNERS};
use crate::error::Error;
use crate::version::Published;
use std::collections::{BTreeSet, VecDeque};

/// The index of the default owner.
pub(crate) const DEFAULT: u32 = 0;

/// Operation ids remembered, so that a late duplicate of a fence changes nothing.
const KEPT_OPERATIONS: usize = 256;

#[derive(Debug)]
pub(crate) struct Owner {
    pub(crate) name: Box<str>,
    pub(crate) fences: BTreeSet<Box<str>>,
    /// In the current epoch.
    pub(crate) acknowledged: Option<u64>,
    pub(crate) needs_acknowledgement: bool,
    pub(crate) outstanding: u32,
}

impl Owner {
    fn new(name: &str) -> Self {
        Self {
            name: name.into(),
            fences: BTreeSet::new(),
            acknowledged: None,
            needs_acknowledgement: name != DEFAULT_OWNER,
            outstanding: 0,
        }
    }

    /// Whether its processes know the published version.
    #[inline]
    pub(crate) fn knows(&self, published: Option<Published>) -> bool {
        match published {
            Some(published) if self.needs_acknowledgement => {
                self.acknowledged.is_some_and(|known| known >= published.version)
            }
            _ => true,
        }
    }
}

/// Every owner of a pool: the default one, and those that were attached.
#[derive(Debug)]
pub(crate) struct Owners {
    owners: Vec<Owner>,
    /// The latest operations, with what they were: (id, whether it fenced, owner, reason).
    operations: VecDeque<(Box<str>, bool, u32, Box<str>)>,
}

impl Owners {
    pub(crate) fn new() -> Self {
        Self {
            owners: vec![Owner::new(DEFAULT_OWNER)],
            operations: VecDeque::new(),
        }
    }

    /// The owner called `name`. Owners are few, and a sender keeps the index of its own.
    pub(crate) fn find(&self, name: &str) -> Result<u32, Error> {
        (0u32..)
            .zip(&self.owners)
            .find(|(_, owner)| *owner.name == *name)
            .map(|(index, _)| index)
            .ok_or_else(|| Error::UnknownOwner { owner: name.to_owned() })
    }

    /// The owner called `name`, made when it is new.
    pub(crate) fn attach(&mut self, name: &str, published: Option<Published>) -> Result<u32, Error> {
        if let Ok(index) = self.find(name) {
            return Ok(index);
        }
        check_name("owner name", name)?;
        if self.owners.len() >= MAX_OWNERS {
            return Err(Error::InvalidArgument {
                what: "owner name",
                rule: "the pool has 1024 owners already",
            });
        }
        let mut owner = Owner::new(name);
        // It learns the version by the answer, before it can ask for anything.
        owner.acknowledged = published.map(|published| published.version);
        self.owners.push(owner);
        Ok(u32::try_from(self.owners.len() - 1).expect("at most 1024 owners"))
    }

    #[inline]
    pub(crate) fn at(&self, index: u32) -> &Owner {
        &self.owners[index as usize]
    }

    #[inline]
    pub(crate) fn at_mut(&mut self, index: u32) -> &mut Owner {
        &mut self.owners[index as usize]
    }

    pub(crate) fn indexes(&self) -> std::ops::Range<u32> {
        0..u32::try_from(self.owners.len()).expect("at most 1024 owners")
    }

    /// A new epoch counts anew: what was acknowledged means nothing in it.
    pub(crate) fn forget_acknowledgements(&mut self) {
        for owner in &mut self.owners {
            owner.acknowledged = None;
        }
    }

    /// Whether this very operation was done before; otherwise remembers it.
    pub(crate) fn is_repeated(&mut self, id: &str, fences: bool, owner: u32, reason: &str) -> Result<bool, Error> {
        check_name("operation id", id)?;
        if let Some((_, was_fence, of, why)) = self.operations.iter().find(|(known, ..)| **known == *id) {
            return if (*was_fence, *of, &**why) == (fences, owner, reason) {
                Ok(true)
            } else {
                Err(Error::IdempotencyConflict { what: "operation" })
            };
        }
        if self.operations.len() == KEPT_OPERATIONS {
            self.operations.pop_front();
        }
        self.operations.push_back((id.into(), fences, owner, reason.into()));
        Ok(false)
    }
}

/// Refuses names that nobody could read, or that would fill memory.
pub(crate) fn check_name(what: &'static str, name: &str) -> Result<(), Error> {
    let rule = if name.is_empty() {
        "it is empty"
    } else if name.len() > MAX_NAME_BYTES {
        "it is longer than 256 bytes"
    } else if name.chars().any(char::is_control) {
        "it has control characters"
    } else {
        return Ok(());
    };
    Err(Error::InvalidArgument { what, rule })
}
