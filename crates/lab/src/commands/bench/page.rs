//! Writes the page of a benchmark from its measurements alone.

use std::fmt::Write as _;

use super::record::{Comparison, Line};
use crate::runner::Environment;

/// What a comparison must show.
struct Target {
    cell: &'static str,
    contender: &'static str,
    of: Of,
    bound: f64,
}

#[derive(Clone, Copy)]
enum Of {
    /// Ours has at least so many times what it has.
    Goodput,
    /// Ours spends at most so many times the processor time, at the side that sends, for each byte.
    Sender,
    /// The same at the side that receives.
    Receiver,
}

/// In all cells the server sends and the client receives.
const TARGETS: [Target; 27] = {
    const fn of(cell: &'static str, contender: &'static str, of: Of, bound: f64) -> Target {
        Target {
            cell,
            contender,
            of,
            bound,
        }
    }
    [
        of("memory/1", "iperf3 -R", Of::Goodput, 1.0),
        of("memory/1", "iperf3 -R -Z", Of::Goodput, 1.0),
        of("memory/1", "GCT <- GCT", Of::Goodput, 1.2),
        of("memory/4", "iperf3 -R", Of::Goodput, 1.0),
        of("memory/4", "iperf3 -R -Z", Of::Goodput, 1.0),
        of("memory/4", "GCT <- GCT", Of::Goodput, 1.2),
        of("memory/16", "iperf3 -R", Of::Goodput, 1.0),
        of("memory/16", "iperf3 -R -Z", Of::Goodput, 1.0),
        of("memory/16", "GCT <- GCT", Of::Goodput, 1.2),
        of("memory/64", "iperf3 -R", Of::Goodput, 1.0),
        of("memory/64", "iperf3 -R -Z", Of::Goodput, 1.0),
        of("memory/64", "GCT <- GCT", Of::Goodput, 1.2),
        of("file/1", "GCT <- GCT", Of::Goodput, 1.5),
        of("file/4", "GCT <- GCT", Of::Goodput, 1.5),
        of("file/4", "GCT <- GCT", Of::Sender, 0.5),
        of("file/4", "GCT <- GCT", Of::Receiver, 0.7),
        of("channels", "godwit, 64 channels", Of::Goodput, 0.85),
        of("guarded/memory/private", "GCT <- GCT", Of::Goodput, 1.5),
        of("guarded/file/private", "GCT <- GCT", Of::Goodput, 2.0),
        of("peers/clear", "curl <- nginx", Of::Goodput, 1.0),
        of("peers/clear", "aria2 <- nginx", Of::Goodput, 1.0),
        of("peers/clear", "lftp <- nginx", Of::Goodput, 1.0),
        of("peers/clear", "rclone <- nginx", Of::Goodput, 1.0),
        of("peers/clear", "xrdcp <- xrootd", Of::Goodput, 1.0),
        of("peers/clear", "GCT <- GCT", Of::Goodput, 1.0),
        of("peers/encrypted", "scp <- sshd", Of::Goodput, 1.0),
        of("peers/encrypted", "rclone <- sshd (sftp)", Of::Goodput, 1.0),
    ]
};

/// The page of these measurements.
pub(super) fn markdown(lines: &[Line]) -> String {
    let all = Comparison::all(lines);
    let mut text = String::from(
        "# Performance\n\nWritten by `cargo xtask bench --page`; nothing here is typed. Contenders \
         of a cell run in turn, round by round, on the loopback \
         of one machine. Figures are medians, in parentheses the least and the most. \"has\" is \
         what godwit had, divided by what that \
         contender had in the same round; the factor behind processor time is what godwit spends \
         of it. The client receives and the \
         server sends. GB are 10^9 bytes.\n\n",
    );
    // Writing to a string cannot fail, here and below.
    for line in lines {
        if let Line::Machine(machine) = line {
            text.push_str(&of_machine(machine));
        }
    }
    text.push_str(&targets(&all));
    for comparison in &all {
        text.push_str(&section(comparison));
    }
    text
}

