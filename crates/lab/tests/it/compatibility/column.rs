//! One column of the page: the commands of a pair of programs for each operation.

use std::process::Command;

use godwit_lab::peers::{RUN_TIMEOUT, process};

use super::{
    operation::Operation,
    place::{Grounds, Login, Place, Server},
};
use crate::support::{Need, have};

/// How an operation is done. Words have the names of [`Place::filled`] in braces; a line is a
/// command.
pub(super) enum Way {
    Does(&'static str),
    /// What is tried and cannot be, and why.
    Fails(&'static str, &'static str),
    /// There are no words for it, and why.
    Lacks(&'static str),
}

/// What came of it.
#[derive(Debug)]
pub(super) enum Outcome {
    Works,
    Fails(&'static str),
}

/// A client, or a server that our client meets.
pub(super) struct Column<'a> {
    pub(super) name: &'static str,
    /// The program that the column is named after.
    pub(super) needs: &'static [Need],
    pub(super) version: Box<dyn Fn() -> String + Sync + 'a>,
    pub(super) grounds: &'a Grounds,
    /// The server that is met, and the other one of a copy between two.
    pub(super) servers: [Option<&'a Server>; 2],
    /// How users are let in where that is not what is tried; and where data is to be encrypted.
    pub(super) login: Login,
    pub(super) protected: Login,
    pub(super) way: fn(Operation) -> Way,
    /// The client is ours.
    pub(super) by_us: bool,
    /// Makes a command of words.
    pub(super) speak: fn(&Place<'_>, &str) -> Command,
}

impl Column<'_> {
    /// Prints a skip where it is not.
    pub(super) fn is_here(&self) -> bool {
        let wanted = std::env::var("GODWIT_COLUMNS");
        let wanted = wanted.map_or(true, |names| names.split(',').any(|name| name == self.name));
        wanted && have(self.needs) && self.servers.iter().all(Option::is_some)
    }

    pub(super) fn version(&self) -> String {
        (self.version)()
    }

    /// What comes of `operation`; an error where that is not what the column says.
    pub(super) fn try_out(&self, operation: Operation) -> Result<Outcome, String> {
        let (words, why) = match (self.way)(operation) {
            Way::Does(words) => (words, None),
            Way::Fails(words, why) => (words, Some(why)),
            Way::Lacks(why) => return Ok(Outcome::Fails(why)),
        };
        let title = format!("{}: {}", self.name, operation.text());
        match (self.run(operation, words), why) {
            (Ok(()), None) => Ok(Outcome::Works),
            (Err(_), Some(why)) => Ok(Outcome::Fails(why)),
            (Ok(()), Some(why)) => Err(format!("{title}: it works, and is said not to: {why}")),
            (Err(error), None) => Err(format!("{title}: {error}")),
        }
    }

    fn run(&self, operation: Operation, words: &str) -> Result<(), String> {
        let login = match operation {
            Operation::LogIn(login) => login,
            Operation::Private | Operation::Resumed => self.protected,
            _ => self.login,
        };
        let [server, other] = self.servers.map(|server| server.expect("it is here"));
        let plain = |text: &str| text.replace(|c: char| !c.is_ascii_alphanumeric(), "-");
        let name = format!("{}-{}", plain(self.name), plain(operation.text()));
        let place = Place::new(self.grounds, [server, other], login, name, self.by_us);
        operation.prepare(&place);
        let before = operation.check(&place, &[]);
        assert!(before.is_err(), "{operation:?} is done before it is begun");
        let mut said = Vec::new();
        for line in place.filled(words).lines() {
            let command = (self.speak)(&place, line);
            let finished = process::run(command, RUN_TIMEOUT).map_err(|e| e.to_string())?;
            let failed = !finished.status.success();
            let report = format!("{line}: {}\n{}", finished.status, finished.log());
            said.push(finished);
            if failed {
                return Err(report);
            }
        }
        operation.check(&place, &said).map_err(|why| {
            let said: String = said.iter().map(process::Finished::log).collect();
            let log = place.log();
            let lines: Vec<&str> = log.lines().collect();
            let end = lines[lines.len().saturating_sub(12)..].join("\n");
            format!("{why}\n{words}\n{said}--- server\n{end}")
        })
    }
}
