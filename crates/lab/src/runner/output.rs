//! The directory of results: runs write it, reports read it.

use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};

use super::{Environment, Run, RunError, Sample};
use crate::file_error::io_error;
use crate::scenario::{self, Loaded, Scenario};

/// The file that makes a directory one of results.
pub const RUNS_FILE: &str = "runs.jsonl";
const CSV_FILE: &str = "runs.csv";
const SAMPLES_FILE: &str = "samples.csv";
const ENVIRONMENT_FILE: &str = "environment.json";
const EVENTS_FOLDER: &str = "events";
/// The scenario as it was.
pub const SCENARIO_FILE: &str = "scenario.toml";

const CSV_HEAD: &str = "number,repeat,attempt,seed,method,rate_bps,delay_s,loss,background,\
congestion_control,channels,compute,traffic,files,file_bytes,nodes,goodput_bps,bytes,seconds,files_done,\
stopped,first_data_s,channels_seen,\
channels_mean,beside_bps,retransmitted,\
in_flight_bytes,rtt_ms,rtt_min_ms,client_cpu_s,server_cpu_s,front_end_cpu_s,stolen_cpu_s,other_cpu_s,\
lateness_mean_us,\
lateness_p99_us,lateness_max_us,dropped_queue_full,dropped_red,dropped_loss,faithful,error";

/// Takes runs as they come.
#[derive(Debug)]
pub(super) struct Output {
    folder: PathBuf,
    runs: File,
    csv: File,
    samples: File,
}

impl Output {
    /// In a directory that is made when it is not there.
    pub(super) fn create(
        folder: &Path,
        loaded: &Loaded,
        scenario: &Scenario,
        quick: bool,
    ) -> Result<Output, RunError> {
        if folder.join(RUNS_FILE).exists() {
            return Err(RunError::Taken(folder.to_owned()));
        }
        let events = folder.join(EVENTS_FOLDER);
        fs::create_dir_all(&events).map_err(io_error(&events))?;
        let create = |name: &str, head: &str| {
            let path = folder.join(name);
            let made = File::create(&path).and_then(|mut file| {
                file.write_all(head.as_bytes())?;
                Ok(file)
            });
            made.map_err(io_error(&path))
        };
        create(SCENARIO_FILE, &loaded.text)?;
        let environment = Environment::now(&loaded.name, quick, scenario);
        let json = serde_json::to_string_pretty(&environment).unwrap_or_default();
        create(ENVIRONMENT_FILE, &(json + "\n"))?;
        Ok(Output {
            runs: create(RUNS_FILE, "")?,
            csv: create(CSV_FILE, &format!("{CSV_HEAD}\n"))?,
            samples: create(SAMPLES_FILE, "number,transfer,seconds,bytes,channels\n")?,
            folder: folder.to_owned(),
        })
    }

    /// Where runs are already, with these. A line that was being written when the program ended is
    /// removed, and so are event logs of runs without a line.
    pub(super) fn reopen(folder: &Path) -> Result<(Output, Vec<Run>), RunError> {
        let path = folder.join(RUNS_FILE);
        let text = fs::read_to_string(&path).map_err(io_error(&path))?;
        let whole = text.rfind('\n').map_or(0, |end| end + 1);
        if whole < text.len() {
            fs::write(&path, &text[..whole]).map_err(io_error(&path))?;
        }
        let runs = read(folder)?.runs;
        let last = runs.last().map_or(0, |run| run.number);
        let events = folder.join(EVENTS_FOLDER);
        for entry in fs::read_dir(&events).map_err(io_error(&events))? {
            let path = entry.map_err(io_error(&events))?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            let number = name.split('-').next().and_then(|n| n.parse::<u32>().ok());
            if number.is_some_and(|number| number > last) {
                fs::remove_file(&path).map_err(io_error(&path))?;
            }
        }
        let append = |name: &str| {
            let path = folder.join(name);
            let opened = OpenOptions::new().create(true).append(true).open(&path);
            opened.map_err(io_error(&path))
        };
        let output = Output {
            runs: append(RUNS_FILE)?,
            csv: append(CSV_FILE)?,
            samples: append(SAMPLES_FILE)?,
            folder: folder.to_owned(),
        };
        Ok((output, runs))
    }

    /// Where event logs go.
    pub(super) fn events(&self) -> PathBuf {
        self.folder.join(EVENTS_FOLDER)
    }

    /// Writes one run.
    pub(super) fn add(&mut self, run: &Run, samples: &[Sample]) -> Result<(), RunError> {
        let json = serde_json::to_string(run).unwrap_or_default();
        writeln!(self.runs, "{json}").map_err(io_error(&self.folder.join(RUNS_FILE)))?;
        writeln!(self.csv, "{}", csv_line(run)).map_err(io_error(&self.folder.join(CSV_FILE)))?;
        let mut text = String::new();
        for sample in samples {
            text.push_str(&format!(
                "{},{},{:.4},{},{}\n",
                run.number, sample.transfer, sample.seconds, sample.bytes, sample.channels
            ));
        }
        Ok((self.samples.write_all(text.as_bytes()))
            .map_err(io_error(&self.folder.join(SAMPLES_FILE)))?)
    }
}

