//! Streamed answers: events of a job as they happen, receipts of many files.

use std::{convert::Infallible, sync::Arc, time::Duration};

use axum::{
    body::{Body, Bytes},
    extract::State,
    http::{HeaderMap, header},
    response::{
        IntoResponse, Response, Sse,
        sse::{Event, KeepAlive},
    },
};
use godwit_service_api::{
    event::{JobEvent, JobEventKind},
    job::FileView,
    page::MAX_PAGE,
};
use serde::Deserialize;
use tokio::{
    sync::{broadcast, mpsc},
    time::sleep,
};
use tokio_stream::wrappers::ReceiverStream;
use utoipa::IntoParams;
use uuid::Uuid;

use super::{
    Api,
    extract::{Asked, Caller, Id},
    limits::StreamPermit,
    openapi::Routes,
};
use crate::problem::{Answer, ApiError, Kind};
use crate::store::{StoreError, model::JobRecord};

/// Longest time between two looks for events: other processes of the service make some.
const STREAM_LOOK: Duration = Duration::from_secs(1);

/// Least time between two.
const STREAM_GAP: Duration = Duration::from_millis(100);

/// Events that are read at once.
const EVENTS_MAX: u32 = 200;

/// Parts of an answer that a slow reader may be behind.
const PARTS_MAX: usize = 8;

pub(super) fn routes(routes: &mut Routes) {
    routes
        .add::<__path_events, _, _>(events)
        .add::<__path_receipt, _, _>(receipt);
}

/// Follows the events of a job
///
/// Server-sent events; `data` is a `JobEvent`, `id` its number. After the last event of a job that
/// has ended the answer ends, too. `Last-Event-ID` continues after that event.
#[utoipa::path(
    get, path = "/api/v1/jobs/{id}/events",
    params(
        ("id" = Uuid, Path, description = "Job"),
        ("last-event-id" = Option<u64>, Header, description = "Continue after this event"),
    ),
    responses(
        (status = 200, description = "Events", body = JobEvent, content_type = "text/event-stream"),
    ),
)]
pub(super) async fn events(
    State(api): State<Arc<Api>>,
    caller: Caller,
    Id(id): Id,
    headers: HeaderMap,
) -> Answer<Response> {
    let after = match headers.get("last-event-id") {
        Some(value) => {
            let number = value.to_str().ok().and_then(|text| text.parse().ok());
            let wrong = || ApiError::new(Kind::Header, "last-event-id: the number of an event");
            number.ok_or_else(wrong)?
        }
        None => 0,
    };
    api.visible_job(&caller, id).await?;
    let permit = api.limits.take_stream(caller.name())?;
    let (parts, stream) = mpsc::channel(PARTS_MAX);
    let follower = Follower { api, id, parts };
    tokio::spawn(follower.run(after, permit));
    let keep_alive = KeepAlive::new();
    Ok(Sse::new(ReceiverStream::new(stream))
        .keep_alive(keep_alive)
        .into_response())
}

struct Follower {
    api: Arc<Api>,
    id: Uuid,
    parts: mpsc::Sender<Result<Event, Infallible>>,
}

/// Until this job changes, or so much has changed that it may have.
async fn changed(changes: &mut broadcast::Receiver<Uuid>, job: Uuid) {
    while let Ok(other) = changes.recv().await {
        if other == job {
            return;
        }
    }
}

/// The reader is gone, or there is no more to say.
struct Closed;

impl Follower {
    async fn run(self, mut after: u64, _permit: StreamPermit) {
        let mut stopping = self.api.stopping.clone();
        let mut changes = self.api.board.changes();
        let mut progress = None;
        loop {
            tokio::select! {
                looked = self.look(&mut after, &mut progress) => if looked.is_err() {
                    return;
                },
                _ = stopping.wait_for(|stopping| *stopping) => return,
                () = self.parts.closed() => return,
            }
            sleep(STREAM_GAP).await;
            tokio::select! {
                () = sleep(STREAM_LOOK) => {}
                () = changed(&mut changes, self.id) => {}
                _ = stopping.wait_for(|stopping| *stopping) => return,
                () = self.parts.closed() => return,
            }
        }
    }

    /// Sends what has happened since.
    async fn look(&self, after: &mut u64, progress: &mut Option<String>) -> Result<(), Closed> {
        let job = match self.api.store.job(self.id).await {
            Ok(job) => job,
            Err(error) if error.is_passing() => return Ok(()),
            Err(_) => return Err(Closed),
        };
        loop {
            let events = match self.api.store.events(self.id, *after, EVENTS_MAX).await {
                Ok(events) => events,
                Err(error) if error.is_passing() => return Ok(()),
                Err(_) => return Err(Closed),
            };
            if events.is_empty() {
                break;
            }
            for (number, event) in events {
                let text = serde_json::to_string(&event).map_err(|_| Closed)?;
                self.send(Event::default().id(number.to_string()).data(text))
                    .await?;
                *after = number;
            }
        }
        // Read before the events: what came later is in the next look.
        let what = self.progress(&job);
        let text = serde_json::to_string(&what).map_err(|_| Closed)?;
        if progress.as_ref() != Some(&text) {
            let at = self.api.store.now().await.map_err(|_| Closed)?;
            let event = serde_json::to_string(&JobEvent { at, what }).map_err(|_| Closed)?;
            self.send(Event::default().data(event)).await?;
            *progress = Some(text);
        }
        match job.state.is_final() {
            true => Err(Closed),
            false => Ok(()),
        }
    }

