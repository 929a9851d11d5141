//! What an engine says it runs: SGLang's `GET /v1/loads`.
//!
//! The answer is the snapshot that the engine's scheduler published last, with its time. A scheduler that works or idles
//! publishes again and again; one that is paused, hung, or inside a long step does not, and the old numbers stay. So a
//! snapshot by itself proves nothing. One that is *later* than another proves that the scheduler went on in between,
//! and took in whatever the engine had been told before.

use crate::body::Outgoing;
use crate::upstream::{Caller, NoAnswer, Upstream};
use http::{HeaderValue, Method, StatusCode};
use serde::Deserialize;
use std::time::Duration;

/// A snapshot of all schedulers (data-parallel ranks) of one engine.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Loads {
    /// Rank and time of its snapshot, in seconds on the engine's clock.
    stamps: Vec<(u32, f64)>,
    pub(crate) running: u64,
    pub(crate) waiting: u64,
}

/// What became of the question.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Said {
    Loads(Loads),
    /// Nobody listens there: the process that ran the executions is gone.
    Refused,
    /// Why there are no numbers.
    Nothing(String),
}

impl Loads {
    /// From the body of an answer.
    pub(crate) fn parse(body: &[u8]) -> Option<Self> {
        let answer: Answer = serde_json::from_slice(body)
            .ok()
            .filter(|answer: &Answer| !answer.loads.is_empty())?;
        let ranks = answer.loads.iter();
        let mut stamps: Vec<_> = ranks.clone().map(|rank| (rank.dp_rank, rank.timestamp)).collect();
        stamps.sort_unstable_by_key(|(rank, _)| *rank);
        Some(Self {
            stamps,
            running: ranks.clone().map(|rank| rank.num_running_reqs).sum(),
            waiting: ranks.map(OfRank::waiting).sum(),
        })
    }

    /// Executions the engine has, in whatever state.
    pub(crate) fn total(&self) -> u64 {
        self.running + self.waiting
    }

    /// Whether every scheduler has published since `other`.
    pub(crate) fn is_later_than(&self, other: &Self) -> bool {
        let pairs = self.stamps.iter().zip(&other.stamps);
        self.stamps.len() == other.stamps.len()
            && pairs
                .into_iter()
                .all(|((rank, at), (other, before))| rank == other && at > before)
    }
}

#[derive(Deserialize)]
struct Answer {
    loads: Vec<OfRank>,
}

#[derive(Deserialize)]
struct OfRank {
    #[serde(default)]
    dp_rank: u32,
    timestamp: f64,
    num_running_reqs: u64,
    num_waiting_reqs: u64,
    queues: Option<Queues>,
}

/// Executions that are neither in the running batch nor in the queue.
#[derive(Deserialize)]
struct Queues {
    grammar: Option<u64>,
    paused: Option<u64>,
}

impl OfRank {
    fn waiting(&self) -> u64 {
        let others = self.queues.as_ref().map_or(0, |queues| {
            queues.grammar.unwrap_or_default() + queues.paused.unwrap_or_default()
        });
        self.num_waiting_reqs + others
    }
}

/// Asks an engine what it runs.
pub(crate) async fn ask(upstream: &Upstream, key: Option<&HeaderValue>, limit: Duration) -> Said {
    let call = upstream.ask(Method::GET, "/v1/loads", Outgoing::empty(), Caller::with_key(key));
    match tokio::time::timeout(limit, call).await {
        Ok(Ok(reply)) if reply.status == StatusCode::OK => Loads::parse(&reply.body).map_or_else(
            || Said::Nothing("GET /v1/loads was answered with something else than loads".to_owned()),
            Said::Loads,
        ),
        Ok(Ok(reply)) => Said::Nothing(format!("GET /v1/loads was answered {}", reply.status.as_u16())),
        Ok(Err(NoAnswer::Refused)) => Said::Refused,
        Ok(Err(NoAnswer::NotAsked)) => Said::Nothing("this machine has no descriptors or ports left to ask".to_owned()),
        Ok(Err(NoAnswer::Silent)) => Said::Nothing("the connection broke".to_owned()),
        Err(_) => Said::Nothing(format!("no answer within {} s", limit.as_secs_f64())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn loads(ranks: &[(u32, f64, u64, u64)]) -> Loads {
        let ranks: Vec<_> = ranks
            .iter()
            .map(|(rank, at, running, waiting)| {
                format!(
                    "{{\"dp_rank\":{rank},\"timestamp\":{at},\"num_running_reqs\":{running},\
                     \"num_waiting_reqs\":{waiting},\"queues\":{{\"waiting\":{waiting},\"grammar\":1,\"paused\":0}}}}"
                )
            })
            .collect();
        Loads::parse(format!("{{\"loads\":[{}]}}", ranks.join(",")).as_bytes()).expect("loads")
    }

    /// All ranks count, and so do executions outside batch and queue.
    #[test]
    fn ranks_are_summed() {
        let two = loads(&[(1, 5.0, 2, 0), (0, 4.0, 1, 3)]);
        assert_eq!((two.running, two.waiting, two.total()), (3, 5, 8));
    }

    /// Later is what every rank says, whatever their order; a stale rank holds the others back.
    #[test]
    fn later_means_every_rank() {
        let before = loads(&[(0, 4.0, 0, 0), (1, 5.0, 0, 0)]);
        assert!(loads(&[(1, 5.5, 0, 0), (0, 4.5, 0, 0)]).is_later_than(&before));
        assert!(!loads(&[(0, 9.0, 0, 0), (1, 5.0, 0, 0)]).is_later_than(&before));
        assert!(!loads(&[(0, 9.0, 0, 0)]).is_later_than(&before));
        assert!(!before.is_later_than(&before));
    }

    /// Whatever else an engine answers is no load: never zero.
    #[test]
    fn other_answers_are_none() {
        for body in [
            "",
            "{}",
            "[]",
            "{\"loads\":[]}",
            "{\"loads\":[{\"timestamp\":1}]}",
            "{\"loads\":null}",
        ] {
            assert_eq!(Loads::parse(body.as_bytes()), None, "{body}");
        }
    }
}
