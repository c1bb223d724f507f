//! Quantities with their units, as people write them in scenarios: `"1 Gbit/s"`, `"10 ms"`,
//! `"64 KiB"`, `"0.1 %"`.
//!
//! A number without a unit is refused, since readers would have to guess it. Decimal
//! multiples unless the name says otherwise: 1 kB is 1000 bytes, 1 KiB is 1024.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// A rate, bit/s; above 0.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd)]
pub struct Rate(pub f64);

impl Rate {
    /// No bottleneck: what a scenario without a path has, `"unlimited"`.
    pub const UNLIMITED: Rate = Rate(f64::INFINITY);
}

/// A span of time, seconds; 0 or more.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd)]
pub struct Time(pub f64);

/// An amount of data, bytes; 0 or more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Size(pub u64);

/// A part of a whole, `0..=1`, written in percent.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd)]
pub struct Share(pub f64);

/// The length of a queue.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum QueueLength {
    /// Packets of any size.
    Packets(u64),
    /// Bytes.
    Bytes(u64),
    /// Multiples of the bandwidth-delay product of the cell (rate x RTT), in bytes.
    Bdp(f64),
}

const UNLIMITED: &str = "unlimited";

const RATES: &[(&str, f64)] = &[
    ("bit/s", 1.0),
    ("kbit/s", 1e3),
    ("Mbit/s", 1e6),
    ("Gbit/s", 1e9),
];
const TIMES: &[(&str, f64)] = &[
    ("ns", 1e-9),
    ("us", 1e-6),
    ("ms", 1e-3),
    ("s", 1.0),
    ("min", 60.0),
];
const SIZES: &[(&str, f64)] = &[
    ("B", 1.0),
    ("kB", 1e3),
    ("KB", 1e3),
    ("MB", 1e6),
    ("GB", 1e9),
    ("KiB", 1024.0),
    ("MiB", 1_048_576.0),
    ("GiB", 1_073_741_824.0),
];
const SHARES: &[(&str, f64)] = &[("%", 0.01)];
const QUEUES: &[(&str, f64)] = &[("packets", 1.0), ("BDP", 1.0)];

/// Splits `"1.5 Gbit/s"` into number and unit and multiplies them.
fn parse<'a>(text: &str, units: &[(&'a str, f64)]) -> Result<(f64, &'a str), String> {
    let text = text.trim();
    let split = text
        .find(|c: char| c != '.' && !c.is_ascii_digit())
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let names = || {
        let names: Vec<&str> = units.iter().map(|(name, _)| *name).collect();
        names.join(", ")
    };
    let example = || format!("must be a number and one of {}", names());
    let number: f64 = number.parse().map_err(|_| example())?;
    let unit = unit.trim();
    let (name, factor) = (units.iter())
        .find(|(name, _)| *name == unit)
        .ok_or_else(example)?;
    Ok((number * factor, *name))
}

/// The shortest decimal of `value` in the largest unit that leaves at least 1.
fn show(value: f64, units: &[(&str, f64)]) -> String {
    let (name, factor) = units
        .iter()
        .filter(|(_, factor)| value >= *factor)
        .max_by(|a, b| a.1.total_cmp(&b.1))
        .or(units.first())
        .copied()
        .unwrap_or(("", 1.0));
    // Nine digits hide what binary fractions add.
    let rounded = (value / factor * 1e9).round() / 1e9;
    format!("{rounded} {name}")
}

impl FromStr for Rate {
    type Err = String;

    fn from_str(text: &str) -> Result<Rate, String> {
        if text == UNLIMITED {
            return Ok(Rate::UNLIMITED);
        }
        let (value, _) = parse(text, RATES)?;
        if value < 1.0 {
            return Err("must be at least 1 bit/s".into());
        }
        Ok(Rate(value))
    }
}

impl FromStr for Time {
    type Err = String;

    fn from_str(text: &str) -> Result<Time, String> {
        Ok(Time(parse(text, TIMES)?.0))
    }
}

impl FromStr for Size {
    type Err = String;

    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "the pattern takes no sign, and sizes are far below 2^53"
    )]
    fn from_str(text: &str) -> Result<Size, String> {
        Ok(Size(parse(text, SIZES)?.0.round() as u64))
    }
}

impl FromStr for Share {
    type Err = String;

    fn from_str(text: &str) -> Result<Share, String> {
        let (value, _) = parse(text, SHARES)?;
        if value > 1.0 {
            return Err("must be at most 100 %".into());
        }
        Ok(Share(value))
    }
}

