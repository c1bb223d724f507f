//! The operations, whichever program does them: which files exist before, and which must exist
//! afterwards.

use std::{
    fs,
    os::unix::fs::{PermissionsExt as _, chown},
    path::Path,
    time::{Duration, SystemTime},
};

use godwit_lab::peers::Finished;

use super::place::{Login, PASSWORD, Place};
use crate::support::{noise, wait_until, write_noise};

/// A row of the page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Operation {
    LogIn(Login),
    List,
    Facts,
    Get,
    Put,
    GetPart,
    ResumeGet,
    ResumePut,
    GetBySeveral,
    PutBySeveral,
    GetTree,
    PutTree,
    GetPattern,
    Delete,
    DeleteTree,
    MakeDirectory,
    Rename,
    Permissions,
    Time,
    Checksum,
    FromServer,
    ToServer,
    Private,
    /// Where data connections must resume the TLS session of the control channel.
    Resumed,
    Hidden,
    Many,
    Home,
}

/// In the order of the page.
pub(super) const OPERATIONS: &[Operation] = &[
    Operation::LogIn(Login::Anonymous),
    Operation::LogIn(Login::Password),
    Operation::LogIn(Login::Tls),
    Operation::LogIn(Login::Grid),
    Operation::LogIn(Login::Ssh),
    Operation::List,
    Operation::Facts,
    Operation::Get,
    Operation::Put,
    Operation::GetPart,
    Operation::ResumeGet,
    Operation::ResumePut,
    Operation::GetBySeveral,
    Operation::PutBySeveral,
    Operation::GetTree,
    Operation::PutTree,
    Operation::GetPattern,
    Operation::Delete,
    Operation::DeleteTree,
    Operation::MakeDirectory,
    Operation::Rename,
    Operation::Permissions,
    Operation::Time,
    Operation::Checksum,
    Operation::FromServer,
    Operation::ToServer,
    Operation::Private,
    Operation::Resumed,
    Operation::Hidden,
    Operation::Many,
    Operation::Home,
];

const HIDDEN: &str = ".hidden";
const SECOND: &str = "second.dat";

/// Where a part begins and how long it is; a resumed copy has what is before it already.
const PART: (usize, usize) = (100_000, 50_000);

const BYTES: usize = 300_001;

/// Of files that are resumed: our client resumes those only that are large.
const LARGE_BYTES: usize = 16_000_001;

/// Of files that several channels share: far more than one of them holds in its buffers before the
/// others are up.
const SHARED_BYTES: usize = 64_000_001;

/// What our client has of a large file, and where; it takes nothing up that its journal does not
/// tell of.
const BEGUN: usize = 12 << 20;
const OUR_PART: &str = ".godwit-0123456789abcdef.part";

/// What a checksum is asked of, and what servers say then.
const SUMMED: &[u8] = b"hello";
const SUMS: [&str; 2] = ["062c0215", "5d41402abc4b2a76b9719d911017c592"];

const FILE: &str = "file.dat";

