//! How long the runs of a scenario take, when loads and changes happen, and the quick variant.

use super::cell::Cell;
use super::format::{Load, Method, Scenario};
use super::quantity::{Size, Time};
use crate::judge;

impl Scenario {
    /// The same with the changes of the quick form.
    #[must_use]
    pub fn quick(mut self) -> Scenario {
        fn fewer<T>(all: &mut Vec<T>, fewer: Vec<T>) {
            if !fewer.is_empty() {
                *all = fewer;
            }
        }
        let quick = std::mem::take(&mut self.quick);
        self.run.ramp = quick.ramp.unwrap_or(self.run.ramp);
        self.run.measure = quick.measure.unwrap_or(self.run.measure);
        if let (Some(evolve), Some(quick)) = (self.run.evolve, quick.evolve) {
            self.shrink_times(quick.0 / evolve.0);
            self.run.evolve = Some(quick);
        }
        if let Some(repeats) = quick.repeats {
            self.repeat_all(repeats);
        }
        self.work.file = quick.file.or(self.work.file);
        self.work.files = quick.files.or(self.work.files);
        fewer(&mut self.sweep.rate, quick.sweep.rate);
        fewer(&mut self.sweep.delay, quick.sweep.delay);
        fewer(&mut self.sweep.loss, quick.sweep.loss);
        fewer(&mut self.sweep.background, quick.sweep.background);
        let controls = quick.sweep.congestion_control;
        fewer(&mut self.sweep.congestion_control, controls);
        fewer(&mut self.sweep.channels, quick.sweep.channels);
        fewer(&mut self.sweep.compute, quick.sweep.compute);
        fewer(&mut self.sweep.traffic, quick.sweep.traffic);
        fewer(&mut self.sweep.files, quick.sweep.files);
        fewer(&mut self.sweep.nodes, quick.sweep.nodes);
        if !quick.methods.is_empty() {
            self.method.retain(|m| quick.methods.contains(&m.name));
            for expectation in &mut self.expect {
                // Of a list of methods none may be left; that must not become a list of all.
                let listed = !expectation.methods.is_empty();
                (expectation.methods).retain(|name| quick.methods.contains(name));
                expectation.full_only |= listed && expectation.methods.is_empty();
            }
        }
        self
    }

    /// So many runs of every cell, whatever the scenario says.
    pub fn repeat_all(&mut self, repeats: u32) {
        self.run.repeats = repeats;
        for method in &mut self.method {
            method.repeats = None;
        }
    }

    /// Runs of each cell of `method`.
    pub fn repeats(&self, method: &Method) -> u32 {
        method.repeats.unwrap_or(self.run.repeats)
    }

    fn shrink_times(&mut self, factor: f64) {
        let loads = self.load.iter_mut().flat_map(Load::times_mut).flatten();
        let changes = self.change.iter_mut().map(|change| &mut change.at);
        let methods = (self.method.iter_mut())
            .flat_map(|method| [&mut method.stagger, &mut method.epoch])
            .flatten();
        for time in loads.chain(changes).chain(methods) {
            time.0 *= factor;
        }
    }

    /// When load or path change, s from the first data, in order; without what is there from the
    /// beginning.
    pub fn steps(&self) -> Vec<f64> {
        let loads = (self.load.iter()).flat_map(|load| <[_; 2]>::from(load.times()));
        let mut steps: Vec<f64> = loads
            .flatten()
            .chain(self.change.iter().map(|change| change.at))
            .map(|time| time.0)
            .filter(|at| *at > 0.0)
            .collect();
        steps.sort_by(f64::total_cmp);
        steps.dedup();
        steps
    }

    /// Whether a method is seen evolving over [`super::RunSpec::evolve`], not measured at once.
    pub fn evolves(&self, method: &Method) -> bool {
        let endless = self.work.files.is_none();
        endless && (method.is_tuned() || method.transfers > 1 || !self.steps().is_empty())
    }

    /// What is left out after the first data, and what is measured then, s.
    pub fn span(&self, method: &Method, cell: &Cell) -> (f64, f64) {
        match self.run.evolve {
            Some(Time(whole)) if self.evolves(method) => {
                let steady = whole * judge::STEADY_PART;
                (whole - steady, steady)
            }
            _ => {
                let more = f64::from(self.run.round_trips) * cell.rtt_s();
                (self.run.ramp.0 + more, self.run.measure.0 + more)
            }
        }
    }

    /// How long all runs take at least, s: what is measured and left out, without starting and
    /// ending programs (about 2 s a run). Sets of files are taken to fill the path, or their time.
    pub fn least_seconds(&self) -> f64 {
        if self.work.file.is_some() {
            return 0.0;
        }
        (self.method.iter())
            .flat_map(|method| {
                self.cells(method)
                    .into_iter()
                    .map(move |cell| (method, cell))
            })
            .map(|(method, cell)| {
                let (ramp, measure) = self.span(method, &cell);
                let once = match self.work.files {
                    #[allow(clippy::cast_precision_loss, reason = "sizes have fewer digits")]
                    Some(Size(total)) => (total as f64 * 8.0 / cell.rate.0).min(measure),
                    None => ramp + measure,
                };
                once * f64::from(self.repeats(method))
            })
            .sum()
    }
}
