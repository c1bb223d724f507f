//! The pages in a real browser: at three widths, light and dark, by keyboard alone, without a
//! script, and as the programs that read pages aloud see them.

use std::{path::Path, time::Duration};

use serde_json::{Value, json};

use crate::{
    chromium::{Chromium, DRIVER_PACKAGE, Screen},
    harness::{Agent, Served},
    pages::{PAGES, poll},
    site::{Site, User, files},
};

/// Where scripts/install-test-deps.sh puts a checker of accessibility.
const AXE: &str = "/usr/local/lib/godwit-peers/node_modules/axe-core/axe.min.js";

/// Keys of WebDriver.
const TAB: &str = "\u{e004}";
const ENTER: &str = "\u{e007}";
const DOWN: &str = "\u{e015}";

const WIDTHS: [u32; 3] = [1440, 768, 390];

/// What a page shows beside a form that was sent: a directory, and what a job would copy.
const VIEWS: [&str; 2] = ["/submit, browsing", "/submit, previewing"];

/// Limit of what the page does by itself.
const LIMIT: Duration = Duration::from_secs(30);

/// What a reader can do something with. What forms have for the enter key alone, nobody sees.
const CONTROLS: &str = "[...document.querySelectorAll('a[href], button, input:not([type=hidden]), \
    select, textarea, summary')].filter((one) => !one.disabled && \
    one.tabIndex >= 0 && one.checkVisibility())";

/// Roles of nodes that must have a name.
const NAMED: [&str; 13] = [
    "button",
    "checkbox",
    "combobox",
    "DisclosureTriangle",
    "heading",
    "image",
    "link",
    "navigation",
    "progressbar",
    "radio",
    "searchbox",
    "spinbutton",
    "textbox",
];

/// A node of the tree that screen readers get.
#[derive(Debug)]
struct Seen {
    role: String,
    name: String,
    is_live: bool,
}

fn is_required() -> bool {
    std::env::var_os("GODWIT_REQUIRE_PEERS").is_some_and(|value| value == "1")
}

async fn browser() -> Option<Chromium> {
    if Chromium::is_installed() {
        return Some(Chromium::start().await.unwrap());
    }
    assert!(!is_required(), "{DRIVER_PACKAGE} is missing");
    eprintln!("skipped: {DRIVER_PACKAGE} is missing");
    None
}

/// The checker's script.
fn axe() -> Option<String> {
    let script = std::fs::read_to_string(Path::new(AXE));
    assert!(script.is_ok() || !is_required(), "{AXE} is missing");
    script.inspect_err(|_| eprintln!("skipped: {AXE}")).ok()
}

/// A site with something on each page: limits, an agent, jobs of two states, what a user has.
async fn full_site() -> (Site, Vec<String>) {
    let allowed = [
        "--allow-endpoint",
        "gsiftp://*",
        "--allow-endpoint",
        "ftp://127.0.0.1:*",
    ];
    let flags = [&allowed[..], &["--requests-per-second", "1000"]].concat();
    let site = Site::start(&flags).await;
    let operator = site.operator();
    let put = reqwest::Method::PUT;
    let limits = json!({"name": "gsiftp://a.example.org", "state": "draining",
        "limits": {"sessions": 8, "bytes_per_second": 125_000_000}});
    operator.ok(put, "/endpoints", limits).await;
    let agent = site.user("dtn1", "agent", &[]).await;
    let mut jobs = Vec::new();
    for (name, paused) in [("run 7, all of its events", false), ("calibration", true)] {
        let options = json!({"name": name, "paused": paused});
        let job = json!({"files": files(30), "options": options});
        jobs.push(operator.submit(job).await);
    }
    poll(&site, &agent.token, "dtn1", 0, |_| ()).await;
    for (endpoint, expires) in [
        ("gsiftp://a.example.org", json!(null)),
        (
            "https://storage.example.org:8443",
            json!("2026-01-01T00:00:00Z"),
        ),
    ] {
        let secret = json!({"password": {"user": "jo", "password": "secret"}});
        let stored = json!({"endpoint": endpoint, "secret": secret, "expires": expires});
        operator
            .ok(reqwest::Method::POST, "/credentials", stored)
            .await;
    }
    for name in ["nightly-copy-of-run7", "weekly"] {
        let job = json!({"files": files(2)});
        let (cron, zone) = ("15 3 * * *", "Europe/Berlin");
        let schedule = json!({"name": name, "cron": cron, "zone": zone, "job": job});
        operator
            .ok(reqwest::Method::POST, "/schedules", schedule)
            .await;
    }
    let pause = "/schedules/weekly/pause";
    operator.ok(reqwest::Method::POST, pause, Value::Null).await;
    (site, jobs)
}