impl Operation {
    /// As the page has it.
    pub(super) const fn text(self) -> &'static str {
        match self {
            Self::LogIn(Login::Anonymous) => "log in: anonymous",
            Self::LogIn(Login::Password) => "log in: password, in clear",
            Self::LogIn(Login::Tls) => "log in: TLS (RFC 4217)",
            Self::LogIn(Login::Grid) => "log in: grid certificate (GSI)",
            Self::LogIn(Login::Ssh) => "log in: ssh (`sshftp://`)",
            Self::List => "list names",
            Self::Facts => "list with sizes",
            Self::Get => "get",
            Self::Put => "put",
            Self::GetPart => "get a part",
            Self::ResumeGet => "resume a get",
            Self::ResumePut => "resume a put",
            Self::GetBySeveral => "get by several data channels",
            Self::PutBySeveral => "put by several data channels",
            Self::GetTree => "get a tree",
            Self::PutTree => "put a tree",
            Self::GetPattern => "get by a pattern",
            Self::Delete => "delete a file",
            Self::DeleteTree => "delete a tree",
            Self::MakeDirectory => "make a directory",
            Self::Rename => "rename",
            Self::Permissions => "set permissions",
            Self::Time => "set the time of a copy",
            Self::Checksum => "ask for a checksum",
            Self::FromServer => "send to another server",
            Self::ToServer => "receive from another server",
            Self::Private => "encrypt data",
            Self::Resumed => "encrypt data, TLS sessions resumed",
            Self::Hidden => "get hidden files with a tree",
            Self::Many => "copy many files in one call",
            Self::Home => "begin at home (`/~/`)",
        }
    }

    fn length(self) -> usize {
        match self {
            Self::ResumeGet | Self::ResumePut => LARGE_BYTES,
            Self::GetBySeveral | Self::PutBySeveral => SHARED_BYTES,
            _ => BYTES,
        }
    }

    fn bytes(self) -> Vec<u8> {
        match self {
            Self::Checksum => SUMMED.to_vec(),
            _ => noise(self.length(), self.length() as u64),
        }
    }

    /// What there is before.
    pub(super) fn prepare(self, place: &Place<'_>) {
        let (here, there) = (place.here(FILE), place.there(FILE));
        let bytes = self.bytes();
        let write = |path: &Path, bytes: &[u8]| fs::write(path, bytes).expect("writes");
        match self {
            Self::Put | Self::PutBySeveral => write(&here, &bytes),
            Self::ResumeGet | Self::ResumePut => {
                let (source, copy) = match self {
                    Self::ResumeGet => (there, here),
                    _ => (here, there),
                };
                write(&source, &bytes);
                set_past(&source);
                match place.by_us {
                    true => {
                        write(&copy.with_file_name(OUR_PART), &bytes[..BEGUN]);
                        let (target, folder) = match self {
                            Self::ResumeGet => ("{here}/file.dat", "{here}/"),
                            _ => ("{url}/file.dat", "{path}/"),
                        };
                        // A server tells whole seconds, this machine nanoseconds.
                        let changed = match self {
                            Self::ResumeGet => past().as_secs().to_string(),
                            _ => past().as_nanos().to_string(),
                        };
                        let journal = place.filled(&format!(
                            "part {target} {folder}{OUR_PART} .\nsource {target} {} {changed} .",
                            bytes.len(),
                        ));
                        let journal = journal.replace(&format!(":{PASSWORD}@"), "@");
                        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id");
                        let boot = boot.expect("the kernel names its start");
                        let boot = boot.trim();
                        let journal = format!("godwit-journal 1\nboot {boot} .\n{journal}\n");
                        write(&place.here("journal"), journal.as_bytes());
                    }
                    false => write(&copy, &begun(&bytes)),
                }
            }
            Self::GetTree | Self::DeleteTree => tree(&place.there("tree")),
            Self::Hidden => {
                tree(&place.there("tree"));
                write(&place.there("tree").join(HIDDEN), &bytes);
            }
            Self::Many => {
                write(&there, &bytes);
                write(&place.there(SECOND), &bytes);
                let names = format!("{FILE}\n{SECOND}\n");
                write(&place.here("names"), names.as_bytes());
                let pair = |name: &str| format!("{{url}}/{name} {{other}}/{name}\n");
                let pairs = place.filled(&[pair(FILE), pair(SECOND)].concat());
                write(&place.here("pairs"), pairs.as_bytes());
            }
            Self::GetPattern => {
                write(&there, &bytes);
                write(&place.there("other"), b"not wanted");
            }
            Self::PutTree | Self::Time => tree(&place.here("tree")),
            Self::MakeDirectory => {}
            Self::ToServer => write(&place.at_other(FILE), &bytes),
            _ => write(&there, &bytes),
        }
        if let Some(owner) = place.owner() {
            give(&place.there(""), owner);
        }
    }

    /// What is wrong afterwards.
    pub(super) fn check(self, place: &Place<'_>, said: &[Finished]) -> Result<(), String> {
        let (here, there) = (place.here(FILE), place.there(FILE));
        let bytes = self.bytes();
        let holds = |path: &Path, wanted: &[u8]| {
            let got = fs::read(path).map_err(|error| format!("{}: {error}", path.display()))?;
            let same = got == wanted;
            ok(
                same,
                format_args!("{}: {} bytes, not those", path.display(), got.len()),
            )
        };
        let says = |words: &[&str]| {
            let said: String = said.iter().map(Finished::log).collect();
            let said = said.to_lowercase();
            ok(
                words.iter().any(|word| said.contains(word)),
                format_args!("no {words:?}"),
            )
        };
        match self {
            Self::LogIn(_) | Self::Get | Self::Private | Self::Resumed | Self::Home => {
                holds(&here, &bytes)
            }
            Self::Hidden => {
                same_tree(&place.here("tree"))?;
                holds(&place.here("tree").join(HIDDEN), &bytes)
            }
            // To this machine or to another server.
            Self::Many => [FILE, SECOND].iter().try_for_each(|name| {
                let copied = holds(&place.here(name), &bytes);
                copied.or_else(|_| holds(&place.at_other(name), &bytes))
            }),
            Self::Put => holds(&there, &bytes),
            Self::List => says(&[FILE]),
            Self::Facts => says(&["300001"]),
            Self::GetPart => {
                let (start, length) = PART;
                let got = fs::read(&here).unwrap_or_default();
                // The reference client keeps a part at its place.
                let is_part = got.ends_with(&bytes[start..start + length]);
                let long = [length, start + length].contains(&got.len());
                ok(is_part && long, format_args!("{} bytes", got.len()))
            }
            // What was there already tells whether it was left alone.
            Self::ResumeGet | Self::ResumePut => {
                let copy = if self == Self::ResumeGet {
                    &here
                } else {
                    &there
                };
                if !place.by_us {
                    return holds(copy, &resumed(&bytes));
                }
                let events = fs::read_to_string(place.here("events")).unwrap_or_default();
                let moved = events.split(r#""event":"file""#).nth(1).unwrap_or_default();
                let moved = moved.split(r#""bytes":"#).nth(1).unwrap_or_default();
                let wanted = format!("{},", bytes.len() - BEGUN);
                ok(
                    moved.starts_with(&wanted),
                    format_args!("{moved} bytes were moved"),
                )?;
                holds(copy, &bytes)
            }
            Self::GetBySeveral | Self::PutBySeveral => {
                holds(
                    if self == Self::GetBySeveral {
                        &here
                    } else {
                        &there
                    },
                    &bytes,
                )?;
                let most = channels(place);
                ok(most > 1, format_args!("channels: {most}"))
            }
            Self::GetTree => same_tree(&place.here("tree")),
            Self::PutTree => same_tree(&place.there("tree")),
            Self::GetPattern => {
                let other = place.here("other").exists();
                ok(!other, "more than was wanted")?;
                holds(&here, &bytes)
            }
            Self::Delete => ok(!there.exists(), "it is there"),
            Self::DeleteTree => ok(!place.there("tree").exists(), "it is there"),
            Self::MakeDirectory => ok(place.there("made").is_dir(), "it is not there"),
            Self::Rename => {
                ok(!there.exists(), "the old name is there")?;
                holds(&place.there("renamed"), &bytes)
            }
            Self::Permissions => {
                let mode = fs::metadata(&there)
                    .map_err(|e| e.to_string())?
                    .permissions();
                ok(
                    mode.mode() & 0o777 == 0o600,
                    format_args!("{:o}", mode.mode()),
                )
            }
            Self::Time => {
                let copy = fs::metadata(place.there("tree/one")).map_err(|e| e.to_string())?;
                let time = copy.modified().map_err(|e| e.to_string())?;
                let is_past = time == SystemTime::UNIX_EPOCH + past();
                ok(is_past, format_args!("{time:?}"))
            }
            Self::Checksum => says(&SUMS),
            Self::FromServer => holds(&place.at_other(FILE), &bytes),
            Self::ToServer => holds(&there, &bytes),
        }
    }
}

/// Most data channels that the transfer had at a time: by our events, or by the log of our server.
fn channels(place: &Place<'_>) -> u32 {
    let number = |text: &str| {
        let end = text.find(|c: char| !c.is_ascii_digit());
        text[..end.unwrap_or(text.len())].parse().unwrap_or(0)
    };
    if place.by_us {
        let events = fs::read_to_string(place.here("events")).unwrap_or_default();
        let opened = events.lines().filter(|line| line.contains(r#""opened""#));
        let opened = opened.filter_map(|line| line.split_once(r#""count":"#));
        return opened.map(|(_, count)| number(count)).sum();
    }
    let file = place.there(FILE);
    let file = file.strip_prefix(place.server.root(place.login));
    let path = format!("/{}", file.expect("is below").display());
    let channels_logged = || {
        let log = place.log();
        let lines = log.lines().filter(|line| line.contains(&path));
        let channels_logged = lines.filter_map(|line| line.split_once(" channels="));
        channels_logged.map(|(_, count)| number(count)).max()
    };
    wait_until("the server logs its transfer", || {
        channels_logged().is_some()
    });
    channels_logged().unwrap_or(0)
}

fn ok(is_so: bool, else_say: impl std::fmt::Display) -> Result<(), String> {
    match is_so {
        true => Ok(()),
        false => Err(else_say.to_string()),
    }
}

/// What an earlier copy of another client is to have left: other bytes than those that belong
/// there, so that it is seen whether they were copied again.
fn begun(bytes: &[u8]) -> Vec<u8> {
    bytes[..PART.0].iter().map(|byte| !byte).collect()
}

fn resumed(bytes: &[u8]) -> Vec<u8> {
    [&begun(bytes)[..], &bytes[PART.0..]].concat()
}

/// Long ago, in whole seconds since 1970.
const fn past() -> Duration {
    Duration::from_secs(1_000_000_000)
}

fn set_past(path: &Path) {
    let file = fs::File::options().write(true).open(path).expect("opens");
    let set = file.set_modified(SystemTime::UNIX_EPOCH + past());
    set.expect("a time");
}

const TREE: [(&str, usize); 3] = [("one", 1), ("empty", 0), ("below/two", 70_000)];

fn tree(root: &Path) {
    fs::create_dir_all(root.join("below")).expect("a directory");
    for (name, length) in TREE {
        write_noise(&root.join(name), length, 1);
        set_past(&root.join(name));
    }
}

fn same_tree(root: &Path) -> Result<(), String> {
    TREE.iter().try_for_each(|(name, length)| {
        let path = root.join(name);
        let got = fs::read(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        ok(
            got == noise(*length, 1),
            format_args!("{} differs", path.display()),
        )
    })
}

/// Makes all below a directory an account's own.
fn give(path: &Path, owner: u32) {
    chown(path, Some(owner), Some(owner)).expect("gives");
    if path.is_dir() {
        for entry in fs::read_dir(path).expect("a directory") {
            give(&entry.expect("an entry").path(), owner);
        }
    }
}