    fn progress(&self, job: &JobRecord) -> JobEventKind {
        let view = self.api.view(job.clone());
        JobEventKind::Progress {
            files: view.files,
            bytes_done: view.bytes_done,
            goodput: view.goodput,
        }
    }

    async fn send(&self, event: Event) -> Result<(), Closed> {
        self.parts.send(Ok(event)).await.map_err(|_| Closed)
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum ReceiptFormat {
    #[default]
    Csv,
    Json,
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct ReceiptQuery {
    /// `csv` or `json`
    #[serde(default)]
    #[param(value_type = Option<String>)]
    format: ReceiptFormat,
}

/// Lists all files of a job with sizes and checksums
#[utoipa::path(
    get, path = "/api/v1/jobs/{id}/receipt",
    params(("id" = Uuid, Path, description = "Job"), ReceiptQuery),
    responses((status = 200, description = "All files", content(
        (String = "text/csv"), (Vec<FileView> = "application/json"),
    ))),
)]
pub(super) async fn receipt(
    State(api): State<Arc<Api>>,
    caller: Caller,
    Id(id): Id,
    Asked(asked): Asked<ReceiptQuery>,
) -> Answer<Response> {
    let job = api.visible_job(&caller, id).await?;
    let permit = api.limits.take_stream(caller.name())?;
    let (parts, stream) = mpsc::channel(PARTS_MAX);
    let (media, ending) = match asked.format {
        ReceiptFormat::Csv => ("text/csv; charset=utf-8", "csv"),
        ReceiptFormat::Json => ("application/json", "json"),
    };
    tokio::spawn(async move {
        let _permit = permit;
        if let Err(error) = write_receipt(&api, &job, asked.format, &parts).await {
            // Ends the connection, so that the reader does not take a part for the whole.
            let _ = parts.send(Err(error)).await;
        }
    });
    let name = format!("attachment; filename=\"{id}.{ending}\"");
    let headers = [
        (header::CONTENT_TYPE, media),
        (header::CONTENT_DISPOSITION, name.as_str()),
    ];
    Ok((headers, Body::from_stream(ReceiverStream::new(stream))).into_response())
}

async fn write_receipt(
    api: &Api,
    job: &JobRecord,
    format: ReceiptFormat,
    parts: &mpsc::Sender<Result<Bytes, StoreError>>,
) -> Result<(), StoreError> {
    let mut text = match format {
        ReceiptFormat::Csv => "index,state,bytes,checksum,source,destination,error\r\n".to_owned(),
        ReceiptFormat::Json => "[".to_owned(),
    };
    let mut cursor = None;
    let mut is_first = true;
    loop {
        let page = api
            .store
            .files(job, cursor.as_deref(), MAX_PAGE, None)
            .await?;
        for file in page.items {
            match format {
                ReceiptFormat::Csv => text += &csv_line(&file),
                ReceiptFormat::Json => {
                    text += if is_first { "\n" } else { ",\n" };
                    let line = serde_json::to_string(&file);
                    text += &line.map_err(|error| StoreError::Corrupt(error.to_string()))?;
                }
            }
            is_first = false;
        }
        if page.next.is_none() && format == ReceiptFormat::Json {
            text += "\n]\n";
        }
        // The reader is gone.
        if parts
            .send(Ok(Bytes::from(std::mem::take(&mut text))))
            .await
            .is_err()
        {
            return Ok(());
        }
        cursor = match page.next {
            Some(next) => Some(next),
            None => return Ok(()),
        };
    }
}

/// RFC 4180.
fn csv_line(file: &FileView) -> String {
    let state = serde_json::to_value(file.state).unwrap_or_default();
    let bytes = file
        .bytes
        .map(|bytes| bytes.to_string())
        .unwrap_or_default();
    let error = file.error.as_ref().map(|error| error.code.as_str());
    let fields = [
        file.index.to_string().as_str(),
        state.as_str().unwrap_or_default(),
        &bytes,
        file.checksum.as_deref().unwrap_or_default(),
        &file.source,
        &file.destination,
        error.unwrap_or_default(),
    ]
    .map(csv_field);
    fields.join(",") + "\r\n"
}

/// Spreadsheets take what begins with some characters for a formula.
fn csv_field(text: &str) -> String {
    let guard = match text.starts_with(['=', '+', '-', '@', '\t', '\r']) {
        true => "'",
        false => "",
    };
    let text = format!("{guard}{text}");
    match text.contains(['"', ',', '\r', '\n']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text,
    }
}

#[cfg(test)]
mod tests {
    use super::csv_field;

    #[test]
    fn fields_of_csv_are_quoted_where_they_must_be() {
        assert_eq!(csv_field("ftp://h/x"), "ftp://h/x");
        for formula in ["=1", "+1", "-1", "@x", "\tx"] {
            assert_eq!(csv_field(formula), format!("'{formula}"));
        }
        assert_eq!(csv_field("=\"x\""), "\"'=\"\"x\"\"\"");
        assert_eq!(csv_field("ftp://h/a,\"b\""), "\"ftp://h/a,\"\"b\"\"\"");
    }
}
