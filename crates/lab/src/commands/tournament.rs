//! `godwit-lab tournament`: every tuner on thousands of modelled conditions, in seconds.
//!
//! The model ([`godwit_tune::model`]) tells good decisions from bad ones; how fast a real path is,
//! only `godwit-lab run` tells.

use std::io::{self, Write};

use clap::Args;
use godwit_tune::model::arena::{Entrant, STEP_S, run as run_alone, run_together};
use godwit_tune::model::score::{Best, Score, best, jain, score};
use godwit_tune::model::{Condition, Family};
use godwit_tune::{Bounds, Method};
use serde::Serialize;

/// What no tuner may pass: the default of `godwit cp`.
const BOUNDS: Bounds = Bounds::up_to(128);
/// Worst conditions to show.
const WORST: usize = 10;
/// Copies on one path, and how far apart they begin, s.
const COPIES: u32 = 4;
const APART_S: f64 = 10.0;
/// Repeats of the copies.
const COPIES_REPEATS: u64 = 10;

/// Which tuners run on which paths.
#[derive(Debug, Args)]
pub struct Options {
    /// Conditions of each family
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..=100_000))]
    pub conditions: u64,
    /// First seed; equal seeds give equal tables
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Only these tuners, with keys as of `godwit cp --tuner`; may be given again
    #[arg(long = "tuner", value_name = "NAME[:KEY=VALUE,...]")]
    pub tuners: Vec<Method>,
    /// Control epoch of the published tuners instead of the one they were published with
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub epoch: Option<f64>,
    /// A table for each family too
    #[arg(long)]
    pub families: bool,
    /// One JSON object instead of tables
    #[arg(long)]
    pub json: bool,
}

fn seconds(text: &str) -> Result<f64, String> {
    text.parse()
        .ok()
        .filter(|s| (0.1..=3600.0).contains(s))
        .ok_or_else(|| "wants seconds from 0.1 to 3600".to_owned())
}

/// Everything that was found.
#[derive(Debug, Serialize)]
struct TournamentReport {
    seed: u64,
    conditions_per_family: u64,
    rows: Vec<Row>,
    copies: Vec<Copies>,
    worst: Vec<Worst>,
}

/// A tuner in a family, or in all.
#[derive(Debug, Serialize)]
struct Row {
    tuner: &'static str,
    family: &'static str,
    regret_median: f64,
    regret_p90: f64,
    convergence_median_s: f64,
    convergence_p90_s: f64,
    adaptation_p90_s: f64,
    steady_median: f64,
    steady_p10: f64,
    channels_median: f64,
    channels_p90: f64,
    failed: usize,
    runs: usize,
}

/// Several copies of a tuner on one path.
#[derive(Debug, Serialize)]
struct Copies {
    tuner: &'static str,
    jain_median: f64,
    jain_worst: f64,
    /// Of all copies together, over the capacity.
    total_median: f64,
}

/// A condition that `godwit` did badly in; `Family::draw(seed)` makes it again.
#[derive(Debug, Serialize)]
struct Worst {
    family: &'static str,
    seed: u64,
    regret: f64,
    steady: f64,
}

/// Runs the tournament and prints it.
///
/// # Errors
/// Standard output cannot be written.
pub fn run(options: &Options, out: &mut impl Write) -> io::Result<()> {
    let report = compete(options);
    if options.json {
        serde_json::to_writer(&mut *out, &report)?;
        return writeln!(out);
    }
    write!(out, "{}", TournamentTable(&report))
}

