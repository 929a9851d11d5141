//! The state of the guard: what broke, who is suspect, who is refused.

use super::entry::{Death, PoisonEntry, PoisonSubject, Strike};
use super::{BREAKS_CAP, BREAKS_KEPT, ENTRIES_CAP, PoisonStatistics, YOUNG};
use crate::config::PoolConfig;
use crate::membership::{BackendInfo, BackendRef};
use crate::time::Timestamp;
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use std::collections::VecDeque;
use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;
use std::time::Duration;

/// Half-deaths that a young execution without an answer counts for.
const FULL: u32 = 2;
const HALF: u32 = 1;

/// One thing that an execution can be recognised by.
#[derive(Clone, Debug)]
pub(crate) struct Who {
    pub(crate) id: u64,
    pub(crate) subject: PoisonSubject,
}

/// An execution that broke off.
#[derive(Clone, Debug)]
pub(crate) struct Break {
    pub(crate) backend: Arc<BackendInfo>,
    pub(crate) at: Timestamp,
    halves: u32,
    /// By what it is recognised: its fingerprint, its session, both.
    who: Vec<Who>,
}

impl Break {
    pub(crate) fn new(
        backend: &Arc<BackendInfo>,
        granted: Timestamp,
        answered: bool,
        who: Vec<Who>,
        now: Timestamp,
    ) -> Self {
        let is_young = now.since(granted) <= YOUNG;
        Self {
            backend: Arc::clone(backend),
            at: now,
            halves: if is_young && !answered { FULL } else { HALF },
            who,
        }
    }
}

#[derive(Debug)]
struct Entry {
    subject: PoisonSubject,
    /// The oldest first.
    strikes: VecDeque<Strike>,
    /// It had enough strikes at the last of them.
    refused: bool,
    refusals: u64,
}

impl Entry {
    fn last(&self) -> Timestamp {
        self.strikes.back().map_or(Timestamp::ZERO, |strike| strike.death.at)
    }

    fn halves(&self) -> u32 {
        self.strikes.iter().map(|strike| strike.halves).sum()
    }

    /// Who stays when there is no room for all.
    fn weight(&self) -> (bool, Timestamp) {
        (self.refused, self.last())
    }
}

/// What a death brought about.
#[derive(Debug, Default)]
pub(crate) struct Verdict {
    /// Fingerprints and sessions that were in flight.
    pub(crate) suspects: u32,
    /// Those that are refused from now on.
    pub(crate) condemned: Vec<u64>,
}

/// What broke, who is suspect and who is refused, in one pool.
#[derive(Debug)]
pub(crate) struct Guard {
    hasher: FixedState,
    /// Half-deaths after which something is refused; 0: the guard is off.
    limit: u32,
    quarantine: Duration,
    /// Not explained yet, the oldest first.
    breaks: VecDeque<Break>,
    entries: HashMap<u64, Entry, FixedState>,
    deaths: u64,
    refusals: u64,
}

impl Guard {
    pub(crate) fn new(config: &PoolConfig) -> Self {
        let hasher = FixedState::with_seed(config.hash_seed);
        Self {
            limit: config.poison_deaths.saturating_mul(FULL),
            quarantine: config.poison_quarantine,
            breaks: VecDeque::new(),
            entries: HashMap::with_hasher(hasher.clone()),
            hasher,
            deaths: 0,
            refusals: 0,
        }
    }

    #[inline]
    pub(crate) const fn is_on(&self) -> bool {
        self.limit > 0
    }

    /// Whether somebody may be refused.
    #[inline]
    pub(crate) fn has_suspects(&self) -> bool {
        !self.entries.is_empty()
    }

    /// Whether anything is remembered.
    #[inline]
    pub(crate) fn is_watchful(&self) -> bool {
        !self.entries.is_empty() || !self.breaks.is_empty()
    }

    pub(crate) fn by_fingerprint(fingerprint: u64) -> Who {
        Who {
            id: fingerprint,
            subject: PoisonSubject::Fingerprint,
        }
    }

    pub(crate) fn by_session(&self, sender: Option<&str>, key: &str) -> Who {
        Who {
            id: self.session_id(sender, key),
            subject: PoisonSubject::Session {
                sender: sender.map(str::to_owned),
                key: key.to_owned(),
            },
        }
    }

