use super::{PickReason, Standing, Tier, Tournament};
use crate::load::Capacity;
use proptest::prelude::*;

/// Suspect, capacity, outstanding, sessions.
type Player = (bool, u32, u32, u32);

/// The choice by definition: a scan over everyone, with fractions compared in whole numbers.
fn scan(players: &[Option<Player>]) -> Option<u32> {
    let mut best: Option<(usize, &Player)> = None;
    for (slot, player) in players.iter().enumerate() {
        let Some(player) = player else { continue };
        let wins = best.is_none_or(|(_, champion)| {
            let outstanding = (player.2 + 1) * champion.1;
            let sessions = (player.3 + 1) * champion.1;
            let theirs = ((champion.2 + 1) * player.1, (champion.3 + 1) * player.1);
            (player.0, outstanding, sessions) < (champion.0, theirs.0, theirs.1)
        });
        if wins {
            best = Some((slot, player));
        }
    }
    best.map(|(slot, _)| u32::try_from(slot).expect("few players"))
}

proptest! {
    /// After every change the root is the backend that a scan finds; recencies in slot order make ties go to the first.
    #[test]
    fn the_root_is_the_best(
        changes in prop::collection::vec(
            (0usize..40, prop::option::weighted(0.8, (any::<bool>(), 1u32..4, 0u32..4, 0u32..3))),
            1..200,
        ),
    ) {
        let mut tournament = Tournament::new();
        let mut players = vec![None; 40];
        for (slot, player) in changes {
            players[slot] = player;
            let standing = player.map(|(suspect, capacity, outstanding, sessions)| Standing {
                tier: if suspect { Tier::Suspect } else { Tier::Ready },
                capacity: Capacity::new(f64::from(capacity)).expect("a valid capacity"),
                load: u64::from(outstanding) + 1,
                sessions,
                recency: slot as u64,
            });
            let number = u32::try_from(slot).expect("few players");
            tournament.update(number, standing);
            prop_assert_eq!(tournament.plays(number), player.is_some());
            prop_assert_eq!(tournament.winner(), scan(&players));
        }
    }
}

/// Nobody plays, nobody wins; slots that were never seen do not play.
#[test]
fn an_empty_tournament_has_no_winner() {
    let mut tournament = Tournament::new();
    assert_eq!(tournament.winner(), None);
    tournament.update(5, None);
    assert_eq!(tournament.winner(), None);
    assert!(!tournament.plays(5) && !tournament.plays(99));
}

/// Counters are indexed by the position in `ALL`.
#[test]
fn reasons_know_their_position() {
    for (position, reason) in PickReason::ALL.into_iter().enumerate() {
        assert_eq!(reason.index(), position);
    }
    assert_eq!(
        PickReason::ALL.map(PickReason::as_str)[4..],
        [
            "spill",
            "repin:removed",
            "repin:draining",
            "repin:down",
            "repin:excluded",
            "repin:weights",
            "repin:published"
        ]
    );
}
