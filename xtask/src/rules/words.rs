//! Words that were coined here before the tree took those of the field, see `docs/glossary.md`.

use std::collections::BTreeMap;

use super::{Fault, place_of};
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

/// The coined word, how it is found, the crates in which it is looked for (all, if none is named),
/// and the word to use.
const WORDS: &[(&str, As, &[&str], &str)] = &[
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

pub(super) fn check(path: &str, text: &str, faults: &mut Vec<Fault>) {
    if !path.ends_with(".rs") || path.starts_with("xtask/src/rules/") {
        return;
    }
    let place = place_of(path);
    let code = source::parts(text).code;
    // Each where it stands first.
    let mut names: BTreeMap<&str, usize> = BTreeMap::new();
    for (line, name) in source::identifiers(&code) {
        names.entry(name).or_insert(line);
    }
    // A file is named, too.
    let stem = path
        .rsplit('/')
        .next()
        .and_then(|name| name.strip_suffix(".rs"));
    names.extend(stem.map(|stem| (stem, 1)));
    for (name, line) in names {
        if let Some((word, instead)) = coined(name, &place) {
            faults.push(Fault {
                rule: RULE,
                place: place.clone(),
                text: format!("{path}:{line}: {name}: {word} -> {instead}"),
            });
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
    let found = WORDS.iter().find(|(word, how, crates, _)| {
        let here = crates.is_empty() || crates.contains(&place);
        let parts: Vec<&str> = word.split('_').collect();
        let is_part = || words.windows(parts.len()).any(|words| words == parts);
        here && match how {
            Whole => name == *word,
            Part => is_part(),
        }
    });
    found.map(|(word, .., instead)| (*word, *instead))
}

#[cfg(test)]
mod tests {
    use super::check;

    fn faults(path: &str, text: &str) -> Vec<String> {
        let mut faults = Vec::new();
        check(path, text, &mut faults);
        faults.into_iter().map(|fault| fault.text).collect()
    }

    #[test]
    fn coined_words_in_identifiers_are_told() {
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