fn compete(options: &Options) -> TournamentReport {
    let tuners = if options.tuners.is_empty() {
        let all = Method::NAMES.iter().map(|name| name.parse());
        all.collect::<Result<Vec<Method>, _>>()
            .expect("listed names parse")
    } else {
        options.tuners.clone()
    };
    let conditions: Vec<(u64, Condition, Best)> = Family::ALL
        .into_iter()
        .flat_map(|family| (0..options.conditions).map(move |n| (family, n)))
        .map(|(family, n)| {
            let seed = options.seed.wrapping_add(n);
            let condition = family.draw(seed);
            let best = best(&condition, BOUNDS);
            (seed, condition, best)
        })
        .collect();
    let (mut rows, mut copies, mut worst) = (Vec::new(), Vec::new(), Vec::new());
    for tuner in &tuners {
        let scores: Vec<(Family, u64, Score)> = conditions
            .iter()
            .map(|(seed, condition, best)| {
                let entrant = entrant(tuner, options, *seed, 0.0);
                let track = run_alone(entrant, condition, *seed);
                (condition.family, *seed, score(&track, condition, best))
            })
            .collect();
        rows.push(Row::new(tuner, "all", scores.iter().map(|s| s.2).collect()));
        for family in Family::ALL
            .into_iter()
            .filter(|_| options.families || options.json)
        {
            let of_family = scores.iter().filter(|s| s.0 == family).map(|s| s.2);
            rows.push(Row::new(tuner, family.as_str(), of_family.collect()));
        }
        copies.push(Copies::new(tuner, options));
        if *tuner == Method::Godwit {
            worst = worst_of(scores);
        }
    }
    TournamentReport {
        seed: options.seed,
        conditions_per_family: options.conditions,
        rows,
        copies,
        worst,
    }
}

fn entrant(tuner: &Method, options: &Options, seed: u64, from_s: f64) -> Entrant {
    Entrant {
        tuner: tuner.build(None, BOUNDS, seed),
        epoch_s: options.epoch.unwrap_or(tuner.epoch_seconds()),
        from_s,
    }
}

fn worst_of(mut scores: Vec<(Family, u64, Score)>) -> Vec<Worst> {
    scores.sort_by(|a, b| b.2.regret.total_cmp(&a.2.regret));
    scores.truncate(WORST);
    let worst = scores.into_iter().map(|(family, seed, score)| Worst {
        family: family.as_str(),
        seed,
        regret: score.regret,
        steady: score.steady,
    });
    worst.collect()
}

impl Row {
    fn new(tuner: &Method, family: &'static str, scores: Vec<Score>) -> Self {
        let quantile = |of: fn(&Score) -> f64, q| quantile(scores.iter().map(of).collect(), q);
        Self {
            tuner: tuner.name(),
            family,
            regret_median: quantile(|s| s.regret, 0.5),
            regret_p90: quantile(|s| s.regret, 0.9),
            convergence_median_s: quantile(|s| s.convergence_s, 0.5),
            convergence_p90_s: quantile(|s| s.convergence_s, 0.9),
            adaptation_p90_s: quantile(|s| s.adaptation_s, 0.9),
            steady_median: quantile(|s| s.steady, 0.5),
            steady_p10: quantile(|s| s.steady, 0.1),
            channels_median: quantile(|s| s.channels, 0.5),
            channels_p90: quantile(|s| s.channels, 0.9),
            failed: scores.iter().filter(|s| s.failed()).count(),
            runs: scores.len(),
        }
    }
}

impl Copies {
    /// Copies that begin one after the other on 1 Gbit/s, 20 ms, of whose windows 29 fill the path.
    fn new(tuner: &Method, options: &Options) -> Self {
        let condition = Condition {
            noise: 0.03,
            evidence: true,
            seconds: 120.0,
            ..Condition::path(965e6, 0.02, 86_000.0)
        };
        let (mut indices, mut totals) = (Vec::new(), Vec::new());
        for repeat in 0..COPIES_REPEATS {
            let seed = options.seed.wrapping_add(repeat);
            let entrants = (0..COPIES)
                .map(|n| entrant(tuner, options, seed, APART_S * f64::from(n)))
                .collect();
            let shares: Vec<f64> = run_together(entrants, &condition, seed)
                .iter()
                .map(|track| {
                    // The last third: all copies have settled long before.
                    let tail = &track.goodput_bps[track.goodput_bps.len() * 2 / 3..];
                    tail.iter().sum::<f64>() * STEP_S / (condition.seconds / 3.0)
                })
                .collect();
            indices.push(jain(&shares));
            totals.push(shares.iter().sum::<f64>() / condition.capacity_bps);
        }
        Self {
            tuner: tuner.name(),
            jain_median: quantile(indices.clone(), 0.5),
            jain_worst: quantile(indices, 0.0),
            total_median: quantile(totals, 0.5),
        }
    }
}

