//! An explanation as text.

use std::fmt;

use super::{Explanation, Run, SettingSpan};
use crate::units::{show_bytes, show_rate, show_setting};

/// Rows of the table of settings; of longer runs the first and the last are shown.
const ROWS_MAX: usize = 24;
/// A limit of less than this share of the bytes is not printed.
const SHARE_MIN: f64 = 0.005;
/// Characters of the column of settings, at least.
const SETTING_WIDTH: usize = 9;
/// Bars of the picture of goodput.
const BARS_MAX: usize = 60;

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, run) in self.runs.iter().enumerate() {
            if i > 0 {
                writeln!(f)?;
            }
            show(run, f)?;
        }
        if self.lines_ignored > 0 {
            write!(f, "\n{} lines are no events", self.lines_ignored)?;
        }
        Ok(())
    }
}

fn show(run: &Run, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    writeln!(f, "{}", run.command)?;
    write!(
        f,
        "  {} of {} files, {} in {:.1} s: {}",
        run.files_done,
        run.files_done + run.files_failed,
        show_bytes(run.bytes),
        run.seconds,
        show_rate(run.goodput_bps)
    )?;
    if run.retries > 0 {
        write!(f, ", {} attempts repeated", run.retries)?;
    }
    if let Some(bytes) = run.retransmitted_bytes.filter(|b| *b > 0) {
        write!(f, ", {} sent again by TCP", show_bytes(bytes))?;
    }
    match run.exit {
        None => write!(f, "\n  the log ends before the run did")?,
        Some(0) => {}
        Some(exit) => write!(f, "\n  exit status {exit}")?,
    }
    table(run, f)?;
    if run.pipelining > 1 {
        let depth = run.pipelining;
        write!(
            f,
            "\n  up to {depth} small files in flight on a control channel"
        )?;
    }
    if !run.last_reason.is_empty() {
        write!(f, "\n  last setting: {}", run.last_reason)?;
    }
    for limit in run.limits.iter().filter(|l| l.share >= SHARE_MIN) {
        let share = limit.share * 100.0;
        write!(
            f,
            "\n  limited by {} for {share:.0} % of the bytes",
            limit.limited_by
        )?;
        if let Some(advice) = limit.advice {
            write!(f, ": {advice}")?;
        }
    }
    for slower in run.slower_sides.iter().filter(|s| s.share >= SHARE_MIN) {
        let share = slower.share * 100.0;
        write!(
            f,
            "\n  the {} was the slower server for {share:.0} % of the bytes",
            slower.side
        )?;
    }
    if run.phases.is_empty() {
        write!(f, "\n  too short to be measured")?;
    } else if run.limits.is_empty() {
        write!(f, "\n  nothing tells what limited it")?;
    }
    Ok(())
}

fn table(run: &Run, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let phases = &run.phases;
    if phases.is_empty() {
        return Ok(());
    }
    write!(f, "\n  goodput over time: {}", bars(&run.epochs))?;
    let widths = phases.iter().map(|phase| setting_of(phase).len());
    let width = widths.max().unwrap_or(0).max(SETTING_WIDTH);
    write!(
        f,
        "\n  {:>9}  {:>width$}  {:>12}  limited by",
        "until", "setting", "goodput"
    )?;
    let hidden = phases.len().saturating_sub(ROWS_MAX);
    for (i, phase) in phases.iter().enumerate() {
        if hidden > 0 && (ROWS_MAX / 2..ROWS_MAX / 2 + hidden).contains(&i) {
            if i == ROWS_MAX / 2 {
                write!(f, "\n  {:>9}  {hidden} more", "...")?;
            }
            continue;
        }
        write!(
            f,
            "\n  {:>7.1} s  {:>width$}  {:>12}  {}",
            phase.until,
            setting_of(phase),
            show_rate(phase.goodput_bps),
            phase.limited_by.as_deref().unwrap_or("-")
        )?;
    }
    Ok(())
}

fn setting_of(phase: &SettingSpan) -> String {
    show_setting(phase.concurrency, phase.stripes, phase.parallelism)
}

/// One bar for each equal part of the measured time, against the highest goodput.
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "casts of floats saturate, NaN is 0, and a picture needs no precision"
)]
fn bars(epochs: &[SettingSpan]) -> String {
    const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let total: f64 = epochs.iter().map(|p| p.seconds.max(0.0)).sum();
    let most = epochs.iter().map(|p| p.goodput_bps).fold(0.0, f64::max);
    let bars = BARS_MAX.min(epochs.len() * 2);
    let mut at = epochs.iter();
    let mut epoch = at.next();
    let mut end = epoch.map_or(0.0, |p| p.seconds);
    (0..bars)
        .map_while(|i| {
            let middle = total * (i as f64 + 0.5) / bars as f64;
            while middle > end
                && let Some(next) = at.next()
            {
                end += next.seconds;
                epoch = Some(next);
            }
            let height = epoch?.goodput_bps / most * 8.0;
            Some(BARS[(height as usize).min(7)])
        })
        .collect()
}
