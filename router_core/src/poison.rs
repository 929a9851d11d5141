//! Requests that kill engines, and how they are kept from killing all of them.
//!
//! One request (a token id outside the vocabulary, a grammar that crashes its compiler) can end the process of an
//! engine. Its client sees a broken connection and sends it again, to the next engine. So what was in flight when an
//! engine died is remembered: the *fingerprint* of the request (a hash of its body) and its *session*. What coincided
//! with [`crate::config::PoolConfig::poison_deaths`] deaths is refused with [`crate::error::Error::PoisonSuspected`]
//! until [`crate::config::PoolConfig::poison_quarantine`] after the last of them, or until an operator clears it.
//!
//! **When has an engine died?** A broken execution alone says little: networks break, too. It counts once the engine
//! refuses connections ([`crate::pool::Pool::note_refused`]) or whoever runs it reports its death
//! ([`crate::pool::Pool::report_death`]) within [`BREAKS_KEPT`]; a probe that began later and is answered says that
//! nobody died. What breaks off on an incarnation that is known to be dead counts at once.
//!
//! **Who is suspect?** Everything in flight is: hundreds of innocent executions beside the one that kills. Two facts
//! tell most of them apart. A killer kills when it is read, so it has not answered a byte and is young. An execution
//! that answered something, or that was older than [`YOUNG`], therefore counts as half a death; only the others count
//! in full. With the default of two deaths, a fresh request that got nothing both times is refused before the third
//! engine; a rollout that was in the middle of its answer survives three. The price: a request that kills late (while it
//! decodes, or after a long wait in the engine's queue) costs up to twice as many engines before it is refused. The
//! innocents of the literal rule would cost more: all that moved from the first engine to the second, for the whole
//! quarantine. Requests with equal bodies are one fingerprint, so a group of samples of one prompt stands together.
//!
//! Memory is bounded: [`BREAKS_CAP`] broken executions that nobody has explained yet, and [`ENTRIES_CAP`] suspects, of
//! which those with the fewest and oldest deaths make room. While nothing broke, nothing is stored or looked up.

mod entry;
mod guard;

use std::time::Duration;

pub use entry::{Death, PoisonEntry, PoisonSubject, Strike};
pub(crate) use guard::{Break, Guard, Verdict, Who};

/// How long a broken execution waits for the news that its engine died.
pub const BREAKS_KEPT: Duration = Duration::from_secs(120);

/// An execution that broke off at most this long after its grant is young. Longer than an engine takes to read a prompt
/// and to die of it, shorter than most rollouts.
pub const YOUNG: Duration = Duration::from_secs(15);

/// Broken executions remembered at most.
pub const BREAKS_CAP: usize = 4096;

/// Suspects remembered at most.
pub const ENTRIES_CAP: usize = 4096;

/// What the guard counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoisonStatistics {
    /// Deaths of engines, whatever they ran; never decreases.
    pub deaths: u64,
    /// Acquires refused; never decreases.
    pub refusals: u64,
    /// Fingerprints and sessions that coincided with a death lately, the refused ones included.
    pub suspects: u32,
    /// Those that are refused.
    pub refused: u32,
}

#[cfg(test)]
mod tests;
