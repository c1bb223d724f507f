//! Words that were coined here before the tree used those of the field, see `docs/glossary.md`.

use std::{collections::BTreeMap, sync::LazyLock};

use super::{Fault, Text, place_of};
use crate::source;

const RULE: &str = "the field has a word for it";

/// Where a coined word is looked for in an identifier.
#[derive(Clone, Copy, PartialEq, Eq)]
enum As {
    /// As a word of it: `crew` in `crew_size` and `CrewSize`.
    Part,
    /// As all of it: a type `Way`, but neither `way` nor `RightOfWay`.
    Whole,
}
use As::{Part, Whole};

type CoinedWord = (&'static str, As, &'static [&'static str], &'static str);

/// The coined word, how it is found, the crates in which it is looked for (all, if none is named),
/// and the word to use.
const WORDS: &[CoinedWord] = &[
    // Everywhere.
    ("abreast", Part, &[], "drain balance, session rates"),
    ("anew", Part, &[], "again, from scratch"),
    ("aside", Part, &["proto", "server"], "live request"),
    ("asides", Part, &[], "live requests"),
    ("bunch", Part, &[], "batch"),
    ("condemned", Part, &[], "delete list"),
    ("conduit", Part, &[], "splice pipe"),
    ("crew", Part, &[], "worker pool"),
    ("doomed", Part, &[], "failing, deletion"),
    ("foreseen", Part, &[], "speculative"),
    ("heed", Part, &[], "observe, check"),
    ("lineup", Part, &[], "in-flight files"),
    ("littered", Part, &[], "leftovers"),
    ("octet", Part, &[], "byte"),
    ("perishable", Part, &[], "unresumable bytes"),
    ("postponed", Part, &[], "deferred"),
    ("remnant", Part, &[], "deletion"),
    ("roster", Part, &[], "presence"),
    ("rubbish", Part, &[], "leftover"),
    ("setback", Part, &[], "attempt error"),
    ("setbacks", Part, &[], "pipeline failures"),
    ("taking_up", Part, &[], "resume"),
    // One crate.
    ("Ahead", Whole, &["client"], "opening session, prefetch"),
    ("Ambient", Whole, &["client"], "environment"),
    ("Begun", Whole, &["client"], "partial file"),
    ("Carried", Whole, &["client"], "range outcome"),
    ("Carrier", Whole, &["client"], "retrying session"),
    ("carrier", Whole, &["client"], "retry"),
    ("company", Part, &["client"], "coordination"),
    ("Cutter", Whole, &["client"], "piece sizer"),
    ("Flight", Whole, &["client"], "pipelined file"),
    ("Goal", Whole, &["client"], "destination, location"),
    ("introduction", Part, &["client"], "delegation"),
    ("Learned", Whole, &["client"], "capabilities"),
    ("Look", Whole, &["client"], "totals"),
    ("Meeting", Whole, &["client"], "file pair"),
    ("Parting", Whole, &["client"], "early exit"),
    ("Roll", Whole, &["client"], "spooled listing"),
    ("Stamp", Whole, &["client"], "file attributes"),
    ("Tails", Whole, &["client"], "stealable ranges"),
    ("Told", Whole, &["client"], "event"),
    ("Way", Whole, &["client", "engine"], "plan, path, sink"),
    ("Wish", Whole, &["client"], "demand"),
    ("Written", Whole, &["client"], "local durability"),
    (
        "Allowance",
        Whole,
        &["client", "engine"],
        "allocation, channel limiter",
    ),
    ("Attachment", Whole, &["engine"], "transfer handle"),
    ("exposition", Part, &["engine", "server"], "Prometheus text"),
    ("goodbye", Part, &["engine"], "close_notify"),
    ("occupation", Part, &["engine"], "CPU time"),
    ("Past", Whole, &["engine"], "reuse"),
    ("placement", Part, &["engine"], "CPU affinity"),
    (
        "safeguard",
        Part,
        &["client", "engine", "server"],
        "channel security",
    ),
    ("Unproven", Whole, &["engine"], "handshake error"),
    ("outbox", Part, &["server"], "reply buffer"),
    ("Pass", Whole, &["server"], "connection permit"),
    ("SENT_AWAY", Whole, &["server"], "evicted"),
    ("telling", Part, &["server"], "progress report"),
    ("trail", Part, &["server"], "session log"),
    ("Unrun", Whole, &["server"], "not started"),
    ("Visit", Whole, &["server"], "connection metrics"),
    ("Floor", Whole, &["proto"], "least protection"),
    ("crowd", Part, &["tune"], "contention"),
    ("crowded", Part, &["tune"], "contended"),
    ("vain", Part, &["tune"], "unproductive"),
    ("worth", Whole, &["tune"], "utility"),
    ("Worth", Whole, &["tune"], "utility"),
    ("ledger", Part, &["lab"], "connection totals"),
    ("strangers", Whole, &["lab"], "foreign tools"),
];

/// [`WORDS`] by what is looked up: a whole identifier, or the first word of one.
static LOOKUP: LazyLock<BTreeMap<&str, Vec<&CoinedWord>>> = LazyLock::new(|| {
    let mut lookup: BTreeMap<&str, Vec<_>> = BTreeMap::new();
    for word in WORDS {
        let key = match word.1 {
            Whole => word.0,
            Part => word.0.split('_').next().unwrap_or(word.0),
        };
        lookup.entry(key).or_default().push(word);
    }
    lookup
});

pub(super) fn check(text: &Text, faults: &mut Vec<Fault>) {
    if !text.is_rust() || text.is_rule() {
        return;
    }
    let place = place_of(&text.path);
    // Each where it stands first.
    let mut names: BTreeMap<&str, usize> = BTreeMap::new();
    for (line, name) in source::identifiers(&text.parts.code) {
        names.entry(name).or_insert(line);
    }
    // A file is named, too.
    let stem = text
        .path
        .rsplit('/')
        .next()
        .and_then(|name| name.strip_suffix(".rs"));
    names.extend(stem.map(|stem| (stem, 1)));
    for (name, line) in names {
        if let Some((word, instead)) = coined(name, &place) {
            faults.push(text.fault(RULE, line, &format!("{name}: {word} -> {instead}")));
        }
    }
}

/// The coined word in an identifier, and the field's.
fn coined(name: &str, place: &str) -> Option<(&'static str, &'static str)> {
    let words = source::segments(name);
    // ASN.1 has a type OCTET STRING.
    if words.windows(2).any(|two| two == ["octet", "string"]) {
        return None;
    }
    let begin_here = (0..words.len()).map(|at| (&*words[at], Part, &words[at..]));
    let mut all = std::iter::once((name, Whole, &words[..])).chain(begin_here);
    all.find_map(|(key, how, words)| {
        let found = LOOKUP
            .get(key)?
            .iter()
            .find(|(word, found_as, crates, _)| {
                let is_part = || word.split('_').zip(words).all(|(a, b)| a == b);
                *found_as == how
                    && (crates.is_empty() || crates.contains(&place))
                    && (how == Whole || word.split('_').count() <= words.len() && is_part())
            })?;
        Some((found.0, found.3))
    })
}

#[cfg(test)]
mod tests {
    use super::{super::tests, check};

    fn faults(path: &str, text: &str) -> Vec<String> {
        tests::faults(check, path, text)
    }

    #[test]
    fn coined_words_in_identifiers_are_faults() {
        let told = faults("crates/lab/src/a.rs", "\nfn crew_size() {}\n");
        assert_eq!(
            told,
            ["crates/lab/src/a.rs:2: crew_size: crew -> worker pool"]
        );
        assert_eq!(
            faults("crates/lab/src/a.rs", "enum LabCrew { TakingUp }").len(),
            2
        );
        assert_eq!(faults("crates/client/src/roster.rs", "").len(), 1);
        assert_eq!(faults("crates/client/src/a.rs", "struct Way;").len(), 1);
    }

    #[test]
    fn other_words_and_sentences_are_not() {
        let text = "struct Screwed; // a crew\nconst A: &str = \"crew\"; x.octets(); fn way() {}";
        assert_eq!(faults("crates/client/src/a.rs", text), [""; 0]);
        assert_eq!(faults("crates/lab/src/a.rs", "struct Way;"), [""; 0]);
        assert_eq!(faults("docs/a.md", "crew_size"), [""; 0]);
    }
}
