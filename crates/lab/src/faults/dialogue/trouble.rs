//! The kinds of dialogue faults, and what the proxy does with each command because of them. Pure.

use std::fmt;

use super::super::plan::{Kind, Way};
use crate::path::Rng;

/// Verbs whose data are the names of a directory.
const LISTINGS: [&str; 4] = ["MLSD", "LIST", "NLST", "MLSR"];
/// Verbs that a server without RFC 3659 listings, or without listings on the control channel,
/// refuses.
const MLSX: [&str; 4] = ["MLST", "MLSD", "MLSC", "MLSR"];
/// Listings that no ordinary server has.
const GRID_LISTINGS: [&str; 2] = ["MLSC", "MLSR"];
/// The directory that may not be read.
pub(super) const UNREADABLE: &str = "below";
/// Most listings, renames or data connections that pass before the one that is spoilt.
const PASSED_MAX: u64 = 5;

/// Which listings the server has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Listings {
    /// All that it has by itself.
    All,
    /// Those of an ordinary server.
    Ordinary,
    /// None with facts: LIST and NLST.
    WithoutFacts,
}

/// How a listing ends before its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ListingEnd {
    /// The data connection is closed, and the server says 226.
    Closed,
    /// The data connection is reset, and the server says 226.
    Reset,
    /// The data connection is closed, and this is said.
    Said(&'static str),
}

/// What stands in place of a line of a listing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Garbling {
    /// Bytes that are no listing.
    Junk,
    /// As `ls -l` has it, with a date that is none.
    LongForm,
    /// The first half of its facts.
    HalfFacts,
    /// Everything is in the form of LIST.
    AllInLongForm,
}

/// Which renames are refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Renames {
    /// Those onto a name that exists.
    OntoExisting,
    /// The first so many.
    First(u64),
    /// All.
    All,
}

/// How a data connection does not come about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refusal {
    /// Nothing listens at the port.
    Port,
    /// It is reset once it is there.
    Reset,
    /// The command that asks for a port is answered so.
    Said(&'static str),
}

/// One thing that goes wrong. `after` counts what passes before, `times` how often it goes wrong
/// then.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DialogueFault {
    ListingCut {
        after: u64,
        times: u64,
        per_mille: u64,
        end: ListingEnd,
    },
    ListingRefused {
        after: u64,
        times: u64,
        reply: &'static str,
    },
    ListingGarbled {
        after: u64,
        times: u64,
        per_mille: u64,
        how: Garbling,
    },
    RenameRefused {
        which: Renames,
        reply: &'static str,
    },
    ReplyLost {
        verb: &'static str,
        after: u64,
    },
    DataRefused {
        after: u64,
        times: u64,
        how: Refusal,
    },
    DirectoryUnreadable {
        reply: &'static str,
    },
}

impl DialogueFault {
    /// Draws what exactly goes wrong, for a kind that is of the dialogue.
    pub(super) fn draw(kind: Kind, rng: &mut Rng) -> Option<DialogueFault> {
        let after = rng.up_to(PASSED_MAX);
        // A server has trouble once, or from then on.
        let times = one_of(rng, &[1, u64::MAX]);
        let per_mille = rng.up_to(1000);
        Some(match kind {
            Kind::ListingCut => DialogueFault::ListingCut {
                after,
                times,
                per_mille,
                end: one_of(
                    rng,
                    &[
                        ListingEnd::Closed,
                        ListingEnd::Closed,
                        ListingEnd::Reset,
                        ListingEnd::Said("426 Connection closed; transfer aborted."),
                        ListingEnd::Said(
                            "451 Requested action aborted: local error in processing.",
                        ),
                    ],
                ),
            },
            Kind::ListingRefused => DialogueFault::ListingRefused {
                after,
                times,
                reply: one_of(
                    rng,
                    &[
                        "425 Can't open data connection.",
                        "450 Requested file action not taken.",
                        "451 Requested action aborted: local error in processing.",
                        "550 Failed to open directory.",
                    ],
                ),
            },
            Kind::ListingGarbled => DialogueFault::ListingGarbled {
                after,
                times,
                per_mille,
                how: one_of(
                    rng,
                    &[
                        Garbling::Junk,
                        Garbling::LongForm,
                        Garbling::HalfFacts,
                        Garbling::AllInLongForm,
                    ],
                ),
            },
            Kind::RenameRefused => {
                let exists = "550 File already exists.";
                let (which, reply) = one_of(
                    rng,
                    &[
                        (Renames::OntoExisting, exists),
                        (Renames::OntoExisting, "553 Requested action not taken."),
                        (Renames::First(1 + after), exists),
                        (Renames::First(1), "451 Requested action aborted."),
                        (Renames::First(1 + after), "450 File busy."),
                        (Renames::All, exists),
                        (Renames::All, "553 Requested action not taken."),
                    ],
                );
                DialogueFault::RenameRefused { which, reply }
            }
            Kind::ReplyLost => DialogueFault::ReplyLost {
                verb: one_of(
                    rng,
                    &["RNTO", "RNTO", "STOR", "STOR", "DELE", "MKD", "RMD", "RETR"],
                ),
                after,
            },
            Kind::DataRefused => DialogueFault::DataRefused {
                after,
                times,
                how: one_of(
                    rng,
                    &[
                        Refusal::Port,
                        Refusal::Reset,
                        Refusal::Said("425 Can't open passive connection."),
                        Refusal::Said("421 Service not available."),
                    ],
                ),
            },
            Kind::DirectoryUnreadable => DialogueFault::DirectoryUnreadable {
                reply: one_of(rng, &["550 Permission denied.", "450 Permission denied."]),
            },
            _ => return None,
        })
    }