/// A server with a tree, and an agent that reaches it.
async fn served(site: &Site) -> (Served, Agent) {
    let server = Served::start();
    for name in [
        "a b/x",
        "calibration-of-the-inner-detector.root",
        "run7/part0001.root",
    ] {
        server.write(&format!("data/{name}"), b"seven b");
    }
    server.write("copy/run7/part0001.root", b"seven b");
    let mover = site.user("dtn2", "agent", &[]).await;
    let agent = Agent::start(&site.url, mover.token.clone(), "dtn2", |config| {
        config.endpoints = vec!["ftp://127.0.0.1:*".to_owned()];
    });
    (server, agent)
}

/// Loads a page, or one of the views.
async fn open(browser: &Chromium, site: &Site, served: &Served, path: &str) {
    let page = path.split(',').next().unwrap();
    browser.load(&format!("{}{page}", site.url)).await.unwrap();
    let (button, shown) = match VIEWS.iter().position(|view| *view == path) {
        None => return,
        Some(0) => ("button[name=browse][value=source]", ".browse table"),
        Some(_) => ("button[name=then][value=preview]", ".preview table"),
    };
    let fill = format!(
        "document.getElementById('source').value = '{}'; \
         document.getElementById('destination').value = '{}'; \
         document.querySelector('input[name=recursive]').checked = true; \
         document.querySelector('{button}').click();",
        served.url("/data"),
        served.url("/copy"),
    );
    browser.evaluate(&fill).await.unwrap();
    let is_there =
        format!("document.querySelector('{shown}') && document.readyState === 'complete'");
    until(browser, &is_there).await;
}

fn paths(jobs: &[String]) -> Vec<String> {
    let of_jobs = jobs.iter().map(|id| format!("/jobs/{id}"));
    let pages = PAGES.iter().filter(|path| **path != "/login");
    pages
        .map(|path| (*path).to_owned())
        .chain(of_jobs)
        .collect()
}

async fn show(browser: &Chromium, width: u32, is_dark: bool) {
    let screen = Screen {
        width,
        height: 900,
        is_dark,
    };
    browser.show_on(screen).await.unwrap();
}

async fn press(browser: &Chromium, keys: &str) {
    browser.press(keys).await.unwrap();
}

/// Goes on by the tabulator until this is true of the element that has the focus.
async fn tab_to(browser: &Chromium, is_it: &str) {
    for _ in 0..80 {
        press(browser, TAB).await;
        let look = format!("const it = document.activeElement; return Boolean({is_it});");
        if browser.evaluate(&look).await.unwrap() == true {
            return;
        }
    }
    panic!("the keyboard does not reach {is_it}");
}

