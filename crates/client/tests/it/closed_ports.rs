//! A server whose data ports are unreachable: it connects to us.

use std::{fs, net::TcpStream};

use tokio::net::TcpSocket;

use crate::{
    harness::{Served, bytes, for_each_at_once, run, text},
    interposed::interposed,
};

/// What becomes of a connection to a data port.
enum Wall {
    /// It is refused.
    Refuses,
    /// No packet is answered.
    Drops,
}

/// A server behind a wall, and what keeps the wall up.
fn walled(server: &Served, wall: Wall) -> (String, Vec<TcpStream>) {
    let runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = { runtime }.enable_all().build().unwrap();
    let _within = runtime.enter();
    let port = TcpSocket::new_v4().unwrap();
    // Bound and not listening: connections are refused, and no other test gets the port.
    port.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = port.local_addr().unwrap();
    let mut kept = Vec::new();
    let held: Box<dyn std::any::Any + Send + Sync> = match wall {
        Wall::Refuses => Box::new(port),
        Wall::Drops => {
            // Nothing is accepted, and the kernel lets no more wait than these.
            let listener = port.listen(0).unwrap().into_std().unwrap();
            while let Ok(one) =
                TcpStream::connect_timeout(&address, std::time::Duration::from_millis(500))
            {
                kept.push(one);
            }
            Box::new(listener)
        }
    };
    let replies = move |line: String| {
        let _held = &held;
        match line.starts_with("227 ") {
            true => {
                let port = address.port();
                format!("227 here (127,0,0,1,{},{})", port >> 8, port & 255)
            }
            false => line,
        }
    };
    let there = interposed(server.address, |line| line, replies);
    (format!("ftp://{there}"), kept)
}

fn goes_on(wall: Wall, limit: &[&str]) {
    let served = Served::start();
    let here = tempfile::tempdir().unwrap();
    let (url, _kept) = walled(&served, wall);
    fs::create_dir(served.path("d")).unwrap();
    let data = bytes(100_000, 1);
    fs::write(served.path("d/f"), &data).unwrap();
    let (directory, up) = (format!("{url}/d"), format!("{url}/up"));
    let said = "its data ports are closed to us";
    let (back, file) = (here.path().join("back"), here.path().join("f"));
    fs::write(&file, &data).unwrap();
    let commands: [&[&str]; 3] = [
        &["ls", "-v", &directory],
        &["cp", "-r", "-v", &directory, text(&back)],
        &["cp", "-v", text(&file), &up],
    ];
    for_each_at_once(commands, |command| {
        let ran = run(&[command, limit].concat()).expect(0, &[said]);
        assert!(command[0] != "ls" || ran.out == b"f\n", "{:?}", ran.out);
    });
    assert!(fs::read(back.join("f")).unwrap() == data);
    assert!(fs::read(served.path("up")).unwrap() == data);
}

#[test]
fn a_server_that_refuses_data_connections_connects_to_us() {
    goes_on(Wall::Refuses, &[]);
}

#[test]
fn a_server_whose_data_ports_say_nothing_connects_to_us() {
    goes_on(Wall::Drops, &["--stall-timeout", "2"]);
}