    pub(crate) fn session_id(&self, sender: Option<&str>, key: &str) -> u64 {
        let mut state = self.hasher.build_hasher();
        state.write(sender.unwrap_or_default().as_bytes());
        // Not part of any text, so that no two pairs look the same.
        state.write_u8(0xff);
        state.write(key.as_bytes());
        state.finish()
    }

    /// Remembers an execution that broke off, until its engine is known to be alive or dead.
    pub(crate) fn note_break(&mut self, broken: Break) {
        while let Some(oldest) = self.breaks.front()
            && (self.breaks.len() >= BREAKS_CAP || broken.at.since(oldest.at) > BREAKS_KEPT)
        {
            self.breaks.pop_front();
        }
        self.breaks.push_back(broken);
    }

    /// The engine was seen alive after `since`: what broke there before did not kill it.
    pub(crate) fn absolve(&mut self, backend: BackendRef, since: Timestamp) {
        self.breaks
            .retain(|broken| broken.backend.reference != backend || broken.at > since);
    }

    /// An engine died: what broke off there lately was in flight.
    pub(crate) fn note_death(&mut self, backend: BackendRef, death: &Arc<Death>) -> Verdict {
        let mut verdict = Verdict::default();
        for broken in std::mem::take(&mut self.breaks) {
            if broken.backend.reference != backend {
                self.breaks.push_back(broken);
            } else if death.at.since(broken.at) <= BREAKS_KEPT {
                self.accuse(&broken, death, &mut verdict);
            }
        }
        self.deaths += 1;
        verdict
    }

    /// Something else broke off that was in flight at this death.
    pub(crate) fn note_late_break(&mut self, broken: &Break, death: &Arc<Death>) -> Verdict {
        let mut verdict = Verdict::default();
        self.accuse(broken, death, &mut verdict);
        verdict
    }

    fn accuse(&mut self, broken: &Break, death: &Arc<Death>, verdict: &mut Verdict) {
        for who in &broken.who {
            verdict.suspects += 1;
            if self.strike(who, broken.halves, death) {
                verdict.condemned.push(who.id);
            }
        }
    }

    /// Counts a death against a suspect, once however many of its executions were in flight; whether it is refused from
    /// now on, and was not before.
    fn strike(&mut self, who: &Who, halves: u32, death: &Arc<Death>) -> bool {
        if self.entries.len() >= ENTRIES_CAP && !self.entries.contains_key(&who.id) {
            self.make_room();
        }
        let quarantine = self.quarantine;
        let entry = self.entries.entry(who.id).or_insert_with(|| Entry {
            subject: who.subject.clone(),
            strikes: VecDeque::new(),
            refused: false,
            refusals: 0,
        });
        // Nobody has ticked since its quarantine ended.
        entry.refused &= death.at.since(entry.last()) < quarantine;
        if !entry.refused {
            // A death that is long past has nothing to do with this one.
            entry
                .strikes
                .retain(|strike| death.at.since(strike.death.at) < quarantine);
        }
        let known = entry
            .strikes
            .iter_mut()
            .find(|strike| Arc::ptr_eq(&strike.death, death));
        if let Some(known) = known {
            known.halves = known.halves.max(halves);
        } else {
            // More than make it refused say nothing new.
            if entry.strikes.len() >= self.limit as usize {
                entry.strikes.pop_front();
            }
            let death = Arc::clone(death);
            entry.strikes.push_back(Strike { death, halves });
        }
        let is_enough = !entry.refused && entry.halves() >= self.limit;
        entry.refused |= is_enough;
        is_enough
    }

    /// Forgets a quarter of the suspects: those that are not refused first, then by age.
    #[cold]
    fn make_room(&mut self) {
        let mut weights: Vec<((bool, Timestamp), u64)> =
            self.entries.iter().map(|(id, entry)| (entry.weight(), *id)).collect();
        let (lightest, ..) = weights.select_nth_unstable(ENTRIES_CAP / 4);
        for (_, id) in lightest {
            self.entries.remove(id);
        }
    }

