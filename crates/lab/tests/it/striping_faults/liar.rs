//! What stands between a front end and a node, and changes what the node says.
//!
//! It has the certificate of both, so each takes it for the other. Until it is told to lie, all
//! passes as it is.

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use godwit_lab::host::Host;
use openssl::ssl::{
    Ssl, SslAcceptor, SslConnector, SslFiletype, SslMethod, SslStream, SslVerifyMode,
};
use serde_json::{Value, json};

/// What a node says that is not so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lie {
    /// Much more has been moved than there is.
    MoreBytes,
    /// All of the file is safe.
    AllIsSafe,
    /// It is over, and well.
    Over,
    /// Nothing: a report is left out.
    Silence,
    /// What is no message.
    Nonsense,
    /// A message without an end.
    Endless,
}

impl Lie {
    pub(super) const ALL: [Lie; 6] = [
        Lie::MoreBytes,
        Lie::AllIsSafe,
        Lie::Over,
        Lie::Silence,
        Lie::Nonsense,
        Lie::Endless,
    ];
}

/// The lie that the next report of a transfer becomes.
type Next = Arc<Mutex<Option<Lie>>>;

/// Where it is, and what makes it lie.
pub(super) struct Liar {
    pub(super) address: SocketAddr,
    next: Next,
}

/// How long one direction is waited for before the other gets its turn.
const TURN: Duration = Duration::from_millis(2);

/// Bytes of a report that is looked at; more than any.
const REPORT_MAX: usize = 256 << 10;

impl Liar {
    /// On `host`, in front of the node at `node` there.
    pub(super) fn start(host: &Host, node: SocketAddr, [cert, key]: [&Path; 2]) -> Liar {
        let mut acceptor = SslAcceptor::mozilla_intermediate(SslMethod::tls()).unwrap();
        acceptor.set_certificate_chain_file(cert).unwrap();
        acceptor
            .set_private_key_file(key, SslFiletype::PEM)
            .unwrap();
        let mut connector = SslConnector::builder(SslMethod::tls()).unwrap();
        connector.set_certificate_chain_file(cert).unwrap();
        connector
            .set_private_key_file(key, SslFiletype::PEM)
            .unwrap();
        // Its front end is to be deceived, not it.
        connector.set_verify(SslVerifyMode::NONE);
        let (acceptor, connector) = (acceptor.build(), connector.build());
        let next = Next::default();
        let lie = Arc::clone(&next);
        let listens = || {
            let listener = TcpListener::bind((node.ip(), 0)).unwrap();
            let address = listener.local_addr().unwrap();
            // A thread that is made here stays on the host.
            std::thread::spawn(move || {
                for front in listener.incoming().map_while(Result::ok) {
                    let (acceptor, connector) = (acceptor.clone(), connector.clone());
                    let lie = Arc::clone(&lie);
                    std::thread::spawn(move || {
                        stand_between(front, node, &acceptor, &connector, &lie)
                    });
                }
            });
            address
        };
        Liar {
            address: host.enter(listens).unwrap(),
            next,
        }
    }

    /// The next report of a transfer is a lie.
    pub(super) fn lie(&self, lie: Lie) {
        *self.next.lock().unwrap() = Some(lie);
    }

    /// Whether it has lied as it was told.
    pub(super) fn has_lied(&self) -> bool {
        self.next.lock().unwrap().is_none()
    }
}

/// Carries one link, to its end.
fn stand_between(
    front: TcpStream,
    node: SocketAddr,
    acceptor: &SslAcceptor,
    connector: &SslConnector,
    lie: &Next,
) -> Option<()> {
    let node = TcpStream::connect(node).ok()?;
    let mut node = SslStream::new(Ssl::new(connector.context()).ok()?, node).ok()?;
    node.connect().ok()?;
    let mut front = acceptor.accept(front).ok()?;
    for socket in [front.get_ref(), node.get_ref()] {
        socket.set_read_timeout(Some(TURN)).ok()?;
    }
    let mut chunk = vec![0; 64 << 10];
    let mut said = Vec::new();
    loop {
        if let Some(count) = read(&mut front, &mut chunk)? {
            node.write_all(&chunk[..count]).ok()?;
        }
        if let Some(count) = read(&mut node, &mut chunk)? {
            said.extend_from_slice(&chunk[..count]);
            while let Some(report) = next_report(&mut said) {
                front.write_all(&told(report, lie)).ok()?;
            }
        }
    }
}

/// What has come; nothing within [`TURN`] is `Some(None)`, the end `None`.
fn read(from: &mut SslStream<TcpStream>, into: &mut [u8]) -> Option<Option<usize>> {
    match from.read(into) {
        Ok(0) => None,
        Ok(count) => Some(Some(count)),
        Err(error) => matches!(
            error.kind(),
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted
        )
        .then_some(None),
    }
}

/// The first message, without its length, once it is whole.
fn next_report(said: &mut Vec<u8>) -> Option<Vec<u8>> {
    let head = said.first_chunk::<4>()?;
    let length = usize::try_from(u32::from_be_bytes(*head)).ok()?;
    assert!(length <= REPORT_MAX, "no message of ours is so long");
    if said.len() < 4 + length {
        return None;
    }
    let report = said[4..4 + length].to_vec();
    said.drain(..4 + length);
    Some(report)
}

/// What the front end hears instead of a report.
fn told(report: Vec<u8>, lie: &Next) -> Vec<u8> {
    let is_of_a_transfer = |message: &Value| message.get("Progress").is_some();
    let message = serde_json::from_slice::<Value>(&report).ok();
    let Some(mut message) = message.filter(is_of_a_transfer) else {
        return framed(&report);
    };
    let Some(lie) = lie.lock().unwrap().take() else {
        return framed(&report);
    };
    let all = json!([[0_u64, 1_u64 << 40]]);
    match lie {
        Lie::MoreBytes => message["Progress"]["counts"]["bytes"] = json!(1_u64 << 40),
        Lie::AllIsSafe => message["Progress"]["fresh"] = all,
        Lie::Over => {
            message = json!({"Done": {
                "transfer": message["Progress"]["transfer"],
                "counts": message["Progress"]["counts"],
                "fresh": all,
                "failure": null,
                "cached": false,
                "channels_peak": 1,
                "eods": 1,
            }});
        }
        Lie::Silence => return Vec::new(),
        Lie::Nonsense => return framed(b"{\"Progress\": 7}"),
        Lie::Endless => return u32::MAX.to_be_bytes().to_vec(),
    }
    framed(message.to_string().as_bytes())
}

fn framed(report: &[u8]) -> Vec<u8> {
    let length = u32::try_from(report.len()).expect("short");
    [&length.to_be_bytes(), report].concat()
}
