//! Contexts of both roles against each other.

use std::time::Duration;

use godwit_gsi::adat;
use godwit_gsi::cert::key::KeyKind;
use godwit_gsi::cert::proxy::{self, ProxyRequest};
use godwit_gsi::context::HANDSHAKE_BYTES_MAX;
use godwit_gsi::verify::{HostName, Policy, Refusal, Strength};
use godwit_gsi::wrap::Stream;
use godwit_gsi::{Channel, Context, ContextError, Expect, Settings, Versions};

use crate::pair::{Ends, drive, join, join_changed};
use crate::pki::{Blueprint, now, rsa_key};

const BOTH: [Versions; 2] = [Versions::Tls12, Versions::Tls13];

fn with(versions: Versions, settings: Settings) -> Settings {
    Settings {
        versions,
        ..settings
    }
}

/// Types of the records in a token.
fn records(token: &[u8]) -> Vec<u8> {
    let mut types = Vec::new();
    let mut rest = token;
    while let [kind, _, _, high, low, behind @ ..] = rest {
        types.push(*kind);
        rest = &behind[usize::from(u16::from_be_bytes([*high, *low]))..];
    }
    assert!(rest.is_empty(), "a token is made of whole records");
    types
}

const HANDSHAKE: u8 = 22;
const DATA: u8 = 23;
const ALERT: u8 = 21;

#[test]
fn the_tokens_are_those_of_the_reference() {
    let ends = Ends::new();
    for versions in BOTH {
        for delegate in [None, Some(ProxyRequest::limited())] {
            let delegates = delegate.is_some();
            let joined = join(with(versions, ends.client(delegate)), ends.server());
            let tokens = joined.expect("joins").tokens;
            assert_eq!(tokens.len(), if delegates { 7 } else { 5 });
            assert_eq!(records(&tokens[0]), [HANDSHAKE]);
            assert_eq!(records(&tokens[1])[0], HANDSHAKE);
            if versions == Versions::Tls13 {
                // One record with one byte, its type byte and 16 bytes of tag: no ticket stands
                // beside it.
                assert_eq!(records(&tokens[3]), [DATA]);
                assert_eq!(tokens[3].len(), 5 + 1 + 1 + 16);
            } else {
                assert!(!records(&tokens[3]).contains(&DATA));
            }
            for token in &tokens[4..] {
                assert_eq!(records(token), [DATA]);
            }
        }
    }
}

#[test]
fn both_know_each_other_and_what_was_delegated() {
    let ends = Ends::new();
    for versions in BOTH {
        for (delegate, kind) in [
            (None, None),
            (
                Some(ProxyRequest::limited()),
                Some("RFC 3820 proxy, limited"),
            ),
            (Some(ProxyRequest::default()), Some("RFC 3820 proxy, full")),
        ] {
            let joined = join(ends.client(delegate), with(versions, ends.server()));
            let joined = joined.expect("joins");
            assert_eq!(joined.acceptor.peer.identity().as_str(), "/O=Grid/CN=Jo");
            let host = joined.initiator.peer.identity();
            assert_eq!(host.as_str(), "/O=Grid/CN=host/data.example.org");
            assert!(joined.initiator.delegated.is_none());
            assert!(joined.initiator.rest.is_empty() && joined.acceptor.rest.is_empty());
            let delegated = joined.acceptor.delegated;
            assert_eq!(delegated.as_ref().map(|d| d.info().kind).as_deref(), kind);
            if let Some(delegated) = delegated {
                // It is as good as the user's own, and has another key.
                let peer = ends.grid.verify(&delegated).expect("accepts");
                assert_eq!(peer.identity().as_str(), "/O=Grid/CN=Jo");
                assert!(!delegated.key().public_eq(ends.user.key()));
            }
        }
    }
}

#[test]
fn rsa_keys_do_as_well() {
    let ends = Ends::new();
    let host = Blueprint::host("/O=Grid/CN=x", &["data.example.org"]).key(rsa_key());
    let host = host.issued_by(&ends.grid.authority);
    let user = Blueprint::user("/O=Grid/CN=Jo").key(rsa_key());
    let user = user.issued_by(&ends.grid.authority);
    for versions in BOTH {
        let client = Settings {
            credential: user.clone(),
            ..ends.client(Some(ProxyRequest::limited()))
        };
        let server = Settings {
            credential: host.clone(),
            ..with(versions, ends.server())
        };
        let joined = join(client, server).expect("joins");
        let delegated = joined.acceptor.delegated.expect("delegated");
        // Whatever the user has.
        assert_eq!(delegated.info().key, "EC 256");
    }
}

