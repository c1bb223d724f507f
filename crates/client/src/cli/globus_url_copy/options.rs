//! The options, without their spelling. Pure.

use std::{ffi::OsString, path::PathBuf, time::Duration};

use super::{
    NAME, USAGE, VERSION, early_exit,
    table::{Meaning, Row, help, refusal, row_of},
    url_text::{relative, url},
    wrong,
};
use crate::cli::{EarlyExit, without_passwords};

type OptionResult<T> = Result<T, EarlyExit>;

/// How much is shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Verbosity {
    /// Errors.
    #[default]
    Nothing,
    /// URLs too.
    Names,
    /// And rates.
    Rates,
}

/// A command line of the original.
#[derive(Debug)]
pub struct Options {
    /// Source and destination, or neither where they are in a file.
    pub(crate) places: Vec<OsString>,
    pub(crate) list: Option<PathBuf>,
    pub(crate) list_url: Option<OsString>,
    pub(crate) continues: bool,
    /// Paths of servers begin at home.
    pub(crate) relative: bool,
    pub(crate) creates: bool,
    pub(crate) recursive: bool,
    pub(crate) seconds: Option<Duration>,
    pub(crate) verbosity: Verbosity,
    pub(crate) debugs: bool,
    pub(crate) restarts: bool,
    /// 0: without a limit.
    pub(crate) retries: u32,
    /// Seconds; 0: as we like.
    pub(crate) interval: u64,
    /// Seconds; 0: none.
    pub(crate) stall: u64,
    pub(crate) dump: Option<PathBuf>,
    pub(crate) dump_only: Option<PathBuf>,
    pub(crate) aliases: Option<PathBuf>,
    /// Of source and destination.
    pub(crate) subjects: [Option<String>; 2],
    pub(crate) credentials: [Option<PathBuf>; 2],
    pub(crate) credential: Option<PathBuf>,
    pub(crate) tcp_buffer: u64,
    /// 0: as we like.
    pub(crate) block: u64,
    /// Of stripes; 0: none was given.
    pub(crate) stripe_block: u64,
    pub(crate) parallelism: Option<u32>,
    pub(crate) concurrency: Option<u32>,
    /// 0: as we like.
    pub(crate) depth: u32,
    pub(crate) no_third_party: bool,
    /// A word of `--protect`.
    pub(crate) protect: Option<&'static str>,
    pub(crate) offset: Option<u64>,
    pub(crate) length: Option<u64>,
    pub(crate) sync: bool,
    pub(crate) level: i64,
    pub(crate) algorithm: Option<String>,
    pub(crate) verifies: bool,
    pub(crate) tuning: AptOptions,
}

/// Of GridFTP-APT; the values as they were given.
#[derive(Debug, Default)]
pub(crate) struct AptOptions {
    pub(crate) apt: bool,
    pub(crate) off: bool,
    pub(crate) n0: Option<String>,
    pub(crate) alpha: Option<String>,
    pub(crate) delta: Option<String>,
}

impl Options {
    /// A URL of the command line or of a list, as godwit reads it.
    pub(crate) fn url(&self, text: &[u8]) -> Vec<u8> {
        match self.relative {
            true => relative(&url(text)),
            false => url(text),
        }
    }

    /// Reads the words behind the program's name. Options end with the first word that is none, as
    /// in the original.
    ///
    /// # Errors
    /// What to print, and the status: help was asked for, or something cannot be had.
    pub fn parse(words: &[OsString]) -> Result<Self, EarlyExit> {
        Self::read(words).map_err(|early_exit| EarlyExit {
            text: without_passwords(early_exit.text, words),
            ..early_exit
        })
    }