    /// Which end of a copy meets it: `true` for the one that files go to.
    pub(super) fn is_at_target(self, way: Way, rng: &mut Rng) -> bool {
        let drawn = rng.up_to(1) == 1;
        match (way, self) {
            (Way::Put, _) => true,
            (Way::Get, _) => false,
            (Way::Between, DialogueFault::RenameRefused { .. }) => true,
            (Way::Between, DialogueFault::ReplyLost { verb, .. }) => verb != "RETR",
            (Way::Between, _) => drawn,
        }
    }
}

/// What is done with a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Treatment {
    /// It passes, and so does what is answered.
    Pass,
    /// The server does not hear of it.
    Answer(&'static str),
    /// The server gets this one, and the client another answer.
    Instead {
        command: Vec<u8>,
        reply: &'static str,
    },
    /// The server gets this one.
    Translate(Vec<u8>),
    /// It takes effect, and the control connection ends in place of the final reply.
    LoseReply,
    /// It passes, and its data are spoilt; then this is said, or what the server says.
    Spoil {
        spoilt: Spoilt,
        reply: Option<&'static str>,
    },
    /// It passes, and the port in the answer refuses connections.
    RefuseData(Refusal),
}

/// What becomes of the data of a listing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Spoilt {
    Cut { per_mille: u64, reset: bool },
    Garbled { per_mille: u64, how: Garbling },
}

/// A dialogue with a server that has certain listings and a trouble.
#[derive(Debug)]
pub(super) struct Script {
    listings: Listings,
    trouble: Option<DialogueFault>,
    /// How many of those that may be spoilt came so far.
    seen: u64,
    /// Something went wrong.
    pub(super) happened: bool,
}

impl Script {
    pub(super) fn new(listings: Listings, trouble: Option<DialogueFault>) -> Script {
        Script {
            listings,
            trouble,
            seen: 0,
            happened: false,
        }
    }

    /// Nothing goes wrong any more.
    pub(super) fn heal(&mut self) {
        self.trouble = None;
    }

    /// What is done with a command. `directory` is what it would list; `exists` says whether there
    /// is a file of a name.
    pub(super) fn treat(
        &mut self,
        verb: &str,
        line: &[u8],
        directory: &[u8],
        exists: impl FnOnce(&[u8]) -> bool,
    ) -> Treatment {
        let hidden = match self.listings {
            Listings::All => &[][..],
            Listings::Ordinary => &GRID_LISTINGS,
            Listings::WithoutFacts => &MLSX,
        };
        if hidden.contains(&verb) {
            return Treatment::Answer("500 Unknown command.");
        }
        let Some(trouble) = self.trouble else {
            return Treatment::Pass;
        };
        let treatment = self.meets(trouble, verb, line, directory, exists);
        // Whether data have enough to be spoilt, their relay sees.
        self.happened |= !matches!(
            treatment,
            Treatment::Pass | Treatment::Spoil { reply: None, .. }
        );
        treatment
    }

