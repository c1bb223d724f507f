//! A scenario whose runs are chosen one by one, over several invocations.

use std::path::Path;

use super::{
    Run, RunError, choose_methods, describe, measured, output, output::Output, payload::Payload,
    plan,
};
use crate::{
    netns, network,
    scenario::{Cell, Loaded, Method, Scenario},
};

/// Results that grow.
pub struct Continued {
    scenario: Scenario,
    slots: Vec<(Cell, Method)>,
    payload: Payload,
    output: Output,
    done: Vec<Run>,
}

impl Continued {
    /// In a directory that is made when it is not there.
    ///
    /// # Errors
    /// [`RunError`] when nothing can run, or results cannot be read or written.
    pub fn open(
        folder: &Path,
        loaded: &Loaded,
        quick: bool,
        say: &mut dyn FnMut(&str),
    ) -> Result<Self, RunError> {
        netns::available().map_err(network::Error::from)?;
        let mut scenario = loaded.scenario.clone();
        if quick {
            scenario = scenario.quick();
        }
        choose_methods(&mut scenario, &[], say)?;
        let mut once = scenario.clone();
        once.repeat_all(1);
        let slots = plan(&once)
            .into_iter()
            .map(|(_, cell, method)| (cell, method));
        let (output, done) = match folder.join(output::RUNS_FILE).exists() {
            true => Output::reopen(folder)?,
            false => (
                Output::create(folder, loaded, &scenario, quick)?,
                Vec::new(),
            ),
        };
        Ok(Self {
            slots: slots.collect(),
            payload: Payload::create(&scenario.work)?,
            output,
            done,
            scenario,
        })
    }

    /// How many cells and methods there are.
    pub fn slots(&self) -> usize {
        self.slots.len()
    }

    /// Runs so far, with their slots; a method that this machine lacks now has none.
    pub fn done(&self) -> Vec<(Option<usize>, &Run)> {
        let slot = |run: &Run| {
            let mut slots = self.slots.iter();
            slots.position(|(cell, method)| *cell == run.cell && method.name == run.method)
        };
        self.done.iter().map(|run| (slot(run), run)).collect()
    }

    /// One run more, which is kept.
    ///
    /// # Errors
    /// [`RunError`] when nothing can run at all, or results cannot be written.
    pub fn run(&mut self, slot: usize, repeat: u32, attempt: u32) -> Result<Run, RunError> {
        let (cell, method) = &self.slots[slot];
        let number = self.done.last().map_or(0, |run| run.number) + 1;
        let (run, samples) = measured(
            &self.scenario,
            (cell, method),
            &mut self.payload,
            self.output.events(),
            (number, repeat, attempt),
        )?;
        self.output.add(&run, &samples)?;
        self.done.push(run.clone());
        Ok(run)
    }

    /// A line about a run.
    pub fn describe(&self, run: &Run) -> String {
        describe(run, &self.scenario)
    }
}
