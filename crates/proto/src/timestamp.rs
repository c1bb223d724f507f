//! `YYYYMMDDHHMMSS` in UTC (RFC 3659 §2.3).
//!
//! By hand: two short conversions; jiff would bring clocks and time zones to a crate without them.

use std::fmt;

use crate::text::decimal;

/// Seconds since 1970-01-01 00:00:00 UTC, written as 14 digits. Years 0000-9999.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Timestamp(pub i64);

impl Timestamp {
    /// 0000-01-01 00:00:00, the first that 14 digits can say.
    pub const MIN: Self = Self(-62_167_219_200);
    /// 9999-12-31 23:59:59, the last.
    pub const MAX: Self = Self(253_402_300_799);

    /// Reads exactly 14 digits, with an optional `.fraction` that is dropped. `None` where that is
    /// no date. Second 60 is read as the second after 59 (RFC 3659 §2.3 allows leap seconds).
    pub fn parse(text: &str) -> Option<Self> {
        let digits = match text.split_once('.') {
            Some((digits, fraction)) => {
                if fraction.is_empty() || !fraction.bytes().all(|b| b.is_ascii_digit()) {
                    return None;
                }
                digits
            }
            None => text,
        };
        if digits.len() != 14 || !digits.is_ascii() {
            return None;
        }
        let field = |from: usize, to: usize| decimal::<i64>(&digits[from..to]);
        let (year, month, day) = (field(0, 4)?, field(4, 6)?, field(6, 8)?);
        let (hour, minute, second) = (field(8, 10)?, field(10, 12)?, field(12, 14)?);
        let valid = (1..=12).contains(&month)
            && (1..=days_in_month(year, month)).contains(&day)
            && hour < 24
            && minute < 60
            && second <= 60;
        let days = days_from_civil(year, month, day);
        valid.then(|| Self(days * DAY + hour * 3600 + minute * 60 + second))
    }

    /// The calendar's view; times outside [`Self::MIN`]..=[`Self::MAX`] are moved to the nearer
    /// end.
    pub(crate) fn civil(self) -> Civil {
        let t = self.0.clamp(Self::MIN.0, Self::MAX.0);
        let (year, month, day) = civil_from_days(t.div_euclid(DAY));
        let second = t.rem_euclid(DAY);
        Civil {
            year,
            month,
            day,
            hour: second / 3600,
            minute: second / 60 % 60,
            second: second % 60,
        }
    }
}

/// A date and time of day, all fields in their usual ranges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Civil {
    pub(crate) year: i64,
    pub(crate) month: i64,
    pub(crate) day: i64,
    pub(crate) hour: i64,
    pub(crate) minute: i64,
    pub(crate) second: i64,
}

impl fmt::Display for Timestamp {
    /// 14 digits; times that 14 digits cannot say become the nearest that they can.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let c = self.civil();
        write!(
            f,
            "{:04}{:02}{:02}{:02}{:02}{:02}",
            c.year, c.month, c.day, c.hour, c.minute, c.second
        )
    }
}

const DAY: i64 = 86_400;
/// Days of 400 Gregorian years.
const ERA: i64 = 146_097;
/// Days from 0000-03-01 to 1970-01-01.
const EPOCH: i64 = 719_468;

/// Days since 1970-01-01 of a proleptic Gregorian date. Years begin in March here, so that the leap
/// day is the last of its year (H. Hinnant, "chrono-Compatible Low-Level Date Algorithms").
fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let y = if month <= 2 { year - 1 } else { year };
    let era = y.div_euclid(400);
    let year_of_era = y.rem_euclid(400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * ERA + day_of_era - EPOCH
}

/// Year, month, day; the inverse of [`days_from_civil`].
fn civil_from_days(days: i64) -> (i64, i64, i64) {
    let z = days + EPOCH;
    let era = z.div_euclid(ERA);
    let doe = z.rem_euclid(ERA);
    let year_of_era = (doe - doe / 1460 + doe / 36_524 - doe / 146_096) / 365;
    let day_of_year = doe - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let march_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * march_month + 2) / 5 + 1;
    let month = if march_month < 10 {
        march_month + 3
    } else {
        march_month - 9
    };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (year, month, day)
}

fn days_in_month(year: i64, month: i64) -> i64 {
    match month {
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_dates() {
        for (text, seconds) in [
            ("19700101000000", 0),
            ("19691231235959", -1),
            ("20000229120000", 951_825_600),
            ("20261121060534", 1_795_241_134),
            ("00000101000000", Timestamp::MIN.0),
            ("99991231235959", Timestamp::MAX.0),
        ] {
            assert_eq!(Timestamp::parse(text), Some(Timestamp(seconds)), "{text}");
            assert_eq!(Timestamp(seconds).to_string(), text);
        }
        assert_eq!(
            Timestamp::parse("19980615100045.014"),
            Timestamp::parse("19980615100045")
        );
        assert_eq!(
            Timestamp::parse("20161231235960"),
            Timestamp::parse("20170101000000")
        );
    }

    #[test]
    fn every_day_of_two_eras_comes_back() {
        for days in -EPOCH..(-EPOCH + 2 * ERA) {
            let (y, m, d) = civil_from_days(days);
            assert_eq!(days_from_civil(y, m, d), days);
            assert!((1..=days_in_month(y, m)).contains(&d), "{y}-{m}-{d}");
        }
    }

    #[test]
    fn invalid_dates_are_refused() {
        for bad in [
            "",
            "2026112106053",
            "202611210605345",
            "20261321060534",
            "20260229000000",
            "20260100000000",
            "20260101240000",
            "20260101006000",
            "20260101000061",
            "20260101000000.",
            "20260101000000.x",
            "+2026010100000",
            "2026010100000é",
        ] {
            assert_eq!(Timestamp::parse(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn times_beyond_four_digit_years_are_clamped() {
        assert_eq!(Timestamp(i64::MAX).to_string(), "99991231235959");
        assert_eq!(Timestamp(i64::MIN).to_string(), "00000101000000");
    }
}