fn of_machine(machine: &Environment) -> String {
    let mut text = format!(
        "Measured {} UTC with `{}`: {}, {} processors, {} GB of memory, Linux {}.",
        machine.began,
        machine.command,
        machine.processor,
        machine.processors,
        machine.memory_gb,
        machine.kernel
    );
    if !machine.congestion_control.is_empty() {
        let _ = write!(text, " TCP: {}.", machine.congestion_control);
    }
    for (index, (name, version)) in machine.programs.iter().enumerate() {
        let _ = write!(
            text,
            "{}{name} ({version})",
            if index == 0 { " " } else { ", " }
        );
    }
    text.push_str(".\n\n");
    text
}

fn targets(all: &[Comparison]) -> String {
    let mut text = String::from(
        "## What it must show\n\n| Cell | Beside | Must be | Is | |\n|---|---|---|---|---|\n",
    );
    let before = text.len();
    for target in &TARGETS {
        let found = all.iter().find(|c| c.cell.name == target.cell);
        let Some((row, ours)) =
            found.and_then(|c| Some((c.row(target.contender)?, c.row(&c.cell.ours)?)))
        else {
            continue;
        };
        let (what, sign, is) = match target.of {
            Of::Goodput => ("goodput", ">=", row.ours_has.map_or(0.0, |has| has[0])),
            Of::Sender => (
                "sender's processor time",
                "<=",
                ours.server_cpu / row.server_cpu,
            ),
            Of::Receiver => (
                "receiver's processor time",
                "<=",
                ours.client_cpu / row.client_cpu,
            ),
        };
        let met = match target.of {
            Of::Goodput => is >= target.bound,
            Of::Sender | Of::Receiver => is <= target.bound,
        };
        let _ = writeln!(
            text,
            "| {} | {} | {what} {sign} {:.2}x | {is:.2}x | {} |",
            target.cell,
            row.contender,
            target.bound,
            if met { "met" } else { "**missed**" }
        );
    }
    if text.len() == before {
        return String::new();
    }
    text.push('\n');
    text
}

fn section(comparison: &Comparison) -> String {
    let Comparison { cell, left_out, .. } = comparison;
    let mut text = format!("## {}\n\n", cell.name);
    let rounds = comparison.rows().iter().map(|row| row.runs).max();
    match rounds {
        Some(rounds) => {
            let _ = writeln!(text, "{}; {rounds} rounds.\n", cell.title);
            let _ = writeln!(text, "| {} |", comparison.heads().join(" | "));
            text.push_str("|---|--:|--:|--:|--:|\n");
            for line in comparison.table() {
                let _ = writeln!(text, "| {} |", line.join(" | "));
            }
        }
        None => {
            let _ = writeln!(text, "{}:\n", cell.title);
            for fact in &comparison.facts {
                let _ = writeln!(text, "- {fact}");
            }
        }
    }
    text.push('\n');
    let ours = comparison.row(&cell.ours);
    for (bound, value) in &cell.bounds {
        let share = ours
            .as_ref()
            .map_or(0.0, |row| row.value[0] / value * 100.0);
        let (value, unit) = (cell.unit.value(*value), cell.unit.of_value());
        let _ = writeln!(
            text,
            "Bound, {bound}: {value} {unit}; godwit has {share:.0} % of it.\n"
        );
    }
    for (who, why) in left_out {
        let _ = writeln!(text, "Left out: {who}: {why}.\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::{
        super::record::tests::{cell, run},
        *,
    };

    #[test]
    fn a_page_says_what_is_met_and_what_is_missed() {
        let lines = [
            cell("memory/4"),
            run("memory/4", "iperf3 -R", 0, 10.0),
            run("memory/4", "godwit", 0, 20.0),
            run("memory/4", "GCT <- GCT", 0, 19.0),
            Line::LeftOut {
                cell: "memory/4".into(),
                contender: "nc".into(),
                why: "not found".into(),
            },
        ];
        let page = markdown(&lines);
        for expected in [
            "| memory/4 | iperf3 -R | goodput >= 1.00x | 2.00x | met |",
            "| memory/4 | GCT <- GCT | goodput >= 1.20x | 1.05x | **missed** |",
            "Bound, the bus: 100.00 Gbit/s; godwit has 20 % of it.",
            "Left out: nc: not found.",
        ] {
            assert!(page.contains(expected), "{expected}\n{page}");
        }
        assert!(!page.contains("memory/1 "), "{page}");
    }

    #[test]
    fn without_measurements_there_are_no_targets() {
        assert!(!markdown(&[]).contains("must show"));
    }
}