    fn read(words: &[OsString]) -> Result<Self, EarlyExit> {
        let mut options = Self::default();
        let mut both: Option<String> = None;
        let mut modes = [false; 2];
        let mut rest = words;
        while let Some((word, behind)) = rest.split_first() {
            let name = word.to_string_lossy();
            if !name.starts_with('-') || name.len() < 2 {
                break;
            }
            rest = behind;
            let at = words.len() - rest.len();
            if name == "--" {
                break;
            }
            let bad = |at: usize, what: &str, why: &str| {
                early_exit(format!(
                    "\nError, argument #{at} ({what}) : {why}\n\nSyntax : {USAGE}\n\n\
                     Use -help to display full usage.\n"
                ))
            };
            if name.starts_with("--") {
                return Err(bad(at, &name, "double-dashed option syntax is not allowed"));
            }
            let row = row_of(&name).ok_or_else(|| bad(at, &name, "unknown option"))?;
            let value = match (row.argument, rest.split_first()) {
                (None, _) => OsString::new(),
                (Some(_), None) => return Err(bad(at, &name, "not enough arguments")),
                (Some(_), Some((value, behind))) => {
                    rest = behind;
                    value.clone()
                }
            };
            match row.word {
                Meaning::Subject => both = Some(text(value)),
                Meaning::Ascii => modes[0] = true,
                Meaning::Binary => modes[1] = true,
                _ => options.take(row, &name, value)?,
            }
        }
        for subject in &mut options.subjects {
            *subject = subject.take().or_else(|| both.clone());
        }
        if modes == [true; 2] {
            return Err(wrong("option -ascii and -binary are mutually exclusive"));
        }
        options.places = rest.to_vec();
        options.check()?;
        Ok(options)
    }

    fn take(&mut self, row: &Row, name: &str, value: OsString) -> OptionResult<()> {
        let number = |value: OsString| whole(name, &text(value));
        let small = |value: OsString| {
            let number = whole(name, &text(value))?;
            u32::try_from(number).map_err(|_| wrong(format!("{name} {number}: is too large")))
        };
        match row.word {
            Meaning::Nothing | Meaning::Subject | Meaning::Ascii | Meaning::Binary => {}
            Meaning::Refused => return Err(refused(name)),
            Meaning::Help => return Err(early_exit(help())),
            Meaning::Usage => return Err(early_exit(USAGE.to_owned())),
            Meaning::Version => return Err(early_exit(format!("{NAME}: {VERSION}\n"))),
            Meaning::Continue => self.continues = true,
            Meaning::List => self.list = Some(value.into()),
            Meaning::CreateDestination => self.creates = true,
            Meaning::Recurse => self.recursive = true,
            Meaning::RelativePaths => self.relative = true,
            Meaning::Seconds => {
                let seconds = number(value)?;
                self.seconds = (seconds > 0).then(|| Duration::from_secs(seconds));
            }
            Meaning::Quiet => self.verbosity = Verbosity::Nothing,
            Meaning::Verbose => self.verbosity = self.verbosity.max_of(Verbosity::Names),
            Meaning::Performance => self.verbosity = Verbosity::Rates,
            Meaning::Debug => self.debugs = true,
            Meaning::Restart => self.restarts = true,
            Meaning::Retries => self.retries = small(value)?,
            Meaning::Interval => self.interval = number(value)?,
            Meaning::RestartTimeout | Meaning::DataCredential => {
                let default = match row.word {
                    Meaning::RestartTimeout => "0",
                    _ => "auto",
                };
                if value != default {
                    return Err(refused(name));
                }
            }
            Meaning::Stall => self.stall = number(value)?,
            Meaning::Dump => self.dump = Some(value.into()),
            Meaning::DumpOnly => self.dump_only = Some(value.into()),
            Meaning::SourceSubject => self.subjects[0] = Some(text(value)),
            Meaning::DestinationSubject => self.subjects[1] = Some(text(value)),
            Meaning::TcpBuffer => self.tcp_buffer = size(name, &text(value))?,
            Meaning::Block => self.block = size(name, &text(value))?,
            Meaning::StripeBlock => self.stripe_block = size(name, &text(value))?,
            Meaning::Parallelism => self.parallelism = Some(small(value)?.max(1)),
            Meaning::Concurrency => self.concurrency = Some(small(value)?.max(1)),
            Meaning::Pipelined => self.depth = small(value)?,
            Meaning::NoThirdParty => self.no_third_party = true,
            Meaning::NoDcau => self.protects("clear", name)?,
            Meaning::Safe => self.protects("integrity", name)?,
            Meaning::Private => self.protects("private", name)?,
            Meaning::Offset => self.offset = Some(size(name, &text(value))?),
            Meaning::Length => self.length = Some(size(name, &text(value))?),
            Meaning::ListUrl => self.list_url = Some(value),
            Meaning::Credential => self.credential = Some(value.into()),
            Meaning::SourceCredential => self.credentials[0] = Some(value.into()),
            Meaning::DestinationCredential => self.credentials[1] = Some(value.into()),
            Meaning::Aliases => self.aliases = Some(value.into()),
            Meaning::Sync => self.sync = true,
            Meaning::SyncLevel => {
                let level = text(value);
                let read = level.parse().ok();
                self.level =
                    read.ok_or_else(|| wrong(format!("{name} {level}: is no whole number")))?;
            }
            Meaning::Algorithm => self.algorithm = Some(text(value).to_ascii_lowercase()),
            Meaning::Verify => self.verifies = true,
            Meaning::Apt => self.tuning.apt = true,
            Meaning::NoApt => self.tuning.off = true,
            Meaning::FirstChannels => self.tuning.n0 = Some(text(value)),
            Meaning::Growth => self.tuning.alpha = Some(text(value)),
            Meaning::Epoch => self.tuning.delta = Some(text(value)),
        }
        Ok(())
    }

