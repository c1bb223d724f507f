//! Numbers with a suffix, and durations, as options take them. By hand: `bytesize` and `humantime`
//! have other grammars than the options, which stay.

use std::time::Duration;

/// Bytes: `K M G T` are powers of 1024. `8M` is 8388608.
pub(crate) fn bytes(text: &str) -> Result<u64, String> {
    let (digits, power) = suffixed(text)?;
    let number: u64 = digits
        .parse()
        .map_err(|_| "wanted a whole number, with K, M, G or T for powers of 1024".to_owned())?;
    number
        .checked_mul(1024_u64.pow(power))
        .ok_or_else(|| "too large: wanted less than 16 E".to_owned())
}

/// Bits per second: `K M G T` are powers of 1000. `1.5G` is 1500000000. At least 64 kbit/s: slower,
/// one round of many channels takes longer than the time-outs of servers.
///
/// # Errors
/// What was wanted.
pub fn bits_per_second(text: &str) -> Result<u64, String> {
    const LEAST: f64 = 64e3;
    const MOST: f64 = 1e15;
    let (digits, power) = suffixed(text)?;
    let plain = digits.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    let number: f64 = (digits.parse().ok().filter(|_| plain))
        .ok_or("wanted bits per second, with K, M, G or T for powers of 1000")?;
    let bps = (number * [1.0, 1e3, 1e6, 1e9, 1e12][power as usize]).round();
    if !(LEAST..=MOST).contains(&bps) {
        return Err("wanted 64K to 1000T bits per second".to_owned());
    }
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // within the bounds
    Ok(bps as u64)
}

/// The number in front of a suffix, and the power that the suffix stands for.
fn suffixed(text: &str) -> Result<(&str, u32), String> {
    let Some((i, c)) = text
        .char_indices()
        .last()
        .filter(|(_, c)| c.is_ascii_alphabetic())
    else {
        return Ok((text, 0));
    };
    let power = match c.to_ascii_uppercase() {
        'K' => 1,
        'M' => 2,
        'G' => 3,
        'T' => 4,
        _ => return Err(format!("unknown suffix {c:?}: use K, M, G or T")),
    };
    Ok((&text[..i], power))
}

/// Bytes, at least 1.
pub(crate) fn some_bytes(text: &str) -> Result<u64, String> {
    match bytes(text)? {
        0 => Err("wanted at least 1".to_owned()),
        n => Ok(n),
    }
}

/// Hours, fractions allowed, at least a second and at most a year.
pub(crate) fn hours(text: &str) -> Result<Duration, String> {
    const SECONDS_MAX: f64 = 366.0 * 86_400.0;
    let hours: f64 = text.parse().map_err(|_| "wanted hours".to_owned())?;
    let seconds = (hours * 3600.0).round();
    if (1.0..=SECONDS_MAX).contains(&seconds) {
        Ok(Duration::from_secs_f64(seconds))
    } else {
        Err("wanted hours, more than 0 and at most a year".to_owned())
    }
}

/// Seconds, fractions allowed, more than 0 and at most a year.
pub(crate) fn seconds(text: &str) -> Result<Duration, String> {
    const YEAR: f64 = 365.0 * 86_400.0;
    let number: f64 = text
        .parse()
        .map_err(|_| "wanted a number of seconds".to_owned())?;
    if number > 0.0 && number <= YEAR {
        Ok(Duration::from_secs_f64(number))
    } else {
        Err("wanted more than 0 and at most a year of seconds".to_owned())
    }
}

/// Seconds, or a number with `s`, `m`, `h` or `d`: more than 0 and at most a year.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let unit = match text.bytes().last() {
        Some(b's') => 1.0,
        Some(b'm') => 60.0,
        Some(b'h') => 3600.0,
        Some(b'd') => 86_400.0,
        _ => return seconds(text),
    };
    let number: Result<f64, _> = text[..text.len() - 1].parse();
    let wanted = "wanted a number of seconds, or one with s, m, h or d for the unit";
    let number = number.map_err(|_| wanted.to_owned())?;
    seconds(&(number * unit).to_string())
}

