//! Whether a file is to be copied, and why.

use godwit_proto::facts::Facts;

use crate::{spec::Level, stamp::Stamp};

/// What is to be done about a file of the source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Nothing.
    Same,
    /// Its bytes are there; its time or its permissions are other ones, as the word says.
    Stamp(&'static str),
    /// It is to be copied, and why.
    Differs(&'static str),
    /// The sizes are the same, and checksums have to tell.
    Unsure,
}

/// Compares a file with what the destination has of its name. `keeps_times`: the destination has
/// the times that it is given.
pub(super) fn judge(
    level: Level,
    keeps_times: bool,
    source: &Facts,
    target: Option<&Facts>,
) -> Verdict {
    let Some(target) = target else {
        return Verdict::Differs("missing");
    };
    match level {
        Level::Never => return Verdict::Differs("asked"),
        Level::Exists => return Verdict::Same,
        _ => {}
    }
    match (source.size, target.size) {
        (Some(ours), Some(theirs)) if ours == theirs => {}
        (Some(_), Some(_)) => return Verdict::Differs("size"),
        // Nobody tells: it may be another one.
        _ => return Verdict::Differs("unknown"),
    }
    if level == Level::NotOlder {
        return match (source.modify, target.modify) {
            (Some(ours), Some(theirs)) if theirs.0 >= ours.0 => Verdict::Same,
            (Some(_), Some(_)) => Verdict::Differs("older"),
            _ => Verdict::Differs("unknown"),
        };
    }
    let times_count = keeps_times && level != Level::Size;
    match (level, judge_alike(times_count, source, target)) {
        (Level::Checksum, _) => Verdict::Unsure,
        (_, Verdict::Stamp("mtime")) => Verdict::Differs("mtime"),
        (_, verdict) => verdict,
    }
}

/// The same for files with the same bytes.
pub(super) fn judge_alike(times_count: bool, source: &Facts, target: &Facts) -> Verdict {
    let (ours, theirs) = (Stamp::of_facts(source), Stamp::of_facts(target));
    let other = |one: Option<_>, two: Option<_>| one.is_some() && two.is_some() && one != two;
    let times = |stamp: Stamp| stamp.modified.map(|t| t.0);
    let modes = |stamp: Stamp| stamp.mode.map(i64::from);
    if times_count && other(times(ours), times(theirs)) {
        Verdict::Stamp("mtime")
    } else if other(modes(ours), modes(theirs)) {
        Verdict::Stamp("mode")
    } else {
        Verdict::Same
    }
}

#[cfg(test)]
mod tests {
    use godwit_proto::timestamp::Timestamp;

    use super::*;

    fn file(size: u64, modify: i64, mode: u32) -> Facts {
        Facts {
            size: Some(size),
            modify: Some(Timestamp(modify)),
            unix_mode: Some(mode),
            ..Facts::default()
        }
    }

    #[test]
    fn each_level_has_its_reasons() {
        use Verdict::{Differs, Same, Stamp, Unsure};
        let ours = file(1, 100, 0o644);
        let cases = [
            (None, [Differs("missing"); 4]),
            (Some(file(1, 100, 0o644)), [Same, Same, Same, Unsure]),
            (Some(file(1, 100, 0o4644)), [Same, Same, Same, Unsure]),
            (
                Some(file(1, 100, 0o600)),
                [Same, Stamp("mode"), Stamp("mode"), Unsure],
            ),
            (
                Some(file(1, 101, 0o644)),
                [Same, Same, Differs("mtime"), Unsure],
            ),
            (
                Some(file(2, 100, 0o644)),
                [Same, Differs("size"), Differs("size"), Differs("size")],
            ),
            (
                Some(Facts::default()),
                [
                    Same,
                    Differs("unknown"),
                    Differs("unknown"),
                    Differs("unknown"),
                ],
            ),
        ];
        for (theirs, wanted) in cases {
            let levels = [Level::Exists, Level::Size, Level::Modified, Level::Checksum];
            let got = levels.map(|level| judge(level, true, &ours, theirs.as_ref()));
            assert_eq!(got, wanted, "{theirs:?}");
        }
        let not_older = |theirs| judge(Level::NotOlder, true, &ours, Some(&theirs));
        assert_eq!(not_older(file(1, 101, 0o600)), Same);
        assert_eq!(not_older(file(1, 99, 0o644)), Differs("older"));
        assert_eq!(not_older(file(2, 101, 0o644)), Differs("size"));
        let never = judge(Level::Never, true, &ours, Some(&ours));
        assert_eq!(never, Differs("asked"));
        let later = file(1, 101, 0o644);
        assert_eq!(judge(Level::Modified, false, &ours, Some(&later)), Same);
        assert_eq!(judge_alike(true, &ours, &later), Stamp("mtime"));
        assert_eq!(judge_alike(false, &ours, &later), Same);
        let untold = Facts {
            modify: None,
            unix_mode: None,
            ..later
        };
        assert_eq!(judge(Level::Modified, true, &ours, Some(&untold)), Same);
    }
}