#[test]
fn input_may_be_cut_at_every_byte() {
    let ends = Ends::new();
    for versions in BOTH {
        let client = ends.client(Some(ProxyRequest::limited()));
        let mut initiator = Context::initiate(with(versions, client)).expect("begins");
        let mut acceptor = Context::accept(ends.server()).expect("waits");
        let mut turn = 0;
        loop {
            let (from, to) = if turn % 2 == 0 {
                (&mut initiator, &mut acceptor)
            } else {
                (&mut acceptor, &mut initiator)
            };
            let Some(token) = from.poll_output() else {
                break;
            };
            for (index, byte) in token.iter().enumerate() {
                assert!(to.poll_output().is_none() || index + 1 == token.len() || turn < 4);
                to.handle_input(now(), &[*byte]).expect("goes on");
                // Whoever is cut off here is not established.
                if index + 1 < token.len() {
                    assert!(to.outcome().is_none(), "turn {turn}, byte {index}");
                }
            }
            turn += 1;
        }
        assert_eq!(turn, 7);
        let acceptor = acceptor.outcome().expect("established");
        assert!(acceptor.delegated.is_some());
        assert!(initiator.outcome().is_some());
    }
}

#[test]
fn a_changed_byte_is_noticed() {
    let ends = Ends::new();
    for versions in BOTH {
        let client = || with(versions, ends.client(Some(ProxyRequest::limited())));
        let tokens = join(client(), ends.server()).expect("joins").tokens;
        for (number, token) in tokens.iter().enumerate() {
            // Places spread over the token; not all, for each costs a handshake.
            for place in (0..token.len()).step_by(token.len() / 6 + 1) {
                let mut is_changed = false;
                let joined = join_changed(client(), ends.server(), |at, token| {
                    if at == number && place < token.len() {
                        token[place] ^= 0x40;
                        is_changed = true;
                    }
                });
                assert!(
                    !is_changed || joined.is_err(),
                    "token {number}, byte {place}"
                );
            }
        }
    }
}

#[test]
fn a_refused_peer_learns_nothing_more() {
    let ends = Ends::new();
    for versions in BOTH {
        // The client does not find the host it looks for: its certificate does not leave.
        let client = Settings {
            expect: Expect::Host(HostName::new("other.example.org")),
            ..with(versions, ends.client(None))
        };
        let mut initiator = Context::initiate(client).expect("begins");
        let mut acceptor = Context::accept(ends.server()).expect("waits");
        let error = drive(&mut initiator, &mut acceptor, |_, _| {}).expect_err("refuses");
        assert!(
            matches!(
                &error,
                ContextError::Refused(Refusal::Host { host, .. }) if host == "other.example.org"
            ),
            "{error}"
        );
        assert!(initiator.poll_output().is_none());
        assert!(initiator.outcome().is_none());
        assert_eq!(initiator.handle_input(now(), b"x"), Err(ContextError::Over));

        // The server does not trust the client: no NUL, no Finished.
        let expired = proxy::create(
            &ends.grid.user,
            &ProxyRequest {
                lifetime: Duration::from_secs(1),
                ..ProxyRequest::default()
            },
            KeyKind::EcP256,
            now() - Duration::from_secs(3 * 3600),
        );
        let client = Settings {
            credential: expired.expect("makes"),
            ..with(versions, ends.client(None))
        };
        let mut initiator = Context::initiate(client).expect("begins");
        let mut acceptor = Context::accept(ends.server()).expect("waits");
        let error = drive(&mut initiator, &mut acceptor, |_, _| {}).expect_err("refuses");
        assert!(
            error
                .to_string()
                .contains("expired 2 h ago: run `godwit proxy init`"),
            "{error}"
        );
        assert!(acceptor.poll_output().is_none());
        assert!(acceptor.outcome().is_none() && initiator.outcome().is_none());
    }
}

#[test]
fn a_refused_peer_spoils_nothing_for_others_on_its_thread() {
    let ends = Ends::new();
    // Its CA has the name of ours, and signs with another key.
    let stranger = Ends::new().user;
    for versions in BOTH {
        let joined = join(ends.client(None), with(versions, ends.server())).expect("joins");
        let mut wrap = joined.acceptor.wrap;
        let refused = ends.grid.verify(&stranger).map(drop);
        assert!(
            matches!(refused, Err(Refusal::Signature { .. })),
            "{refused:?}"
        );
        let opened = wrap.open(b"", &mut Vec::new());
        assert_eq!(opened, Ok(Stream::Open));
    }
}