/// `1.5 GiB`, for people.
#[allow(clippy::cast_precision_loss)] // three digits are shown
pub(crate) fn show_bytes(bytes: u64) -> String {
    scaled(
        bytes as f64,
        1024.0,
        &["B", "KiB", "MiB", "GiB", "TiB", "PiB"],
    )
}

/// `941 Mbit/s`, for people.
pub(crate) fn show_rate(bits_per_second: f64) -> String {
    scaled(
        bits_per_second,
        1000.0,
        &["bit/s", "kbit/s", "Mbit/s", "Gbit/s", "Tbit/s"],
    )
}

fn scaled(mut number: f64, step: f64, units: &[&str]) -> String {
    let mut unit = 0;
    while number >= step && unit + 1 < units.len() {
        number /= step;
        unit += 1;
    }
    let digits = if unit == 0 || number >= 100.0 {
        0
    } else if number >= 10.0 {
        1
    } else {
        2
    };
    format!("{number:.digits$} {}", units[unit])
}

/// A setting as people see it: `2 x 8`, with stripes `2 x 4 stripes x 8`, or `4 stripes x 8` of one
/// control channel.
pub(crate) fn show_setting(concurrency: u64, stripes: u64, parallelism: u64) -> String {
    match (concurrency, stripes) {
        (_, 0 | 1) => format!("{concurrency} x {parallelism}"),
        (1, _) => format!("{stripes} stripes x {parallelism}"),
        _ => format!("{concurrency} x {stripes} stripes x {parallelism}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn byte_suffixes_are_powers_of_1024() {
        for (text, want) in [
            ("0", 0),
            ("17", 17),
            ("1k", 1024),
            ("8M", 8 << 20),
            ("3G", 3 << 30),
            ("2T", 2 << 40),
        ] {
            assert_eq!(bytes(text), Ok(want), "{text}");
        }
        for text in ["", "K", "-1", "1.5M", "1X", "99999999999T", "1MM", "é"] {
            assert!(bytes(text).is_err(), "{text}");
        }
    }

    #[test]
    fn bit_suffixes_are_powers_of_1000() {
        for (text, want) in [
            ("64000", 64_000),
            ("64k", 64_000),
            ("2.5M", 2_500_000),
            ("1.5G", 1_500_000_000),
            ("1T", 1_000_000_000_000),
        ] {
            assert_eq!(bits_per_second(text), Ok(want), "{text}");
        }
        for text in [
            "", "0", "63K", "-1M", "+1M", "1e9", "infG", "NaN", "1001T", "1MB", ".",
        ] {
            assert!(bits_per_second(text).is_err(), "{text}");
        }
    }

    #[test]
    fn seconds_are_positive_and_bounded() {
        assert_eq!(seconds("0.5"), Ok(Duration::from_millis(500)));
        for text in ["0", "-1", "nan", "inf", "1e30", "x"] {
            assert!(seconds(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_duration_is_seconds_or_has_a_unit() {
        for (text, want) in [
            ("90", 90),
            ("90s", 90),
            ("1.5m", 90),
            ("2h", 7200),
            ("1d", 86_400),
        ] {
            assert_eq!(duration(text), Ok(Duration::from_secs(want)), "{text}");
        }
        for text in [
            "", "s", "0m", "-1h", "366d", "nand", "infh", "1w", "1 h", "1é",
        ] {
            assert!(duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn numbers_for_people() {
        assert_eq!(show_bytes(0), "0 B");
        assert_eq!(show_bytes(1536), "1.50 KiB");
        assert_eq!(show_rate(941_000_000.0), "941 Mbit/s");
        assert_eq!(show_rate(12_340_000_000.0), "12.3 Gbit/s");
    }
}
