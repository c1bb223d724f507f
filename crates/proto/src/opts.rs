//! OPTS (RFC 2389 §4, GFD.020).

use std::fmt;

use crate::{mode_e::layout::StripeLayout, text::decimal};

/// What OPTS sets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Opts {
    /// `OPTS RETR a=b;c=d;`.
    Retr(RetrOptions),
    /// `OPTS PASV AllowDelayed=1;` (also SPAS, EPSV).
    AllowDelayed(bool),
    /// `OPTS MLST fact;fact;` (also MLSD, MLSR, MLSC): the raw selection.
    Mlst(String),
    /// `OPTS MLSR OnError=continue;TraverseSymbolicLinks=true;`.
    Mlsr {
        /// Go on where a directory cannot be read.
        continue_on_error: bool,
        /// Follow symbolic links.
        follow_links: bool,
    },
    /// `OPTS CKSM Markers=n;`: seconds between 113 replies, 0 for none.
    Cksm {
        /// Seconds.
        marker_seconds: u32,
    },
    /// `OPTS UTF8 ON` or `OFF`.
    Utf8(bool),
}

/// Options of RETR. `None` leaves a value as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RetrOptions {
    /// `Parallelism=start,min,max;`.
    pub parallelism: Option<Parallelism>,
    /// `StripeLayout=...`.
    pub layout: Option<StripeLayout>,
    /// `PacketSize=n`.
    pub packet_bytes: Option<u64>,
    /// `WindowSize=n`.
    pub window_bytes: Option<u64>,
    /// `Markers=n`: seconds between 112 replies of a RETR.
    pub marker_seconds: Option<u32>,
    /// `Holes=1` or `0`: whether the receiver understands
    /// [`Descriptor::HOLE`](crate::mode_e::Descriptor::HOLE).
    pub holes: Option<bool>,
}

/// Data channels wanted. GCT uses `start` only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parallelism {
    /// To begin with.
    pub start: u32,
    /// At least.
    pub min: u32,
    /// At most.
    pub max: u32,
}

impl Opts {
    /// `target` upper case, `arguments` without leading blanks. `None` for what is not known or
    /// absurd: a client must learn that its option has no effect.
    pub(crate) fn parse(target: &str, arguments: &str) -> Option<Self> {
        match target {
            "RETR" => RetrOptions::parse(arguments).map(Self::Retr),
            "PASV" | "SPAS" | "EPSV" => match single(arguments, "AllowDelayed")? {
                "0" => Some(Self::AllowDelayed(false)),
                "1" => Some(Self::AllowDelayed(true)),
                _ => None,
            },
            "MLSR" if arguments.contains('=') => Self::parse_mlsr(arguments),
            "MLST" | "MLSD" | "MLSR" | "MLSC" => Some(Self::Mlst(arguments.to_owned())),
            "CKSM" => Some(Self::Cksm {
                marker_seconds: decimal(single(arguments, "Markers")?)?,
            }),
            "UTF8" | "UTF-8" => match arguments.trim_end().to_ascii_uppercase().as_str() {
                "" | "ON" => Some(Self::Utf8(true)),
                "OFF" => Some(Self::Utf8(false)),
                _ => None,
            },
            _ => None,
        }
    }

    fn parse_mlsr(arguments: &str) -> Option<Self> {
        let (mut continue_on_error, mut follow_links) = (false, false);
        for option in options(arguments) {
            let (name, value) = option?;
            let value = value.to_ascii_lowercase();
            if name.eq_ignore_ascii_case("OnError") {
                continue_on_error = value == "continue";
            } else if name.eq_ignore_ascii_case("TraverseSymbolicLinks") {
                follow_links = value == "true";
            } else {
                return None;
            }
        }
        Some(Self::Mlsr {
            continue_on_error,
            follow_links,
        })
    }
}

