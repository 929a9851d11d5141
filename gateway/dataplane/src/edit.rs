//! The few changes that are made to a body, as edits of its bytes.

use crate::peek::{Field, Peek, Span};
use crate::request_id::RequestId;
use bytes::Bytes;

/// Cuts the selectors out of `chunks`, and gives the request the id `id`; no other byte is changed or copied.
///
/// For the engine a `null` id is the same as none, and a second `rid` in front of it would lose against it.
///
/// Returns where the names of the request and its session stand then.
pub(crate) fn edit(chunks: &mut Vec<Bytes>, peek: &Peek, id: Option<&RequestId>) -> Names {
    let insertion = id.map(|id| insertion(peek, id));
    let names = Names::after(peek, insertion.as_ref());
    make(chunks, peek, insertion);
    names
}

fn make(chunks: &mut Vec<Bytes>, peek: &Peek, insertion: Option<(Span, Bytes)>) {
    if let (Some((span, text)), true) = (&insertion, peek.cuts.is_empty()) {
        return splice(chunks, *span, text.clone());
    }
    let cuts = peek.cuts.iter().map(|cut| (*cut, Bytes::new()));
    let mut edits: Vec<(Span, Bytes)> = cuts.chain(insertion).collect();
    // From the end, so that offsets stay true; of two at one place the insertion, which has no width, comes last.
    edits.sort_by_key(|(span, _)| std::cmp::Reverse((span.start, span.end)));
    for (span, text) in edits {
        splice(chunks, span, text);
    }
}

/// Where the `rid` and the `session_id` of an edited body stand.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Names([Span; 2]);

impl Names {
    fn after(peek: &Peek, insertion: Option<&(Span, Bytes)>) -> Self {
        // What was cut or put in before a place moves it.
        let moved = |place: usize, by_insertion: bool| {
            let before = peek.cuts.iter().filter(|cut| cut.end <= place);
            let cut: usize = before.map(|cut| cut.end - cut.start).sum();
            let grown = insertion.filter(|(span, _)| by_insertion && span.end <= place);
            let (more, less) = grown.map_or((0, 0), |(span, text)| (text.len(), span.end - span.start));
            (place + more).saturating_sub(cut + less)
        };
        let value = |span: Span| {
            let start = moved(span.start, true);
            let end = start + (span.end - span.start);
            Span { start, end }
        };
        let rid = match insertion {
            Some((span, text)) => {
                let start = moved(span.start, false);
                let end = start + text.len();
                Span { start, end }
            }
            None => peek.value(Field::Rid).map(value).unwrap_or_default(),
        };
        let session = peek.value(Field::SessionId).map(value).unwrap_or_default();
        let mut names = [rid, session];
        names.sort_unstable_by_key(|span| span.start);
        Self(names)
    }

    /// What is left of `chunk`, which begins at `start`.
    pub(crate) fn around<'a>(&self, chunk: &'a [u8], start: usize) -> [&'a [u8]; 3] {
        let place = |offset: usize| offset.saturating_sub(start).min(chunk.len());
        let [one, two] = self.0;
        let two = Span {
            start: two.start.max(one.end),
            end: two.end.max(one.end),
        };
        [
            &chunk[..place(one.start)],
            &chunk[place(one.end)..place(two.start)],
            &chunk[place(two.end)..],
        ]
    }
}

fn insertion(peek: &Peek, id: &RequestId) -> (Span, Bytes) {
    if let Some(null) = peek.value(Field::Rid) {
        return (null, id.literal());
    }
    let place = Span {
        start: peek.first_member,
        end: peek.first_member,
    };
    let text = if peek.keeps_members {
        id.member_with_comma()
    } else {
        id.member()
    };
    (place, text)
}

/// Replaces `span` of `chunks` by `insert`; no other byte is copied.
fn splice(chunks: &mut Vec<Bytes>, span: Span, insert: Bytes) {
    let start = split(chunks, span.start);
    let end = split(chunks, span.end);
    chunks.splice(start..end, Some(insert).filter(|insert| !insert.is_empty()));
}

/// Makes a chunk begin at `offset`, and tells which one.
fn split(chunks: &mut Vec<Bytes>, offset: usize) -> usize {
    let mut position = 0;
    for (index, chunk) in chunks.iter_mut().enumerate() {
        if offset <= position {
            return index;
        }
        let next = position + chunk.len();
        if offset < next {
            let rest = chunk.split_off(offset - position);
            chunks.insert(index + 1, rest);
            return index + 1;
        }
        position = next;
    }
    chunks.len()
}

/// The bytes of a span, at most `limit` of them; shared when they lie in one chunk.
pub(crate) fn extract(chunks: &[Bytes], span: Span, limit: usize) -> Bytes {
    let end = span.end.min(span.start.saturating_add(limit));
    let mut gathered = Vec::new();
    let mut position = 0;
    for chunk in chunks {
        let next = position + chunk.len();
        if position <= span.start && end <= next {
            return chunk.slice(span.start - position..end - position);
        }
        if next > span.start && position < end {
            let from = span.start.saturating_sub(position);
            gathered.extend_from_slice(&chunk[from..chunk.len().min(end - position)]);
        }
        position = next;
    }
    Bytes::from(gathered)
}

#[cfg(test)]
mod tests;