impl FromStr for QueueLength {
    type Err = String;

    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "the pattern takes no sign, and queues are far below 2^53"
    )]
    fn from_str(text: &str) -> Result<QueueLength, String> {
        if let Ok(Size(bytes)) = text.parse() {
            return Ok(QueueLength::Bytes(bytes));
        }
        match parse(text, QUEUES) {
            Ok((number, "packets")) => Ok(QueueLength::Packets(number.round() as u64)),
            Ok((number, _)) => Ok(QueueLength::Bdp(number)),
            Err(_) => Err("must be a number and one of packets, BDP, kB, KiB, MB, MiB".into()),
        }
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Rate::UNLIMITED {
            return f.write_str(UNLIMITED);
        }
        f.write_str(&show(self.0, RATES))
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 == 0.0 {
            return f.write_str("0 s");
        }
        // Minutes are for reading, not for writing: 90 s, not 1.5 min.
        f.write_str(&show(self.0, &TIMES[..4]))
    }
}

impl fmt::Display for Size {
    #[allow(clippy::cast_precision_loss, reason = "sizes are far below 2^53")]
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const DECIMAL: &[(&str, f64)] = &[("B", 1.0), ("kB", 1e3), ("MB", 1e6), ("GB", 1e9)];
        let binary = self.0 >= 1024 && self.0.is_multiple_of(1024);
        let units = if binary { &SIZES[5..] } else { DECIMAL };
        f.write_str(&show(self.0 as f64, units))
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&show(self.0, SHARES))
    }
}

impl fmt::Display for QueueLength {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            QueueLength::Packets(packets) => write!(f, "{packets} packets"),
            QueueLength::Bytes(bytes) => Size(*bytes).fmt(f),
            QueueLength::Bdp(factor) => write!(f, "{factor} BDP"),
        }
    }
}

/// (De)serialisation as the text people write.
macro_rules! as_text {
    ($($type:ty),*) => {$(
        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = String::deserialize(deserializer)?;
                text.parse().map_err(|reason| de::Error::custom(format!("{text:?} {reason}")))
            }
        }

        impl Serialize for $type {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }
    )*};
}

as_text!(Rate, Time, Size, Share, QueueLength);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_understood_and_written_back() {
        for text in ["1 Gbit/s", "100 Mbit/s", "1.5 kbit/s", "7 bit/s"] {
            let rate: Rate = text.parse().expect(text);
            assert_eq!(rate.to_string(), text);
        }
        for text in ["10 ms", "1 s", "50 us", "0 s", "90 s"] {
            let time: Time = text.parse().expect(text);
            assert_eq!(time.to_string(), text);
        }
        for text in ["64 KiB", "100 MB", "576 B", "1.448 kB", "4 MiB", "0 B"] {
            let size: Size = text.parse().expect(text);
            assert_eq!(size.to_string(), text);
        }
        for text in ["0.1 %", "0.01 %", "50 %", "0 %", "100 %"] {
            let share: Share = text.parse().expect(text);
            assert_eq!(share.to_string(), text);
        }
        for text in ["500 packets", "1.5 BDP", "256 KiB"] {
            let queue: QueueLength = text.parse().expect(text);
            assert_eq!(queue.to_string(), text);
        }
    }

    #[test]
    fn values_are_in_base_units() {
        assert_eq!("1Gbit/s".parse(), Ok(Rate(1e9)));
        assert_eq!("10 ms".parse(), Ok(Time(0.01)));
        assert_eq!("64 KiB".parse(), Ok(Size(65_536)));
        assert_eq!("25 %".parse(), Ok(Share(0.25)));
        assert_eq!("1 min".parse(), Ok(Time(60.0)));
    }

    #[test]
    fn quantities_with_a_wrong_or_no_unit_are_refused() {
        for text in [
            "10", "", "ms", "ten ms", "-1 ms", "1 h", "1 ms ms", "1e3 ms",
        ] {
            assert!(text.parse::<Time>().is_err(), "{text}");
        }
        let said = "1 Gbps".parse::<Rate>().expect_err("not a unit");
        assert!(said.contains("Gbit/s"), "{said}");
        assert!("0 Mbit/s".parse::<Rate>().is_err());
        assert!("101 %".parse::<Share>().is_err());
        assert!("5 fathoms".parse::<QueueLength>().is_err());
    }
}