    fn protects(&mut self, level: &'static str, name: &str) -> OptionResult<()> {
        let word = |level| match level {
            "clear" => "-no-data-channel-authentication",
            "integrity" => "-data-channel-safe",
            _ => "-data-channel-private",
        };
        match self.protect.replace(level) {
            Some(other) if other != level => Err(wrong(format!(
                "option {} and {} are mutually exclusive ({name})",
                word(other),
                word(level)
            ))),
            _ => Ok(()),
        }
    }

    fn check(&self) -> OptionResult<()> {
        if self.tunes_by_apt() && (self.tuning.off || self.parallelism.is_some()) {
            return Err(wrong(
                "-apt, -n0, -alpha and -delta tune the number of channels, which -p or -noapt \
                 fixes",
            ));
        }
        let lists = self.list.is_some() || self.list_url.is_some() || self.dump.is_some();
        match &self.places[..] {
            [] if lists => Ok(()),
            [_, ..] if self.list.is_some() => Err(wrong(
                "No urls are provided on the command line when using the -f option.\n",
            )),
            _ if self.list_url.is_some() => Ok(()),
            [from, to] if from == "-" && to == "-" => Err(wrong(
                "Cannot have stdin as source and stdout as destination.\n",
            )),
            [_, _] => Ok(()),
            [_, _, _, ..] => Err(wrong("too many url strings specified")),
            _ => Err(wrong("source and dest url strings are required")),
        }
    }

    /// GridFTP-APT is wanted by name.
    pub(crate) fn tunes_by_apt(&self) -> bool {
        let AptOptions {
            apt,
            n0,
            alpha,
            delta,
            ..
        } = &self.tuning;
        *apt || n0.is_some() || alpha.is_some() || delta.is_some()
    }
}

impl Default for Options {
    /// The original's defaults.
    fn default() -> Self {
        Self {
            places: Vec::new(),
            list: None,
            list_url: None,
            continues: false,
            relative: false,
            creates: false,
            recursive: false,
            seconds: None,
            verbosity: Verbosity::Nothing,
            debugs: false,
            restarts: false,
            retries: 5,
            interval: 0,
            stall: 600,
            dump: None,
            dump_only: None,
            aliases: None,
            subjects: [None, None],
            credentials: [None, None],
            credential: None,
            tcp_buffer: 0,
            block: 0,
            stripe_block: 0,
            parallelism: None,
            concurrency: None,
            depth: 0,
            no_third_party: false,
            protect: None,
            offset: None,
            length: None,
            sync: false,
            level: 2,
            algorithm: None,
            verifies: false,
            tuning: AptOptions::default(),
        }
    }
}

impl Verbosity {
    /// A later `-v` takes nothing from a `-vb`.
    fn max_of(self, other: Self) -> Self {
        match self {
            Self::Rates => self,
            _ => other,
        }
    }
}

fn refused(name: &str) -> EarlyExit {
    early_exit(format!("\nERROR: {}\n", refusal(name)))
}

fn text(value: OsString) -> String {
    value.to_string_lossy().into_owned()
}

fn whole(name: &str, text: &str) -> OptionResult<u64> {
    text.parse()
        .map_err(|_| wrong(format!("{name} {text}: argument is not a positive integer")))
}

