mod tuned;

use super::*;
use crate::runner::{Environment, Fidelity, Run, RunOutcome, Sender, Simulated};
use crate::scenario::{self, LIBRARY, Rate};

/// Results as a run of the scenario might give them: goodput grows with channels up to the link.
fn results(name: &str) -> Results {
    let loaded = scenario::load(name).expect("is embedded");
    let scenario = loaded.scenario.clone();
    let mut runs = Vec::new();
    for repeat in 0..3_u32 {
        for method in &scenario.method {
            for cell in scenario.cells(method) {
                let capacity = scenario.path.capacity_bps(&cell);
                let wobble = 1.0 + 0.01 * f64::from(repeat);
                let goodput = (34e6 * f64::from(cell.channels)).min(capacity) * wobble;
                runs.push(Run {
                    number: u32::try_from(runs.len()).expect("few") + 1,
                    repeat,
                    attempt: 1,
                    seed: u64::from(repeat),
                    method: method.name.clone(),
                    cell,
                    result: Some(outcome(goodput)),
                    error: None,
                });
            }
        }
    }
    Results {
        folder: "results".into(),
        environment: Environment::now(name, false, &scenario),
        scenario,
        scenario_text: loaded.text,
        runs,
    }
}

fn outcome(goodput_bps: f64) -> RunOutcome {
    RunOutcome {
        goodput_bps,
        bytes: 1_000_000,
        seconds: 8.0,
        files: 0,
        stopped: false,
        first_data_seconds: 0.1,
        channels_seen: 512,
        channels_mean: 30.0,
        transfers_bps: vec![goodput_bps],
        beside_bps: None,
        sender: Sender {
            in_flight_bytes: 86_000.0,
            rtt_ms: 20.1,
            ..Sender::default()
        },
        client_cpu_seconds: 1.0,
        server_cpu_seconds: 1.0,
        front_end_cpu_seconds: 0.0,
        nodes_bps: Vec::new(),
        stolen_cpu_seconds: 0.0,
        other_cpu_seconds: 0.0,
        sharing: None,
        fidelity: Fidelity {
            lateness_p99_us: 90.0,
            ..Fidelity::default()
        },
        evolution: None,
        simulated: None,
    }
}

/// Whether every element that begins ends, in the right order, and attributes are quoted: what an
/// XML parser asks for first. Ours are written as XML, void elements included.
fn assert_well_formed(text: &str) {
    let mut open: Vec<String> = Vec::new();
    // Styles hold no markup, but `>` as a combinator would be allowed.
    let mut rest = text.strip_prefix("<!DOCTYPE html>").unwrap_or(text);
    while let Some(start) = rest.find('<') {
        let before = &rest[..start];
        assert!(
            !before.contains('>'),
            "a lone > before {:?}",
            &rest[start..].chars().take(40)
        );
        let end = rest[start..].find('>').expect("the element ends") + start;
        let element = &rest[start + 1..end];
        assert_eq!(element.matches('"').count() % 2, 0, "{element}");
        let name: String = element
            .trim_start_matches('/')
            .chars()
            .take_while(|c| c.is_ascii_alphanumeric())
            .collect();
        assert!(!name.is_empty(), "{element}");
        if element.starts_with('/') {
            assert_eq!(open.pop().as_deref(), Some(name.as_str()), "{element}");
        } else if !element.ends_with('/') {
            open.push(name);
        }
        rest = &rest[end + 1..];
    }
    assert!(open.is_empty(), "never end: {open:?}");
    for (at, _) in text.match_indices('&') {
        let entity = &text[at..text.len().min(at + 6)];
        assert!(entity.contains(';'), "a lone & in {entity}");
    }
}

#[test]
fn pages_are_well_formed_and_stand_alone() {
    for entry in LIBRARY {
        let page = page(&[results(entry.name)]);
        assert_well_formed(&page);
        for outside in [
            "src=",
            "href=\"http",
            "url(http",
            "@import",
            "<script",
            "<link",
        ] {
            assert!(!page.contains(outside), "{}: {outside}", entry.name);
        }
        assert!(
            !page.contains("NaN") && !page.contains("inf"),
            "{}",
            entry.name
        );
        assert!(page.contains("prefers-color-scheme: dark") && page.contains("@media print"));
    }
}

#[test]
fn figures_stand_alone() {
    for entry in LIBRARY {
        let files = svgs(&results(entry.name), "x");
        assert!(!files.is_empty(), "{}: something was measured", entry.name);
        for FigureFile { name, svg } in files {
            assert_well_formed(&svg);
            assert!(
                svg.starts_with("<svg xmlns=") && svg.contains("<style>"),
                "{}: {name}",
                entry.name
            );
            assert!(!svg.contains("NaN"), "{}: {name}", entry.name);
        }
    }
}

