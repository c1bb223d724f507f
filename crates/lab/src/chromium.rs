//! A headless Chromium that is driven by WebDriver, as people's browsers are. It knows nothing of
//! the lab: tests of the service's page use it, too.
//!
//! WebDriver is JSON over HTTP, of which six commands are needed here. Libraries of it bring a
//! second library of HTTP and of cookies, and change what the whole workspace is built with.

use std::{
    io::{self, BufRead as _, BufReader},
    process::{Child, Command, Stdio},
    sync::mpsc,
    thread,
    time::Duration,
};

use reqwest::Client;
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use serde_json::{Value, json};
use tempfile::TempDir;

/// The program that speaks WebDriver and starts the browser.
pub const DRIVER: &str = "chromedriver";

/// Debian's package of it, which brings the browser.
pub const DRIVER_PACKAGE: &str = "chromium-driver";

/// How long driver and browser may take to start. They need two seconds on an idle machine.
const START_LIMIT: Duration = Duration::from_secs(60);

/// How long one command may take: a loaded machine draws a long page in seconds.
const COMMAND_LIMIT: Duration = Duration::from_secs(60);

/// Of the port in what the driver prints when it listens.
const STARTED: &str = "was started successfully on port ";

/// Why there is no browser, or why it did not do what it was told.
#[derive(Debug, thiserror::Error)]
pub enum ChromiumError {
    /// The driver does not run here.
    #[error("{DRIVER} cannot be started: {0}; it comes with {DRIVER_PACKAGE}")]
    Driver(io::Error),
    /// The driver has not said its port.
    #[error("{DRIVER} did not say within {START_LIMIT:?} where it listens")]
    NoPort,
    /// The driver does not answer, or not in time.
    #[error("{DRIVER} does not answer: {0}")]
    Answer(#[from] reqwest::Error),
    /// A command failed.
    #[error("the browser refuses {command}: {why}")]
    Refused {
        /// The last part of its path.
        command: String,
        /// What the driver says.
        why: String,
    },
}

/// A browser with one window and a profile of its own. Dropping it kills it.
pub struct Chromium {
    client: Client,
    /// Where its commands go.
    session: String,
    // Fields are dropped in this order: the browser ends before its profile goes.
    driver: Driver,
    _profile: TempDir,
}

/// What a page is shown on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Screen {
    /// Pixels of CSS.
    pub width: u32,
    /// Pixels of CSS.
    pub height: u32,
    /// The reader prefers a dark scheme.
    pub is_dark: bool,
}

/// The driver, and its browser, which outlives a driver that is killed.
struct Driver {
    child: Child,
    browser: Option<Pid>,
}

impl Drop for Driver {
    fn drop(&mut self) {
        // Both may have ended. The driver waits for its browser, so its number is not another's.
        if let Some(browser) = self.browser {
            let _ = kill_process(browser, Signal::KILL);
        }
        // It leads a group of its own, in which a browser may be that is not known yet.
        if let Ok(group) = i32::try_from(self.child.id())
            && let Some(group) = Pid::from_raw(group)
        {
            let _ = kill_process_group(group, Signal::KILL);
        }
        let _ = self.child.wait();
    }
}

impl Chromium {
    /// Whether the driver is installed.
    pub fn is_installed() -> bool {
        let found = Command::new(DRIVER).arg("--version").output();
        found.is_ok_and(|output| output.status.success())
    }

    /// Starts driver and browser.
    ///
    /// # Errors
    /// One of them does not start.
    pub async fn start() -> Result<Chromium, ChromiumError> {
        let profile = tempfile::tempdir().map_err(ChromiumError::Driver)?;
        let (mut driver, port) = start_driver(&profile)?;
        let arguments = [
            "--headless=new".to_owned(),
            // Its sandbox does not work as root. It loads pages of ours alone.
            "--no-sandbox".to_owned(),
            "--disable-gpu".to_owned(),
            "--disable-dev-shm-usage".to_owned(),
            "--disable-background-networking".to_owned(),
            "--disable-component-update".to_owned(),
            "--no-first-run".to_owned(),
            "--hide-scrollbars".to_owned(),
            "--no-proxy-server".to_owned(),
            "--lang=en".to_owned(),
            format!("--user-data-dir={}", profile.path().display()),
        ];
        let wanted = json!({"capabilities": {"alwaysMatch": {
            "goog:chromeOptions": {"args": arguments}}}});
        let client = Client::builder()
            .no_proxy()
            .timeout(COMMAND_LIMIT)
            .build()?;
        let all = format!("http://127.0.0.1:{port}/session");
        let started = send(&client, &all, &wanted).await?;
        let browser = started["capabilities"]["goog:processID"].as_i64();
        let browser = browser.and_then(|id| i32::try_from(id).ok());
        driver.browser = browser.and_then(Pid::from_raw);
        let id = started["sessionId"].as_str().unwrap_or_default();
        Ok(Chromium {
            client,
            session: format!("{all}/{id}"),
            driver,
            _profile: profile,
        })
    }

