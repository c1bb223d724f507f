//! Runs the contenders of a cell in turn, stores their measurements and prints them.

use std::{fs, io::Write, time::Duration};

use super::{
    BenchError, Options, io_error,
    record::{BenchCell, BenchRun, Comparison, Line, RunResult, Unit},
};
use crate::{
    peers::{Missing, Usage},
    runner::Environment,
};

/// A program that takes part in a cell, with its server.
pub(super) trait Installable: Copy {
    fn name(self) -> &'static str;

    /// Whether what it needs is installed.
    fn available(self) -> Result<(), Missing>;
}

/// Where all cells are measured.
pub(super) struct Testbed<'a> {
    pub(super) options: &'a Options,
    out: &'a mut dyn Write,
    json: Option<fs::File>,
    lines: Vec<Line>,
}

impl<'a> Testbed<'a> {
    pub(super) fn new(
        options: &'a Options,
        out: &'a mut dyn Write,
        machine: Environment,
    ) -> Result<Self, BenchError> {
        let json = match &options.json {
            Some(path) => Some(fs::File::create(path).map_err(io_error(path))?),
            None => None,
        };
        let mut testbed = Self {
            options,
            out,
            json,
            lines: Vec::new(),
        };
        testbed.say(&format!(
            "loopback, {} processors; {} rounds, interleaved; `has`: to each, in the same round",
            machine.processors,
            testbed.rounds()
        ))?;
        testbed.keep(Line::Machine(machine))?;
        Ok(testbed)
    }

    pub(super) fn rounds(&self) -> u32 {
        match self.options.quick {
            true => 2,
            false => self.options.rounds,
        }
    }

    /// What work is divided by.
    pub(super) fn scale(&self) -> u64 {
        if self.options.quick { 4 } else { 1 }
    }

    pub(super) fn is_asked_for(&self, cell: &str) -> bool {
        let one_of = |parts: &[String]| parts.iter().any(|part| begins(cell, part));
        (self.options.only.is_empty() || one_of(&self.options.only)) && !one_of(&self.options.skip)
    }

    /// Whether one of the cells that begin with `family` may be asked for.
    pub(super) fn may_ask_for(&self, family: &str) -> bool {
        let only = &self.options.only;
        (only.is_empty() || only.iter().any(|part| begins(part, family)))
            && !self.options.skip.iter().any(|part| part == family)
    }

    pub(super) fn say(&mut self, text: &str) -> Result<(), BenchError> {
        Ok(writeln!(self.out, "{text}").map_err(io_error("report".as_ref()))?)
    }

    fn keep(&mut self, line: Line) -> Result<(), BenchError> {
        if let Some(file) = &mut self.json {
            // Plain data of strings and finite numbers: it has a form in JSON.
            let text = serde_json::to_string(&line).unwrap_or_default();
            let path = self.options.json.as_deref().unwrap_or("-".as_ref());
            writeln!(file, "{text}").map_err(io_error(path))?;
        }
        self.lines.push(line);
        Ok(())
    }

    /// Begins a cell that is asked for.
    pub(super) fn begin(&mut self, cell: BenchCell) -> Result<(), BenchError> {
        self.say(&format!("\n{}: {}", cell.name, cell.title))?;
        self.keep(Line::Cell(cell))
    }

    /// Says and keeps what was found.
    pub(super) fn fact(&mut self, cell: &str, text: String) -> Result<(), BenchError> {
        self.say(&format!("  {text}"))?;
        self.keep(Line::Fact {
            cell: cell.to_owned(),
            text,
        })
    }

    /// One run of each contender in each round. A foreign one that fails is left out from then on,
    /// and the output says so.
    ///
    /// # Errors
    /// Ours fails, or the report cannot be written.
    pub(super) fn compare<C>(
        &mut self,
        cell: BenchCell,
        contenders: &[(C, String)],
        mut measure: impl FnMut(&C) -> Result<RunResult, BenchError>,
    ) -> Result<(), BenchError> {
        if !self.is_asked_for(&cell.name) {
            return Ok(());
        }
        let name = cell.name.clone();
        self.begin(cell)?;
        let mut left_out = vec![false; contenders.len()];
        for round in 0..self.rounds() {
            for ((contender, who), left_out) in contenders.iter().zip(&mut left_out) {
                if *left_out {
                    continue;
                }
                let line = match measure(contender) {
                    Ok(measured) => Line::Run(BenchRun {
                        cell: name.clone(),
                        contender: who.clone(),
                        round,
                        measured,
                    }),
                    Err(error) if who.starts_with("godwit") => return Err(error),
                    Err(error) => {
                        *left_out = true;
                        self.left_out(&name, who, &error.to_string())?
                    }
                };
                self.keep(line)?;
            }
        }
        self.show(&name)
    }