    /// Forgets what is over.
    pub(crate) fn expire(&mut self, now: Timestamp) {
        let quarantine = self.quarantine;
        self.entries.retain(|_, entry| now.since(entry.last()) < quarantine);
        while let Some(oldest) = self.breaks.front()
            && now.since(oldest.at) > BREAKS_KEPT
        {
            self.breaks.pop_front();
        }
    }

    /// The entry for which something is refused now, if it is; the refusal is counted.
    pub(crate) fn refuse(&mut self, id: u64, now: Timestamp) -> Option<PoisonEntry> {
        let quarantine = self.quarantine;
        let entry = self
            .entries
            .get_mut(&id)
            .filter(|entry| entry.refused && now.since(entry.last()) < quarantine)?;
        entry.refusals += 1;
        self.refusals += 1;
        self.view(id, now)
    }

    /// The engines of which it must be known whether they died before something may run that is recognised by `ids`.
    pub(crate) fn doubts(&self, ids: &[u64], now: Timestamp) -> Vec<Arc<BackendInfo>> {
        let mut doubted: Vec<Arc<BackendInfo>> = Vec::new();
        for id in ids {
            let mut halves = self.entries.get(id).map_or(0, |entry| {
                let recent = |strike: &&Strike| now.since(strike.death.at) < self.quarantine;
                entry.strikes.iter().filter(recent).map(|strike| strike.halves).sum()
            });
            let mut unknown: Vec<(&Arc<BackendInfo>, u32)> = Vec::new();
            for broken in &self.breaks {
                if now.since(broken.at) > BREAKS_KEPT || !broken.who.iter().any(|who| who.id == *id) {
                    continue;
                }
                let reference = broken.backend.reference;
                match unknown.iter_mut().find(|(known, _)| known.reference == reference) {
                    Some((_, most)) => *most = broken.halves.max(*most),
                    None => unknown.push((&broken.backend, broken.halves)),
                }
            }
            halves += unknown.iter().map(|(_, halves)| halves).sum::<u32>();
            if halves >= self.limit {
                doubted.extend(unknown.into_iter().map(|(backend, _)| Arc::clone(backend)));
            }
        }
        doubted.sort_unstable_by_key(|backend| backend.reference.generation());
        doubted.dedup_by_key(|backend| backend.reference);
        doubted
    }

    /// Every suspect: the refused ones first, of those and of the others the latest first.
    pub(crate) fn entries(&self, now: Timestamp) -> Vec<PoisonEntry> {
        let alive = |entry: &Entry| now.since(entry.last()) < self.quarantine;
        let ids = self.entries.iter().filter(|(_, entry)| alive(entry));
        let mut ids: Vec<(bool, Timestamp, u64)> = ids.map(|(id, entry)| (entry.refused, entry.last(), *id)).collect();
        ids.sort_unstable_by_key(|entry| std::cmp::Reverse(*entry));
        ids.into_iter().filter_map(|(.., id)| self.view(id, now)).collect()
    }

    fn view(&self, id: u64, now: Timestamp) -> Option<PoisonEntry> {
        let entry = self.entries.get(&id)?;
        Some(PoisonEntry {
            id,
            subject: entry.subject.clone(),
            refused: entry.refused,
            strikes: entry.strikes.iter().cloned().collect(),
            refusals: entry.refusals,
            expires_in: self.quarantine.saturating_sub(now.since(entry.last())),
        })
    }

    /// Forgets one suspect, or all; how many.
    pub(crate) fn clear(&mut self, id: Option<u64>) -> usize {
        let before = self.entries.len();
        match id {
            None => {
                self.entries.clear();
                self.breaks.clear();
            }
            Some(id) => {
                self.entries.remove(&id);
                for broken in &mut self.breaks {
                    broken.who.retain(|who| who.id != id);
                }
            }
        }
        before - self.entries.len()
    }

    pub(crate) fn statistics(&self) -> PoisonStatistics {
        let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        PoisonStatistics {
            deaths: self.deaths,
            refusals: self.refusals,
            suspects: count(self.entries.len()),
            refused: count(self.entries.values().filter(|entry| entry.refused).count()),
        }
    }
}