/// Waits until this is true in the page.
async fn until(browser: &Chromium, what: &str) {
    let began = std::time::Instant::now();
    // While a page goes, there is none to look at.
    while !matches!(
        browser.evaluate(&format!("return Boolean({what});")).await,
        Ok(Value::Bool(true))
    ) {
        assert!(began.elapsed() < LIMIT, "not so: {what}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

async fn log_in(browser: &Chromium, site: &Site, token: &str) {
    browser.load(&format!("{}/login", site.url)).await.unwrap();
    tab_to(browser, "it.name === 'token'").await;
    press(browser, token).await;
    press(browser, ENTER).await;
    until(
        browser,
        "location.pathname === '/jobs' && document.readyState === 'complete'",
    )
    .await;
}

/// What screen readers get of the page.
async fn seen(browser: &Chromium) -> Vec<Seen> {
    let tree = browser.tool("Accessibility.getFullAXTree", json!({})).await;
    let tree = tree.unwrap();
    let text = |value: &Value| value["value"].as_str().unwrap_or_default().to_owned();
    let nodes = tree["nodes"].as_array().unwrap().iter();
    let nodes = nodes.filter(|node| node["ignored"] == false);
    let nodes = nodes.map(|node| Seen {
        role: text(&node["role"]),
        name: text(&node["name"]),
        is_live: (node["properties"].as_array().into_iter().flatten())
            .any(|of| of["name"] == "live" && of["value"]["value"] == "polite"),
    });
    nodes.collect()
}

/// Every control has a name and a role, the page its landmarks.
async fn check_tree(path: &str, browser: &Chromium) {
    let tree = seen(browser).await;
    for node in &tree {
        let is_named = !node.name.trim().is_empty();
        assert!(
            is_named || !NAMED.contains(&node.role.as_str()),
            "{path}: {node:?}"
        );
    }
    for role in ["banner", "main", "contentinfo", "status"] {
        assert_eq!(
            tree.iter().filter(|node| node.role == role).count().min(1),
            1,
            "{path}: no {role}"
        );
    }
    assert!(
        tree.iter().any(|node| node.is_live),
        "{path}: nothing is live"
    );
}

/// The document is no wider than the window, and on a telephone no table is wider than its place.
async fn check_width(path: &str, browser: &Chromium, width: u32) {
    let overflow = browser
        .evaluate(
            "const page = document.scrollingElement; if (page.scrollWidth <= innerWidth) \
             return ''; return [...document.querySelectorAll('body *')].filter((one) => \
             one.getBoundingClientRect().right > innerWidth + 1 && !one.closest('.scroll')) \
             .slice(0, 5).map((one) => one.outerHTML.slice(0, 120)).join('\\n');",
        )
        .await;
    assert_eq!(overflow.unwrap(), "", "{path} at {width} px");
    if width == 390 {
        let cut = "return [...document.querySelectorAll('.scroll')].filter((one) => \
            one.scrollWidth > one.clientWidth + 1).map((one) => one.scrollWidth + ' of ' + \
            one.clientWidth + one.innerText.slice(0, 200));";
        let cut = browser.evaluate(cut).await.unwrap();
        assert_eq!(cut, json!([]), "{path}");
    }
}

/// What an automated checker finds against WCAG 2.1, levels A and AA.
async fn check_axe(path: &str, browser: &Chromium, how: &str) {
    let found = browser
        .evaluate_later(
            "const done = arguments[arguments.length - 1]; axe.run(document, {runOnly: ['wcag2a', \
             'wcag2aa', 'wcag21a', 'wcag21aa'], resultTypes: ['violations']}).then((found) => \
             done(found.violations.flatMap((rule) => rule.nodes.map((node) => rule.id + ' ' + \
             node.html.slice(0, 160) + ' ' + node.failureSummary))), (error) => \
             done([String(error)]));",
        )
        .await;
    let found = found.unwrap();
    assert_eq!(found, json!([]), "{path} {how}: {found:#}");
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_fit_three_widths_in_light_and_dark_and_a_checker_of_accessibility_finds_nothing() {
    let Some(browser) = browser().await else {
        return;
    };
    let (site, jobs) = full_site().await;
    let (server, _agent) = served(&site).await;
    let axe = axe();
    let mut all = vec!["/login".to_owned()];
    all.extend(paths(&jobs));
    all.extend(VIEWS.map(str::to_owned));
    for path in all {
        if path != "/login"
            && browser.evaluate("return location.pathname").await.unwrap() == "/login"
        {
            log_in(&browser, &site, &site.operator).await;
        }
        show(&browser, 1440, false).await;
        open(&browser, &site, &server, &path).await;
        check_tree(&path, &browser).await;
        if let Some(axe) = &axe {
            browser.evaluate(axe).await.unwrap();
        }
        for width in WIDTHS {
            for is_dark in [false, true] {
                show(&browser, width, is_dark).await;
                check_width(&path, &browser, width).await;
                if axe.is_some() {
                    check_axe(&path, &browser, &format!("{width} px, dark: {is_dark}")).await;
                }
            }
        }
    }
    browser.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_script_a_page_says_the_same() {
    let Some(browser) = browser().await else {
        return;
    };
    let (site, jobs) = full_site().await;
    show(&browser, 1440, false).await;
    log_in(&browser, &site, &site.operator).await;
    for path in paths(&jobs) {
        let mut read = Vec::new();
        for disabled in [false, true] {
            let value = json!({"value": disabled});
            let set = browser.tool("Emulation.setScriptExecutionDisabled", value);
            set.await.unwrap();
            browser.load(&format!("{}{path}", site.url)).await.unwrap();
            let tree = seen(&browser).await.into_iter();
            // Keys of forms and times differ from one load to the next.
            let tree = tree.map(|node| {
                let name = node.name.replace(|c: char| c.is_ascii_digit(), "");
                format!("{} {name}", node.role)
            });
            read.push(tree.collect::<Vec<_>>());
        }
        assert!(read[0].len() > 30, "{path}: {:?}", read[0]);
        assert_eq!(read[0], read[1], "{path}");
    }
    browser.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_keyboard_alone_reaches_every_control_and_shows_where_it_is() {
    let Some(browser) = browser().await else {
        return;
    };
    let (site, jobs) = full_site().await;
    let (server, _agent) = served(&site).await;
    show(&browser, 1440, false).await;
    log_in(&browser, &site, &site.operator).await;
    for path in paths(&jobs).into_iter().chain(VIEWS.map(str::to_owned)) {
        open(&browser, &site, &server, &path).await;
        let mark = format!(
            "const all = {CONTROLS}; all.forEach((one, at) => one.dataset.at = at); return \
             all.length;"
        );
        let count = browser.evaluate(&mark).await.unwrap().as_u64().unwrap();
        let mut missing: Vec<u64> = (0..count).collect();
        for _ in 0..2 * count {
            press(&browser, TAB).await;
            let look = "const it = document.activeElement; const style = getComputedStyle(it); \
                const place = it.getBoundingClientRect(); return [it.dataset.at ?? null, \
                it === document.body || (style.outlineStyle !== 'none' && \
                parseFloat(style.outlineWidth) >= 2 && place.width > 0 && place.top >= 0 && \
                place.top < innerHeight), it.outerHTML.slice(0, 200)];";
            let at = browser.evaluate(look).await.unwrap();
            assert_eq!(at[1], true, "{path}: the focus is not seen on {}", at[2]);
            let number = at[0].as_str().map(|at| at.parse::<u64>().unwrap());
            missing.retain(|at| Some(*at) != number);
            if missing.is_empty() {
                break;
            }
        }
        assert!(missing.is_empty(), "{path}: Tab does not reach {missing:?}");
    }
    browser.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_is_submitted_by_keyboard_alone_and_what_becomes_of_it_is_said() {
    let Some(browser) = browser().await else {
        return;
    };
    let (site, _) = full_site().await;
    let alice = site.user("alice", "user", &[]).await;
    show(&browser, 1440, false).await;
    log_in(&browser, &site, &alice.token).await;
    // The first key leads past the navigation.
    press(&browser, TAB).await;
    until(&browser, "document.activeElement.className === 'skip'").await;
    press(&browser, ENTER).await;
    until(&browser, "document.activeElement.id === 'main'").await;
    tab_to(
        &browser,
        "it.className === 'button' && it.pathname === '/submit'",
    )
    .await;
    press(&browser, ENTER).await;
    until(
        &browser,
        "location.pathname === '/submit' && document.readyState === 'complete'",
    )
    .await;
    for (field, text) in [
        ("source", "gsiftp://a.example.org/run8"),
        ("destination", "gsiftp://b.example.org/run8"),
        ("name", "run 8"),
    ] {
        tab_to(&browser, &format!("it.name === '{field}'")).await;
        press(&browser, text).await;
    }
    tab_to(&browser, "it.name === 'verify'").await;
    press(&browser, DOWN).await;
    tab_to(&browser, "it.name === 'paused'").await;
    press(&browser, " ").await;
    tab_to(&browser, "it.value === 'submit'").await;
    press(&browser, ENTER).await;
    until(
        &browser,
        "/^\\/jobs\\/[0-9a-f-]{36}$/.test(location.pathname)",
    )
    .await;
    let id = only_job(&alice).await;
    let job = alice.get(&format!("/jobs/{id}")).await;
    assert_eq!(
        (&job["options"]["name"], &job["state"]),
        (&json!("run 8"), &json!("paused"))
    );
    assert_eq!(job["options"]["verify"], "checksum");
    // What changes elsewhere is said here, in words, while the page is open.
    let resume = format!("/jobs/{id}/resume");
    alice.ok(reqwest::Method::POST, &resume, Value::Null).await;
    let said = "/^(queued|active), 0 of 1 file ended$/";
    until(
        &browser,
        &format!("{said}.test(document.getElementById('spoken').textContent)"),
    )
    .await;
    let tree = seen(&browser).await;
    let is_bar = |node: &&Seen| node.role == "progressbar" && !node.name.is_empty();
    assert_eq!(tree.iter().filter(is_bar).count(), 1);
    assert!(
        tree.iter()
            .any(|node| node.role == "status" && node.is_live)
    );
    browser.close().await;
}

async fn only_job(user: &User<'_>) -> String {
    let jobs = user.get("/jobs").await;
    assert_eq!(jobs["items"].as_array().unwrap().len(), 1);
    jobs["items"][0]["id"].as_str().unwrap().to_owned()
}
