//! The program: reads the command line, runs it, prints and exits. Nothing else in this crate does
//! either of the last two.

use std::{
    ffi::OsString,
    future::Future,
    io::{self, IsTerminal, Write},
    path::Path,
    process::ExitCode,
    sync::{Arc, OnceLock},
};

use godwit_client::{
    auth::{proxy, secrets::Secrets},
    cli::{
        self, EarlyExit, Environment,
        globus_url_copy::{self, Options, Stream},
    },
    error::{Error, Exit},
    job, manage,
    report::{
        events::{Event, FileState, Observer},
        explain,
        progress::{Display, Snapshot},
        tui::{self, Screen},
    },
    service,
    spec::{Invocation, Proxy, Request, Ssh},
};
use godwit_engine::host::{
    cpu_affinity::CpuAffinity,
    terminal::{escaped, escaped_bytes, escaped_lines},
};
use godwit_gsi::cert::files::{self, Locations};
use tokio_util::sync::CancellationToken;

/// Names and commands of many small files are made on one thread and dropped on another, which
/// costs the system's allocator a tenth of all processor time.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    // The allocator gives each thread memory of its own, and asks for huge pages: to clear them was
    // half of the work of an upload by a hundred connections. A kernel without the call has none.
    let _ = rustix::thread::disable_transparent_huge_pages(true);
    let mut arguments: Vec<OsString> = std::env::args_os().collect();
    if arguments
        .first()
        .is_some_and(|name| Path::new(name).file_name() == Some(globus_url_copy::NAME.as_ref()))
    {
        arguments.splice(..1, ["godwit".into(), "guc".into()]);
    }
    let environment = Environment {
        secrets: Secrets {
            may_ask: io::stdin().is_terminal() && io::stderr().is_terminal(),
            ..Secrets::of_environment(|name| std::env::var_os(name), files::effective_uid())
        },
        port_range: std::env::var("GLOBUS_TCP_PORT_RANGE").ok(),
        locations: Locations::new(|name| std::env::var_os(name), files::effective_uid()),
        ssh: Ssh::of_environment(|name| std::env::var(name).ok()),
    };
    let invocation = match cli::parse(&arguments, &environment) {
        Ok(invocation) => invocation,
        Err(early_exit) => return exit_early(&early_exit),
    };
    match &invocation.request {
        Request::Proxy(what) => run_proxy(what, &invocation),
        Request::UrlCopy(words) => match Options::parse(words) {
            Ok(options) => block_on(copy_urls(options, environment)),
            Err(early_exit) => exit_early(&early_exit),
        },
        Request::Copy(spec) => match spec.processors.as_ref().map(CpuAffinity::apply) {
            Some(Err(error)) => {
                tell(format_args!("{error}"));
                Exit::Usage.code().into()
            }
            Some(Ok(())) | None => block_on(run(invocation)),
        },
        _ => block_on(run(invocation)),
    }
}

/// Nothing to run.
fn exit_early(early_exit: &EarlyExit) -> ExitCode {
    // A closed pipe needs no help text.
    let _ = if early_exit.exit == Exit::Done {
        io::stdout().write_all(early_exit.text.as_bytes())
    } else {
        io::stderr().write_all(&escaped_lines(early_exit.text.as_bytes()))
    };
    early_exit.exit.code().into()
}

fn block_on(work: impl Future<Output = Exit>) -> ExitCode {
    godwit_engine::host::net::raise_fd_limit();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(e) => {
            tell(format_args!("cannot start: {e}"));
            return Exit::Failed.code().into();
        }
    };
    let exit = runtime.block_on(work);
    // A mover may still wait for standard input, which cannot be interrupted: do not wait for it.
    runtime.shutdown_background();
    exit.code().into()
}

/// `proxy`: may ask on the terminal, so signals have their default effect, and nothing else runs.
fn run_proxy(what: &Proxy, invocation: &Invocation) -> ExitCode {
    let console = Console::new(invocation.verbosity);
    let outcome = proxy::run(what, &invocation.connections.locations, &console);
    let exit = outcome.unwrap_or_else(|error| {
        tell(format_args!("{}", error.explained()));
        error.exit()
    });
    console.verdict(exit).code().into()
}

