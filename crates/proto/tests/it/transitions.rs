//! State x event -> what comes out, for login, data channel and transfer, against
//! `tests/snapshots/transitions.txt`.
//!
//! To write the table again, and then review the difference:
//! `GODWIT_GOLDEN=write cargo test -p godwit-proto --test it golden`

use std::{fs, path::PathBuf, time::Instant};

use godwit_proto::pi::server::{Input, Output, ServerPi};

use super::support::{
    codes, drain, epoch,
    script::{Directive, describe, directive},
    server_config,
};

/// How a state is reached: lines, and answers behind `!`.
const STATES: &[(&str, &[&str])] = &[
    ("nobody", &[]),
    ("named", &["USER u"]),
    ("logging in", &["USER u", "PASS p"]),
    ("logged in", LOGGED_IN),
    ("S passive", &[LOGIN, "PASV", LISTENING]),
    ("S active", &[LOGIN, "PORT 127,0,0,1,142,177", "!ok"]),
    ("S delayed", &[LOGIN, "OPTS PASV AllowDelayed=1;", "PASV"]),
    ("E none", &[LOGIN, "MODE E"]),
    ("E passive", &[LOGIN, "MODE E", "PASV", LISTENING]),
    (
        "E active",
        &[LOGIN, "MODE E", "PORT 127,0,0,1,142,177", "!ok"],
    ),
    (
        "E delayed",
        &[LOGIN, "MODE E", "OPTS PASV AllowDelayed=1;", "PASV"],
    ),
    (
        "E received",
        &[
            LOGIN,
            "MODE E",
            "PASV",
            LISTENING,
            "STOR /f",
            "!ready",
            "!done 9 0-9 cached",
        ],
    ),
    (
        "E sent",
        &[
            LOGIN,
            "MODE E",
            "PORT 127,0,0,1,142,177",
            "!ok",
            "RETR /f",
            "!ready",
            "!done 9 - cached",
        ],
    ),
    (
        "reserving",
        &[LOGIN, "PASV", LISTENING, "ALLO 9", "STOR /f"],
    ),
    (
        "listening",
        &[LOGIN, "OPTS PASV AllowDelayed=1;", "PASV", "STOR /f"],
    ),
    ("starting S", &[LOGIN, "PASV", LISTENING, "STOR /f"]),
    ("moving S", &[LOGIN, "PASV", LISTENING, "RETR /f", "!ready"]),
    (
        "starting E",
        &[LOGIN, "MODE E", "PASV", LISTENING, "STOR /f"],
    ),
    (
        "moving E",
        &[LOGIN, "MODE E", "PASV", LISTENING, "STOR /f", "!ready"],
    ),
    (
        "aborting",
        &[
            LOGIN, "MODE E", "PASV", LISTENING, "STOR /f", "!ready", "ABOR",
        ],
    ),
];

const LOGIN: &str = "USER u\r\nPASS p";
const LISTENING: &str = "!listening 127.0.0.1:36529";
const LOGGED_IN: &[&str] = &[LOGIN];

const EVENTS: &[&str] = &[
    "USER v",
    "PASS p",
    "NOOP",
    "MODE S",
    "MODE E",
    "PASV",
    "PORT 127,0,0,1,142,178",
    "DCAU N",
    "RETR /g",
    "STOR /g",
    "MLSD",
    "ABOR",
    "QUIT",
    "!ok",
    "!fail EACCES x",
    "!listening 127.0.0.1:36530",
    "!ready",
    "!progress 5 0-5",
    "!done 9 0-9 cached",
    "!done 9 0-9",
    "!broken ENOENT 5 -",
    "!broken lost 5 0-4",
    "!shutdown",
    "!closed",
    "!tick 700",
];

#[test]
fn golden_transition_table() {
    let file = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/snapshots/transitions.txt");
    let mut table = String::from(
        "# state | event -> replies, and what the shell is told. Events that nothing comes of are \
         left out.\n",
    );
    for (state, way) in STATES {
        table += &format!("\n{state}\n");
        for event in EVENTS {
            let (mut pi, now) = reach(way);
            happen(&mut pi, now, event);
            let outputs = drain(&mut pi);
            if !outputs.is_empty() {
                table += &format!("  {event} -> {}\n", show(&outputs));
            }
        }
    }
    if std::env::var("GODWIT_GOLDEN").is_ok_and(|v| v == "write") {
        fs::write(&file, &table).unwrap();
    }
    let known = fs::read_to_string(&file).unwrap_or_default();
    for (wanted, got) in known.lines().zip(table.lines()) {
        assert_eq!(wanted, got);
    }
    assert_eq!(known.len(), table.len(), "the table has another length");
}

fn reach(way: &[&str]) -> (ServerPi, Instant) {
    let now = epoch();
    let mut pi = ServerPi::new(server_config(), now);
    for step in way {
        happen(&mut pi, now, step);
        if *step == LOGIN {
            happen(&mut pi, now, "!ok");
        }
        drain(&mut pi);
    }
    drain(&mut pi);
    (pi, now)
}

fn happen(pi: &mut ServerPi, now: Instant, event: &str) {
    match event.strip_prefix('!').map(directive) {
        None => pi.handle_input(now, Input::Bytes(format!("{event}\r\n").as_bytes())),
        Some(Directive::Input(input)) => pi.handle_input(now, input),
        Some(Directive::Tick(time)) => pi.handle_input(now + time, Input::Timeout),
    }
}

fn show(outputs: &[Output]) -> String {
    let mut words = Vec::new();
    for output in outputs {
        match describe(output) {
            Some(text) => words.push(format!("[{text}]")),
            None => words.extend(
                codes(std::slice::from_ref(output))
                    .iter()
                    .map(u16::to_string),
            ),
        }
    }
    words.join(" ")
}
