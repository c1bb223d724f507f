//! The transfer service under load: a process that serves, its database, and many simulated agents
//! and users that speak its protocols over real connections and move no bytes.
//!
//! # Map
//! - [`LoadedService`]: the service with its database in a directory of its own, and its accounts
//! - [`Agent`]: one simulated agent, its [`Conduct`]; [`Tally`]: what all of them saw
//! - [`Http`]: a connection of an agent or a user
//! - [`Rucio`]: submitters and polls as Rucio has them, over the interface of FTS3
//! - [`job_lines`]: a submission

mod agents;
mod http;
mod rucio;
mod site;

use crate::file_error::FileError;
use crate::peers;

pub use self::agents::{Agent, Conduct, Tally, work};
pub use self::http::Http;
pub use self::rucio::Rucio;
pub use self::site::{Account, LoadedService, new_account};

/// Why there is no measurement.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// A program is missing or failed.
    #[error(transparent)]
    Peer(#[from] peers::Error),
    /// A file.
    #[error(transparent)]
    File(#[from] FileError),
    /// A request was not answered, or not as it must be.
    #[error("the service under load: {0}")]
    Http(#[from] std::io::Error),
}

/// A job of `files` files of `bytes` bytes between a pair of endpoints, as lines for
/// [`Http::upload`].
pub fn job_lines(files: u64, bytes: u64, pair: u64) -> impl Iterator<Item = String> + Send {
    let file = move |number| {
        format!(
            "{{\"source\":\"gsiftp://dtn{pair}.example.org:2811/data/run7/part{:04}/file{number:08}\
             .root\",\"destination\":\"gsiftp://store{pair}.example.net:2811/copies/run7/part{:04}\
             /file{number:08}.root\",\"bytes\":{bytes}}}\n",
            number / 1000,
            number / 1000,
        )
    };
    std::iter::once("{}\n".to_owned()).chain((0..files).map(file))
}