    fn meets(
        &mut self,
        trouble: DialogueFault,
        verb: &str,
        line: &[u8],
        directory: &[u8],
        exists: impl FnOnce(&[u8]) -> bool,
    ) -> Treatment {
        let lists = LISTINGS.contains(&verb);
        match trouble {
            DialogueFault::ListingCut {
                after,
                times,
                per_mille,
                end,
            } if lists => {
                let (reset, reply) = match end {
                    ListingEnd::Closed => (false, None),
                    ListingEnd::Reset => (true, None),
                    ListingEnd::Said(reply) => (false, Some(reply)),
                };
                self.nth(after, times, || Treatment::Spoil {
                    spoilt: Spoilt::Cut { per_mille, reset },
                    reply,
                })
            }
            DialogueFault::ListingRefused {
                after,
                times,
                reply,
            } if lists => self.nth(after, times, || Treatment::Answer(reply)),
            DialogueFault::ListingGarbled {
                after,
                times,
                per_mille,
                how,
            } if lists => self.nth(after, times, || match how {
                Garbling::AllInLongForm if verb == "MLSD" => {
                    Treatment::Translate([b"LIST", &line[verb.len()..]].concat())
                }
                _ => Treatment::Spoil {
                    spoilt: Spoilt::Garbled { per_mille, how },
                    reply: None,
                },
            }),
            DialogueFault::RenameRefused { which, reply } if verb == "RNTO" => {
                let to = line.get(5..).unwrap_or_default();
                self.seen += 1;
                let refused = match which {
                    Renames::OntoExisting => exists(to),
                    Renames::First(count) => self.seen <= count,
                    Renames::All => true,
                };
                match refused {
                    // The server must hear some RNTO, and must not do it.
                    true => Treatment::Instead {
                        command: [line, b"/-/-"].concat(),
                        reply,
                    },
                    false => Treatment::Pass,
                }
            }
            DialogueFault::ReplyLost { verb: lost, after } if same_effect(lost, verb) => {
                self.nth(after, 1, || Treatment::LoseReply)
            }
            DialogueFault::DataRefused { after, times, how }
                if ["PASV", "EPSV"].contains(&verb) =>
            {
                self.nth(after, times, || match how {
                    Refusal::Said(reply) => Treatment::Answer(reply),
                    how => Treatment::RefuseData(how),
                })
            }
            DialogueFault::DirectoryUnreadable { reply } if lists => {
                let directory = directory.strip_suffix(b"/").unwrap_or(directory);
                let name = directory.rsplit(|byte| *byte == b'/').next();
                match name == Some(UNREADABLE.as_bytes()) {
                    true => Treatment::Answer(reply),
                    false => Treatment::Pass,
                }
            }
            _ => Treatment::Pass,
        }
    }

    fn nth(&mut self, after: u64, times: u64, treatment: impl FnOnce() -> Treatment) -> Treatment {
        self.seen += 1;
        let number = self.seen - 1;
        match number >= after && number - after < times {
            true => treatment(),
            false => Treatment::Pass,
        }
    }

    /// A line of FEAT that the client may see.
    pub(super) fn announces(&self, line: &[u8]) -> bool {
        let word = line.trim_ascii_start();
        let names = |verb: &str| word.to_ascii_uppercase().starts_with(verb.as_bytes());
        match self.listings {
            Listings::All => true,
            Listings::Ordinary => !GRID_LISTINGS.iter().any(|verb| names(verb)),
            Listings::WithoutFacts => !MLSX.iter().any(|verb| names(verb)),
        }
    }
}

fn same_effect(lost: &str, verb: &str) -> bool {
    match lost {
        "STOR" => ["STOR", "APPE", "ESTO"].contains(&verb),
        "RETR" => ["RETR", "ERET"].contains(&verb),
        lost => lost == verb,
    }
}

/// What is left of a listing; `None` where it has too little to be spoilt.
pub(super) fn spoil(listing: &[u8], spoilt: Spoilt, has_facts: bool) -> Option<Vec<u8>> {
    match spoilt {
        Spoilt::Cut { per_mille, .. } => cut(listing, per_mille).map(<[u8]>::to_vec),
        Spoilt::Garbled { per_mille, how } => garble(listing, per_mille, how, has_facts),
    }
}

/// A part that ends inside a line: a client that sees an end of a line cannot know that others are
/// missing.
fn cut(listing: &[u8], per_mille: u64) -> Option<&[u8]> {
    let inside: Vec<usize> = (1..listing.len())
        .filter(|at| !b"\r\n".contains(&listing[at - 1]))
        .collect();
    let at = *inside.get(share(inside.len(), per_mille))?;
    // "name" without CRLF is whole all the same.
    let whole = b"\r\n".contains(&listing[at]);
    (!whole).then(|| &listing[..at])
}

fn garble(listing: &[u8], per_mille: u64, how: Garbling, has_facts: bool) -> Option<Vec<u8>> {
    let mut lines: Vec<Vec<u8>> = listing
        .split_inclusive(|byte| *byte == b'\n')
        .map(<[u8]>::to_vec)
        .collect();
    let number = share(lines.len(), per_mille);
    let line = lines.get_mut(number)?;
    let facts = line
        .iter()
        .position(|byte| *byte == b' ')
        .filter(|_| has_facts);
    *line = match (how, facts) {
        (Garbling::HalfFacts, Some(end)) => [&line[..end / 2], b"\r\n"].concat(),
        (Garbling::LongForm, Some(end)) => {
            [b"-rw-r--r-- 1 ftp ftp 12 Feb 31 25:61 ", &line[end + 1..]].concat()
        }
        _ => b"\x01\x02 ?\x7f\r\n".to_vec(),
    };
    Some(lines.concat())
}

