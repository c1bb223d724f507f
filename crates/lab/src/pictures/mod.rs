//! Pictures of the transfer service's page, in the evening of a replayed day of a site.
//!
//! # Map
//! - [`DayPlan`], [`DayFacts`]: the day, and how it went
//! - [`take`]: replays it and takes the pictures
//! - `desk`: what the operator has of their own
//! - `camera`: a page at three widths, light and dark

mod camera;
mod day;
mod desk;

use std::{fs, path::Path};

use serde_json::Value;

pub use self::day::{DayFacts, DayPlan};
use crate::{
    chromium::{Chromium, ChromiumError},
    file_error::{FileError, io_error},
    service_load::LoadError,
};

/// Pages of an operator, and what their pictures are called. That of a job that moves is added, and
/// what a form shows of a job that is not submitted yet.
const PAGES: [(&str, &str); 11] = [
    ("jobs", "/jobs?all=yes"),
    ("waiting", "/jobs?all=yes&state=queued"),
    ("submit", "/submit"),
    ("schedules", "/schedules"),
    ("credentials", "/credentials"),
    ("endpoints", "/endpoints"),
    ("links", "/links"),
    ("agents", "/agents"),
    ("shares", "/shares"),
    ("users", "/users"),
    ("operator", "/operator"),
];

/// Why there are no pictures.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PicturesError {
    /// The service under load.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// The browser.
    #[error(transparent)]
    Browser(#[from] ChromiumError),
    /// A file.
    #[error(transparent)]
    File(#[from] FileError),
    /// The page does not let the operator in.
    #[error("the page of the service shows {0} after the login of its operator")]
    NoLogin(String),
    /// The form does not show what its job would copy.
    #[error("the page of the service shows no preview of a job: {0}")]
    NoPreview(String),
}

/// A page as the browser got it.
#[derive(Debug)]
pub struct PageTime {
    /// What its pictures are called.
    pub name: String,
    /// From the request to the last byte, ms.
    pub milliseconds: f64,
    /// Bytes of its HTML.
    pub bytes: u64,
}

/// What was found.
#[derive(Debug)]
pub struct Pictures {
    /// How the day went.
    pub day: DayFacts,
    /// How long pages took in its evening.
    pub pages: Vec<PageTime>,
    /// Bytes of all pictures.
    pub bytes: u64,
}

/// Replays a day, and takes pictures of every page into a folder.
///
/// # Errors
/// The service or the browser fails.
pub async fn take(
    plan: DayPlan,
    folder: &Path,
    told: &mut dyn FnMut(&str),
) -> Result<Pictures, PicturesError> {
    fs::create_dir_all(folder).map_err(io_error(folder))?;
    // Without a browser the day would be in vain.
    let browser = Chromium::start().await?;
    let evening = day::replay(plan, told).await?;
    let base = format!("http://{}", evening.site.address());
    browser.load(&format!("{base}/login")).await?;
    let mut bytes = camera::take(&browser, "login", folder).await?;
    log_in(&browser, evening.site.operator_token()).await?;
    let mut pages = Vec::new();
    let mut paths: Vec<(&str, String)> = PAGES
        .iter()
        .map(|(name, path)| (*name, (*path).to_owned()))
        .collect();
    paths.insert(1, ("job", format!("/jobs/{}", evening.moving)));
    for (name, path) in paths {
        told(name);
        browser.load(&format!("{base}{path}")).await?;
        pages.push(time_of(&browser, name).await?);
        bytes += camera::take(&browser, name, folder).await?;
    }
    told("preview");
    browser.load(&format!("{base}/submit")).await?;
    preview(&browser).await?;
    pages.push(time_of(&browser, "preview").await?);
    bytes += camera::take(&browser, "preview", folder).await?;
    browser.close().await;
    Ok(Pictures {
        day: evening.facts,
        pages,
        bytes,
    })
}

async fn log_in(browser: &Chromium, token: &str) -> Result<(), PicturesError> {
    let send = format!(
        "const field = document.querySelector('[name=token]'); field.value = '{token}'; \
         field.form.requestSubmit();"
    );
    browser.evaluate(&send).await?;
    if comes(browser, "return location.pathname === '/jobs'").await {
        return Ok(());
    }
    let path = browser.evaluate("return location.pathname").await?;
    Err(PicturesError::NoLogin(path.to_string()))
}

/// Asks for the preview of a form.
async fn preview(browser: &Chromium) -> Result<(), PicturesError> {
    let (source, destination) = desk::FORM;
    let send = format!(
        "const field = (name) => document.querySelector(`form.sheet [name=${{name}}]`);
        field('source').value = '{source}'; field('destination').value = '{destination}';
        field('recursive').checked = true; field('name').value = 'Images of night 4711';
        document.querySelector('button.plain[value=preview]').click();"
    );
    browser.evaluate(&send).await?;
    if comes(
        browser,
        "return document.querySelector('.preview') !== null",
    )
    .await
    {
        return Ok(());
    }
    let said = "return document.querySelector('main').innerText.slice(0, 400)";
    let said = browser.evaluate(said).await?;
    Err(PicturesError::NoPreview(said.to_string()))
}

/// Whether a page comes of which this is true. While one is loaded, the browser refuses commands.
async fn comes(browser: &Chromium, is_it: &str) -> bool {
    for _ in 0..300 {
        if let Ok(found) = browser.evaluate(is_it).await
            && found == true
        {
            return true;
        }
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    false
}

async fn time_of(browser: &Chromium, name: &str) -> Result<PageTime, PicturesError> {
    let times = "const [it] = performance.getEntriesByType('navigation'); \
        return [it.responseEnd - it.requestStart, it.decodedBodySize];";
    let times: Value = browser.evaluate(times).await?;
    Ok(PageTime {
        name: name.to_owned(),
        milliseconds: times[0].as_f64().unwrap_or(f64::NAN),
        bytes: times[1].as_u64().unwrap_or(0),
    })
}
