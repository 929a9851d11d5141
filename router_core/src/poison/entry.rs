//! One suspect and the evidence against it.

use crate::time::Timestamp;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// An engine that died.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Death {
    /// The backend's id.
    pub backend: String,
    /// Its incarnation.
    pub generation: u32,
    /// When the pool learned of it.
    pub at: Timestamp,
    /// How ("it refuses connections").
    pub evidence: String,
}

/// That a suspect was in flight when an engine died.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Strike {
    /// Of which engine.
    pub death: Arc<Death>,
    /// Half-deaths that it counts for: 2 for a young execution without an answer, else 1.
    pub halves: u32,
}

/// What is suspected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PoisonSubject {
    /// Requests with this body.
    Fingerprint,
    /// The turns of a session.
    Session {
        /// Whose session it is; `None` for one without a sender.
        sender: Option<String>,
        /// Its key.
        key: String,
    },
}

/// A suspect as it stands now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoisonEntry {
    /// Names it within the pool; of a fingerprint it is the fingerprint.
    pub id: u64,
    /// What is suspected.
    pub subject: PoisonSubject,
    /// Whether it is refused. Otherwise it is one death, or a half, short of that.
    pub refused: bool,
    /// The deaths, the latest last.
    pub strikes: Vec<Strike>,
    /// Acquires refused because of it.
    pub refusals: u64,
    /// How long it is remembered (and refused) unless there is another death.
    pub expires_in: Duration,
}

impl PoisonEntry {
    /// The 16 hexadecimal digits that name it outside.
    #[must_use]
    pub fn name(&self) -> String {
        format!("{:016x}", self.id)
    }
}

impl fmt::Display for PoisonSubject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fingerprint => f.write_str("this request"),
            Self::Session { key, .. } => write!(f, "session {key:?}"),
        }
    }
}

impl fmt::Display for PoisonEntry {
    /// Which engines, and how: `this request was in flight when engines e1 (generation 1) and e2 (generation 2) died`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let engines = if self.strikes.len() == 1 { "engine" } else { "engines" };
        write!(f, "{} was in flight when {engines} ", self.subject)?;
        for (position, strike) in self.strikes.iter().enumerate() {
            let joint = match position {
                0 => "",
                _ if position + 1 == self.strikes.len() => " and ",
                _ => ", ",
            };
            write!(
                f,
                "{joint}{} (generation {})",
                strike.death.backend, strike.death.generation
            )?;
        }
        f.write_str(" died")?;
        match self.strikes.last() {
            Some(last) => write!(f, " (the last: {})", last.death.evidence),
            None => Ok(()),
        }
    }
}
