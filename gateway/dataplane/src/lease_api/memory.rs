//! What the API remembers beside the pool: removals, for their repetitions, and the last bad endings, for people.

use router_core::time::Timestamp;
use std::collections::VecDeque;

/// Removals remembered.
const REMOVALS: usize = 256;
/// Bad endings remembered.
const TROUBLES: usize = 32;
/// What is kept of an error's text, in bytes: it may quote a whole prompt.
const ERROR_BYTES: usize = 1024;

/// An execution that did not end well, in the words of its caller.
#[derive(Clone, Debug)]
pub(super) struct Trouble {
    pub(super) at: Timestamp,
    pub(super) lease: String,
    pub(super) outcome: &'static str,
    pub(super) http_status: Option<u16>,
    pub(super) error: Option<String>,
}

#[derive(Debug, Default)]
pub(super) struct Memory {
    removals: VecDeque<(String, u32)>,
    troubles: VecDeque<Trouble>,
    /// In the words of whoever closed the pool first.
    pub(super) closed_because: Option<String>,
}

impl Memory {
    pub(super) fn note_removal(&mut self, id: &str, generation: u32) {
        push(&mut self.removals, REMOVALS, (id.to_owned(), generation));
    }

    /// Whether this incarnation (or, without a generation, any of that name) was removed through the API.
    pub(super) fn was_removed(&self, id: &str, generation: Option<u32>) -> bool {
        self.removals
            .iter()
            .any(|(known, removed)| known == id && generation.is_none_or(|asked| asked == *removed))
    }

    pub(super) fn note_trouble(&mut self, mut trouble: Trouble) {
        if let Some(error) = &mut trouble.error {
            let end = (0..=ERROR_BYTES.min(error.len()))
                .rev()
                .find(|end| error.is_char_boundary(*end));
            error.truncate(end.unwrap_or(0));
        }
        push(&mut self.troubles, TROUBLES, trouble);
    }

    /// The latest last.
    pub(super) fn troubles(&self) -> impl Iterator<Item = &Trouble> {
        self.troubles.iter()
    }
}

fn push<T>(queue: &mut VecDeque<T>, limit: usize, item: T) {
    if queue.len() == limit {
        queue.pop_front();
    }
    queue.push_back(item);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Both memories are bounded, and so is what is kept of one error, without cutting a character in two.
    #[test]
    fn memory_is_bounded() {
        let mut memory = Memory::default();
        for generation in 1..=1000 {
            memory.note_removal("b", generation);
            memory.note_trouble(Trouble {
                at: Timestamp::ZERO,
                lease: String::new(),
                outcome: "failed",
                http_status: None,
                error: Some("ä".repeat(1000)),
            });
        }
        assert!(memory.was_removed("b", None) && memory.was_removed("b", Some(1000)));
        assert!(!memory.was_removed("b", Some(1)) && !memory.was_removed("c", None));
        assert_eq!((memory.removals.len(), memory.troubles().count()), (REMOVALS, TROUBLES));
        let kept = memory.troubles().next().and_then(|trouble| trouble.error.as_ref());
        assert_eq!(kept.map(String::len), Some(ERROR_BYTES));
    }
}