/// `globus-url-copy`: what it would print, without a display.
async fn copy_urls(options: Options, environment: Environment) -> Exit {
    let stop = CancellationToken::default();
    tokio::spawn(watch_interrupts(stop.clone()));
    let say = |stream, text: &[u8]| match stream {
        Stream::Out => {
            let mut out = io::stdout().lock();
            let written = match out.is_terminal() {
                true => out.write_all(&escaped_lines(text)),
                false => out.write_all(text),
            };
            written.and_then(|()| out.flush())
        }
        Stream::Err => io::stderr().write_all(&escaped_lines(text)),
    };
    globus_url_copy::run(options, &environment, Arc::new(say), stop).await
}

async fn run(invocation: Invocation) -> Exit {
    let stop = CancellationToken::default();
    tokio::spawn(watch_interrupts(stop.clone()));
    let console = match &invocation.request {
        Request::Copy(spec) if spec.tui => Screen::new().map(Console::with_screen),
        _ => Ok(Console::new(invocation.verbosity)),
    };
    let console = match console {
        Ok(console) => Arc::new(console),
        Err(error) => {
            tell(format_args!("{}", error.explained()));
            return error.exit();
        }
    };
    let connections = invocation.connections;
    let exit = match invocation.request {
        // Handled before.
        Request::Proxy(_) | Request::UrlCopy(_) => Exit::Done,
        Request::Manage(what) => {
            manage::run(what, connections, Arc::clone(&console) as _, stop).await
        }
        Request::Top { json, once } => {
            let (console, stop) = (Arc::clone(&console), stop.clone());
            let shown = tokio::task::spawn_blocking(move || tui::run(json, once, &*console, &stop));
            match shown.await {
                Ok(Ok(())) => Exit::Done,
                Ok(Err(error)) => {
                    tell(format_args!("{}", error.explained()));
                    error.exit()
                }
                // The panic was printed.
                Err(_) => Exit::Failed,
            }
        }
        Request::Explain { log, json } => match explain::read(&log) {
            Err(error) => {
                tell(format_args!("{}", error.explained()));
                error.exit()
            }
            Ok(told) => {
                let text = match serde_json::to_string(&told) {
                    Ok(text) if json => text,
                    _ => told.to_string(),
                };
                for line in text.lines() {
                    console.on_output(line.as_bytes());
                }
                Exit::Done
            }
        },
        Request::Service(request) => match service::run(*request, &*console, &stop).await {
            Ok(exit) => exit,
            Err(error) => {
                tell(format_args!("{error}"));
                error.exit()
            }
        },
        Request::Copy(spec) => {
            let json = spec.json;
            let outcome = job::run(*spec, connections, Arc::clone(&console) as _, stop).await;
            // A run that failed early has not ended its display.
            console.on_progress(None);
            match outcome {
                Err(error) => {
                    tell(format_args!("{}", error.explained()));
                    error.exit()
                }
                Ok(summary) => {
                    if json && let Ok(text) = serde_json::to_string(&summary) {
                        console.on_output(text.as_bytes());
                    }
                    exit_of(summary.exit)
                }
            }
        }
    };
    console.verdict(exit)
}

fn exit_of(code: u8) -> Exit {
    [
        Exit::Done,
        Exit::Partly,
        Exit::Usage,
        Exit::Refused,
        Exit::Interrupted,
    ]
    .into_iter()
    .find(|e| e.code() == code)
    .unwrap_or(Exit::Failed)
}

/// The first interrupt ends the run in good order, the second at once.
async fn watch_interrupts(stop: CancellationToken) {
    use tokio::signal::unix::{SignalKind, signal};
    let (Ok(mut interrupt), Ok(mut terminate)) = (
        signal(SignalKind::interrupt()),
        signal(SignalKind::terminate()),
    ) else {
        return;
    };
    for first in [true, false] {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
        stop.cancel();
        if !first {
            tui::give_back();
            std::process::exit(i32::from(Exit::Interrupted.code()));
        }
    }
}

/// Shows a run on the terminal.
struct Console {
    verbosity: u8,
    shown: DisplayMode,
    /// The error of standard output, if any.
    unwritten: OnceLock<io::Error>,
}

/// The display of a running job.
enum DisplayMode {
    Nothing,
    Line(Display),
    Screen(Box<Screen>),
}

impl Console {
    fn with_screen(screen: Screen) -> Self {
        Self {
            verbosity: 1,
            shown: DisplayMode::Screen(Box::new(screen)),
            unwritten: OnceLock::new(),
        }
    }