#[test]
fn a_page_has_all_its_parts_in_order() {
    let page = page(&[results("apt-impl/evolution"), results("nordugrid/clients")]);
    let parts = [
        "<h1>Results of the godwit lab</h1>",
        "<nav>",
        "<section id=\"s0\">",
        "<h2>Goodput against parallel channels, 1 Gbit/s",
        "<svg",
        "model, W = 64 KiB",
        "model, W = 86 KB measured",
        ">paper</text>",
        "<figcaption>",
        "<h3>The paper and here</h3>",
        "<td>900 Mbit/s</td>",
        "<h3>What was expected</h3>",
        "✓ yes",
        "<h3>Measurements</h3>",
        "<h3>How it was measured</h3>",
        "<h3>Environment</h3>",
        "<summary>The scenario</summary>",
        "<section id=\"s1\">",
        "curl",
        "</html>",
    ];
    let mut at = 0;
    for part in parts {
        let found = page[at..].find(part);
        at += found.unwrap_or_else(|| panic!("{part} is missing, or too early"));
    }
}

#[test]
fn names_and_errors_cannot_break_a_page() {
    let mut results = results("apt-impl/evolution");
    results.scenario.title = "<b>&\"'".into();
    results.scenario.method[0].label = "</table><script>".into();
    results.environment.command = "a < b && c".into();
    assert_well_formed(&page(std::slice::from_ref(&results)));
    assert_well_formed(&svgs(&results, "x")[0].svg);
}

#[test]
fn unfaithful_and_failed_runs_are_left_out_and_told() {
    let mut results = results("apt-impl/evolution");
    let first = results.runs.len() / 3;
    let outcome = results.runs[0].result.as_mut().expect("did not fail");
    outcome.goodput_bps = 1e6;
    outcome.fidelity.unfaithful = vec!["late".into()];
    results.runs[first].result = None;
    results.runs[first].error = Some("gone".into());
    let groups = group::groups(&results);
    let goodput = groups[0].goodput().expect("one is left");
    assert_eq!(
        goodput.count, 1,
        "the unfaithful and the failed one do not count"
    );
    assert!((goodput.mean - 34e6 * 1.02 / 1e6).abs() < 1e-6);
    assert_eq!(groups[0].remarks(), "1 unfaithful left out, 1 failed");
    let page = page(std::slice::from_ref(&results));
    assert!(page.contains("1 unfaithful left out, 1 failed"));
    assert!(page.contains("1 of "), "and how many in all");
}

#[test]
fn nothing_measured_is_a_page_too() {
    let mut results = results("apt-impl/evolution");
    results.runs.clear();
    assert!(svgs(&results, "x").is_empty());
    assert_well_formed(&page(std::slice::from_ref(&results)));
    let mut text = Vec::new();
    summarise(&results, &mut text).expect("can be written");
    assert!(String::from_utf8_lossy(&text).contains("not measured"));
}

#[test]
fn expectations_are_judged() {
    let mut results = results("apt-impl/evolution");
    let said = |results: &Results| {
        let mut text = Vec::new();
        summarise(results, &mut text).expect("can be written");
        String::from_utf8(text).expect("UTF-8")
    };
    let text = said(&results);
    assert!(text.contains("as expected: goodput is linear"), "{text}");
    assert!(!text.contains("NOT AS EXPECTED"), "{text}");
    assert!(
        text.contains("paper, goodput there (Fig. 5): 900 Mbit/s"),
        "{text}"
    );
    results.scenario.expect[1].at_least = Some(Rate(2e9));
    let text = said(&results);
    assert!(
        text.contains("NOT AS EXPECTED: 32 channels fill the link"),
        "{text}"
    );
}

#[test]
fn runs_stand_beside_the_simulator() {
    let mut results = results("sim/reality");
    for run in &mut results.runs {
        let outcome = run.result.as_mut().expect("did not fail");
        outcome.sender.bytes_sent = 10_000;
        outcome.sender.bytes_retransmitted = 10;
        // One cell of 24 differs: by a quarter, and by three times what is sent again.
        let cell = &run.cell;
        let differs = cell.congestion_control == "reno"
            && cell.channels == 16
            && cell.rate == Rate(50e6)
            && cell.delay.0 > 0.01;
        let (goodput, again) = if differs { (0.8, 3.0) } else { (0.95, 0.7) };
        outcome.simulated = Some(Simulated {
            goodput_bps: outcome.goodput_bps * goodput,
            retransmitted: 0.001 * again,
        });
    }
    let (page, files) = markdown(&results, "x");
    let place = "(reno, 50 Mbit/s, loss 0 %, RTT 60 ms, N = 16)";
    for part in [
        format!("23 of 24 cells, farthest is 1.25 of theory {place}"),
        format!("23 of 24 cells, farthest is 0.33 of what the simulator sends again {place}"),
        "## The kernel and the simulator".to_owned(),
        "| 16 | 48.7 (48.3 – 49.2) | 39.0 (38.6 – 39.4) | 1.250 | 0.10 | 0.30 |".to_owned(),
    ] {
        assert!(page.contains(&part), "{part} is missing in:\n{page}");
    }
    assert!(files[0].svg.contains("simulated"));
}
