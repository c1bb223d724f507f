//! What real servers do to a client: stray lines, stray replies, silence.

use std::time::Duration;

use godwit_proto::{
    Command,
    pi::client::{ClientConfig, ClientPi, ClientPiError, CommandId, Input, Output},
};

use super::support::epoch;

/// A greeted interpreter with these commands in flight.
fn with(commands: &[&str]) -> ClientPi {
    let now = epoch();
    let mut pi = ClientPi::new(ClientConfig::default(), now);
    pi.handle_input(now, Input::Bytes(b"220-hello\r\n220 ready\r\n"));
    for command in commands {
        pi.submit(now, &Command::parse(command.as_bytes()).unwrap());
    }
    while pi.poll_output().is_some() {}
    pi
}

/// `id code` of what comes out.
fn hear(pi: &mut ClientPi, bytes: &str) -> Vec<String> {
    pi.handle_input(epoch(), Input::Bytes(bytes.as_bytes()));
    std::iter::from_fn(|| pi.poll_output())
        .map(|output| match output {
            Output::Preliminary(id, reply) => format!("{} {}..", id.0, reply.code),
            Output::Final(id, reply) => format!("{} {}", id.0, reply.code),
            Output::Failed(error) => format!("{error}"),
            other => format!("{other:?}"),
        })
        .collect()
}

/// protocol §6.3: ARC.
#[test]
fn stray_abort_after_a_broken_transfer_answers_nothing() {
    let mut pi = with(&["STOR /f", "PWD"]);
    assert_eq!(
        hear(
            &mut pi,
            "150 go\r\n426 broken\r\n226 Abort finished\r\n257 \"/\"\r\n"
        ),
        ["0 150..", "0 426", "1 257"]
    );
    // Also where nothing is in flight.
    let mut pi = with(&["RETR /f"]);
    assert_eq!(
        hear(&mut pi, "451 local\r\n226 Abort finished\r\n"),
        ["0 451"]
    );
    assert_eq!(pi.in_flight(), 0);
    // Once, and only after such a failure.
    assert_eq!(
        hear(&mut pi, "226 Abort finished\r\n"),
        ["unexpected reply: 226 Abort finished"]
    );
}

#[test]
fn abort_gets_its_own_reply() {
    let mut pi = with(&["STOR /f", "ABOR", "NOOP"]);
    assert_eq!(
        hear(
            &mut pi,
            "150 go\r\n426 gone\r\n226 Abort successful\r\n200 ok\r\n"
        ),
        ["0 150..", "0 426", "1 226", "2 200"]
    );
    // ARC's stray reply may come on top.
    let mut pi = with(&["STOR /f", "ABOR", "NOOP"]);
    assert_eq!(
        hear(
            &mut pi,
            "426 gone\r\n226 Abort finished\r\n226 Abort finished\r\n200 ok\r\n"
        ),
        ["0 426", "1 226", "2 200"]
    );
}

#[test]
fn a_good_transfer_after_a_broken_one_succeeds() {
    let mut pi = with(&["STOR /f", "STOR /g"]);
    assert_eq!(
        hear(&mut pi, "426 gone\r\n150 go\r\n226 Abortive but fine\r\n"),
        ["0 426", "1 150..", "1 226"]
    );
}

/// protocol §6.3: ARC refuses a second transfer while one runs, at once and without closing.
#[test]
fn a_421_during_a_transfer_answers_the_next_one() {
    let mut pi = with(&["STOR /f", "ALLO 9", "STOR /g"]);
    assert_eq!(
        hear(
            &mut pi,
            "150 go\r\n421 Service not available\r\n226 done\r\n200 ok\r\n"
        ),
        ["0 150..", "2 421", "0 226", "1 200"]
    );
}

#[test]
fn a_421_that_nothing_asked_for_ends_the_session() {
    let mut pi = with(&[]);
    let out = hear(&mut pi, "421 Idle Timeout: closing control connection.\r\n");
    assert_eq!(
        out,
        [
            "server closed the control connection after: 421 Idle Timeout: closing control \
             connection."
        ]
    );
    assert_eq!(pi.poll_timeout(), None);
}

/// protocol §8 row 8: GCT's answer to `TYPE E` has a line too many.
#[test]
fn stray_lines_are_skipped() {
    let mut pi = with(&["NOOP", "PWD"]);
    assert_eq!(
        hear(
            &mut pi,
            "501 'TYPE E\r\n' unrecognized type.\r\n257 \"/\"\r\n"
        ),
        ["0 501", "1 257"]
    );
}

#[test]
fn live_requests_are_answered_out_of_turn() {
    let mut pi = with(&[
        "RETR /f",
        "SITE GODWIT CHANNELS 3 1",
        "NOOP",
        "SITE GODWIT REPORT",
    ]);
    assert_eq!(pi.transfer_number(CommandId(0)), Some(1));
    assert_eq!(pi.transfer_number(CommandId(2)), None, "no transfer");
    assert_eq!(
        hear(
            &mut pi,
            "150 go\r\n258 bytes=1;channels=3;\r\n226 done\r\n558 over\r\n200 ok\r\n"
        ),
        ["0 150..", "1 258", "0 226", "3 558", "2 200"]
    );
    assert_eq!(pi.transfer_number(CommandId(0)), None, "it is over");
    let mut pi = with(&["MLSD /", "ERET P 0 9 /f", "ERET P 9 9 /f"]);
    hear(&mut pi, "550 no\r\n");
    assert_eq!(pi.transfer_number(CommandId(2)), Some(3));
    // Without a live request the codes have no special meaning.
    let mut pi = with(&["PWD"]);
    assert_eq!(hear(&mut pi, "258 here\r\n"), ["0 258"]);
}