fn csv_line(run: &Run) -> String {
    let cell = &run.cell;
    let mut fields = vec![
        run.number.to_string(),
        run.repeat.to_string(),
        run.attempt.to_string(),
        run.seed.to_string(),
        run.method.clone(),
        format!("{:.0}", cell.rate.0),
        cell.delay.0.to_string(),
        cell.loss.0.to_string(),
        cell.background.0.to_string(),
        cell.congestion_control.clone(),
        cell.channels.to_string(),
        cell.compute.to_string(),
        cell.traffic.to_string(),
        cell.files.to_string(),
        cell.file_bytes.to_string(),
        cell.nodes.to_string(),
    ];
    match &run.result {
        Some(result) => fields.extend([
            format!("{:.0}", result.goodput_bps),
            result.bytes.to_string(),
            format!("{:.4}", result.seconds),
            result.files.to_string(),
            result.stopped.to_string(),
            format!("{:.4}", result.first_data_seconds),
            result.channels_seen.to_string(),
            format!("{:.1}", result.channels_mean),
            result
                .beside_bps
                .map_or(String::new(), |bps| format!("{bps:.0}")),
            format!("{:.6}", result.sender.retransmitted()),
            format!("{:.0}", result.sender.in_flight_bytes),
            format!("{:.3}", result.sender.rtt_ms),
            format!("{:.3}", result.sender.rtt_min_ms),
            format!("{:.2}", result.client_cpu_seconds),
            format!("{:.2}", result.server_cpu_seconds),
            format!("{:.3}", result.front_end_cpu_seconds),
            format!("{:.2}", result.stolen_cpu_seconds),
            format!("{:.2}", result.other_cpu_seconds),
            format!("{:.1}", result.fidelity.lateness_mean_us),
            format!("{:.1}", result.fidelity.lateness_p99_us),
            format!("{:.1}", result.fidelity.lateness_max_us),
            result.fidelity.dropped_queue_full.to_string(),
            result.fidelity.dropped_red.to_string(),
            result.fidelity.dropped_loss.to_string(),
            run.is_faithful().to_string(),
            String::new(),
        ]),
        None => {
            fields.extend(vec![String::new(); 25]);
            let error = run.error.as_deref().unwrap_or_default();
            let first_line = error.lines().next().unwrap_or_default();
            fields.push(format!("\"{}\"", first_line.replace('"', "'")));
        }
    }
    fields.join(",")
}

/// Results as they lie in a directory.
#[derive(Debug, Clone, PartialEq)]
pub struct Results {
    /// The directory.
    pub folder: PathBuf,
    /// Machine, kernel, versions.
    pub environment: Environment,
    /// The scenario, with the changes of its quick variant where that ran.
    pub scenario: Scenario,
    /// Its text.
    pub scenario_text: String,
    /// All runs in their order.
    pub runs: Vec<Run>,
}

/// Reads a directory of results.
///
/// # Errors
/// [`RunError::File`], [`RunError::Unreadable`], [`RunError::Scenario`].
pub fn read(folder: &Path) -> Result<Results, RunError> {
    let text = |name: &str| {
        let path = folder.join(name);
        fs::read_to_string(&path).map_err(io_error(&path))
    };
    let unreadable = |name: &str, line: usize, error: &serde_json::Error| RunError::Unreadable {
        path: folder.join(name),
        line,
        reason: error.to_string(),
    };
    let environment: Environment = serde_json::from_str(&text(ENVIRONMENT_FILE)?)
        .map_err(|error| unreadable(ENVIRONMENT_FILE, error.line(), &error))?;
    let scenario_text = text(SCENARIO_FILE)?;
    let shown = folder.join(SCENARIO_FILE).display().to_string();
    let mut scenario = scenario::parse(&shown, &scenario_text)?;
    if environment.quick {
        scenario = scenario.quick();
    }
    let runs: Vec<Run> = (text(RUNS_FILE)?.lines().enumerate())
        .map(|(index, line)| {
            serde_json::from_str(line).map_err(|error| unreadable(RUNS_FILE, index + 1, &error))
        })
        .collect::<Result<_, _>>()?;
    scenario
        .method
        .retain(|method| runs.iter().any(|run| run.method == method.name));
    Ok(Results {
        folder: folder.to_owned(),
        environment,
        scenario,
        scenario_text,
        runs,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_records_are_read_back() {
        let folder = tempfile::TempDir::new().expect("a folder");
        let loaded = scenario::load("apt-impl/evolution").expect("is embedded");
        let scenario = loaded.scenario.clone();
        let mut output =
            Output::create(folder.path(), &loaded, &scenario, false).expect("can be written");
        let cell = scenario.cells(&scenario.method[0])[0].clone();
        let failed = Run {
            number: 1,
            repeat: 0,
            attempt: 1,
            seed: 1,
            method: scenario.method[0].name.clone(),
            cell,
            result: None,
            error: Some("no, \"never\"".into()),
        };
        let sample = Sample {
            transfer: 0,
            seconds: 0.1,
            bytes: 7,
            channels: 1,
        };
        output.add(&failed, &[sample]).expect("written");
        let again = Output::create(folder.path(), &loaded, &scenario, false);
        assert!(matches!(again, Err(RunError::Taken(_))));
        // The program ended in mid-line.
        write!(output.runs, "{{\"number\":2,").expect("written");
        let lost = output.events().join("2-0.jsonl");
        fs::write(&lost, "").expect("written");
        let (_, found) = Output::reopen(folder.path()).expect("can be continued");
        assert_eq!(found, std::slice::from_ref(&failed));
        assert!(!lost.exists());
        let results = read(folder.path()).expect("can be read");
        assert_eq!(results.runs, std::slice::from_ref(&failed));
        assert_eq!(results.environment.scenario, "apt-impl/evolution");
        assert_eq!(results.scenario.method.len(), 1, "the others did not run");
        let columns = |line: &str| line.split(',').count();
        // The comma of the error is inside quotes.
        assert_eq!(columns(&csv_line(&failed)), columns(CSV_HEAD) + 1);
    }
}
