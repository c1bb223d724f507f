//! Which tuner, as `--tuner NAME[:key=value,...]` spells it.

mod keys;

use std::{fmt, str::FromStr};

use keys::Keys;
pub use keys::ParseError;

use crate::{
    Bounds, Fixed, Setting, Tuner,
    godwit::Godwit,
    published::{
        Walk, Walker, aimd::Aimd, apt, balman::Balman, cd::Cd, cs, falcon::Falcon, mi::Mi, nm,
        yildirim::Yildirim,
    },
    space::{Axes, Coordinates, Space},
};

/// A tuner and its parameters, not yet running.
///
/// | Name | Keys and their defaults | Module |
/// |---|---|---|
/// | `godwit` | none | [`crate::godwit`] |
/// | `apt` | `n0=4`, `alpha=2`, `movers=1` | [`apt`] |
/// | `cd` | `eps=5`, `dims=1`, and where to begin: `concurrency=2`, `parallelism=8` | [`crate::published::cd`] |
/// | `cs` | `lambda=8`, `eps=5`, `restart=incumbent` or `start`, and those of `cd` | [`cs`] |
/// | `nm` | `lambda=8`, `eps=5`, and those of `cd` | [`nm`] |
/// | `balman` | as `cd` | [`crate::published::balman`] |
/// | `yildirim` | `dims=2`, `concurrency=1`, `parallelism=1` | [`crate::published::yildirim`] |
/// | `mi` | `n0=1`, `alpha=2`, `movers=1` | [`crate::published::mi`] |
/// | `aimd` | `n0=1`, `eps=5`, `movers=1` | [`crate::published::aimd`] |
/// | `falcon` | `n0=1`; N counts movers of one channel | [`crate::published::falcon`] |
/// | `globus` | none | [`crate::Fixed`] |
/// | `static` | `concurrency=1`, `parallelism=4` | [`crate::Fixed`] |
///
/// `dims=1` tunes concurrency with parallelism fixed, `dims=2` both. `eps` is in percent.
#[derive(Clone, Debug, PartialEq)]
pub enum Method {
    /// Ours.
    Godwit,
    /// GridFTP-APT.
    Apt {
        /// The paper's parameters.
        params: apt::Params,
        /// Movers that share the channels.
        movers: u32,
    },
    /// Coordinate descent.
    Cd {
        /// Percent.
        eps: f64,
        /// Where to begin.
        begin: Begin,
    },
    /// Compass search.
    Cs {
        /// The paper's parameters.
        params: cs::Params,
        /// Where to begin.
        begin: Begin,
    },
    /// Nelder-Mead.
    Nm {
        /// The paper's parameters.
        params: nm::Params,
        /// Where to begin.
        begin: Begin,
    },
    /// Additive increase.
    Balman {
        /// Percent.
        eps: f64,
        /// Where to begin.
        begin: Begin,
    },
    /// Doubling.
    Yildirim {
        /// Where to begin.
        begin: Begin,
    },
    /// Multiplicative increase.
    Mi {
        /// Channels of the first epoch.
        n0: Option<u32>,
        /// Growth, more than 1.
        alpha: f64,
        /// Movers that share the channels.
        movers: u32,
    },
    /// Additive increase, multiplicative decrease.
    Aimd {
        /// Channels of the first epoch.
        n0: Option<u32>,
        /// Percent.
        eps: f64,
        /// Movers that share the channels.
        movers: u32,
    },
    /// Gradient steps on a utility.
    Falcon {
        /// Channels of the first epoch.
        n0: Option<u32>,
    },
    /// nc 2, np 8.
    Globus,
    /// One setting for the whole transfer.
    Static(Setting),
}

/// Where a method over (nc) or (nc, np) begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Begin {
    /// nc, where a key says it.
    pub concurrency: Option<u32>,
    /// np, where a key says it.
    pub parallelism: Option<u32>,
    /// Where neither a key nor a remembered setting says anything.
    pub default: Setting,
    /// Tune both, not concurrency alone.
    pub both: bool,
}