    /// The same of those that are installed, and of ours alone where no peers are asked for. Of the
    /// others the output says why.
    pub(super) fn compare_installed<C: Installable>(
        &mut self,
        cell: BenchCell,
        all: &[C],
        measure: impl FnMut(&C) -> Result<RunResult, BenchError>,
    ) -> Result<(), BenchError> {
        let (name, without_peers) = (cell.name.clone(), self.options.no_peers);
        let (mut there, mut missing) = (Vec::new(), Vec::new());
        for who in all {
            match who.available() {
                _ if without_peers && !who.name().starts_with("godwit") => {}
                Ok(()) => there.push((*who, who.name().to_owned())),
                Err(why) => missing.push((who.name(), why.to_string())),
            }
        }
        self.compare(cell, &there, measure)?;
        for (who, why) in missing {
            self.leave_out(&name, who, &why)?;
        }
        Ok(())
    }

    /// Notes that a contender has no part in a cell.
    pub(super) fn leave_out(&mut self, cell: &str, who: &str, why: &str) -> Result<(), BenchError> {
        let line = self.left_out(cell, who, why)?;
        self.keep(line)
    }

    fn left_out(&mut self, cell: &str, who: &str, why: &str) -> Result<Line, BenchError> {
        // What a program says at length is for the terminal; the first line is for the page.
        self.say(&format!("  {who} is left out: {}", why.trim()))?;
        Ok(Line::LeftOut {
            cell: cell.to_owned(),
            contender: who.to_owned(),
            why: why.lines().next().unwrap_or_default().to_owned(),
        })
    }

    fn show(&mut self, name: &str) -> Result<(), BenchError> {
        let all = Comparison::all(&self.lines);
        let Some(comparison) = all.iter().find(|c| c.cell.name == name) else {
            return Ok(());
        };
        let rows = [vec![comparison.heads()], comparison.table()].concat();
        let widths: Vec<usize> = (0..comparison.heads().len())
            .map(|column| rows.iter().map(|r| r[column].len()).max().unwrap_or(0))
            .collect();
        let mut text = String::new();
        for row in &rows {
            let padded = row
                .iter()
                .zip(&widths)
                .enumerate()
                .map(|(i, (cell, width))| match i {
                    0 => format!("  {cell:<width$}"),
                    _ => format!("  {cell:>width$}"),
                });
            text.push_str(&padded.collect::<String>());
            text.push('\n');
        }
        let unit = comparison.cell.unit;
        for (bound, value) in &comparison.cell.bounds {
            text.push_str(&format!(
                "  {bound}: {} {}\n",
                unit.value(*value),
                unit.of_value()
            ));
        }
        self.say(text.trim_end())
    }

    pub(super) fn into_lines(self) -> Vec<Line> {
        self.lines
    }
}

/// Whether `name` is `part`, or below it.
fn begins(name: &str, part: &str) -> bool {
    let rest = name.strip_prefix(part);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// A transfer of so many bytes, as cells of [`Unit::Gbps`] count it.
pub(super) fn of_transfer(bytes: u64, client: Usage, server: Usage) -> RunResult {
    of_rate(
        bytes as f64 / client.wall.as_secs_f64(),
        client.wall,
        client,
        server,
    )
}

/// So many bytes a second for so long.
pub(super) fn of_rate(
    bytes_a_second: f64,
    long: Duration,
    client: Usage,
    server: Usage,
) -> RunResult {
    let gb = bytes_a_second * long.as_secs_f64() / 1e9;
    RunResult {
        value: bytes_a_second * 8.0 / 1e9,
        client_cpu: client.cpu().as_secs_f64() / gb,
        server_cpu: server.cpu().as_secs_f64() / gb,
    }
}

/// A cell of [`Unit::Gbps`] without bounds.
pub(super) fn goodput_cell(name: String, title: String, ours: &str) -> BenchCell {
    BenchCell {
        name,
        title,
        unit: Unit::Gbps,
        ours: ours.to_owned(),
        bounds: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::begins;

    #[test]
    fn a_part_of_a_name_ends_at_a_slash() {
        assert!(begins("memory/1", "memory/1"));
        assert!(begins("guarded/file/private", "guarded"));
        assert!(!begins("memory/16", "memory/1"));
        assert!(!begins("memory", "memory/1"));
    }
}
