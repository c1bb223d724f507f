//! Decides whether a file is copied, and why.

use godwit_proto::facts::Facts;

use crate::{local::attributes::FileAttributes, spec::Level};

/// What to do with a file of the source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Comparison {
    /// Nothing.
    Same,
    /// The bytes are equal; time or permissions differ, as the reason says.
    Attributes(&'static str),
    /// Copy it, and why.
    Differs(&'static str),
    /// The sizes are equal; checksums must decide.
    Unsure,
}

/// Compares a file with the entry of its name at the destination. `keeps_times`: the destination
/// keeps the times that are set.
pub(super) fn compare(
    level: Level,
    keeps_times: bool,
    source: &Facts,
    target: Option<&Facts>,
) -> Comparison {
    let Some(target) = target else {
        return Comparison::Differs("missing");
    };
    match level {
        Level::Never => return Comparison::Differs("asked"),
        Level::Exists => return Comparison::Same,
        _ => {}
    }
    match (source.size, target.size) {
        (Some(ours), Some(theirs)) if ours == theirs => {}
        (Some(_), Some(_)) => return Comparison::Differs("size"),
        // Unknown: it may differ.
        _ => return Comparison::Differs("unknown"),
    }
    if level == Level::NotOlder {
        return match (source.modify, target.modify) {
            (Some(ours), Some(theirs)) if theirs.0 >= ours.0 => Comparison::Same,
            (Some(_), Some(_)) => Comparison::Differs("older"),
            _ => Comparison::Differs("unknown"),
        };
    }
    let times_count = keeps_times && level != Level::Size;
    match (level, compare_attributes(times_count, source, target)) {
        (Level::Checksum, _) => Comparison::Unsure,
        (_, Comparison::Attributes("mtime")) => Comparison::Differs("mtime"),
        (_, comparison) => comparison,
    }
}

/// The same for files with the same bytes.
pub(super) fn compare_attributes(times_count: bool, source: &Facts, target: &Facts) -> Comparison {
    let (ours, theirs) = (
        FileAttributes::of_facts(source),
        FileAttributes::of_facts(target),
    );
    let other = |one: Option<_>, two: Option<_>| one.is_some() && two.is_some() && one != two;
    let times = |attributes: FileAttributes| attributes.modified.map(|t| t.0);
    let modes = |attributes: FileAttributes| attributes.mode.map(i64::from);
    if times_count && other(times(ours), times(theirs)) {
        Comparison::Attributes("mtime")
    } else if other(modes(ours), modes(theirs)) {
        Comparison::Attributes("mode")
    } else {
        Comparison::Same
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
        use Comparison::{Attributes, Differs, Same, Unsure};
        let ours = file(1, 100, 0o644);
        let cases = [
            (None, [Differs("missing"); 4]),
            (Some(file(1, 100, 0o644)), [Same, Same, Same, Unsure]),
            (Some(file(1, 100, 0o4644)), [Same, Same, Same, Unsure]),
            (
                Some(file(1, 100, 0o600)),
                [Same, Attributes("mode"), Attributes("mode"), Unsure],
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
            let got = levels.map(|level| compare(level, true, &ours, theirs.as_ref()));
            assert_eq!(got, wanted, "{theirs:?}");
        }
        let not_older = |theirs| compare(Level::NotOlder, true, &ours, Some(&theirs));
        assert_eq!(not_older(file(1, 101, 0o600)), Same);
        assert_eq!(not_older(file(1, 99, 0o644)), Differs("older"));
        assert_eq!(not_older(file(2, 101, 0o644)), Differs("size"));
        let never = compare(Level::Never, true, &ours, Some(&ours));
        assert_eq!(never, Differs("asked"));
        let later = file(1, 101, 0o644);
        assert_eq!(compare(Level::Modified, false, &ours, Some(&later)), Same);
        assert_eq!(compare_attributes(true, &ours, &later), Attributes("mtime"));
        assert_eq!(compare_attributes(false, &ours, &later), Same);
        let untold = Facts {
            modify: None,
            unix_mode: None,
            ..later
        };
        assert_eq!(compare(Level::Modified, true, &ours, Some(&untold)), Same);
    }
}
