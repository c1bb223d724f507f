//! The log: standard error, one line an event, text or JSON.
//!
//! Text from peers (names, paths, notes) is logged with `Debug`, which escapes control characters:
//! no client can forge a line or control an administrator's terminal.

mod batched_writer;

use std::{
    fmt::Debug,
    io::{self, IsTerminal as _},
    sync::OnceLock,
};

use godwit_engine::host::terminal::escaped;
use tracing::{Level, field::Field};
use tracing_subscriber::{
    EnvFilter,
    field::MakeExt as _,
    fmt,
    fmt::format::{self, Writer},
};

use self::batched_writer::BatchedWriter;

/// Environment variable with a filter such as `debug` or `godwit_server=trace`.
pub const FILTER_VARIABLE: &str = "GODWITD_LOG";

/// Where the lines go.
static LINES: OnceLock<BatchedWriter> = OnceLock::new();

/// Sends events of this process of level `least` or more severe to standard error, unless the
/// environment asks for more. A second call changes nothing.
///
pub fn init(json: bool, least: Level) {
    let filter = EnvFilter::builder()
        .with_default_directive(least.into())
        .with_env_var(FILTER_VARIABLE)
        .from_env_lossy();
    let builder = fmt()
        .with_env_filter(filter)
        .with_target(false)
        .with_writer(LINES.get_or_init(|| BatchedWriter::to(Box::new(io::stderr()))));
    let result = if json {
        builder.json().flatten_event(true).try_init()
    } else {
        // Values come from clients too.
        let field = |out: &mut Writer<'_>, field: &Field, value: &dyn Debug| {
            let value = format!("{value:?}");
            match field.name() {
                "message" => write!(out, "{}", escaped(&value)),
                name => write!(out, "{name}={}", escaped(&value)),
            }
        };
        // As is done by default, at a third of the cost: that one asks of each field how a terminal
        // would show it.
        let fields = format::debug_fn(field).delimited(" ");
        let ansi = io::stderr().is_terminal();
        builder.with_ansi(ansi).fmt_fields(fields).try_init()
    };
    // Fails only where a subscriber is there already, as in a program that embeds this library.
    drop(result);
}

/// From now on lines in quick succession leave together, some milliseconds later but for warnings;
/// [`flush`] sends what is left. It takes a thread, so a process that gives up rights does not call
/// it.
pub fn gather() {
    if let Some(lines) = LINES.get() {
        lines.carry();
    }
}

/// Complete lines of another process.
pub(crate) fn put(lines: &[u8]) {
    if let Some(out) = LINES.get().filter(|_| !lines.is_empty()) {
        out.put(lines, true);
    }
}

/// Sends waiting lines at the end of the process.
pub fn flush() {
    if let Some(lines) = LINES.get() {
        lines.flush();
    }
}