/// Where Direct begins: the default of the Globus service.
const GLOBUS: Setting = Setting::new(2, 8);
/// What `static` runs without keys.
const STATIC: Setting = Setting::new(1, 4);

impl Method {
    /// Every name that [`Method::parse`] knows.
    pub const NAMES: &[&str] = &[
        "godwit", "apt", "cd", "cs", "nm", "balman", "yildirim", "mi", "aimd", "falcon", "globus",
        "static",
    ];

    /// Reads `NAME[:key=value,...]`.
    ///
    /// # Errors
    /// An unknown name or key, a value out of its range, a key given twice; the error names it and
    /// what is allowed.
    pub fn parse(text: &str) -> Result<Self, ParseError> {
        let (name, rest) = text.split_once(':').unwrap_or((text, ""));
        let mut keys = Keys::read(name, rest)?;
        let keys_of = &mut keys;
        let method = match name {
            "godwit" => Self::Godwit,
            "apt" => Self::Apt {
                params: apt::Params {
                    n0: keys_of.optional_count("n0")?,
                    alpha: alpha(keys_of)?,
                },
                movers: keys_of.count("movers", 1)?,
            },
            "cd" => Self::Cd {
                eps: eps(keys_of)?,
                begin: Begin::read(keys_of, GLOBUS, "1")?,
            },
            "cs" => Self::Cs {
                params: cs::Params {
                    lambda: lambda(keys_of)?,
                    eps: eps(keys_of)?,
                    restart: match keys_of.word("restart", &["incumbent", "start"])? {
                        "start" => cs::Restart::Start,
                        _ => cs::Restart::Incumbent,
                    },
                },
                begin: Begin::read(keys_of, GLOBUS, "1")?,
            },
            "nm" => Self::Nm {
                params: nm::Params {
                    lambda: lambda(keys_of)?,
                    eps: eps(keys_of)?,
                },
                begin: Begin::read(keys_of, GLOBUS, "1")?,
            },
            "balman" => Self::Balman {
                eps: eps(keys_of)?,
                begin: Begin::read(keys_of, GLOBUS, "1")?,
            },
            "yildirim" => Self::Yildirim {
                begin: Begin::read(keys_of, Setting::new(1, 1), "2")?,
            },
            "mi" => Self::Mi {
                n0: keys_of.optional_count("n0")?,
                alpha: alpha(keys_of)?,
                movers: keys_of.count("movers", 1)?,
            },
            "aimd" => Self::Aimd {
                n0: keys_of.optional_count("n0")?,
                eps: eps(keys_of)?,
                movers: keys_of.count("movers", 1)?,
            },
            "falcon" => Self::Falcon {
                n0: keys_of.optional_count("n0")?,
            },
            "globus" => Self::Globus,
            "static" => Self::Static(Setting::new(
                keys_of.count("concurrency", STATIC.concurrency)?,
                keys_of.count("parallelism", STATIC.parallelism)?,
            )),
            other => {
                return Err(ParseError::Name {
                    name: other.to_owned(),
                    allowed: Self::NAMES.join(", "),
                });
            }
        };
        keys.finish()?;
        Ok(method)
    }

