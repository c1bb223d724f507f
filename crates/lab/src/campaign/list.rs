//! The list of a campaign: which scenarios run, and what counts.

use serde::{Deserialize, Serialize};

use crate::scenario::{
    ScenarioError, Share, Time,
    error::{Invalid, from_parser},
};

/// The list that comes with the program.
pub const RESULTS: &str = include_str!("../../campaigns/results.toml");
/// Most runs that a list may ask of a cell, and scenarios that it may have.
const RUNS_MAX: u32 = 100;
const SCENARIOS_MAX: usize = 1000;

/// Scenarios that run until each of their cells has what is asked.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct List {
    /// Faithful runs at rest of each cell.
    pub runs: u32,
    /// The same where one run takes longer than `long`.
    pub runs_if_long: u32,
    /// Length of a long run.
    pub long: Time,
    /// Runs of a cell that may not count; then it stays with fewer.
    pub spare: u32,
    /// A machine is at rest while others use at most this part of its processors.
    pub busy: Share,
    /// How long a run waits for that; then it runs without counting.
    pub wait: Time,
    /// In the order in which they run.
    pub scenarios: Vec<String>,
}

impl List {
    /// Reads a list; `file` is for messages.
    ///
    /// # Errors
    /// [`ScenarioError`] for the first thing that is wrong.
    pub fn parse(file: &str, text: &str) -> Result<Self, ScenarioError> {
        let deserializer =
            toml::Deserializer::parse(text).map_err(|error| from_parser(file, text, "", &error))?;
        let list: Self = serde_path_to_error::deserialize(deserializer).map_err(|error| {
            let path = error.path().to_string();
            from_parser(file, text, &path, error.inner())
        })?;
        (list.check()).map_err(|invalid| invalid.at(file, text))?;
        Ok(list)
    }

    fn check(&self) -> Result<(), Invalid> {
        for (field, value) in [("runs", self.runs), ("runs_if_long", self.runs_if_long)] {
            if !(1..=RUNS_MAX).contains(&value) {
                let reason = format!("must lie between 1 and {RUNS_MAX}");
                return Err(Invalid::new(field, reason));
            }
        }
        if self.spare > RUNS_MAX {
            return Err(Invalid::new("spare", format!("must be at most {RUNS_MAX}")));
        }
        if self.wait.0 > 24.0 * 3600.0 {
            return Err(Invalid::new("wait", "must be at most a day"));
        }
        if !(1..=SCENARIOS_MAX).contains(&self.scenarios.len()) {
            let reason = format!("must have 1 to {SCENARIOS_MAX}");
            return Err(Invalid::new("scenarios", reason));
        }
        for (at, name) in self.scenarios.iter().enumerate() {
            if self.scenarios[..at].contains(name) {
                return Err(Invalid::new(format!("scenarios[{at}]"), "is there already"));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{scenario::LIBRARY, simulate::SIMULATIONS};

    #[test]
    fn the_list_of_results_names_scenarios_that_exist_and_all_with_a_page() {
        let list = List::parse("results.toml", RESULTS).unwrap();
        let known: Vec<&str> = (LIBRARY.iter().chain(SIMULATIONS))
            .map(|e| e.name)
            .collect();
        for name in &list.scenarios {
            assert!(known.contains(&&**name), "{name}");
        }
        let pages = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/results");
        for name in known {
            let page = format!("{pages}/{}.md", name.replace('/', "-"));
            let has_page = std::path::Path::new(&page).exists();
            assert!(
                !has_page || list.scenarios.iter().any(|one| one == name),
                "{name}"
            );
        }
    }

    #[test]
    fn malformed_lists_are_refused_by_line_field_and_reason() {
        let said = |from: &str, to: &str| {
            assert!(RESULTS.contains(from), "{from}");
            let text = RESULTS.replacen(from, to, 1);
            List::parse("x.toml", &text).unwrap_err().to_string()
        };
        let error = said("runs = 5", "runs = 0");
        assert!(
            error.ends_with("runs: must lie between 1 and 100"),
            "{error}"
        );
        let error = said("\"apt-sim/tau20\"", "\"apt-sim/tau10\"");
        assert!(
            error.contains(": scenarios[1]: is there already"),
            "{error}"
        );
        let error = said("spare =", "spares =");
        assert!(error.contains("spares: unknown field"), "{error}");
    }
}
