//! Whether the machine is at rest.

use std::{fs, thread, time::Duration};

/// Time over which it is seen, s.
const LOOK_S: f64 = 2.0;

/// Time of all processors, in ticks: busy, and in all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Ticks {
    busy: u64,
    all: u64,
}

/// The first line of `/proc/stat`: user, nice, system, idle, iowait, irq, softirq, steal.
fn parse(stat: &str) -> Option<Ticks> {
    let line = stat.lines().next()?.strip_prefix("cpu ")?;
    let numbers = line.split_whitespace().take(8).map(str::parse);
    let numbers: Vec<u64> = numbers.collect::<Result<_, _>>().ok()?;
    let all = numbers
        .iter()
        .try_fold(0_u64, |sum, n| sum.checked_add(*n))?;
    let idle = numbers.get(3)?.checked_add(*numbers.get(4)?)?;
    Some(Ticks {
        busy: all.checked_sub(idle)?,
        all,
    })
}

#[allow(clippy::cast_precision_loss, reason = "ticks of a few seconds")]
fn share(from: Ticks, to: Ticks) -> f64 {
    let all = to.all.saturating_sub(from.all).max(1);
    to.busy.saturating_sub(from.busy) as f64 / all as f64
}

/// Part of the processors that is in use, `0..=1`, over two seconds; `None` where the kernel does
/// not tell.
pub(super) fn busy() -> Option<f64> {
    let look = || parse(&fs::read_to_string("/proc/stat").ok()?);
    let from = look()?;
    thread::sleep(Duration::from_secs_f64(LOOK_S));
    Some(share(from, look()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_and_waiting_for_disks_is_rest() {
        let from = parse("cpu  100 0 50 800 50 0 0 0 0 0\ncpu0 1 2\n").unwrap();
        let to = parse("cpu  130 0 60 840 70 0 0 0 0 0\n").unwrap();
        assert_eq!(share(from, to), 0.4);
        assert_eq!(share(to, to), 0.0);
    }

    #[test]
    fn other_texts_tell_nothing() {
        for text in [
            "",
            "cpu",
            "cpu  1 2 x 4 5",
            "cpu  1 2 3",
            "intr 1",
            "cpu  18446744073709551615 1 1 1 1",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
