//! The measurements of a benchmark: JSON lines while it runs, a table at the end of each cell.

use serde::{Deserialize, Serialize};

use crate::{runner::Environment, stats::median};

/// A line of the file of measurements.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "line", rename_all = "kebab-case")]
pub(super) enum Line {
    /// Where what follows was measured.
    Machine(Environment),
    /// A cell begins.
    Cell(BenchCell),
    /// One run of one contender.
    Run(BenchRun),
    /// What a cell found that has no contenders.
    Fact { cell: String, text: String },
    /// A contender is left out of a cell, from here on.
    LeftOut {
        cell: String,
        contender: String,
        why: String,
    },
}

/// Contenders that do the same work, in turn.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct BenchCell {
    /// As `--only` and `--skip` find it, such as `memory/4`.
    pub(super) name: String,
    /// What moves where, and how much of it.
    pub(super) title: String,
    pub(super) unit: Unit,
    /// The contender that all are held against.
    pub(super) ours: String,
    /// What cannot be passed, by name, in the unit of the cell.
    pub(super) bounds: Vec<(String, f64)>,
}

/// What a cell counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Unit {
    /// Goodput, 10^9 bit a second; processor time in seconds for 10^9 bytes.
    Gbps,
    /// Files a second; processor time in microseconds for a file.
    Files,
    /// Logins a second; processor time in milliseconds for a login.
    Logins,
}

impl Unit {
    pub(super) fn of_value(self) -> &'static str {
        match self {
            Self::Gbps => "Gbit/s",
            Self::Files => "files/s",
            Self::Logins => "logins/s",
        }
    }

    pub(super) fn of_cpu(self) -> &'static str {
        match self {
            Self::Gbps => "s/GB",
            Self::Files => "us/file",
            Self::Logins => "ms/login",
        }
    }

    pub(super) fn value(self, value: f64) -> String {
        match self {
            Self::Gbps => format!("{value:.2}"),
            Self::Files => format!("{value:.0}"),
            Self::Logins => format!("{value:.1}"),
        }
    }

    fn cpu(self, value: f64) -> String {
        match self {
            Self::Gbps => format!("{value:.3}"),
            Self::Files => format!("{value:.0}"),
            Self::Logins => format!("{value:.1}"),
        }
    }
}

/// One run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct BenchRun {
    pub(super) cell: String,
    pub(super) contender: String,
    /// Contenders of one round ran one after the other.
    pub(super) round: u32,
    #[serde(flatten)]
    pub(super) measured: RunResult,
}

/// In the units of the cell.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct RunResult {
    pub(super) value: f64,
    /// Processor time of the side that begins the transfer, its children and the kernel for it.
    pub(super) client_cpu: f64,
    /// The same of the other side.
    pub(super) server_cpu: f64,
}

/// A cell and all of its runs.
pub(super) struct Comparison {
    pub(super) cell: BenchCell,
    pub(super) runs: Vec<BenchRun>,
    pub(super) facts: Vec<String>,
    /// Contender, and why.
    pub(super) left_out: Vec<(String, String)>,
}

/// One contender of a cell.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Row {
    pub(super) contender: String,
    pub(super) runs: usize,
    /// Median, least, most.
    pub(super) value: [f64; 3],
    /// What ours has of it in the same round: median, least, most; none for ours itself.
    pub(super) ours_has: Option<[f64; 3]>,
    pub(super) client_cpu: f64,
    pub(super) server_cpu: f64,
}

impl Comparison {
    /// The comparisons in these lines. Of a cell that was measured again the last is taken, at its
    /// first place.
    pub(super) fn all(lines: &[Line]) -> Vec<Self> {
        let mut all: Vec<Self> = Vec::new();
        for line in lines {
            let cell = match line {
                Line::Machine(_) => continue,
                Line::Cell(cell) => {
                    let begun = Self {
                        cell: cell.clone(),
                        runs: Vec::new(),
                        facts: Vec::new(),
                        left_out: Vec::new(),
                    };
                    match all.iter_mut().find(|c| c.cell.name == cell.name) {
                        Some(earlier) => *earlier = begun,
                        None => all.push(begun),
                    }
                    continue;
                }
                Line::Run(run) => &run.cell,
                Line::Fact { cell, .. } | Line::LeftOut { cell, .. } => cell,
            };
            let Some(of) = all.iter_mut().find(|c| c.cell.name == *cell) else {
                continue;
            };
            match line {
                Line::Run(run) => of.runs.push(run.clone()),
                Line::Fact { text, .. } => of.facts.push(text.clone()),
                Line::LeftOut { contender, why, .. } => {
                    of.left_out.push((contender.clone(), why.clone()));
                }
                Line::Machine(_) | Line::Cell(_) => {}
            }
        }
        all
    }

    /// Contenders in the order of their first runs.
    pub(super) fn rows(&self) -> Vec<Row> {
        let mut names: Vec<&str> = Vec::new();
        for run in &self.runs {
            if !names.contains(&run.contender.as_str()) {
                names.push(&run.contender);
            }
        }
        names
            .into_iter()
            .filter_map(|name| self.row(name))
            .collect()
    }

