//! The short commands of a soak, drawn from a seed.

use crate::path::Rng;

/// A short command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Act {
    /// Files to the server.
    Put(End),
    /// Files from the server.
    Get(End),
    /// Names of a directory with all that is known of them.
    List,
    /// One name.
    Stat,
    /// A checksum that the server computes.
    Checksum,
    /// A name that is not there.
    Missing,
}

/// How a copy ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// By itself.
    Whole,
    /// Interrupted from the keyboard (SIGINT), once so many bytes are there.
    Interrupted(u64),
    /// SIGKILL, likewise.
    Killed(u64),
}

impl Act {
    /// Half of all are copies, half of which do not end by themselves; `bytes` are those of a copy.
    pub(super) fn draw(rng: &mut Rng, bytes: u64) -> Act {
        let drawn = rng.up_to(99);
        let at = rng.up_to(bytes);
        let end = match rng.up_to(3) {
            0 => End::Interrupted(at),
            1 => End::Killed(at),
            _ => End::Whole,
        };
        match drawn {
            0..25 => Act::Put(end),
            25..50 => Act::Get(end),
            50..70 => Act::List,
            70..85 => Act::Stat,
            85..95 => Act::Checksum,
            _ => Act::Missing,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_is_drawn_and_the_same_seed_draws_the_same() {
        let draw = |seed| {
            let mut rng = Rng::new(seed, 0);
            (0..300)
                .map(|_| Act::draw(&mut rng, 1000))
                .collect::<Vec<_>>()
        };
        let acts = draw(1);
        assert_eq!(acts, draw(1));
        assert_ne!(acts, draw(2));
        type Is = fn(&Act) -> bool;
        let kinds: [Is; 8] = [
            |a| matches!(a, Act::Put(End::Whole)),
            |a| matches!(a, Act::Put(End::Killed(_))),
            |a| matches!(a, Act::Get(End::Interrupted(_))),
            |a| matches!(a, Act::Get(End::Killed(_))),
            |a| *a == Act::List,
            |a| *a == Act::Stat,
            |a| *a == Act::Checksum,
            |a| *a == Act::Missing,
        ];
        for (number, kind) in kinds.iter().enumerate() {
            assert!(acts.iter().any(kind), "{number}");
        }
    }
}