    /// As `--tuner` spells it, without keys.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Godwit => "godwit",
            Self::Apt { .. } => "apt",
            Self::Cd { .. } => "cd",
            Self::Cs { .. } => "cs",
            Self::Nm { .. } => "nm",
            Self::Balman { .. } => "balman",
            Self::Yildirim { .. } => "yildirim",
            Self::Mi { .. } => "mi",
            Self::Aimd { .. } => "aimd",
            Self::Falcon { .. } => "falcon",
            Self::Globus => "globus",
            Self::Static(_) => "static",
        }
    }

    /// The control epoch that the method was published with, seconds: what `--epoch` replaces.
    /// Methods whose papers name none (`mi`, `aimd`) have APT's; those that never move only report
    /// by it, and `godwit` says what it wants with each decision.
    pub const fn epoch_seconds(&self) -> f64 {
        match self {
            Self::Apt { .. } | Self::Mi { .. } | Self::Aimd { .. } => 3.0,
            Self::Cd { .. }
            | Self::Cs { .. }
            | Self::Nm { .. }
            | Self::Balman { .. }
            | Self::Yildirim { .. } => 30.0,
            Self::Falcon { .. } => 4.0,
            Self::Godwit | Self::Globus | Self::Static(_) => 1.0,
        }
    }

    /// Puts the method to work inside `bounds`.
    ///
    /// `start` is a setting that served well before between the same ends; methods begin there
    /// unless a key says where, and those that never move ignore it. Equal arguments give tuners
    /// that decide equally.
    pub fn build(&self, start: Option<Setting>, bounds: Bounds, seed: u64) -> Box<dyn Tuner> {
        let channels = |concurrency| Space::new(Axes::Channels { concurrency }, bounds);
        let begin_n =
            |n0: Option<u32>, default| n0.or(start.map(Setting::channels)).unwrap_or(default);
        match *self {
            Self::Godwit => Box::new(Godwit::new(start, bounds)),
            Self::Apt { params, movers } => {
                let n0 = begin_n(params.n0, apt::N0);
                walker(channels(movers), |space| {
                    apt::Apt::new(space, n0, params.alpha)
                })
            }
            Self::Cd { eps, begin } => {
                let (space, x0) = begin.space(start, bounds);
                walker(space, |space| Cd::new(space, x0, eps))
            }
            Self::Cs { params, begin } => {
                let (space, x0) = begin.space(start, bounds);
                walker(space, |space| cs::Cs::new(space, x0, params, seed))
            }
            Self::Nm { params, begin } => {
                let (space, x0) = begin.space(start, bounds);
                walker(space, |space| nm::Nm::new(space, x0, params))
            }
            Self::Balman { eps, begin } => {
                let (space, x0) = begin.space(start, bounds);
                walker(space, |space| Balman::new(space, x0, eps))
            }
            Self::Yildirim { begin } => {
                let (space, x0) = begin.space(start, bounds);
                walker(space, |space| Yildirim::new(space, x0))
            }
            Self::Mi { n0, alpha, movers } => walker(channels(movers), |space| {
                Mi::new(space, begin_n(n0, 1), alpha)
            }),
            Self::Aimd { n0, eps, movers } => walker(channels(movers), |space| {
                Aimd::new(space, begin_n(n0, 1), eps)
            }),
            Self::Falcon { n0 } => {
                let movers = Space::new(Axes::Concurrency { parallelism: 1 }, bounds);
                let n0 = n0.or(start.map(|s| s.concurrency)).unwrap_or(1);
                walker(movers, |space| Falcon::new(space, n0))
            }
            Self::Globus => Box::new(Fixed::globus(bounds)),
            Self::Static(setting) => Box::new(Fixed::new(setting, bounds)),
        }
    }
}

fn walker<W: Walk + 'static>(space: Space, make: impl FnOnce(Space) -> W) -> Box<dyn Tuner> {
    Box::new(Walker::new(space, make(space)))
}

impl Begin {
    fn read(keys: &mut Keys<'_>, default: Setting, dims: &'static str) -> Result<Self, ParseError> {
        let words = if dims == "2" { ["2", "1"] } else { ["1", "2"] };
        Ok(Self {
            both: keys.word("dims", &words)? == "2",
            concurrency: keys.optional_count("concurrency")?,
            parallelism: keys.optional_count("parallelism")?,
            default,
        })
    }