#[test]
fn before_verification_only_an_alert_is_sent() {
    let ends = Ends::new();
    for versions in BOTH {
        let client = Settings {
            expect: Expect::Host(HostName::new("other.example.org")),
            ..with(versions, ends.client(None))
        };
        let mut initiator = Context::initiate(client).expect("begins");
        let mut acceptor = Context::accept(ends.server()).expect("waits");
        let hello = initiator.poll_output().expect("a token");
        acceptor.handle_input(now(), &hello).expect("goes on");
        let mut flight = acceptor.poll_output().expect("a token");
        // In 1.2 OpenSSL answers the flight, goes on to this, and fails before anybody has looked
        // at the host.
        flight.extend_from_slice(&[HANDSHAKE, 3, 3, 0, 4, 0xff, 0, 0, 0]);
        initiator.handle_input(now(), &flight).expect_err("refuses");
        let output = initiator.poll_output().unwrap_or_default();
        assert!(
            records(&output).iter().all(|&kind| kind == ALERT),
            "{output:?}"
        );
        assert!(initiator.outcome().is_none());
    }
}

#[test]
fn limited_proxies_and_weak_keys_follow_the_policy() {
    let ends = Ends::new();
    let limited = proxy::create(
        &ends.grid.user,
        &ProxyRequest::limited(),
        KeyKind::EcP256,
        now(),
    );
    let client = || Settings {
        credential: limited.clone().expect("makes"),
        ..ends.client(None)
    };
    join(client(), ends.server()).expect("joins");
    let strict = Settings {
        policy: Policy {
            limited: false,
            ..Policy::default()
        },
        ..ends.server()
    };
    assert!(matches!(
        join(client(), strict),
        Err(ContextError::Refused(Refusal::Limited { .. }))
    ));

    let short = openssl::pkey::PKey::from_rsa(openssl::rsa::Rsa::generate(1024).unwrap()).unwrap();
    let short = Blueprint::user("/O=Grid/CN=Jo")
        .key(short)
        .issued_by(&ends.grid.authority);
    let weak = |strength| Settings {
        credential: short.clone(),
        policy: Policy {
            strength,
            ..Policy::default()
        },
        ..ends.client(None)
    };
    let error = Context::initiate(weak(Strength::Modern))
        .err()
        .expect("refuses");
    assert!(matches!(error, ContextError::Credential(_)), "{error}");
    for versions in BOTH {
        let refused = join(with(versions, weak(Strength::Legacy)), ends.server());
        assert!(matches!(
            refused,
            Err(ContextError::Refused(Refusal::KeySize { .. }))
        ));
        let legacy = Settings {
            policy: Policy {
                strength: Strength::Legacy,
                ..Policy::default()
            },
            ..with(versions, ends.server())
        };
        join(weak(Strength::Legacy), legacy).expect("joins");
    }
}

#[test]
fn a_clear_data_channel_keeps_what_follows_the_flag() {
    let ends = Ends::new();
    for versions in BOTH {
        let end = || ends.data(Channel::ClearData, versions);
        let mut connector = Context::initiate(end()).expect("begins");
        let mut listener = Context::accept(end()).expect("waits");
        let mut last = Vec::new();
        let tokens = drive(&mut connector, &mut listener, |number, token| {
            // The first bytes of the file come in the segment that has the flag.
            if number == 4 {
                token.extend_from_slice(b"\x00raw bytes");
                last = token.clone();
            }
        });
        assert_eq!(tokens.expect("goes on").len(), 5);
        assert!(!last.is_empty());
        let mut listener = listener.outcome().expect("established");
        assert_eq!(listener.rest, b"\x00raw bytes");
        assert!(listener.delegated.take().is_none());
        assert!(connector.outcome().expect("established").rest.is_empty());
    }
}

