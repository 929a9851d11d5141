//! The state of a model in one word, as discovery, health and refusals say it.
//!
//! `ready`: an engine may take a request now. `updating`, `draining`, `sleeping` and `paused` are a controller's will:
//! nothing is granted, and nothing is ill. `failed` and `closed` grant nothing any more. `starting` has not been reached,
//! or awaits its first version. Otherwise the state that all engines share: `down`, `draining`, `pending_version`,
//! `tainted`; `unavailable` when they differ or there are none.

use router_core::error::{Census, Error};
use router_core::pool::Pool;
use router_core::state::PoolState;
use router_core::stats::PoolStatistics;
use router_core::update::UpdateKind;

/// The state of the pool at the moment of `statistics`.
#[must_use]
pub fn model_state(statistics: &PoolStatistics) -> &'static str {
    let control = &statistics.control;
    let kind = control.update.as_ref().map(|update| update.kind);
    if let Some(state) = of_life(&control.state, kind, control.server_paused) {
        return state;
    }
    match of_engines(&statistics.census) {
        // Who is not fenced may still be served.
        "ready" if control.owners.iter().all(|owner| !owner.fences.is_empty()) => "paused",
        state => state,
    }
}

/// The state of `pool` as `refusal` has found it; `None` for a refusal that is not about the model.
pub(crate) fn of_refusal(refusal: &Error, pool: &Pool) -> Option<&'static str> {
    match refusal {
        Error::NoEligibleBackend { census } => Some(of_engines(census)),
        Error::Fenced { .. } => Some("paused"),
        Error::NotServing { .. } | Error::PoolFailed { .. } | Error::PoolClosed => {
            let state = pool.state();
            let kind = state
                .update()
                .and_then(|update| Some(pool.update_status(update).ok()?.kind));
            of_life(&state, kind, pool.server_paused())
        }
        _ => None,
    }
}

/// The state that the life of the pool alone decides.
fn of_life(state: &PoolState, update: Option<UpdateKind>, server_paused: bool) -> Option<&'static str> {
    Some(match (state, update) {
        (PoolState::Failed(_), _) => "failed",
        (PoolState::Closed, _) => "closed",
        (PoolState::Init, _) => "starting",
        (PoolState::Serving, _) if server_paused => "paused",
        (PoolState::Serving, _) => return None,
        (_, Some(UpdateKind::Pause)) => "paused",
        (PoolState::Quiescing { .. }, Some(UpdateKind::Offload)) => "draining",
        (_, Some(UpdateKind::Offload)) => "sleeping",
        _ => "updating",
    })
}

/// The state that engines give to a pool that serves.
fn of_engines(census: &Census) -> &'static str {
    if census.eligible > 0 {
        return "ready";
    }
    let shared = [
        (census.unproven, "starting"),
        (census.down, "down"),
        (census.draining, "draining"),
        (census.pending_version, "pending_version"),
        (census.tainted, "tainted"),
    ];
    let mut present = shared.into_iter().filter(|(count, _)| *count > 0);
    match (present.next(), present.next()) {
        (Some((_, state)), None) => state,
        _ => "unavailable",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use router_core::membership::BackendSpec;
    use router_core::pool::{AcquireRequest, PoolConfig};
    use router_core::time::Timestamp;
    use router_core::update::BeginUpdate;

    const NOW: Timestamp = Timestamp::ZERO;

    fn pool() -> Pool {
        let mut pool = Pool::new(PoolConfig::default());
        let spec = BackendSpec::parse("http://127.0.0.1:1", 1.0).expect("a URL");
        pool.add_backend(spec, NOW).expect("added");
        pool
    }

    /// The state, and that a refusal at this moment says the same.
    fn state(pool: &mut Pool) -> &'static str {
        let state = model_state(&pool.statistics());
        match pool.acquire(&AcquireRequest::unpinned(), NOW) {
            Ok(_) => assert_eq!(state, "ready"),
            Err(refusal) => assert_eq!(of_refusal(&refusal, pool), Some(state)),
        }
        state
    }

    /// The kinds of updates are told apart, and an offload from its drain; a pause waits for nothing.
    #[test]
    fn updates() {
        for (kind, during, after) in [
            (UpdateKind::Weights, "updating", "updating"),
            (UpdateKind::Offload, "draining", "sleeping"),
            (UpdateKind::Pause, "paused", "paused"),
        ] {
            let mut pool = pool();
            let lease = pool.acquire(&AcquireRequest::unpinned(), NOW).expect("granted").lease;
            let begin = BeginUpdate {
                id: "u",
                kind,
                to_version: None,
            };
            pool.begin_update(&begin, NOW).expect("begun");
            assert_eq!(state(&mut pool), during);
            pool.settle(
                lease,
                router_core::lease::Settlement::new(router_core::lease::Outcome::Completed),
                NOW,
            )
            .expect("open");
            assert_eq!(state(&mut pool), after);
        }
    }

    /// Fences, ends and engines.
    #[test]
    fn the_rest() {
        let mut empty = Pool::new(PoolConfig::default());
        assert_eq!(state(&mut empty), "unavailable");
        let mut pool = pool();
        assert_eq!(state(&mut pool), "ready");
        let mut pool = self::pool();
        pool.fence("default", "maintenance", None, NOW).expect("fenced");
        assert_eq!(state(&mut pool), "paused");
        pool.attach_owner("eval", None, NOW).expect("attached");
        assert_eq!(model_state(&pool.statistics()), "ready");
        pool.fail("enough", NOW);
        assert_eq!(state(&mut pool), "failed");
        let mut pool = self::pool();
        pool.drain_backend("127.0.0.1:1", NOW).expect("known");
        assert_eq!(state(&mut pool), "draining");
        pool.close(NOW);
        assert_eq!(state(&mut pool), "closed");
    }
}
