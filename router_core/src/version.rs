//! Weight versions: what is published, who knows it, and who runs it.
//!
//! A version is a number that only grows within an *epoch*; an epoch is declared by whoever starts counting anew (a run
//! that resumes from an older checkpoint). A version is *published* once every routable backend runs it. An owner
//! *acknowledges* it once its processes know it; until then its acquires park. A backend is eligible only while the
//! version it reported is the published one.

use std::fmt;

/// The published version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Published {
    /// In which count of versions.
    pub epoch: u64,
    /// The version.
    pub version: u64,
}

impl fmt::Display for Published {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "version {} of epoch {}", self.version, self.epoch)
    }
}

/// What is known about the weights of one backend.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Weights {
    /// Nothing was reported: eligible only while the pool has no published version.
    #[default]
    Unknown,
    /// It runs this version; eligible while that is the published one, else *pending version*.
    Version(u64),
    /// An update of it failed: not eligible until a full reload was reported.
    Tainted,
}

impl Weights {
    /// Whether executions may start on these weights.
    #[must_use]
    pub fn fit(self, published: Option<Published>) -> bool {
        match (self, published) {
            (Self::Tainted, _) | (Self::Unknown, Some(_)) => false,
            (_, None) => true,
            (Self::Version(version), Some(published)) => version == published.version,
        }
    }
}
