//! Scenarios: readable files that say which experiment to run and what to expect of it.
//!
//! A scenario is a TOML file: a path, hosts, methods (a client and a server program each), what
//! varies, how often it runs, the paper's values, and what we expect. [`Scenario`] documents every
//! word. The repository's own are embedded and go by `family/name`; any file may be loaded by its
//! path.
//!
//! ```toml
//! title = "Goodput against channels"
//!
//! [path]
//! rate = "1 Gbit/s"
//! delay = "10 ms"        # one way
//! queue = "500 packets"
//!
//! [sweep]
//! channels = [1, 8, 32]
//!
//! [[method]]
//! name = "godwit"
//! label = "godwit both ends"
//! client = "godwit"
//! server = "godwitd"
//! tcp_buffer = "64 KiB"
//! ```
//!
//! | Module | What is in it |
//! |---|---|
//! | `format` | the words, one type a table |
//! | `quantity` | numbers with units |
//! | `check` | what types cannot rule out |
//! | `cell` | combinations of what varies |
//! | `network` | their networks, and what becomes of these in mid-run |
//! | `striped` | the same of servers with data nodes |
//! | `time` | how long runs take, and when what changes |
//! | `error` | file, line, field, reason |
//! | `library` | the embedded scenarios |

mod cell;
mod check;
pub(crate) mod error;
mod format;
mod library;
mod network;
mod quantity;
mod striped;
mod time;

#[cfg(test)]
mod tests;

use std::fs;
use std::path::Path;

pub use cell::{Cell, DEFAULT_CONGESTION_CONTROL};
pub use check::{CHANNELS_MAX, RUNS_MAX};
pub use error::ScenarioError;
pub use format::{
    At, Client, Direction, EpochMode, Expectation, Facet, FigureSpec, HostsSpec, Linear, Load,
    Measured, Method, NodeFate, NodeLink, NodesSpec, PaperValue, PathChange, PathSpec, Protect,
    Quantity, Quick, RedSpec, RunSpec, Scenario, Server, Sweep, Theory, Window, Work, X,
};
pub use library::{Embedded, LIBRARY};
pub use network::CLIENT_HOST;
pub(crate) use network::{DATA_ENDS, whole};
pub use quantity::{QueueLength, Rate, Share, Size, Time};
pub use striped::node_host;

/// A scenario with the text it was read from.
#[derive(Debug, Clone, PartialEq)]
pub struct Loaded {
    /// `family/name` for embedded ones, otherwise the name of the file without its ending.
    pub name: String,
    /// The text as it was.
    pub text: String,
    /// What it says.
    pub scenario: Scenario,
}

/// Finds a scenario: first among the embedded ones, then as a file.
///
/// # Errors
/// [`ScenarioError`] when there is neither, or for the first thing that is wrong with it.
pub fn load(name_or_path: &str) -> Result<Loaded, ScenarioError> {
    if let Some(embedded) = LIBRARY.iter().find(|entry| entry.name == name_or_path) {
        return Ok(Loaded {
            name: embedded.name.to_owned(),
            text: embedded.text.to_owned(),
            scenario: parse(embedded.name, embedded.text)?,
        });
    }
    let path = Path::new(name_or_path);
    let unreadable = |reason: String| ScenarioError {
        file: name_or_path.to_owned(),
        line: None,
        field: String::new(),
        reason,
    };
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return Err(unreadable(
                "no scenario of this name and no file; `godwit-lab run --list` shows the names"
                    .to_owned(),
            ));
        }
        Err(error) => return Err(unreadable(error.to_string())),
    };
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    Ok(Loaded {
        name: stem.into_owned(),
        scenario: parse(name_or_path, &text)?,
        text,
    })
}

/// Reads a scenario; `file` is for messages.
///
/// # Errors
/// [`ScenarioError`], for the first thing that is wrong.
pub fn parse(file: &str, text: &str) -> Result<Scenario, ScenarioError> {
    let deserializer = toml::Deserializer::parse(text)
        .map_err(|error| error::from_parser(file, text, "", &error))?;
    let scenario: Scenario = serde_path_to_error::deserialize(deserializer).map_err(|error| {
        let path = error.path().to_string();
        error::from_parser(file, text, &path, error.inner())
    })?;
    (scenario.check()).map_err(|invalid| invalid.at(file, text))?;
    Ok(scenario)
}

impl Scenario {
    /// The method of this name.
    pub fn method(&self, name: &str) -> Option<&Method> {
        self.method.iter().find(|method| method.name == name)
    }
}