#[test]
fn a_server_without_live_requests_refuses_them_in_turn() {
    let mut pi = with(&["RETR /f", "SITE GODWIT REPORT", "PWD"]);
    assert_eq!(
        hear(
            &mut pi,
            "150 go\r\n226 done\r\n500 Invalid command.\r\n257 \"/\"\r\n"
        ),
        ["0 150..", "0 226", "1 500", "2 257"]
    );
}

#[test]
fn a_skipped_live_request_is_an_unexpected_reply() {
    for reply in ["200 ok\r\n", "150 go\r\n", "226 done\r\n", "350 more\r\n"] {
        let mut pi = with(&["SITE GODWIT REPORT", "RETR /f"]);
        let out = hear(&mut pi, reply);
        assert_eq!(out, [format!("unexpected reply: {}", reply.trim_end())]);
    }
    // Refused out of turn: the transfer seems to fail, and its own reply tells that it was not
    // meant.
    let mut pi = with(&["RETR /f", "SITE GODWIT REPORT"]);
    assert_eq!(
        hear(&mut pi, "150 go\r\n500 what?\r\n226 done\r\n"),
        ["0 150..", "0 500", "unexpected reply: 226 done"]
    );
}

#[test]
fn a_reply_to_nothing_is_an_error() {
    let mut pi = with(&[]);
    assert_eq!(
        hear(&mut pi, "200 what\r\n"),
        ["unexpected reply: 200 what"]
    );
    let mut pi = with(&[]);
    assert_eq!(
        hear(&mut pi, "150 what\r\n"),
        ["unexpected reply: 150 what"]
    );
}

#[test]
fn closing_fails_commands_in_flight_with_the_last_reply() {
    let mut pi = with(&["NOOP", "NOOP"]);
    assert_eq!(hear(&mut pi, "421 bye\r\n"), ["0 421"]);
    pi.handle_input(epoch(), Input::Closed);
    assert!(matches!(
        pi.poll_output(),
        Some(Output::Failed(ClientPiError::Closed { last: Some(_) }))
    ));
    assert_eq!((pi.poll_output(), pi.in_flight()), (None, 0));
}

#[test]
fn silence_has_a_limit_for_each_kind_of_command() {
    let config = ClientConfig::default();
    let start = epoch();
    let mut pi = ClientPi::new(config, start);
    assert_eq!(pi.poll_timeout(), Some(start + config.reply_limit));
    pi.handle_input(start, Input::Bytes(b"220 hi\r\n"));
    assert_eq!(pi.poll_timeout(), None, "the server owes nothing");
    let now = start + Duration::from_secs(100);
    pi.submit(now, &Command::parse(b"CKSM MD5 0 -1 /f").unwrap());
    pi.submit(now, &Command::Noop);
    assert_eq!(pi.poll_timeout(), Some(now + config.work_limit));
    // A marker counts as a sign of life.
    let now = now + Duration::from_secs(500);
    pi.handle_input(now, Input::Bytes(b"113 still here\r\n"));
    assert_eq!(pi.poll_timeout(), Some(now + config.work_limit));
    pi.handle_input(now, Input::Bytes(b"213 00\r\n"));
    let due = now + config.reply_limit;
    assert_eq!(pi.poll_timeout(), Some(due));
    pi.handle_input(due - Duration::from_millis(1), Input::Timeout);
    assert_eq!(pi.in_flight(), 1);
    pi.handle_input(due, Input::Timeout);
    let last = std::iter::from_fn(|| pi.poll_output()).last();
    assert_eq!(
        last,
        Some(Output::Failed(ClientPiError::NoReply {
            command: "NOOP".to_owned(),
            limit: config.reply_limit
        }))
    );
}

#[test]
fn a_transfer_whose_data_has_ended_has_the_limit_of_other_replies() {
    let (config, now) = (ClientConfig::default(), epoch());
    let mut pi = ClientPi::new(config, now);
    pi.handle_input(now, Input::Bytes(b"220 hi\r\n"));
    pi.submit(now, &Command::parse(b"STOR /f").unwrap());
    pi.data_moves(now, Some(true));
    assert_eq!(pi.poll_timeout(), Some(now + 2 * config.reply_limit));
    pi.handle_input(now, Input::Bytes(b"150 go\r\n"));
    // Hours, on a server without markers.
    assert_eq!(pi.poll_timeout(), None);
    let ended = now + 10 * config.work_limit;
    pi.data_moves(ended, Some(false));
    let due = ended + config.reply_limit;
    assert_eq!(pi.poll_timeout(), Some(due));
    pi.handle_input(due, Input::Timeout);
    let last = std::iter::from_fn(|| pi.poll_output()).last();
    assert!(
        matches!(
            &last,
            Some(Output::Failed(ClientPiError::NoReply { command, .. })) if command == "STOR"
        ),
        "{last:?}"
    );
}

#[test]
fn a_transfer_may_take_twice_the_limit_to_start() {
    let (config, now) = (ClientConfig::default(), epoch());
    let mut pi = ClientPi::new(config, now);
    pi.handle_input(now, Input::Bytes(b"220 hi\r\n"));
    pi.submit(now, &Command::parse(b"STOR /f").unwrap());
    assert_eq!(pi.poll_timeout(), Some(now + 2 * config.reply_limit));
    pi.handle_input(now, Input::Bytes(b"150 go\r\n"));
    assert_eq!(pi.poll_timeout(), Some(now + config.work_limit));
}