    fn new(verbosity: u8) -> Self {
        let draws = verbosity == 1 || verbosity == 2;
        Self {
            verbosity,
            shown: match draws && io::stderr().is_terminal() {
                true => DisplayMode::Line(Display::new()),
                false => DisplayMode::Nothing,
            },
            unwritten: OnceLock::new(),
        }
    }

    /// The exit status of a run that would have ended with `exit`: output that could not be written
    /// is a failure.
    fn verdict(&self, exit: Exit) -> Exit {
        let Some(error) = self.unwritten.get() else {
            return exit;
        };
        let error = Error::local("write standard output", error);
        self.line(format_args!("{}", error.explained()));
        match exit {
            Exit::Done => error.exit(),
            other => other,
        }
    }

    fn line(&self, text: std::fmt::Arguments<'_>) {
        match &self.shown {
            DisplayMode::Nothing => tell(text),
            DisplayMode::Line(display) => display.suspend(|| tell(text)),
            DisplayMode::Screen(screen) => {
                if let Some(line) = screen.keep(escaped(&text.to_string()).into_owned()) {
                    tell(format_args!("{line}"));
                }
            }
        }
    }
}

/// A line on standard error, after the program's name, without control characters: all output to
/// standard error passes here.
fn tell(text: std::fmt::Arguments<'_>) {
    // Standard error may be closed, which cannot be reported.
    let _ = writeln!(io::stderr(), "godwit: {}", escaped(&text.to_string()));
}

impl Observer for Console {
    fn on_event(&self, event: &Event) {
        if let DisplayMode::Screen(screen) = &self.shown {
            screen.on_event(event);
        }
        match event {
            Event::File {
                state: FileState::Failed,
                path,
                error,
                ..
            } => match error {
                Some(error) => self.line(format_args!("{}", error.explained())),
                None => self.line(format_args!("{path}: failed")),
            },
            Event::Warning { text } if self.verbosity >= 1 => self.line(format_args!("{text}")),
            Event::Summary(summary) if self.verbosity >= 1 => {
                self.line(format_args!("{}", summary.closing_line()));
            }
            Event::Difference {
                action,
                reason,
                path,
                dry_run,
            } => {
                let line = format!("{action} {reason} {path}");
                if *dry_run {
                    self.on_output(line.as_bytes());
                } else if self.verbosity >= 2 {
                    self.line(format_args!("{line}"));
                }
            }
            Event::Note { text } if self.verbosity >= 2 => self.line(format_args!("{text}")),
            Event::Secured {
                endpoint,
                server,
                user,
                control,
                data,
            } if self.verbosity >= 2 => self.line(format_args!(
                "{endpoint}: server is {server}, we are {user}; control channel: {control}; data \
                 channels: {data}"
            )),
            // The event log has the reasons for unchanged settings.
            Event::Decision {
                side,
                from,
                to,
                reason,
            } if self.verbosity >= 2 && *from != Some(*to) => {
                let whose = side.map_or(String::new(), |side| format!("of the {side} "));
                self.line(format_args!("sessions x channels {whose}{reason}"));
            }
            Event::Retry { path, error, .. } if self.verbosity >= 2 => {
                self.line(format_args!("trying {path} again: {error}"));
            }
            Event::Dialogue { host, sent, line } if self.hears_dialogue() => {
                let arrow = if *sent { "->" } else { "<-" };
                for line in line.lines() {
                    self.line(format_args!("{host} {arrow} {line}"));
                }
            }
            _ => {}
        }
    }

    fn hears_dialogue(&self) -> bool {
        self.verbosity >= 3
    }

    fn on_progress(&self, progress: Option<&Snapshot>) {
        match &self.shown {
            DisplayMode::Nothing => {}
            DisplayMode::Line(display) => display.show(progress),
            DisplayMode::Screen(screen) => {
                for line in screen.show(progress) {
                    tell(format_args!("{line}"));
                }
            }
        }
    }

    /// Names are written as they are to pipes, and escaped to a terminal.
    fn on_output(&self, line: &[u8]) {
        let mut out = io::stdout().lock();
        let written = match out.is_terminal() {
            true => out.write_all(&escaped_bytes(line)),
            false => out.write_all(line),
        };
        let written = written.and_then(|()| out.write_all(b"\n"));
        // A closed pipe (`| head`) is no failure.
        if let Err(error) = written
            && error.kind() != io::ErrorKind::BrokenPipe
        {
            // The first error is enough.
            let _ = self.unwritten.set(error);
        }
    }
}
