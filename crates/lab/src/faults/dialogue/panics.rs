//! Runs the client in this process with an observer that panics: the worker that reports the n-th
//! event panics with it. The client itself needs no hook for that.

use std::backtrace::Backtrace;
use std::io;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use godwit_client::{
    CancellationToken,
    auth::secrets::Secrets,
    cli::{self, Environment},
    job,
    report::events::{Event, FileState, Observer},
    spec::Request,
};
use parking_lot::Mutex;

use super::servers::PASSWORD;

/// What a process that panicked ends with.
const PANICKED: i32 = 101;

/// Functions that a finding names.
const CALLERS_QUOTED: usize = 12;

/// What came of it.
pub(super) struct Panicked {
    pub(super) status: i32,
    pub(super) said: String,
    pub(super) happened: bool,
    pub(super) hung: bool,
}

struct Panicking {
    /// Events that pass.
    after: u64,
    heard: AtomicU64,
    said: Mutex<String>,
}

impl Panicking {
    fn happened(&self) -> bool {
        self.heard.load(Ordering::Relaxed) > self.after
    }
}

impl Observer for Panicking {
    fn on_event(&self, event: &Event) {
        if let Event::File {
            state: FileState::Failed,
            ..
        }
        | Event::Warning { .. } = event
        {
            let mut said = self.said.lock();
            said.push_str(&format!("{event:?}\n"));
        }
        let number = self.heard.fetch_add(1, Ordering::Relaxed);
        if number == self.after {
            let story = format!("a panic with {event:?}, from\n{}", callers());
            self.said.lock().push_str(&story);
            panic!("this panic is wanted");
        }
    }

    /// So that there is an event wherever a worker talks with a server.
    fn hears_dialogue(&self) -> bool {
        true
    }
}

/// Functions of the client that called this one, the nearest first.
fn callers() -> String {
    let trace = Backtrace::force_capture().to_string();
    let is_ours = |line: &&str| line.contains("godwit_client::");
    let ours = trace.lines().filter(is_ours).take(CALLERS_QUOTED);
    ours.map(|line| format!("{}\n", line.trim())).collect()
}

/// Runs a command of words without the program's name. The event after `after` others panics.
pub(super) fn run(words: &[String], after: u64, limit: Duration) -> io::Result<Panicked> {
    let user = rustix::process::geteuid().as_raw();
    let password = |name: &str| (name == "GODWIT_PASSWORD").then(|| PASSWORD.into());
    let environment = Environment {
        secrets: Secrets::of_environment(password, user),
        ..Environment::default()
    };
    let program = [std::ffi::OsString::from("godwit")];
    let words: Vec<_> = program
        .into_iter()
        .chain(words.iter().map(Into::into))
        .collect();
    let invocation = cli::parse(&words, &environment)
        .map_err(|parting| io::Error::new(io::ErrorKind::InvalidInput, parting.text))?;
    let Request::Copy(spec) = invocation.request else {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "no copy"));
    };
    let observer = Arc::new(Panicking {
        after,
        heard: AtomicU64::new(0),
        said: Mutex::default(),
    });
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let job = job::run(
        *spec,
        invocation.connections,
        Arc::clone(&observer) as _,
        CancellationToken::default(),
    );
    let ended = panic::catch_unwind(AssertUnwindSafe(|| {
        runtime.block_on(async { tokio::time::timeout(limit, job).await })
    }));
    runtime.shutdown_background();
    let mut said = std::mem::take(&mut *observer.said.lock());
    let (status, hung) = match ended {
        Err(_) => (PANICKED, false),
        Ok(Err(_)) => (-1, true),
        Ok(Ok(Ok(summary))) => (i32::from(summary.exit), false),
        Ok(Ok(Err(error))) => {
            said.push_str(&error.explained().to_string());
            (i32::from(error.exit().code()), false)
        }
    };
    Ok(Panicked {
        status,
        said,
        happened: observer.happened(),
        hung,
    })
}