    /// What was measured of one.
    pub(super) fn row(&self, contender: &str) -> Option<Row> {
        let of = |name: &str| -> Vec<&BenchRun> {
            self.runs.iter().filter(|r| r.contender == name).collect()
        };
        let runs = of(contender);
        let all = |pick: fn(&RunResult) -> f64| -> Vec<f64> {
            runs.iter().map(|r| pick(&r.measured)).collect()
        };
        let ours = of(&self.cell.ours);
        let ratios: Vec<f64> = runs
            .iter()
            .filter_map(|run| {
                let beside = ours.iter().find(|o| o.round == run.round)?;
                Some(beside.measured.value / run.measured.value)
            })
            .collect();
        Some(Row {
            contender: contender.to_owned(),
            runs: runs.len(),
            value: spread(&all(|m| m.value))?,
            ours_has: spread(&ratios).filter(|_| contender != self.cell.ours),
            client_cpu: median(&all(|m| m.client_cpu))?,
            server_cpu: median(&all(|m| m.server_cpu))?,
        })
    }

    /// Heads of the columns of [`Self::table`].
    pub(super) fn heads(&self) -> [String; 5] {
        let (value, cpu) = (self.cell.unit.of_value(), self.cell.unit.of_cpu());
        [
            String::new(),
            format!("{value}, median (range)"),
            format!("{} has", self.cell.ours),
            format!("client, {cpu}"),
            format!("server, {cpu}"),
        ]
    }

    /// A line a contender; of its processor time also what ours takes of that.
    pub(super) fn table(&self) -> Vec<[String; 5]> {
        let unit = self.cell.unit;
        let ours = self.row(&self.cell.ours);
        let cpu = |row: &Row, pick: fn(&Row) -> f64| {
            let own = unit.cpu(pick(row));
            match &ours {
                Some(ours) if row.ours_has.is_some() && pick(row) > 0.0 => {
                    format!("{own} ({:.2}x)", pick(ours) / pick(row))
                }
                _ => own,
            }
        };
        let line = |row: &Row| {
            let [middle, least, most] = row.value.map(|v| unit.value(v));
            [
                row.contender.clone(),
                format!("{middle} ({least}..{most})"),
                row.ours_has.map_or(String::new(), |[middle, least, most]| {
                    format!("{middle:.2}x ({least:.2}..{most:.2})")
                }),
                cpu(row, |r| r.client_cpu),
                cpu(row, |r| r.server_cpu),
            ]
        };
        self.rows().iter().map(line).collect()
    }
}

/// Median, least and most; none of nothing.
fn spread(values: &[f64]) -> Option<[f64; 3]> {
    let least = values.iter().copied().fold(f64::INFINITY, f64::min);
    let most = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    Some([median(values)?, least, most])
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(crate) fn cell(name: &str) -> Line {
        Line::Cell(BenchCell {
            name: name.into(),
            title: "memory to memory".into(),
            unit: Unit::Gbps,
            ours: "godwit".into(),
            bounds: vec![("the bus".into(), 100.0)],
        })
    }

    pub(crate) fn run(cell: &str, contender: &str, round: u32, value: f64) -> Line {
        Line::Run(BenchRun {
            cell: cell.into(),
            contender: contender.into(),
            round,
            measured: RunResult {
                value,
                client_cpu: 1.0 / value,
                server_cpu: 2.0 / value,
            },
        })
    }

    #[test]
    fn ratios_are_taken_within_a_round() {
        let lines = [
            cell("m"),
            run("m", "other", 0, 10.0),
            run("m", "godwit", 0, 20.0),
            run("m", "other", 1, 40.0),
            run("m", "godwit", 1, 40.0),
            run("m", "other", 2, 50.0),
        ];
        let all = Comparison::all(&lines);
        let other = all[0].row("other").unwrap();
        assert_eq!((other.runs, other.value), (3, [40.0, 10.0, 50.0]));
        assert_eq!(other.ours_has, Some([1.5, 1.0, 2.0]));
        assert_eq!(all[0].row("godwit").unwrap().ours_has, None);
        assert_eq!(all[0].row("unknown"), None);
        let table = all[0].table();
        assert_eq!(
            table[0],
            [
                "other",
                "40.00 (10.00..50.00)",
                "1.50x (1.00..2.00)",
                "0.025 (1.50x)",
                "0.050 (1.50x)"
            ]
        );
        assert_eq!(table[1][2], "");
    }

    #[test]
    fn a_cell_that_was_measured_again_counts_once() {
        let lines = [
            cell("a"),
            run("a", "godwit", 0, 1.0),
            cell("b"),
            cell("a"),
            run("a", "godwit", 0, 5.0),
            Line::LeftOut {
                cell: "a".into(),
                contender: "x".into(),
                why: "gone".into(),
            },
        ];
        let all = Comparison::all(&lines);
        let names: Vec<_> = all.iter().map(|c| c.cell.name.as_str()).collect();
        assert_eq!(names, ["a", "b"]);
        assert_eq!(all[0].row("godwit").unwrap().value[0], 5.0);
        assert_eq!(all[0].left_out, [("x".to_owned(), "gone".to_owned())]);
    }

    #[test]
    fn lines_come_back_as_they_were_written() {
        for line in [cell("m"), run("m", "godwit", 3, 2.5)] {
            let text = serde_json::to_string(&line).unwrap();
            assert_eq!(serde_json::from_str::<Line>(&text).unwrap(), line);
        }
        let text = serde_json::to_string(&run("m", "godwit", 3, 2.5)).unwrap();
        assert!(
            text.contains(r#""line":"run""#) && text.contains(r#""value":2.5"#),
            "{text}"
        );
    }
}
