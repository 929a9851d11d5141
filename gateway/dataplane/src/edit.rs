//! The few changes that are made to a body, as edits of its bytes.

use crate::peek::{Field, Peek, Span};
use crate::request_id::RequestId;
use bytes::Bytes;

/// Cuts the selectors out of `chunks`, and gives the request the id `id`; no other byte is changed or copied.
///
/// For the engine a `null` id is the same as none, and a second `rid` in front of it would lose against it.
pub(crate) fn edit(chunks: &mut Vec<Bytes>, peek: &Peek, id: Option<&RequestId>) {
    let insertion = id.map(|id| insertion(peek, id));
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
    let mut edited = Vec::with_capacity(chunks.len() + 2);
    let mut insert = Some(insert).filter(|insert| !insert.is_empty());
    let mut position = 0;
    for chunk in chunks.drain(..) {
        let next = position + chunk.len();
        if position < span.start {
            edited.push(chunk.slice(..chunk.len().min(span.start - position)));
        }
        if next >= span.start {
            edited.extend(insert.take());
        }
        if next > span.end {
            edited.push(chunk.slice(span.end.saturating_sub(position)..));
        }
        position = next;
    }
    edited.extend(insert);
    *chunks = edited;
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
