//! Data connections that do not get past their handshake, of a scripted server that sends a file.

use std::{
    fs,
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::SystemTime,
};

use godwit_gsi::{
    Channel, Context, Expect, Settings, Versions, cert::proxy::ProxyRequest, verify::Policy,
};

use crate::{
    gsi::{Quirks, Server, World},
    harness::{Ran, text},
};

const CONTENT: &[u8] = b"content";

/// "unknown CA" (RFC 8446 §6), as it is said before anything is sealed.
const ALERT: [u8; 7] = [21, 3, 3, 0, 2, 2, 48];

/// The side of a server that listens and sends.
pub(crate) struct Sender {
    settings: Settings,
    /// How many connections it closes once the client has spoken, and what it sends before.
    refuses: (usize, &'static [u8]),
    listener: Mutex<Option<TcpListener>>,
    connections: AtomicUsize,
}

impl Sender {
    /// Acts for the user of `world`. Of its connections the first `count` are sent `words` and
    /// closed.
    fn new(world: &World, count: usize, words: &'static [u8]) -> Arc<Self> {
        let credential = world.proxy(&ProxyRequest::default());
        Arc::new(Self {
            settings: Settings {
                expect: Expect::Identity(credential.identity()),
                credential,
                anchors: Arc::new(world.grid.anchors()),
                policy: Policy::default(),
                channel: Channel::ClearData,
                versions: Versions::Any,
                server_name: None,
            },
            refuses: (count, words),
            listener: Mutex::default(),
            connections: AtomicUsize::new(0),
        })
    }

    /// What is answered to commands of transfers.
    pub(crate) fn answer(&self, command: &str) -> Option<String> {
        match command.split(' ').next()? {
            "SIZE" => Some(format!("213 {}", CONTENT.len())),
            // Without it the client would wait for a connection that never comes.
            "PORT" => Some("500 Only PASV".to_owned()),
            "PASV" => {
                let listener = TcpListener::bind("127.0.0.1:0").unwrap();
                let port = listener.local_addr().unwrap().port();
                *self.listener.lock().unwrap() = Some(listener);
                let (high, low) = (port >> 8, port & 255);
                Some(format!("227 Here (127,0,0,1,{high},{low})"))
            }
            "RETR" => {
                let listener = self.listener.lock().unwrap().take()?;
                let (stream, _) = listener.accept().unwrap();
                Some(match self.send(stream) {
                    Some(()) => "150 Begins\r\n226 Done".to_owned(),
                    None => "425 Cannot open data connection.".to_owned(),
                })
            }
            _ => None,
        }
    }

    fn send(&self, mut stream: TcpStream) -> Option<()> {
        let mut bytes = [0; 16 << 10];
        let mut hear = |stream: &mut TcpStream| match stream.read(&mut bytes) {
            Ok(count @ 1..) => Some(bytes[..count].to_vec()),
            _ => None,
        };
        let (count, words) = self.refuses;
        if self.connections.fetch_add(1, Ordering::Relaxed) < count {
            hear(&mut stream)?;
            stream.write_all(words).ok()?;
            if !words.is_empty() {
                // The client has read them before it hears anything on the control channel.
                while hear(&mut stream).is_some() {}
            }
            return None;
        }
        let mut context = Context::accept(self.settings.clone()).unwrap();
        loop {
            let heard = hear(&mut stream)?;
            let verdict = context.handle_input(SystemTime::now(), &heard);
            while let Some(token) = context.poll_output() {
                stream.write_all(&token).ok()?;
            }
            verdict.ok()?;
            if context.outcome().is_some() {
                return stream.write_all(CONTENT).ok();
            }
        }
    }
}

/// What becomes of a get, and how many connections it took.
fn get(world: &World, sender: &Arc<Sender>, options: &[&str]) -> (Ran, Option<Vec<u8>>, usize) {
    let quirks = Quirks {
        data: Some(Arc::clone(sender)),
        ..Quirks::default()
    };
    let server = Server::start(world, world.host(), quirks);
    let here = tempfile::tempdir().unwrap();
    let back = here.path().join("f");
    let (from, to) = (server.url("/f"), text(&back));
    let ran = world.run(&[&["cp"], options, &[&from, to]].concat());
    let connections = sender.connections.load(Ordering::Relaxed);
    (ran, fs::read(&back).ok(), connections)
}

#[test]
fn a_data_connection_that_is_dropped_in_its_handshake_is_retried() {
    let world = World::new();
    let sender = Sender::new(&world, 2, b"");
    let (ran, got, connections) = get(&world, &sender, &[]);
    ran.expect(0, &[]);
    assert_eq!((got.as_deref(), connections), (Some(CONTENT), 3));
}

#[test]
fn a_server_that_drops_every_data_connection_gets_one_for_each_attempt() {
    let world = World::new();
    let sender = Sender::new(&world, usize::MAX, b"");
    let (ran, got, connections) = get(&world, &sender, &["--retries", "2"]);
    ran.expect(4, &["425 Cannot open"]);
    assert_eq!((got, connections), (None, 2));
}

#[test]
fn an_alert_in_the_handshake_of_a_data_connection_is_final() {
    let world = World::new();
    let sender = Sender::new(&world, usize::MAX, &ALERT);
    let (ran, got, connections) = get(&world, &sender, &[]);
    ran.expect(3, &["data channel authentication failed", "unknown ca"]);
    assert_eq!((got, connections), (None, 1));
}