#[test]
fn a_protected_data_channel_stays_tls() {
    let ends = Ends::new();
    for versions in BOTH {
        let end = || ends.data(Channel::ProtectedData, versions);
        let mut connector = Context::initiate(end()).expect("begins");
        let mut listener = Context::accept(end()).expect("waits");
        let hello = connector.poll_output().expect("a token");
        listener.handle_input(now(), &hello).expect("goes on");
        let answer = listener.poll_output().expect("a token");
        connector.handle_input(now(), &answer).expect("goes on");
        let mut finished = connector.poll_output().expect("a token");
        let block = vec![7; 100_000];
        if versions == Versions::Tls12 {
            listener.handle_input(now(), &finished).expect("goes on");
            let finished = listener.poll_output().expect("a token");
            connector.handle_input(now(), &finished).expect("goes on");
            let mut connector = connector.outcome().expect("established");
            let mut listener = listener.outcome().expect("established");
            let mut sealed = Vec::new();
            connector.wrap.seal(&block, &mut sealed).expect("seals");
            let mut opened = Vec::new();
            for piece in sealed.chunks(1000) {
                listener.wrap.open(piece, &mut opened).expect("opens");
            }
            assert_eq!(opened, block);
            continue;
        }
        // In 1.3 the connector may send at once, behind its Finished.
        let mut connector = connector.outcome().expect("established");
        connector.wrap.seal(&block, &mut finished).expect("seals");
        listener.handle_input(now(), &finished).expect("goes on");
        assert!(listener.poll_output().is_none(), "neither NUL nor ticket");
        let mut listener = listener.outcome().expect("established");
        let mut opened = Vec::new();
        let rest = std::mem::take(&mut listener.rest);
        listener.wrap.open(&rest, &mut opened).expect("opens");
        assert_eq!(opened, block);
    }
}

#[test]
fn another_identity_on_a_data_channel_is_refused() {
    let ends = Ends::new();
    let eve = Blueprint::user("/O=Grid/CN=Eve").issued_by(&ends.grid.authority);
    for versions in BOTH {
        for channel in [Channel::ClearData, Channel::ProtectedData] {
            let honest = ends.data(channel.clone(), versions);
            let evil = Settings {
                credential: eve.clone(),
                ..ends.data(channel, versions)
            };
            for (one, other) in [(honest.clone(), evil.clone()), (evil, honest)] {
                let error = join(one, other).err().expect("refuses");
                assert_eq!(
                    error.to_string(),
                    "the peer is /O=Grid/CN=Eve, expected was /O=Grid/CN=Jo"
                );
            }
        }
    }
}

#[test]
fn delegation_on_a_data_channel_is_refused() {
    let ends = Ends::new();
    let control = Settings {
        expect: Expect::Anyone,
        ..ends.client(Some(ProxyRequest::limited()))
    };
    let data = ends.data(Channel::ClearData, Versions::Any);
    assert_eq!(
        join(control, data).err(),
        Some(ContextError::Protocol("delegation on a data channel"))
    );
}

#[test]
fn bytes_that_are_not_tls_fail_with_an_alert() {
    let ends = Ends::new();
    for junk in [
        &b"GET / HTTP/1.0\r\n\r\n"[..],
        &[0; 64],
        &[0x16, 3, 1, 0, 5, 1, 0, 0, 1, 0],
    ] {
        let mut acceptor = Context::accept(ends.server()).expect("waits");
        let error = acceptor.handle_input(now(), junk).expect_err("refuses");
        assert!(matches!(error, ContextError::Tls(_)), "{error}");
        if let Some(token) = acceptor.poll_output() {
            assert_eq!(records(&token), [ALERT]);
        }
    }
    // A record that never ends, then records without end.
    let mut acceptor = Context::accept(ends.server()).expect("waits");
    let mut taken = 0;
    let error = loop {
        match acceptor.handle_input(now(), &[0x16; 1024]) {
            Ok(()) => taken += 1024,
            Err(error) => break error,
        }
        assert!(taken <= HANDSHAKE_BYTES_MAX);
    };
    assert!(matches!(
        error,
        ContextError::Tls(_) | ContextError::TooMuch { .. }
    ));
}

#[test]
fn bytes_behind_the_last_token_of_a_control_channel_are_refused() {
    let ends = Ends::new();
    let joined = join_changed(ends.client(None), ends.server(), |number, token| {
        if number == 4 {
            token.push(0x17);
        }
    });
    let error = joined.err().expect("refuses");
    assert_eq!(error, ContextError::Protocol("bytes behind the last token"));
}

#[test]
fn tokens_pass_through_the_text_of_a_control_channel() {
    let ends = Ends::new();
    let joined = join_changed(ends.client(None), ends.server(), |number, token| {
        let text = if number % 2 == 0 {
            let command = adat::command(token);
            adat::decode(command.strip_prefix("ADAT ").expect("a command"))
        } else {
            adat::token_of_reply(&adat::reply_text(token)).map(Option::unwrap_or_default)
        };
        *token = text.expect("decodes");
    });
    joined.expect("joins");
}
