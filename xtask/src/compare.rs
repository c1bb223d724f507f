//! `cargo xtask compare`: the benchmark of an earlier build and of this one, in turn.

use std::{
    collections::BTreeMap,
    fmt::Write,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::Value;

use crate::{bench_build, files::root, run};

/// Cell and contender.
type Cell = (String, String);

/// In the units of the cell.
#[derive(Clone, Copy)]
struct Run {
    /// Bytes, files or logins a second.
    value: f64,
    /// Processor time of both ends for the same work.
    cpu: f64,
}

/// The builds compared, as the table names them.
const BUILDS: [&str; 2] = ["before", "now"];

/// Runs `godwit-lab bench` of both builds in turn and returns a table of medians and of the ratios
/// of the same round. `arguments`: the folder with the earlier build's programs, then
/// `--rounds N` (7), then options of `godwit-lab bench`.
///
/// # Errors
/// A program is missing, a run fails, or no cell was measured by both.
pub(crate) fn compare(arguments: &[String]) -> Result<String, String> {
    let (before, rest) = arguments
        .split_first()
        .ok_or("usage: cargo xtask compare DIR [--rounds N] [BENCH OPTIONS]")?;
    let (rounds, options) = match rest {
        [flag, number, options @ ..] if flag == "--rounds" => {
            let rounds = number.parse().map_err(|e| format!("--rounds: {e}"))?;
            (rounds, options)
        }
        options => (7, options),
    };
    bench_build()?;
    let programs = [PathBuf::from(before), root().join("target/release")];
    let mut measured: [BTreeMap<Cell, Vec<Run>>; 2] = Default::default();
    for round in 0..rounds {
        // The one that goes first changes, so that a drift of the machine favours neither.
        for build in [round % 2, 1 - round % 2] {
            let lines = bench(
                &programs[build],
                options,
                &format!("{}-{round}", BUILDS[build]),
            )?;
            for (cell, run) in runs(&lines) {
                measured[build].entry(cell).or_default().push(run);
            }
        }
    }
    table(&measured)
}

/// The lines of one round of one build.
fn bench(programs: &Path, options: &[String], name: &str) -> Result<String, String> {
    let lines = root().join(format!("target/compare-{name}.jsonl"));
    let mut command = Command::new(programs.join("godwit-lab"));
    command.args(["bench", "--no-peers", "--rounds", "1", "--json"]);
    run(command.arg(&lines).args(options))?;
    fs::read_to_string(&lines).map_err(|e| format!("{}: {e}", lines.display()))
}

/// The runs of each contender in each cell.
fn runs(lines: &str) -> Vec<(Cell, Run)> {
    let text = |line: &Value, key: &str| Some(line.get(key)?.as_str()?.to_owned());
    let run = |line: Value| {
        let cell = (text(&line, "cell")?, text(&line, "contender")?);
        let number = |key: &str| line.get(key)?.as_f64();
        let cpu = number("client_cpu")? + number("server_cpu")?;
        let value = number("value")?;
        Some((cell, Run { value, cpu }))
    };
    let parsed = lines
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok());
    parsed.filter_map(run).collect()
}

fn table(measured: &[BTreeMap<Cell, Vec<Run>>; 2]) -> Result<String, String> {
    let [before, now] = measured;
    let mut text = String::from(
        "Now / before, of the same round: median (least to most). Processor time is that of both \
         ends, for the same work.\n\n\
         | Cell | Contender | Before | Now | Speed, now / before | Processor time, now / before |\n\
         |---|---|--:|--:|--:|--:|\n",
    );
    let mut cells = 0;
    for (cell, then) in before {
        let Some(now) = now.get(cell) else { continue };
        let speed = |runs: &[Run]| spread(runs.iter().map(|run| run.value))[1];
        let ratio = |of: fn(&Run) -> f64| {
            let pairs = then.iter().zip(now);
            let [least, middle, most] = spread(pairs.map(|(then, now)| of(now) / of(then)));
            format!("{middle:.3} ({least:.3} to {most:.3})")
        };
        let (name, contender) = cell;
        let _ = writeln!(
            text,
            "| {name} | {contender} | {:.2} | {:.2} | {} | {} |",
            speed(then),
            speed(now),
            ratio(|run| run.value),
            ratio(|run| run.cpu)
        );
        cells += 1;
    }
    match cells {
        0 => Err("no cell was measured by both builds".to_owned()),
        _ => Ok(text),
    }
}

/// Least, median, most of at least one value.
fn spread(values: impl Iterator<Item = f64>) -> [f64; 3] {
    let mut sorted: Vec<f64> = values.collect();
    sorted.sort_by(f64::total_cmp);
    [0, sorted.len() / 2, sorted.len() - 1].map(|at| sorted[at])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_of_the_same_round() {
        let of = |values: [f64; 3]| {
            let mut cells: BTreeMap<Cell, Vec<Run>> = BTreeMap::new();
            for value in values {
                let line = format!(
                    r#"{{"line":"run","cell":"memory/1","contender":"godwit","value":{value},
                    "client_cpu":1,"server_cpu":{value}}}"#
                );
                for (cell, run) in runs(&line.replace('\n', "")) {
                    cells.entry(cell).or_default().push(run);
                }
            }
            cells
        };
        let text = table(&[of([9.0, 19.0, 39.0]), of([9.9, 19.0, 35.1])]).expect("a cell");
        let row = "| memory/1 | godwit | 19.00 | 19.00 | 1.000 (0.900 to 1.100) | 1.000 (0.903 to \
                   1.090) |";
        assert!(text.contains(row), "{text}");
    }

    #[test]
    fn cells_of_one_build_alone_are_an_error() {
        assert!(table(&Default::default()).is_err());
    }
}
