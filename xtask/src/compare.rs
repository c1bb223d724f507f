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
    let mut measured: [BTreeMap<Cell, Vec<f64>>; 2] = Default::default();
    for round in 0..rounds {
        // The one that goes first changes, so that a drift of the machine favours neither.
        for build in [round % 2, 1 - round % 2] {
            let lines = bench(
                &programs[build],
                options,
                &format!("{}-{round}", BUILDS[build]),
            )?;
            for (cell, value) in values(&lines) {
                measured[build].entry(cell).or_default().push(value);
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

/// What each contender measured in each cell.
fn values(lines: &str) -> Vec<(Cell, f64)> {
    let text = |line: &Value, key: &str| Some(line.get(key)?.as_str()?.to_owned());
    let run = |line: Value| {
        let cell = (text(&line, "cell")?, text(&line, "contender")?);
        Some((cell, line.get("value")?.as_f64()?))
    };
    let parsed = lines
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok());
    parsed.filter_map(run).collect()
}

fn table(measured: &[BTreeMap<Cell, Vec<f64>>; 2]) -> Result<String, String> {
    let [before, now] = measured;
    let mut text = String::from(
        "| Cell | Contender | Before | Now | Now / before, same round: median (least to most) |\n\
         |---|---|--:|--:|--:|\n",
    );
    let mut cells = 0;
    for (cell, then) in before {
        let Some(now) = now.get(cell) else { continue };
        let ratios: Vec<f64> = then.iter().zip(now).map(|(then, now)| now / then).collect();
        let ([_, then, _], [_, now, _], [least, middle, most]) =
            (spread(then), spread(now), spread(&ratios));
        let (name, contender) = cell;
        let ratio = format!("{middle:.3} ({least:.3} to {most:.3})");
        let _ = writeln!(
            text,
            "| {name} | {contender} | {then:.2} | {now:.2} | {ratio} |"
        );
        cells += 1;
    }
    match cells {
        0 => Err("no cell was measured by both builds".to_owned()),
        _ => Ok(text),
    }
}

/// Least, median, most of at least one value.
fn spread(values: &[f64]) -> [f64; 3] {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    [0, sorted.len() / 2, sorted.len() - 1].map(|at| sorted[at])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_of_the_same_round() {
        let line = |value| {
            format!(r#"{{"line":"run","cell":"memory/1","contender":"godwit","value":{value}}}"#)
        };
        let of = |numbers: [f64; 3]| {
            let mut cells: BTreeMap<Cell, Vec<f64>> = BTreeMap::new();
            for number in numbers {
                for (cell, value) in values(&line(number)) {
                    cells.entry(cell).or_default().push(value);
                }
            }
            cells
        };
        let text = table(&[of([10.0, 20.0, 40.0]), of([11.0, 20.0, 36.0])]).expect("a cell");
        let row = "| memory/1 | godwit | 20.00 | 20.00 | 1.000 (0.900 to 1.100) |";
        assert!(text.contains(row), "{text}");
    }

    #[test]
    fn cells_of_one_build_alone_are_an_error() {
        assert!(table(&Default::default()).is_err());
    }
}
