//! Jobs that the service submits again and again.

use std::path::PathBuf;

use godwit_service_api::{
    job::MAX_INLINE_FILES,
    schedule::{ScheduleRequest, ScheduleView},
};
use reqwest::Method;

use super::{
    ScheduleCommand,
    connection::{Connection, ServiceError},
    show, submit,
};

/// Runs a command about schedules.
pub(super) async fn run(
    connection: &Connection,
    command: ScheduleCommand,
    json: bool,
    print: &impl Fn(String),
) -> Result<(), ServiceError> {
    let shown = |schedule: &ScheduleView| match json {
        true => show::json(schedule),
        false => show::schedule(schedule),
    };
    match command {
        ScheduleCommand::Add { mut request, list } => {
            if let Some(path) = list {
                // Reads standard input, perhaps.
                let read = tokio::task::spawn_blocking(move || with_list(request, path));
                request = read
                    .await
                    .unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()))?;
            }
            let post = connection.request(Method::POST, "/schedules");
            print(shown(&connection.fetch(post.json(&request)).await?));
        }
        ScheduleCommand::List => {
            let request = connection.request(Method::GET, "/schedules");
            let schedules: Vec<ScheduleView> = connection.fetch(request).await?;
            schedules.iter().for_each(|schedule| print(shown(schedule)));
        }
        ScheduleCommand::Show(name) => {
            let request = connection.request(Method::GET, &format!("/schedules/{name}"));
            let schedule: ScheduleView = connection.fetch(request).await?;
            print(shown(&schedule));
            if !json {
                schedule.runs.iter().for_each(|run| print(show::run(run)));
            }
        }
        ScheduleCommand::Pause(names) => change(connection, &names, "pause", &shown, print).await?,
        ScheduleCommand::Resume(names) => {
            change(connection, &names, "resume", &shown, print).await?;
        }
        ScheduleCommand::Remove(names) => {
            for name in names {
                let request = connection.request(Method::DELETE, &format!("/schedules/{name}"));
                connection.send(request).await?;
            }
        }
    }
    Ok(())
}

/// Pauses or resumes schedules, one after the other, and prints what each is now.
async fn change(
    connection: &Connection,
    names: &[String],
    verb: &str,
    shown: &impl Fn(&ScheduleView) -> String,
    print: &impl Fn(String),
) -> Result<(), ServiceError> {
    for name in names {
        let request = connection.request(Method::POST, &format!("/schedules/{name}/{verb}"));
        print(shown(&connection.fetch(request).await?));
    }
    Ok(())
}

/// Adds the files of a list. One too many is enough for the service to refuse them.
fn with_list(
    mut request: Box<ScheduleRequest>,
    path: PathBuf,
) -> Result<Box<ScheduleRequest>, ServiceError> {
    let files = &mut request.job.files;
    submit::read_list(&path, |file| {
        files.push(file);
        files.len() <= MAX_INLINE_FILES
    })?;
    Ok(request)
}