/// The value below which a share `q` of `values` lies; the nearest one that is there.
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "an index of a short list"
)]
fn quantile(mut values: Vec<f64>, q: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    values[((values.len() - 1) as f64 * q).round() as usize]
}

struct TournamentTable<'a>(&'a TournamentReport);

impl std::fmt::Display for TournamentTable<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let TournamentReport {
            seed,
            conditions_per_family,
            rows,
            copies,
            worst,
        } = self.0;
        writeln!(
            f,
            "{conditions_per_family} conditions of each family from seed {seed}, at most {} \
             channels\n",
            BOUNDS.channels_max
        )?;
        writeln!(
            f,
            "{:9} {:14} {:>15} {:>17} {:>8} {:>13} {:>13} {:>11}",
            "", "", "regret %", "converged s", "adapted", "steady", "channels x", ""
        )?;
        writeln!(
            f,
            "{:9} {:14} {:>7} {:>7} {:>8} {:>8} {:>8} {:>6} {:>6} {:>6} {:>6} {:>11}",
            "tuner",
            "family",
            "median",
            "p90",
            "median",
            "p90",
            "p90 s",
            "median",
            "p10",
            "median",
            "p90",
            "failed"
        )?;
        for row in rows {
            writeln!(
                f,
                "{:9} {:14} {:7.1} {:7.1} {:8.1} {:8.1} {:8.1} {:6.3} {:6.3} {:6.2} {:6.2} {:>11}",
                row.tuner,
                row.family,
                100.0 * row.regret_median,
                100.0 * row.regret_p90,
                row.convergence_median_s,
                row.convergence_p90_s,
                row.adaptation_p90_s,
                row.steady_median,
                row.steady_p10,
                row.channels_median,
                row.channels_p90,
                format!("{} of {}", row.failed, row.runs)
            )?;
        }
        writeln!(
            f,
            "\n{COPIES} copies, {APART_S} s apart, on 1 Gbit/s, 20 ms:"
        )?;
        writeln!(
            f,
            "{:9} {:>12} {:>11} {:>12}",
            "tuner", "Jain median", "Jain worst", "total median"
        )?;
        for row in copies {
            writeln!(
                f,
                "{:9} {:12.3} {:11.3} {:12.3}",
                row.tuner, row.jain_median, row.jain_worst, row.total_median
            )?;
        }
        if !worst.is_empty() {
            writeln!(f, "\nworst for godwit:")?;
        }
        for row in worst {
            writeln!(
                f,
                "{:14} seed {:5}  regret {:5.1} %  steady {:.3}",
                row.family,
                row.seed,
                100.0 * row.regret,
                row.steady
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn printed(json: bool) -> String {
        let options = Options {
            conditions: 1,
            seed: 3,
            tuners: vec!["godwit".parse().unwrap(), "globus".parse().unwrap()],
            epoch: None,
            families: false,
            json,
        };
        let mut out = Vec::new();
        run(&options, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_table_has_a_row_for_each_tuner_and_repeats_itself() {
        let table = printed(false);
        assert_eq!(table, printed(false));
        let of_globus = table.lines().filter(|l| l.starts_with("globus ")).count();
        assert_eq!(of_globus, 2, "{table}");
    }

    #[test]
    fn json_is_one_object_a_line() {
        let value: serde_json::Value = serde_json::from_str(&printed(true)).unwrap();
        assert_eq!(
            value["rows"].as_array().unwrap().len(),
            2 * (1 + Family::ALL.len())
        );
    }

    #[test]
    fn quantiles_are_values_that_are_there() {
        assert_eq!(quantile(vec![3.0, 1.0, 2.0], 0.5), 2.0);
        assert_eq!(quantile(vec![3.0, 1.0, f64::INFINITY], 0.9), f64::INFINITY);
    }
}