/// The index that is so far in so many.
fn share(length: usize, per_mille: u64) -> usize {
    let per_mille = usize::try_from(per_mille).unwrap_or(1000);
    (length * per_mille / 1001).min(length.saturating_sub(1))
}

pub(super) fn one_of<T: Copy>(rng: &mut Rng, all: &[T]) -> T {
    let last = all.len() as u64 - 1;
    all[usize::try_from(rng.up_to(last)).expect("below the length")]
}

impl fmt::Display for DialogueFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LISTING: &[u8] = b"type=dir; a\r\ntype=file;size=3; b c\r\n";

    fn treat(script: &mut Script, line: &str) -> Treatment {
        let verb = line.split(' ').next().unwrap();
        let directory = line.split_once(' ').map_or("", |(_, directory)| directory);
        script.treat(verb, line.as_bytes(), directory.as_bytes(), |name| {
            name == b"/old"
        })
    }

    #[test]
    fn cuts_are_inside_lines_and_before_the_end_of_a_name() {
        for per_mille in 0..=1000 {
            let Some(part) = cut(LISTING, per_mille) else {
                continue;
            };
            assert!(!part.is_empty() && LISTING.starts_with(part));
            assert!(!b"\r\n".contains(part.last().unwrap()), "{per_mille}");
            assert!(!b"\r\n".contains(&LISTING[part.len()]), "{per_mille}");
        }
        assert!(cut(LISTING, 500).is_some());
        assert_eq!(cut(b"", 500), None);
    }

    #[test]
    fn garbled_lines_have_no_facts() {
        let garbled = |how| garble(LISTING, 900, how, true).unwrap();
        assert_eq!(garbled(Garbling::HalfFacts), b"type=dir; a\r\ntype=fil\r\n");
        assert!(garbled(Garbling::LongForm).ends_with(b" 25:61 b c\r\n"));
        assert!(garbled(Garbling::Junk).starts_with(b"type=dir; a\r\n\x01"));
        assert_eq!(garble(b"", 0, Garbling::Junk, true), None);
    }

    #[test]
    fn renames_onto_existing_names_are_refused_and_others_pass() {
        let which = Renames::OntoExisting;
        let trouble = DialogueFault::RenameRefused {
            which,
            reply: "550 File already exists.",
        };
        let mut script = Script::new(Listings::All, Some(trouble));
        assert_eq!(treat(&mut script, "RNTO /new"), Treatment::Pass);
        assert!(!script.happened);
        let Treatment::Instead { command, .. } = treat(&mut script, "RNTO /old") else {
            panic!("it passes");
        };
        assert_eq!(command, b"RNTO /old/-/-");
        script.heal();
        assert_eq!(treat(&mut script, "RNTO /old"), Treatment::Pass);
    }

    #[test]
    fn only_the_nth_reply_is_lost() {
        let trouble = DialogueFault::ReplyLost {
            verb: "STOR",
            after: 1,
        };
        let mut script = Script::new(Listings::All, Some(trouble));
        let done: Vec<_> = ["STOR a", "RETR b", "ESTO A 0 c", "STOR d"]
            .iter()
            .map(|line| treat(&mut script, line))
            .collect();
        use Treatment::{LoseReply, Pass};
        assert_eq!(done, [Pass, Pass, LoseReply, Pass]);
    }

    #[test]
    fn one_directory_may_not_be_read() {
        let trouble = DialogueFault::DirectoryUnreadable {
            reply: "550 Permission denied.",
        };
        let mut script = Script::new(Listings::All, Some(trouble));
        assert_eq!(treat(&mut script, "MLSD /a"), Treatment::Pass);
        for path in ["MLSD /a/below", "LIST a/below/", "NLST below"] {
            assert!(
                matches!(treat(&mut script, path), Treatment::Answer(_)),
                "{path}"
            );
        }
    }

    #[test]
    fn hidden_listings_are_refused_and_not_announced() {
        let mut script = Script::new(Listings::WithoutFacts, None);
        assert!(matches!(treat(&mut script, "MLSD /"), Treatment::Answer(_)));
        assert!(!script.announces(b" MLST type*;size*;"));
        assert!(script.announces(b" SIZE"));
        let mut script = Script::new(Listings::Ordinary, None);
        assert_eq!(treat(&mut script, "MLSD /"), Treatment::Pass);
        assert!(!script.announces(b" MLSC"));
    }
}
