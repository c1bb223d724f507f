//! What every page must be, and an agent that says what pages show.

use godwit_service_api::{
    AGENT_API,
    agent::{AgentDescription, BrowseAnswer, Browsed, PROTOCOL, PollRequest, PollResponse},
};
use uuid::Uuid;

use crate::{
    browser::{Browser, tags},
    site::Site,
};

/// What would run if it were a part of the page.
pub(crate) const EVIL: &str = "<script>alert(1)</script>";

/// Most bytes of a page.
pub(crate) const PAGE_BYTES_MAX: usize = 100_000;

/// Pages that need no job.
pub(crate) const PAGES: [&str; 11] = [
    "/jobs?all=yes",
    "/submit",
    "/schedules",
    "/credentials",
    "/users",
    "/endpoints",
    "/links",
    "/agents",
    "/shares",
    "/operator",
    "/login",
];

/// All that a page must be, whatever it shows.
pub(crate) fn check_page(path: &str, text: &str) {
    assert!(text.len() < PAGE_BYTES_MAX, "{path}: {} bytes", text.len());
    let tags = tags(text);
    for tag in &tags {
        let is_script = tag.name == "script";
        let source = tag.attribute("src").unwrap_or("");
        assert!(
            !is_script || source.starts_with("/assets/"),
            "{path}: {tag:?}"
        );
        assert!(
            tag.name != "style" && tag.name != "base" && tag.name != "iframe",
            "{path}"
        );
        for (name, value) in &tag.attributes {
            let is_inline = name.starts_with("on") || name == "style" || name == "srcdoc";
            assert!(!is_inline, "{path}: {tag:?}");
            let value = value.trim().to_ascii_lowercase();
            assert!(!value.starts_with("javascript:"), "{path}: {tag:?}");
            let is_place = matches!(name.as_str(), "href" | "src" | "action");
            assert!(
                !is_place || value.starts_with(['/', '#']),
                "{path}: {tag:?}"
            );
        }
    }
    assert_eq!(
        tags.iter().filter(|tag| tag.name == "script").count(),
        1,
        "{path}"
    );
    let count = |name: &str| tags.iter().filter(|tag| tag.name == name).count();
    assert_eq!(
        (count("h1"), count("main"), count("header")),
        (1, 1, 1),
        "{path}"
    );
    // Tables say what they are, and which cells are of which heading.
    assert_eq!(count("table"), count("caption"), "{path}");
    for tag in tags.iter().filter(|tag| tag.name == "th") {
        assert!(
            matches!(tag.attribute("scope"), Some("col" | "row")),
            "{path}: {tag:?}"
        );
    }
    let labels: Vec<&str> = (tags.iter().filter(|tag| tag.name == "label"))
        .filter_map(|tag| tag.attribute("for"))
        .collect();
    let fields = tags
        .iter()
        .filter(|tag| matches!(tag.name.as_str(), "input" | "select"));
    for field in fields {
        let is_seen = !matches!(field.attribute("type"), Some("hidden" | "checkbox"));
        let is_labelled = field.attribute("id").is_some_and(|id| labels.contains(&id));
        assert!(!is_seen || is_labelled, "{path}: {field:?}");
    }
    assert!(!text.contains(EVIL), "{path}");
    assert!(
        !text.contains(|c: char| c.is_control() && c != '\n'),
        "{path}"
    );
    assert!(!text.contains('\u{202e}'), "{path}");
}

pub(crate) async fn all_pages(browser: &mut Browser, jobs: &[String]) -> String {
    let of_jobs = jobs.iter().flat_map(|id| {
        let files = format!("/jobs/{id}?files=failed");
        [format!("/jobs/{id}"), files]
    });
    let paths = PAGES.iter().map(|path| (*path).to_owned()).chain(of_jobs);
    let mut all = String::new();
    for path in paths.collect::<Vec<_>>() {
        let text = browser.page(&path).await;
        check_page(&path, &text);
        all += &text;
    }
    all
}

/// Rows of the tables of a page.
pub(crate) fn rows(page: &str) -> usize {
    let tags = tags(page);
    let rows = tags
        .iter()
        .filter(|tag| tag.attribute("scope") == Some("row"));
    rows.count()
}

/// Where the next page of a list is.
pub(crate) fn next_of(page: &str) -> Option<String> {
    let tags = tags(page);
    let mut links = tags.iter();
    let next = links.find(|tag| tag.attribute("rel") == Some("next"))?;
    Some(next.attribute("href").unwrap().replace("&amp;", "&"))
}

/// Rows of a list, page after page, each of which must be as all are and hold this.
pub(crate) async fn rows_of_all(browser: &mut Browser, path: &str, holds: &str) -> usize {
    let (mut path, mut seen) = (path.to_owned(), 0);
    loop {
        let page = browser.page(&path).await;
        check_page(&path, &page);
        assert!(page.contains(holds), "{path}");
        seen += rows(&page);
        match next_of(&page) {
            Some(next) => path = next,
            None => return seen,
        }
    }
}

/// What an agent has found for a user. The status that it is answered with.
pub(crate) async fn answer(site: &Site, token: &str, id: Uuid, found: Browsed) -> u16 {
    let post = site.client.post(format!("{}{AGENT_API}/browse", site.url));
    let post = post.bearer_auth(token).json(&BrowseAnswer { id, found });
    post.send().await.unwrap().status().as_u16()
}

/// One poll of an agent.
pub(crate) async fn poll(
    site: &Site,
    token: &str,
    agent: &str,
    sequence: u64,
    change: impl FnOnce(&mut PollRequest),
) -> PollResponse {
    let mut request = PollRequest {
        protocol: PROTOCOL,
        agent: agent.to_owned(),
        incarnation: Uuid::from_u128(7),
        sequence,
        description: AgentDescription {
            version: format!("1.0{EVIL}"),
            host: "h".to_owned(),
            labels: vec![EVIL.to_owned(), "\"onmouseover=alert(1)".to_owned()],
            endpoints: vec!["*".to_owned()],
            slots: 4,
            joins_uploads: true,
        },
        free_slots: 4,
        units: Vec::new(),
        results: Vec::new(),
        renewed: None,
        removed: Vec::new(),
        browses: Vec::new(),
        wait_seconds: 2,
    };
    change(&mut request);
    let post = site.client.post(format!("{}{AGENT_API}/poll", site.url));
    let answer = post.bearer_auth(token).json(&request).send().await.unwrap();
    answer.error_for_status().unwrap().json().await.unwrap()
}
