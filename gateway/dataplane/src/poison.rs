//! What the data plane does about requests that kill engines: their fingerprints, and whether an engine is dead.
//!
//! The rules are the core's ([`router_core::poison`]). A fingerprint is a hash of the endpoint and of the body's bytes as
//! they go to the engine, without the values of `rid` and `session_id`, which clients choose anew when they send a request again.
//! Nothing else is normalised: whoever repeats a request repeats its bytes, and reading the JSON of every body would
//! cost more than all the rest.
//!
//! While nothing broke off lately, nothing is hashed but the bodies of requests that are answered by a stream: these are
//! not kept until it ends. It is one pass at the speed of memory.

use crate::body::Outgoing;
use crate::shared::SharedPool;
use crate::upstream::{Caller, NoAnswer, Upstreams};
use foldhash::fast::FixedState;
use http::{HeaderValue, Method, Request};
use router_core::lease::Settlement;
use router_core::poison::{PoisonEntry, PoisonSubject};
use router_core::pool::AcquireRequest;
use serde_json::{Value, json};
use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// How long a request that may have killed engines waits for the news. Without any it runs.
const PATIENCE: Duration = Duration::from_secs(2);
/// A process that is ending closes its connections and its listener one after the other.
const FIRST_PAUSE: Duration = Duration::from_millis(10);

/// Bytes are hashed in blocks of this size, however they arrived.
const BLOCK_BYTES: usize = 1024;

/// Hashes bodies, with the seed of a pool.
#[derive(Debug)]
pub(crate) struct Printer(FixedState);

impl Printer {
    pub(crate) fn new(seed: u64) -> Self {
        Self(FixedState::with_seed(seed))
    }

    /// The fingerprint of a request to `path`.
    pub(crate) fn print(&self, path: &str, body: &Outgoing) -> u64 {
        let mut state = self.0.build_hasher();
        state.write(path.as_bytes());
        let mut block = Block::default();
        for piece in body.essence() {
            block.feed(piece, &mut state);
        }
        state.write(&block.bytes);
        state.finish()
    }
}

/// Gathers pieces, so that their borders do not matter.
#[derive(Default)]
struct Block {
    bytes: Vec<u8>,
}

impl Block {
    fn feed(&mut self, mut piece: &[u8], state: &mut impl Hasher) {
        if !self.bytes.is_empty() {
            let (head, rest) = piece.split_at(piece.len().min(BLOCK_BYTES - self.bytes.len()));
            self.bytes.extend_from_slice(head);
            piece = rest;
            if self.bytes.len() < BLOCK_BYTES {
                return;
            }
            state.write(&self.bytes);
            self.bytes.clear();
        }
        let mut blocks = piece.chunks_exact(BLOCK_BYTES);
        blocks.by_ref().for_each(|block| state.write(block));
        self.bytes.extend_from_slice(blocks.remainder());
    }
}

/// By what an execution is recognised if it breaks off.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Trail {
    /// Worked out when it broke off before the head of its answer, or at the head of a stream. The head of any other
    /// answer comes when the engine is done with the request.
    print: Option<u64>,
    answered: bool,
}

impl Trail {
    /// Works the fingerprint out while the body is there.
    #[cold]
    pub(crate) fn take_print(&mut self, pool: &SharedPool, request: &Request<Outgoing>) {
        self.print = pool
            .printer()
            .map(|printer| printer.print(request.uri().path(), request.body()));
    }

    /// The engine has answered a part.
    pub(crate) fn note_answered(&mut self) {
        self.answered = true;
    }

    pub(crate) fn mark(self, settlement: Settlement) -> Settlement {
        settlement.of_print(self.print, self.answered)
    }
}

/// The fingerprint, where a request has to show it.
pub(crate) fn shown(pool: &SharedPool, request: &Request<Outgoing>) -> Option<u64> {
    let printer = pool.printer().filter(|_| pool.is_watchful())?;
    Some(printer.print(request.uri().path(), request.body()))
}

/// Finds out whether engines died under what is about to run, when it depends on that whether it may.
///
/// The next probes would tell as well, but a client that sends a broken request again at once is faster than they are.
pub(crate) async fn settle_doubts(
    upstreams: &Upstreams,
    engine_key: Option<&HeaderValue>,
    request: &AcquireRequest<'_>,
) {
    let pool = upstreams.shared();
    let until = Instant::now() + PATIENCE;
    let mut pause = FIRST_PAUSE;
    loop {
        let doubted = pool.with(|pool, now| pool.poison_doubts(request, now));
        if doubted.is_empty() {
            return;
        }
        for backend in doubted {
            let (upstream, since) = (upstreams.of(&backend), pool.now());
            let call = upstream.ask(
                Method::GET,
                "/model_info",
                Outgoing::empty(),
                Caller::with_key(engine_key),
            );
            let answer = tokio::time::timeout_at(until, call).await;
            pool.with(|pool, now| match answer {
                Ok(Ok(reply)) if !reply.status.is_server_error() => {
                    pool.note_answered(backend.reference, since, now);
                }
                Ok(Err(NoAnswer::Refused)) => pool.note_refused(backend.reference, now),
                _ => {}
            });
        }
        if Instant::now() + pause >= until {
            return;
        }
        tokio::time::sleep(pause).await;
        pause *= 2;
    }
}

/// An entry as programs read it.
pub(crate) fn view(entry: &Arc<PoisonEntry>) -> Value {
    let (kind, session, sender) = match &entry.subject {
        PoisonSubject::Fingerprint => ("request", None, None),
        PoisonSubject::Session { sender, key } => ("session", Some(key), sender.as_ref()),
    };
    let deaths = entry.strikes.iter().map(|strike| {
        json!({
            "backend": strike.death.backend,
            "generation": strike.death.generation,
            "evidence": strike.death.evidence,
        })
    });
    json!({
        "entry": entry.name(),
        "kind": kind,
        "session": session,
        "sender": sender,
        "deaths": deaths.collect::<Vec<_>>(),
        "expires_in_s": entry.expires_in.as_secs(),
    })
}

#[cfg(test)]
mod tests;