impl RetrOptions {
    fn parse(arguments: &str) -> Option<Self> {
        let mut found = Self::default();
        let (mut blocked, mut block_bytes) = (false, None);
        for option in options(arguments) {
            let (name, value) = option?;
            match name.to_ascii_lowercase().as_str() {
                "parallelism" => found.parallelism = Some(Parallelism::parse(value)?),
                "stripelayout" if value.eq_ignore_ascii_case("Partitioned") => {
                    found.layout = Some(StripeLayout::Partitioned);
                }
                "stripelayout" if value.eq_ignore_ascii_case("Blocked") => blocked = true,
                "blocksize" => block_bytes = Some(decimal(value).filter(|n| *n > 0)?),
                "packetsize" => found.packet_bytes = Some(decimal(value)?),
                "windowsize" => found.window_bytes = Some(decimal(value)?),
                "markers" => found.marker_seconds = Some(decimal(value)?),
                "holes" => found.holes = Some(decimal::<u8>(value).filter(|n| *n < 2)? == 1),
                _ => return None,
            }
        }
        if blocked {
            found.layout = Some(StripeLayout::Blocked {
                block_bytes: block_bytes?,
            });
        }
        Some(found)
    }
}

impl Parallelism {
    /// `start,min,max`; one number stands for all three.
    fn parse(text: &str) -> Option<Self> {
        let mut numbers = text.split(',').map(|n| decimal::<u32>(n.trim_matches(' ')));
        let start = numbers.next()??;
        let min = numbers.next().unwrap_or(Some(start))?;
        let max = numbers.next().unwrap_or(Some(start.max(min)))?;
        (numbers.next().is_none() && start > 0).then_some(Self { start, min, max })
    }
}

/// `a=b;c=d;` as pairs; a piece without `=` is `None`.
fn options(text: &str) -> impl Iterator<Item = Option<(&str, &str)>> {
    text.split(';')
        .map(|piece| piece.trim_matches(' '))
        .filter(|piece| !piece.is_empty())
        .map(|piece| piece.split_once('='))
}

/// The value of the one option allowed here.
fn single<'a>(arguments: &'a str, wanted: &str) -> Option<&'a str> {
    let mut all = options(arguments);
    let (name, value) = all.next()??;
    (all.next().is_none() && name.eq_ignore_ascii_case(wanted)).then_some(value)
}

impl fmt::Display for Opts {
    /// The arguments of OPTS.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Retr(options) => write!(f, "RETR {options}"),
            Self::AllowDelayed(on) => write!(f, "PASV AllowDelayed={};", u8::from(*on)),
            Self::Mlst(facts) if facts.is_empty() => f.write_str("MLST"),
            Self::Mlst(facts) => write!(f, "MLST {facts}"),
            Self::Mlsr {
                continue_on_error,
                follow_links,
            } => {
                let on_error = if *continue_on_error {
                    "continue"
                } else {
                    "stop"
                };
                write!(
                    f,
                    "MLSR OnError={on_error};TraverseSymbolicLinks={follow_links};"
                )
            }
            Self::Cksm { marker_seconds } => write!(f, "CKSM Markers={marker_seconds};"),
            Self::Utf8(on) => f.write_str(if *on { "UTF8 ON" } else { "UTF8 OFF" }),
        }
    }
}

impl fmt::Display for RetrOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(p) = self.parallelism {
            write!(f, "Parallelism={},{},{};", p.start, p.min, p.max)?;
        }
        match self.layout {
            Some(StripeLayout::Partitioned) => f.write_str("StripeLayout=Partitioned;")?,
            Some(StripeLayout::Blocked { block_bytes }) => {
                write!(f, "StripeLayout=Blocked;BlockSize={block_bytes};")?;
            }
            None => {}
        }
        for (name, value) in [
            ("PacketSize", self.packet_bytes),
            ("WindowSize", self.window_bytes),
            ("Markers", self.marker_seconds.map(u64::from)),
            ("Holes", self.holes.map(u64::from)),
        ] {
            if let Some(value) = value {
                write!(f, "{name}={value};")?;
            }
        }
        Ok(())
    }
}
