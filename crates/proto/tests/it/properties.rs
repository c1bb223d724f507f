//! Arbitrary sequences of operations: no panic, one final reply for each command, in order.

use std::time::{Duration, Instant};

use proptest::prelude::*;

use godwit_proto::pi::server::{Input, QUEUE_MAX, ServerPi};

use super::support::{codes, drain, epoch, operations, script, server_config};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn server_survives_any_operations(data in prop::collection::vec(any::<u8>(), 0..400)) {
        operations::server_pi(&data);
    }

    #[test]
    fn client_survives_any_operations(data in prop::collection::vec(any::<u8>(), 0..400)) {
        operations::client_pi(&data);
    }

    /// §8 row 3: the slicing of the bytes changes nothing.
    #[test]
    fn slicing_changes_nothing(
        picks in prop::collection::vec(0..operations::LINES.len(), 0..30),
        cut in 1..20_usize,
    ) {
        let text: String = picks
            .iter()
            .map(|i| format!("{}\r\n", operations::LINES[*i]))
            .collect();
        let run = |slice: usize| {
            let now = epoch();
            let mut pi = ServerPi::new(server_config(), now);
            pi.handle_input(now, Input::Bytes(b"USER u\r\n"));
            for bytes in text.as_bytes().chunks(slice) {
                pi.handle_input(now, Input::Bytes(bytes));
            }
            drain(&mut pi)
        };
        prop_assert_eq!(run(cut), run(usize::MAX));
    }
}

#[test]
fn a_full_queue_ends_the_session() {
    assert_eq!(operations::flood(b"NOOP\r\n"), QUEUE_MAX + 1);
    let long = [vec![b'x'; 60_000], b"\r\n".to_vec()].concat();
    assert!(operations::flood(&long) < 100);
}

#[test]
fn a_client_far_ahead_of_a_long_command_is_probed() {
    let mut now = epoch();
    let mut pi = ServerPi::new(server_config(), now);
    pi.handle_input(now, Input::Bytes(b"USER u\r\nPASS p\r\n"));
    drain(&mut pi);
    let wait = |pi: &mut ServerPi, now: &mut Instant| {
        *now += Duration::from_secs(3);
        pi.handle_input(*now, Input::Timeout);
        codes(&drain(pi))
    };
    assert_eq!(wait(&mut pi, &mut now), [], "it may be seen to go");
    while pi.wants_bytes() {
        pi.handle_input(now, Input::Bytes(b"NOOP\r\n"));
    }
    assert_eq!(pi.poll_timeout(), Some(now + Duration::from_secs(3)));
    for _ in 0..3 {
        assert_eq!(wait(&mut pi, &mut now), [113]);
    }
    let refused = script::storage_failure("EACCES", "log in");
    pi.handle_input(now, Input::Done(Err(refused)));
    let rest = codes(&drain(&mut pi));
    assert!(!rest.contains(&113) && pi.wants_bytes(), "{rest:?}");
    assert_eq!(wait(&mut pi, &mut now), []);
}

#[test]
fn answers_to_nothing_have_no_effect() {
    let now = epoch();
    let mut pi = ServerPi::new(server_config(), now);
    assert_eq!(codes(&drain(&mut pi)), [220]);
    for input in operations::unasked() {
        pi.handle_input(now, input);
        assert_eq!(drain(&mut pi), []);
    }
    pi.handle_input(now + Duration::from_secs(1), Input::Timeout);
    assert_eq!(drain(&mut pi), []);
}