    fn space(self, start: Option<Setting>, bounds: Bounds) -> (Space, Coordinates) {
        let from = start.unwrap_or(self.default);
        let from = Setting::new(
            self.concurrency.unwrap_or(from.concurrency),
            self.parallelism.unwrap_or(from.parallelism),
        );
        let space = Space::new(
            if self.both {
                Axes::Both
            } else {
                Axes::Concurrency {
                    parallelism: from.parallelism,
                }
            },
            bounds,
        );
        let x0: Vec<f64> = space.point(from).into_iter().map(f64::from).collect();
        (space, space.bound(&x0))
    }
}

fn alpha(keys: &mut Keys<'_>) -> Result<f64, ParseError> {
    keys.number("alpha", 1.1..=16.0, 2.0)
}

fn lambda(keys: &mut Keys<'_>) -> Result<f64, ParseError> {
    keys.number("lambda", 1.0..=1024.0, 8.0)
}

fn eps(keys: &mut Keys<'_>) -> Result<f64, ParseError> {
    keys.number("eps", 0.0..=100.0, 5.0)
}

impl FromStr for Method {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        Self::parse(text)
    }
}

impl fmt::Display for Method {
    /// The name; keys are not repeated.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WIDE: Bounds = Bounds::up_to(128);

    fn first(text: &str, start: Option<Setting>) -> Setting {
        Method::parse(text)
            .expect(text)
            .build(start, WIDE, 1)
            .first()
            .setting
    }

    #[test]
    fn every_name_parses_to_itself_and_builds_a_tuner_of_that_name() {
        for name in Method::NAMES {
            let method = Method::parse(name).expect(name);
            assert_eq!(method.name(), *name);
            assert_eq!(method.build(None, WIDE, 1).name(), *name);
        }
    }

    #[test]
    fn keys_of_static() {
        assert_eq!(
            Method::parse("static:concurrency=3,parallelism=2"),
            Ok(Method::Static(Setting::new(3, 2)))
        );
        assert_eq!(Method::parse("static"), Ok(Method::Static(STATIC)));
    }

    #[test]
    fn the_start_comes_from_keys_then_memory_then_the_paper() {
        let remembered = Some(Setting::new(3, 6));
        for (text, start, setting) in [
            ("apt", None, (1, 4)),
            ("apt", remembered, (1, 18)),
            ("apt:n0=10,movers=2", remembered, (2, 5)),
            ("cs", None, (2, 8)),
            ("cs", remembered, (3, 6)),
            ("cs:concurrency=4", remembered, (4, 6)),
            ("nm:dims=2,parallelism=5", None, (2, 5)),
            ("yildirim", None, (1, 1)),
            ("falcon", remembered, (3, 1)),
            ("static", remembered, (1, 4)),
        ] {
            assert_eq!(
                first(text, start),
                Setting::new(setting.0, setting.1),
                "{text}"
            );
        }
    }

    #[test]
    fn errors_name_the_fault_and_what_is_allowed() {
        for (text, part) in [
            ("magic", "tuner magic: unknown, use one of "),
            ("", "tuner : unknown, use one of "),
            (
                "static:depth=1",
                "tuner static: unknown key depth, use concurrency, parallelism",
            ),
            (
                "static:parallelism=0",
                "tuner static: parallelism=0: wants a whole number of at least 1",
            ),
            (
                "static:parallelism",
                "tuner static: parallelism: wants a whole number of at least 1",
            ),
            (
                "static:parallelism=1,parallelism=2",
                "tuner static: key parallelism given twice",
            ),
            ("globus:a=1", "tuner globus: unknown key a, it has none"),
            (
                "cs:lambda=0",
                "tuner cs: lambda=0: wants a number from 1 to 1024",
            ),
            (
                "cs:eps=NaN",
                "tuner cs: eps=NaN: wants a number from 0 to 100",
            ),
            (
                "cs:restart=x",
                "tuner cs: restart=x: wants incumbent or start",
            ),
        ] {
            let error = Method::parse(text).expect_err(text).to_string();
            assert!(error.starts_with(part), "{error:?} is not {part:?}");
        }
    }
}
