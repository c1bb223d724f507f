//! A program of other projects that runs to its end.

use std::env;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::process::{self, Finished};
use super::{Error, Missing, RUN_TIMEOUT};

/// Where daemons live; an ordinary user's search path often lacks these.
const SYSTEM_DIRECTORIES: [&str; 6] = [
    "/usr/local/sbin",
    "/usr/sbin",
    "/sbin",
    "/usr/bin",
    "/bin",
    "/usr/local/lib/godwit-peers/bin",
];

/// A program, the Debian package it comes with, and the environment it needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tool {
    program: &'static str,
    package: &'static str,
    environment: &'static [(&'static str, &'static str)],
}

impl Tool {
    /// A program that comes with `package`.
    pub const fn new(program: &'static str, package: &'static str) -> Tool {
        Tool {
            program,
            package,
            environment: &[],
        }
    }

    /// The same, with variables set that are not set already.
    pub const fn with_environment(
        self,
        environment: &'static [(&'static str, &'static str)],
    ) -> Tool {
        Tool {
            environment,
            ..self
        }
    }

    /// Where the program is.
    ///
    /// # Errors
    /// [`Missing`], which names the package.
    pub fn available(&self) -> Result<PathBuf, Missing> {
        find_program(self.program).ok_or_else(|| self.missing())
    }

    /// A command without arguments yet. Messages are in English whatever the user speaks.
    ///
    /// # Errors
    /// [`Missing`], which names the package.
    pub fn command(&self) -> Result<Command, Missing> {
        let mut command = Command::new(self.available()?);
        command.env("LC_ALL", "C.UTF-8");
        for (name, value) in self.environment {
            if env::var_os(name).is_none() {
                command.env(name, value);
            }
        }
        Ok(command)
    }

    /// Runs it with these arguments, at most for [`RUN_TIMEOUT`]. The exit status is not judged;
    /// see [`Finished::success`].
    ///
    /// # Errors
    /// [`Error::Missing`], [`Error::Os`] when it cannot be started, [`Error::TimedOut`].
    pub fn run<I>(&self, arguments: I) -> Result<Finished, Error>
    where
        I: IntoIterator<Item: AsRef<OsStr>>,
    {
        self.run_within(RUN_TIMEOUT, arguments)
    }

    /// [`Tool::run`] with another bound.
    ///
    /// # Errors
    /// As [`Tool::run`].
    pub fn run_within<I>(&self, timeout: Duration, arguments: I) -> Result<Finished, Error>
    where
        I: IntoIterator<Item: AsRef<OsStr>>,
    {
        let mut command = self.command()?;
        command.args(arguments);
        process::run(command, timeout)
    }

    fn missing(&self) -> Missing {
        Missing {
            program: self.program.to_owned(),
            package: format!("the package {}", self.package),
        }
    }
}

/// Finds an executable file in the search path, then where daemons live.
pub fn find_program(program: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path)
        .chain(SYSTEM_DIRECTORIES.iter().map(PathBuf::from))
        .map(|directory| directory.join(program))
        .find(|candidate| is_executable(candidate))
}

/// Whether `path` is a file with an execute permission.
pub(super) fn is_executable(path: &Path) -> bool {
    fs::metadata(path)
        .is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_what_every_system_has() {
        let shell = Tool::new("sh", "dash");
        assert!(shell.available().is_ok());
        let finished = shell.run(["-c", "echo $LC_ALL"]).expect("runs");
        assert_eq!(finished.stdout_text(), "C.UTF-8\n");
    }

    #[test]
    fn a_missing_program_names_its_package() {
        let tool = Tool::new("godwit-no-such-program", "no-such-package");
        let missing = tool.available().expect_err("it does not exist");
        assert_eq!(missing.package, "the package no-such-package");
        assert!(matches!(tool.run(["x"]), Err(Error::Missing(_))));
    }

    #[test]
    fn environment_is_a_default_only() {
        const ENVIRONMENT: &[(&str, &str)] = &[("PATH", "lost"), ("GODWIT_TEST_X", "set")];
        let shell = Tool::new("sh", "dash").with_environment(ENVIRONMENT);
        let finished = shell
            .run(["-c", "echo $GODWIT_TEST_X $PATH"])
            .expect("runs");
        let text = finished.stdout_text();
        assert!(text.starts_with("set ") && !text.contains("lost"), "{text}");
    }
}
