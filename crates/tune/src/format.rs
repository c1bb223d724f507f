//! Numbers as reasons show them.

use std::fmt;

/// A rate with three digits: `136 Mbit/s`.
pub(crate) struct Rate(pub(crate) f64);

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (value, unit) = match self.0 {
            r if r >= 1e9 => (r / 1e9, "Gbit/s"),
            r if r >= 1e6 => (r / 1e6, "Mbit/s"),
            r if r >= 1e3 => (r / 1e3, "kbit/s"),
            r => (r, "bit/s"),
        };
        let digits = match value {
            v if v >= 100.0 => 0,
            v if v >= 10.0 => 1,
            _ => 2,
        };
        write!(f, "{value:.digits$} {unit}")
    }
}

/// Change from `before` to `after` in percent of `before`, the papers' Delta_c. From nothing to
/// something is infinitely much.
pub(crate) fn change_percent(before: f64, after: f64) -> f64 {
    if before > 0.0 {
        100.0 * (after - before) / before
    } else if after > 0.0 {
        f64::INFINITY
    } else {
        0.0
    }
}

/// A change in words: `rose by 60 %`, `fell by 3 %`.
pub(crate) struct Change(pub(crate) f64);

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            p if p.is_infinite() => f.write_str("rose from nothing"),
            p if p.abs() < 0.05 => f.write_str("stayed"),
            p if p > 0.0 => write!(f, "rose by {:.*} %", digits(p), p),
            p => write!(f, "fell by {:.*} %", digits(p), -p),
        }
    }
}

fn digits(percent: f64) -> usize {
    usize::from(percent.abs() < 9.95)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_have_three_digits() {
        for (bps, text) in [
            (0.0, "0.00 bit/s"),
            (64e3, "64.0 kbit/s"),
            (136.4e6, "136 Mbit/s"),
            (9.41e9, "9.41 Gbit/s"),
        ] {
            assert_eq!(Rate(bps).to_string(), text);
        }
    }

    #[test]
    fn changes_in_words() {
        assert_eq!(
            Change(change_percent(10.0, 16.0)).to_string(),
            "rose by 60 %"
        );
        assert_eq!(
            Change(change_percent(10.0, 9.7)).to_string(),
            "fell by 3.0 %"
        );
        assert_eq!(
            Change(change_percent(0.0, 1.0)).to_string(),
            "rose from nothing"
        );
        assert_eq!(Change(change_percent(0.0, 0.0)).to_string(), "stayed");
    }
}
