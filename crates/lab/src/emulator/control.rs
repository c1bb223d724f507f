//! Changes links while an emulator runs.

use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::Duration;

use super::Error;
use super::clock::Clock;
use super::worker::Command;
use crate::path::{Alteration, Change};

/// Changes links of a running emulator, from any thread.
#[derive(Debug, Clone)]
pub struct Control {
    pub(super) clock: Clock,
    pub(super) workers: Vec<Sender<Command>>,
    /// Name and worker of each link.
    pub(super) links: Arc<[(String, usize)]>,
}

impl Control {
    /// Time since the emulator started: the time of the paths' schedules.
    pub fn elapsed(&self) -> Duration {
        Duration::from_nanos(self.clock.now())
    }

    /// Changes a link, `after` from now; heard within 10 ms.
    ///
    /// # Errors
    /// [`Error::NoSuchLink`], [`Error::Path`] when the change makes no sense, [`Error::Stopped`].
    pub fn alter(&self, link: &str, after: Duration, to: Alteration) -> Result<(), Error> {
        let index = (self.links.iter().position(|(name, _)| name == link))
            .ok_or_else(|| Error::NoSuchLink(link.to_owned()))?;
        to.check("change").map_err(|source| Error::Path {
            link: link.to_owned(),
            source,
        })?;
        let after = u64::try_from(after.as_nanos()).unwrap_or(u64::MAX);
        let at_ns = self.clock.now().saturating_add(after);
        self.workers[self.links[index].1]
            .send(Command::Change(index, Change { at_ns, to }))
            .map_err(|_| Error::Stopped)
    }

    /// Drops everything that arrives at these links from now on.
    ///
    /// # Errors
    /// As [`Control::alter`].
    pub fn cut(&self, names: &[&str]) -> Result<(), Error> {
        self.all(names, &Alteration::Cut)
    }

    /// Ends a cut.
    ///
    /// # Errors
    /// As [`Control::alter`].
    pub fn heal(&self, names: &[&str]) -> Result<(), Error> {
        self.all(names, &Alteration::Heal)
    }

    /// The names of all links.
    pub fn links(&self) -> impl Iterator<Item = &str> {
        self.links.iter().map(|(name, _)| name.as_str())
    }

    fn all(&self, names: &[&str], to: &Alteration) -> Result<(), Error> {
        names
            .iter()
            .try_for_each(|name| self.alter(name, Duration::ZERO, to.clone()))
    }
}