/// `4M`: powers of 1024, `B` for bytes.
fn size(name: &str, text: &str) -> OptionResult<u64> {
    let invalid = || wrong(format!("invalid value for {name}: {text}"));
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let power = match &text[digits.len()..] {
        "" | "b" | "B" => 0,
        "k" | "K" => 1,
        "m" | "M" => 2,
        "g" | "G" => 3,
        _ => return Err(invalid()),
    };
    let number: u64 = digits.parse().map_err(|_| invalid())?;
    number.checked_mul(1024_u64.pow(power)).ok_or_else(invalid)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::globus_url_copy::table::{Class, OPTIONS};

    fn options(line: &str) -> Result<Options, String> {
        let words: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
        Options::parse(&words).map_err(|early_exit| early_exit.text)
    }

    #[test]
    fn options_end_with_the_first_url() {
        let said = options("-vb -p 4 ftp://h/a file:///b").unwrap();
        assert_eq!(
            (said.verbosity, said.parallelism),
            (Verbosity::Rates, Some(4))
        );
        assert_eq!(said.places, ["ftp://h/a", "file:///b"]);
        let late = options("ftp://h/a file:///b -vb").unwrap_err();
        assert!(late.contains("too many url strings specified"), "{late}");
        assert_eq!(options("-- -a -b").unwrap().places, ["-a", "-b"]);
    }

    #[test]
    fn errors_have_the_texts_of_the_original() {
        for (line, told) in [
            ("-bogus x y", "Error, argument #1 (-bogus) : unknown option"),
            (
                "-q --help",
                "argument #2 (--help) : double-dashed option syntax is not allowed",
            ),
            ("-p", "Error, argument #1 (-p) : not enough arguments"),
            ("-p x a b", "argument is not a positive integer"),
            ("-p -1 a b", "argument is not a positive integer"),
            ("-bs 1Q a b", "invalid value for"),
            ("-a -b a b", "-ascii and -binary are mutually exclusive"),
            (
                "-dcsafe -dcpriv a b",
                "option -data-channel-safe and -data-channel-private are mutually exclusive",
            ),
            ("", "source and dest url strings are required"),
            ("a b c", "too many url strings specified"),
            ("- -", "Cannot have stdin as source"),
            ("-f list a b", "No urls are provided on the command line"),
            ("-apt -p 4 a b", "which -p or -noapt fixes"),
            ("-n0 4 -noapt a b", "which -p or -noapt fixes"),
        ] {
            let text = options(line).unwrap_err();
            assert!(text.contains(told), "{line}: {text}");
        }
    }

    #[test]
    fn passwords_are_never_quoted() {
        for line in ["-p ftp://jo:secret@h/ a b", "-bs ftp://jo:s/ecret@h/ a b"] {
            let text = options(line).unwrap_err();
            assert!(!text.contains("ecret"), "{line}: {text}");
        }
    }

    #[test]
    fn refusals_name_option_and_reason() {
        for row in OPTIONS.iter().filter(|row| row.class == Class::Refused) {
            // Not refused where both ends are not known yet.
            if row.word == Meaning::NoThirdParty {
                continue;
            }
            for name in row.names {
                let argument = row.argument.map_or("", |_| " 7");
                let text = options(&format!("{name}{argument} a b")).unwrap_err();
                assert_eq!(text, format!("\nERROR: {name}: {}\n", row.note));
            }
        }
        options("-rst-timeout 0 -data-cred auto a b").unwrap();
    }

    #[test]
    fn sizes_have_powers_of_1024() {
        let bytes = |text| size("-bs", text).ok();
        assert_eq!(bytes("0"), Some(0));
        assert_eq!(bytes("64K"), Some(65536));
        assert_eq!(bytes("1m"), Some(1 << 20));
        assert_eq!(bytes("2G"), Some(2 << 30));
        assert_eq!(bytes("7b"), Some(7));
        for text in ["", "K", "-1", "1T", "1KK", "99999999999G"] {
            assert_eq!(bytes(text), None, "{text}");
        }
    }

    #[test]
    fn a_subject_for_both_is_the_one_that_is_not_said_for_one() {
        let said = options("-ss /CN=a -s /CN=b x y").unwrap();
        let [source, destination] = said.subjects;
        assert_eq!(source.as_deref(), Some("/CN=a"));
        assert_eq!(destination.as_deref(), Some("/CN=b"));
    }
}