    async fn command(&self, path: &str, body: Value) -> Result<Value, ChromiumError> {
        send(&self.client, &format!("{}/{path}", self.session), &body).await
    }

    /// Loads a page, until all of it is there.
    ///
    /// # Errors
    /// The browser does not load it.
    pub async fn load(&self, url: &str) -> Result<(), ChromiumError> {
        self.command("url", json!({"url": url})).await.map(drop)
    }

    /// What a function of JavaScript with this body returns. The page's policy does not bind it.
    ///
    /// # Errors
    /// It throws.
    pub async fn evaluate(&self, body: &str) -> Result<Value, ChromiumError> {
        self.script("execute/sync", body).await
    }

    /// The same for what comes later: the body calls its last argument.
    ///
    /// # Errors
    /// It throws, or calls nothing.
    pub async fn evaluate_later(&self, body: &str) -> Result<Value, ChromiumError> {
        self.script("execute/async", body).await
    }

    /// A command of the [protocol of the browser's tools].
    ///
    /// [protocol of the browser's tools]: https://chromedevtools.github.io/devtools-protocol/
    ///
    /// # Errors
    /// The browser refuses it.
    pub async fn tool(&self, name: &str, parameters: Value) -> Result<Value, ChromiumError> {
        let body = json!({"cmd": name, "params": parameters});
        self.command("goog/cdp/execute", body).await
    }

    /// Shows pages on this screen from now on.
    ///
    /// # Errors
    /// The browser refuses.
    pub async fn show_on(&self, screen: Screen) -> Result<(), ChromiumError> {
        let metrics = json!({"width": screen.width, "height": screen.height,
            "deviceScaleFactor": 1, "mobile": false});
        self.tool("Emulation.setDeviceMetricsOverride", metrics)
            .await?;
        let scheme = if screen.is_dark { "dark" } else { "light" };
        let features = json!({"features": [
            {"name": "prefers-color-scheme", "value": scheme},
            {"name": "prefers-reduced-motion", "value": "reduce"},
        ]});
        self.tool("Emulation.setEmulatedMedia", features).await?;
        Ok(())
    }

    /// Presses and releases these keys, one after the other. Those without a sign have one of the
    /// [keys of WebDriver].
    ///
    /// [keys of WebDriver]: https://www.w3.org/TR/webdriver2/#keyboard-actions
    ///
    /// # Errors
    /// The browser refuses.
    pub async fn press(&self, keys: &str) -> Result<(), ChromiumError> {
        let actions = keys
            .chars()
            .flat_map(|key| ["keyDown", "keyUp"].map(|what| json!({"type": what, "value": key})));
        let actions: Vec<Value> = actions.collect();
        let actions = json!({"actions": [
            {"type": "key", "id": "keyboard", "actions": actions}]});
        self.command("actions", actions).await.map(drop)
    }

    async fn script(&self, path: &str, body: &str) -> Result<Value, ChromiumError> {
        self.command(path, json!({"script": body, "args": []}))
            .await
    }

    /// Ends both.
    pub async fn close(self) {
        // What does not end in time is killed.
        let _ = self.client.delete(&self.session).send().await;
        drop(self.driver);
    }
}

/// Sends a command. The value of its answer.
async fn send(client: &Client, url: &str, body: &Value) -> Result<Value, ChromiumError> {
    let answer = client.post(url).json(body).send().await?;
    let is_done = answer.status().is_success();
    let mut answer: Value = answer.json().await?;
    let value = answer["value"].take();
    if is_done {
        return Ok(value);
    }
    let command = url.rsplit('/').next().unwrap_or_default();
    let why = value["message"].as_str().unwrap_or_default();
    Err(ChromiumError::Refused {
        command: command.to_owned(),
        why: why.lines().next().unwrap_or_default().to_owned(),
    })
}

/// The driver, and the port that it took.
fn start_driver(profile: &TempDir) -> Result<(Driver, u16), ChromiumError> {
    use std::os::unix::process::CommandExt as _;

    let mut child = Command::new(DRIVER)
        .arg("--port=0")
        // Browsers keep what crashed in a home.
        .env("HOME", profile.path())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .process_group(0)
        .spawn()
        .map_err(ChromiumError::Driver)?;
    let output = child.stdout.take();
    let driver = Driver {
        child,
        browser: None,
    };
    let (tell, told) = mpsc::channel();
    thread::spawn(move || {
        // What it prints later is read, too, so that it can print.
        for line in output
            .into_iter()
            .flat_map(|out| BufReader::new(out).lines())
        {
            let Ok(line) = line else { return };
            let port = line.split_once(STARTED).map(|(_, rest)| rest);
            let port = port.and_then(|rest| rest.trim_end_matches('.').parse::<u16>().ok());
            if let Some(port) = port {
                // The receiver is gone after its time limit.
                let _ = tell.send(port);
            }
        }
    });
    let port = told.recv_timeout(START_LIMIT);
    Ok((driver, port.map_err(|_| ChromiumError::NoPort)?))
}
