//! Breaches that are still in the tree.

/// Lines of the rule, the place and how many, with `|` between. Until it is empty.
const ALLOWED: &str = include_str!("allowed.txt");

/// How many breaches of a rule a place may have.
pub(super) fn count(rule: &str, place: &str) -> usize {
    let lines = ALLOWED.lines().filter_map(|line| line.rsplit_once('|'));
    let found = lines.map(|(of, count)| (of.split_once('|'), count.trim().parse()));
    let mut counts = found.filter(|(of, _)| *of == Some((rule, place)));
    counts.next().and_then(|(_, count)| count.ok()).unwrap_or(0)
}
