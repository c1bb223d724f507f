//! Jobs as text.

use std::fmt::Write;

use godwit_service_api::{
    job::{FileView, JobView},
    schedule::{ScheduleRun, ScheduleView},
};
use serde::Serialize;

/// One line of JSON.
pub(super) fn json<T: Serialize>(value: &T) -> String {
    serde_json::to_string(value).expect("plain data is JSON")
}

/// A job that was accepted: its id, or all of it.
pub(super) fn accepted(job: &JobView, json: bool) -> String {
    match json {
        true => self::json(job),
        false => job.id.to_string(),
    }
}

/// A line for each job: id, state, files that are complete, bytes, name. Fields are separated by
/// tabs.
pub(super) fn table(jobs: &[JobView]) -> String {
    let mut text = String::new();
    for job in jobs {
        let _ = writeln!(
            text,
            "{}\t{}\t{}/{}\t{}\t{}",
            job.id,
            job.state.as_str(),
            complete(job),
            job.files.total,
            job.bytes_done,
            one_line(job.options.name.as_deref().unwrap_or("")),
        );
    }
    text
}

/// All that is known of a job, a line each.
pub(super) fn details(job: &JobView) -> String {
    let mut text = String::new();
    let mut say = |key: &str, value: String| {
        let _ = writeln!(text, "{key:<10}{}", one_line(&value));
    };
    say("job", job.id.to_string());
    say("owner", job.owner.clone());
    if let Some(name) = &job.options.name {
        say("name", name.clone());
    }
    if let Some(schedule) = &job.schedule {
        say("schedule", schedule.clone());
    }
    say("state", job.state.as_str().to_owned());
    for why in &job.why {
        say("why", why.text.clone());
    }
    let files = &job.files;
    say(
        "files",
        format!(
            "{}{}: {} finished, {} skipped, {} failed, {} canceled",
            files.total,
            if job.listed { "" } else { " so far" },
            files.finished,
            files.skipped,
            files.failed,
            files.canceled
        ),
    );
    say(
        "bytes",
        format!("{} of {}", job.bytes_done, job.bytes_total),
    );
    if !job.state.is_final() {
        say("goodput", format!("{:.1} MB/s", job.goodput / 1e6));
        if let Some(seconds) = job.eta_seconds {
            say("left", format!("{seconds} s"));
        }
    }
    for (code, count) in &job.errors {
        say("errors", format!("{count} {code}"));
    }
    say("created", job.created.to_string());
    if let Some(at) = job.started {
        say("started", at.to_string());
    }
    if let Some(at) = job.ended {
        say("ended", at.to_string());
    }
    text
}

/// A line for a schedule: name, cron expression, time zone, next time, files.
pub(super) fn schedule(schedule: &ScheduleView) -> String {
    let next = match schedule.next {
        _ if schedule.paused => "paused".to_owned(),
        Some(next) => next.to_string(),
        None => "never".to_owned(),
    };
    let ScheduleView {
        name,
        cron,
        zone,
        files,
        ..
    } = schedule;
    one_line_each(&[name, cron, zone, &next, &files.to_string()])
}

/// A line for a time that a schedule was due: time, and the job or why there is none.
pub(super) fn run(run: &ScheduleRun) -> String {
    let due = run.due.to_string();
    match (&run.job, &run.skipped) {
        (Some(job), _) => one_line_each(&[&due, &job.to_string()]),
        (None, why) => one_line_each(&[&due, "skipped", why.as_deref().unwrap_or("")]),
    }
}

fn one_line_each(fields: &[&str]) -> String {
    let fields: Vec<String> = fields.iter().map(|field| one_line(field)).collect();
    fields.join("\t")
}

/// A line for a file: state, attempts, URLs, error.
pub(super) fn file(file: &FileView) -> String {
    let state = json(&file.state);
    let mut text = format!(
        "{}\t{}\t{} -> {}",
        state.trim_matches('"'),
        file.attempts,
        one_line(&file.source),
        one_line(&file.destination)
    );
    if let Some(error) = &file.error {
        let who = json(&error.who);
        let _ = write!(
            text,
            "\t{} ({}; who must act: {})",
            one_line(&error.message),
            error.code,
            who.trim_matches('"')
        );
    }
    text
}

/// What a job is doing, in a line.
pub(super) fn progress(job: &JobView) -> String {
    let mut text = format!(
        "{}: {} of {}{} files, {} of {} bytes",
        job.state.as_str(),
        complete(job),
        job.files.total,
        if job.listed { "" } else { "+" },
        job.bytes_done,
        job.bytes_total
    );
    if job.files.failed > 0 {
        let _ = write!(text, ", {} failed", job.files.failed);
    }
    if job.goodput > 0.0 {
        let _ = write!(text, ", {:.1} MB/s", job.goodput / 1e6);
    }
    if let Some(seconds) = job.eta_seconds {
        let _ = write!(text, ", {seconds} s left");
    }
    if let Some(why) = job.why.first() {
        let _ = write!(text, " ({})", one_line(&why.text));
    }
    if job.state.is_final() && job.files.failed > 0 {
        let _ = write!(text, " (godwit job --failed {} says why)", job.id);
    }
    text
}

/// Files that are at their destination.
fn complete(job: &JobView) -> u64 {
    job.files.finished + job.files.skipped
}

/// Text of others has no line ends here; the console escapes the rest.
fn one_line(text: &str) -> String {
    text.replace(['\n', '\r', '\t'], " ")
}
