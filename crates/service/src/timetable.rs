//! When a schedule is due: a cron expression on the clock of a time zone.

use cronexpr::{
    Crontab, FallbackTimezoneOption, MakeTimestamp, ParseOptions,
    jiff::{Timestamp as Instant, tz::TimeZone},
};
use jiff::Timestamp;

/// Most bytes of an expression or of the name of a zone.
const TEXT_BYTES_MAX: usize = 200;

/// What an expression has.
const FIELDS: &str =
    "five fields: minute, hour, day of the month, month, day of the week; without L, W or #";

/// Days have at most so many minutes twice.
const REPEATED_MAX: usize = 24 * 60;

/// A cron expression and a time zone.
pub(crate) struct Timetable {
    /// Evaluated as if the zone were UTC: no time of a day is missing there, and none comes twice.
    crontab: Crontab,
    zone: TimeZone,
}

impl Timetable {
    /// Five fields: minute, hour, day of the month, month, day of the week. `L`, `W` and `#`, which
    /// some crons have for days, are refused.
    ///
    /// # Errors
    /// What is wrong: with the expression, or with the name of the zone.
    pub(crate) fn parse(cron: &str, zone: &str) -> Result<Self, TimetableError> {
        let fields: Vec<&str> = cron.split_ascii_whitespace().take(6).collect();
        let [_, _, day, _, weekday] = fields[..] else {
            return Err(TimetableError::Cron(FIELDS.to_owned()));
        };
        // The library has them, but its last day of a December never comes.
        let has_special =
            day.contains(|c: char| c.is_ascii_alphabetic()) || weekday.contains(['L', 'l', '#']);
        if cron.len() > TEXT_BYTES_MAX || has_special {
            return Err(TimetableError::Cron(FIELDS.to_owned()));
        }
        let mut options = ParseOptions::default();
        options.fallback_timezone_option = FallbackTimezoneOption::UTC;
        let wrong = |error: cronexpr::Error| {
            let text = error.to_string();
            TimetableError::Cron(text.lines().last().unwrap_or_default().trim().to_owned())
        };
        let crontab = cronexpr::parse_crontab_with(cron, options).map_err(wrong)?;
        let known = (zone.len() <= TEXT_BYTES_MAX).then(|| TimeZone::get(zone).ok());
        let zone = known.flatten().ok_or(TimetableError::Zone)?;
        Ok(Self { crontab, zone })
    }

    /// The first time after `after`. A time that the clock leaves out comes as much later, one that
    /// it shows twice counts once. `None`: there is none within four years.
    pub(crate) fn next(&self, after: Timestamp) -> Option<Timestamp> {
        let after = Instant::from_second(after.as_second()).ok()?;
        let mut clock = self.zone.to_datetime(after);
        for _ in 0..REPEATED_MAX {
            let as_utc = TimeZone::UTC.to_timestamp(clock).ok()?;
            clock = self
                .crontab
                .find_next(MakeTimestamp(as_utc))
                .ok()?
                .datetime();
            let due = self.zone.to_timestamp(clock).ok()?;
            if due > after {
                return Timestamp::from_second(due.as_second()).ok();
            }
        }
        None
    }
}

/// What is wrong with a timetable.
#[derive(Debug)]
pub(crate) enum TimetableError {
    /// The expression.
    Cron(String),
    /// The zone: there is none of this name.
    Zone,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(cron: &str, zone: &str, after: &str, count: usize) -> Vec<String> {
        let Ok(timetable) = Timetable::parse(cron, zone) else {
            panic!("{cron} {zone}")
        };
        let mut at: Timestamp = after.parse().unwrap();
        let mut next = || {
            at = timetable.next(at).unwrap();
            at.to_string()
        };
        (0..count).map(|_| next()).collect()
    }

    #[test]
    fn a_time_that_the_clock_leaves_out_comes_an_hour_later() {
        // 2026-03-29: from 02:00 to 03:00 in Berlin.
        assert_eq!(
            times("30 2 * * *", "Europe/Berlin", "2026-03-28T00:00:00Z", 3),
            [
                "2026-03-28T01:30:00Z",
                "2026-03-29T01:30:00Z",
                "2026-03-30T00:30:00Z"
            ]
        );
    }

    #[test]
    fn a_time_that_the_clock_shows_twice_counts_once() {
        // 2026-10-25: from 03:00 back to 02:00 in Berlin.
        for (cron, after, expected) in [
            (
                "30 2 * * *",
                "2026-10-24T12:00:00Z",
                &["2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z"][..],
            ),
            (
                "30 2 * * *",
                "2026-10-25T01:10:00Z",
                &["2026-10-26T01:30:00Z"],
            ),
            (
                "*/30 * * * *",
                "2026-10-25T00:10:00Z",
                &[
                    "2026-10-25T00:30:00Z",
                    "2026-10-25T02:00:00Z",
                    "2026-10-25T02:30:00Z",
                ],
            ),
        ] {
            assert_eq!(
                times(cron, "Europe/Berlin", after, expected.len()),
                expected
            );
        }
    }

    #[test]
    fn days_and_names_are_those_of_cron() {
        let after = "2026-11-26T12:00:00Z";
        let mondays = ["2026-11-30T03:15:00Z", "2026-12-07T03:15:00Z"];
        assert_eq!(times("15 3 * * MON", "UTC", after, 2), mondays);
        assert_eq!(
            times("0 0 29 2 *", "UTC", after, 1),
            ["2028-02-29T00:00:00Z"]
        );
    }

    #[test]
    fn what_is_no_timetable_is_refused() {
        for cron in [
            "",
            "* * * *",
            "* * * * * UTC",
            "60 * * * *",
            "* * * * x",
            "a b c d e",
            "0 3 L * *",
            "0 3 15W * *",
            "0 3 * * 5L",
            "0 3 * * MON#2",
        ] {
            assert!(
                matches!(Timetable::parse(cron, "UTC"), Err(TimetableError::Cron(_))),
                "{cron}"
            );
        }
        for zone in ["", "Mars/Olympus", "../etc/passwd", &"x".repeat(300)] {
            let parsed = Timetable::parse("* * * * *", zone);
            assert!(matches!(parsed, Err(TimetableError::Zone)), "{zone}");
        }
        let never = Timetable::parse("0 0 30 2 *", "UTC").ok().unwrap();
        assert_eq!(never.next("2026-01-01T00:00:00Z".parse().unwrap()), None);
    }
}
