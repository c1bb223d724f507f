//! What the operator has of their own: schedules, credentials, and a form that is not sent yet.

use godwit_service_api::preview::{Amount, Fate, JobPreview, PreviewedFile};
use serde_json::{Value, json};

use crate::service_load::{Http, LoadError};

/// The directory of the form, and where it goes.
pub(super) const FORM: (&str, &str) = (
    "gsiftp://telescope.example.org/data/night4711",
    "gsiftp://campus.example.net/copies/night4711",
);

/// Schedules: name, when, whose clock, files, whether it is paused. The first is due in the day of
/// the pictures.
const SCHEDULES: [(&str, &str, &str, u64, bool); 5] = [
    ("state-of-the-detector", "* * * * *", "UTC", 2, false),
    ("nightly-images", "15 3 * * *", "Europe/Berlin", 340, false),
    (
        "weekly-archive",
        "0 6 * * MON",
        "Europe/Berlin",
        1200,
        false,
    ),
    ("calibration", "30 */6 * * *", "UTC", 24, false),
    ("reprocessing-2025", "0 22 * * FRI", "UTC", 800, true),
];

/// Of each file of the form so many bytes.
const FILE_BYTES: u64 = 412_000_000;

/// Files of the form: new ones, others that the destination has in another form, and the same.
const FILES: [(Fate, u64); 3] = [
    (Fate::Copied, 1712),
    (Fate::Replaced, 3),
    (Fate::Skipped, 128),
];

/// Makes them.
///
/// # Errors
/// The service refuses.
pub(super) async fn add(operator: &mut Http) -> Result<(), LoadError> {
    for (name, cron, zone, files, paused) in SCHEDULES {
        let file = |number| {
            let path = format!("{name}/part{number:04}.h5");
            json!({"source": format!("gsiftp://accelerator.example.org/data/{path}"),
                "destination": format!("gsiftp://store2.example.net/copies/{path}"),
                "bytes": 40_000_000})
        };
        let files: Vec<Value> = (0..files).map(file).collect();
        let job = json!({"files": files, "options": {"name": name}});
        let schedule = json!({"name": name, "cron": cron, "zone": zone, "job": job}).to_string();
        let path = "/api/v1/schedules";
        let _: Value = operator.must("POST", path, schedule.as_bytes()).await?;
        if paused {
            let path = format!("/api/v1/schedules/{name}/pause");
            let _: Value = operator.must("POST", &path, b"").await?;
        }
    }
    let password = json!({"password": {"user": "operator", "password": "not shown"}});
    let token = json!({"token": "not shown"});
    for (endpoint, secret, expires) in [
        ("gsiftp://tape.example.net:2811", &password, json!(null)),
        (
            "davs://cloud.example.net",
            &token,
            json!("2036-03-31T12:00:00Z"),
        ),
        (
            "https://store1.example.net,https://store2.example.net",
            &token,
            json!("2026-06-30T12:00:00Z"),
        ),
        ("gsiftp://*.example.org", &password, json!(null)),
    ] {
        let stored = json!({"endpoint": endpoint, "secret": secret, "expires": expires});
        let stored = stored.to_string();
        let path = "/api/v1/credentials";
        let _: Value = operator.must("POST", path, stored.as_bytes()).await?;
    }
    Ok(())
}

/// What the job of the form would copy.
pub(super) fn preview() -> JobPreview {
    let mut preview = JobPreview {
        listed: 12,
        ..JobPreview::default()
    };
    for (fate, files) in FILES {
        *preview.amount(fate) = Amount {
            files,
            bytes: files * FILE_BYTES,
        };
    }
    let file = |number: u64| {
        let path = format!("exposure{:02}/image{number:04}.fits", number / 20);
        PreviewedFile {
            source: format!("{}/{path}", FORM.0),
            destination: format!("{}/{path}", FORM.1),
            bytes: Some(FILE_BYTES),
            fate: match number % 9 {
                2 => Fate::Skipped,
                5 => Fate::Replaced,
                _ => Fate::Copied,
            },
        }
    };
    preview.first = (1..=40).map(file).collect();
    preview
}
