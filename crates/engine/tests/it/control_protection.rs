//! Control lines under a security context, and a client's channel over a socket that other
//! processes may write to.

use std::{
    io::{BufRead, BufReader, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    thread::{self, JoinHandle},
};

use godwit_engine::control::{
    ControlChannel, ControlError,
    protection::{
        Encapsulation, ProtectedClient, ProtectedServer, ProtectionError, Received,
        WRAPPED_LINE_BYTES_MAX,
    },
};
use godwit_gsi::{Settings, Versions, Wrap, adat, wrap::WrapError};
use godwit_proto::{Command, Reply, pi::client::ClientConfig, reply::ReplyCode};

use crate::pair::{Ends, join};

fn wraps(versions: Versions) -> (Wrap, Wrap) {
    let ends = Ends::new();
    let client = Settings {
        versions,
        ..ends.client(None)
    };
    let joined = join(client, ends.server()).expect("joins");
    (joined.initiator.wrap, joined.acceptor.wrap)
}

fn protected() -> (ProtectedClient, ProtectedServer) {
    let (client, server) = wraps(Versions::Any);
    (
        ProtectedClient::new(client, Encapsulation::Lines),
        ProtectedServer::new(server, Encapsulation::Lines),
    )
}

fn features() -> Vec<u8> {
    let mut reply = Vec::new();
    let body = (0..3).map(|n| format!("226 no end {n}").into_bytes());
    Reply::with_body(
        ReplyCode::of(211),
        godwit_proto::reply::BodyStyle::Blank,
        "Extensions:",
        body,
        "End.",
    )
    .write_to(&mut reply);
    reply
}

fn replies() -> Vec<u8> {
    let mut replies = features();
    Reply::new(ReplyCode::of(200), "Yes.").write_to(&mut replies);
    replies
}

#[test]
fn lines_pass_in_any_slicing() {
    for size in [1, 3, 1000, 1_000_000] {
        let (mut client, mut server) = protected();
        let commands = b"USER :globus-mapping:\r\nSTOR /\xc3\xb6 b\r\nNOOP\r\n";
        let mut sealed = Vec::new();
        client.seal(commands, &mut sealed).expect("seals");
        let text = String::from_utf8_lossy(&sealed);
        assert_eq!(text.lines().count(), 3, "{text}");
        assert!(text.lines().all(|line| line.starts_with("ENC ")), "{text}");
        let mut opened = Vec::new();
        for piece in sealed.chunks(size) {
            for received in server.open(piece).expect("opens") {
                match received {
                    Received::Commands(lines) => opened.extend(lines),
                    other => panic!("{other:?}"),
                }
            }
        }
        assert_eq!(opened, commands);

        let mut sealed = Vec::new();
        server.seal(&replies(), &mut sealed).expect("seals");
        // The wrapper's marks say where each reply ends.
        let marks: Vec<u8> = String::from_utf8_lossy(&sealed)
            .lines()
            .map(|line| line.as_bytes()[3])
            .collect();
        assert_eq!(marks, b"----  ");
        let mut opened = Vec::new();
        for piece in sealed.chunks(size) {
            client.open(piece, &mut opened).expect("opens");
        }
        assert_eq!(opened, replies());
    }
}

#[test]
fn a_reply_may_come_whole_in_one_line_with_a_nul_behind_it() {
    for code in ["631", "632", "633"] {
        let (client, mut server) = wraps(Versions::Any);
        let mut client = ProtectedClient::new(client, Encapsulation::Lines);
        let mut sealed = Vec::new();
        let whole = [&replies()[..], b"\0"].concat();
        server.seal(&whole, &mut sealed).expect("seals");
        let line = format!("{code} {}\r\n", adat::encode(&sealed));
        let mut opened = Vec::new();
        client.open(line.as_bytes(), &mut opened).expect("opens");
        assert_eq!(opened, replies());
    }
}

#[test]
fn commands_in_clear_are_distinguished_in_order() {
    let (mut client, mut server) = protected();
    let mut sealed = Vec::new();
    client.seal(b"NOOP\r\n", &mut sealed).expect("seals");
    sealed.extend_from_slice(b"DELE /precious\r\n\xff\xfb\x01");
    client.seal(b"PWD\r\n", &mut sealed).expect("seals");
    assert_eq!(
        server.open(&sealed),
        Ok(vec![
            Received::Commands(b"NOOP\r\n".to_vec()),
            Received::Unprotected,
            Received::Telnet([255, 254, 1]),
            Received::Commands(b"PWD\r\n".to_vec()),
        ])
    );
}

#[test]
fn changed_repeated_or_endless_lines_are_refused() {
    let (mut client, mut server) = protected();
    let mut sealed = Vec::new();
    client.seal(b"NOOP\r\n", &mut sealed).expect("seals");
    let twice = [&sealed[..], &sealed].concat();
    assert!(matches!(
        server.open(&twice),
        Err(ProtectionError::Wrap(WrapError::Tls(_)))
    ));

    let (mut client, mut server) = protected();
    let mut sealed = Vec::new();
    server.seal(b"226 Done.\r\n", &mut sealed).expect("seals");
    // Behind code, mark and the head of the record: payload.
    sealed[20] = if sealed[20] == b'A' { b'B' } else { b'A' };
    let mut opened = Vec::new();
    assert!(matches!(
        client.open(&sealed, &mut opened),
        Err(ProtectionError::Wrap(WrapError::Tls(_)))
    ));
    assert_eq!(opened, b"");

    let endless = vec![b'A'; WRAPPED_LINE_BYTES_MAX + 8];
    let (mut client, mut server) = protected();
    assert_eq!(
        client.open(&endless, &mut opened),
        Err(ProtectionError::LineTooLong)
    );
    assert_eq!(server.open(&endless), Ok(Vec::new()));
    assert_eq!(server.open(b"\r\n"), Err(ProtectionError::LineTooLong));
}

#[test]
fn a_channel_is_protected_from_the_end_of_the_handshake_on() {
    for versions in [Versions::Tls12, Versions::Tls13] {
        let (client, server) = wraps(versions);
        let (address, peer) = serve(move |mut lines, mut socket| {
            socket.write_all(b"220 Ready.\r\n").unwrap();
            assert_eq!(next(&mut lines), "NOOP");
            socket.write_all(b"235 Done.\r\n").unwrap();
            let mut server = ProtectedServer::new(server, Encapsulation::Lines);
            for expected in ["PWD\r\n", "FEAT\r\n"] {
                let line = next(&mut lines) + "\r\n";
                let received = server.open(line.as_bytes()).unwrap();
                assert_eq!(received, [Received::Commands(expected.into())]);
                let mut sealed = Vec::new();
                server.seal(&features(), &mut sealed).unwrap();
                socket.write_all(&sealed).unwrap();
            }
        });
        run(async {
            let mut channel = connect(address).await;
            assert_eq!(channel.protection(), None);
            channel.call(&Command::Noop).await.expect("answers");
            channel.protect(client).expect("nothing is in the way");
            assert!(channel.protection().is_some());
            for command in [Command::Pwd, Command::Feat] {
                let reply = channel.call(&command).await.expect("answers");
                assert_eq!(reply.body().len(), 3);
            }
        });
        peer.join().expect("the peer is content");
    }
}

/// Anybody on the path can add bytes in clear, before the switch and after it.
#[test]
fn bytes_in_clear_end_the_session() {
    for early in [true, false] {
        let (client, _server) = wraps(Versions::Any);
        let (address, peer) = serve(move |mut lines, mut socket| {
            socket.write_all(b"220 Ready.\r\n").unwrap();
            assert_eq!(next(&mut lines), "NOOP");
            if early {
                socket.write_all(b"235 Done.\r\n250-Forged").unwrap();
            } else {
                socket.write_all(b"235 Done.\r\n").unwrap();
                assert!(next(&mut lines).starts_with("ENC "));
                socket.write_all(b"257 \"/forged\"\r\n").unwrap();
            }
            // Until the client has gone.
            while lines.read_line(&mut String::new()).is_ok_and(|n| n > 0) {}
        });
        run(async {
            let mut channel = connect(address).await;
            channel.call(&Command::Noop).await.expect("answers");
            let error = match channel.protect(client) {
                Err(error) => error,
                Ok(()) => channel.call(&Command::Pwd).await.expect_err("is forged"),
            };
            assert!(
                matches!(
                    error,
                    ControlError::Protection {
                        error: ProtectionError::InClear(_),
                        ..
                    }
                ),
                "{error}"
            );
            // And it stays so.
            channel.call(&Command::Pwd).await.expect_err("is over");
        });
        peer.join().expect("the peer is content");
    }
}

fn serve(
    script: impl FnOnce(BufReader<TcpStream>, TcpStream) + Send + 'static,
) -> (SocketAddr, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let peer = thread::spawn(move || {
        let (socket, _) = listener.accept().unwrap();
        script(BufReader::new(socket.try_clone().unwrap()), socket);
    });
    (address, peer)
}

fn next(lines: &mut BufReader<TcpStream>) -> String {
    let mut line = String::new();
    lines.read_line(&mut line).unwrap();
    line.trim_end().to_owned()
}

async fn connect(address: SocketAddr) -> ControlChannel {
    let connected = ControlChannel::connect(address, ClientConfig::default(), None).await;
    connected.expect("connects").0
}

fn run(what: impl Future<Output = ()>) {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap()
        .block_on(what);
}
