//! Stands between client and server on the control channel, and says something else than they do.

use std::{
    io::{BufRead, BufReader, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::Arc,
    thread,
};

/// Where the client is to go in place of `server`. Each line is what `commands` and `replies` make
/// of it; an empty one closes the connection.
pub(crate) fn interposed(
    server: SocketAddr,
    commands: impl Fn(String) -> String + Send + Sync + 'static,
    replies: impl Fn(String) -> String + Send + Sync + 'static,
) -> SocketAddr {
    let listener = TcpListener::bind((server.ip(), 0)).unwrap();
    let address = listener.local_addr().unwrap();
    let (commands, replies) = (Arc::new(commands), Arc::new(replies));
    thread::spawn(move || {
        for client in listener.incoming() {
            let client = client.unwrap();
            let server = TcpStream::connect(server).unwrap();
            let ends = (client.try_clone().unwrap(), server.try_clone().unwrap());
            let (commands, replies) = (Arc::clone(&commands), Arc::clone(&replies));
            thread::spawn(move || pass_on(client, server, commands.as_ref()));
            thread::spawn(move || pass_on(ends.1, ends.0, replies.as_ref()));
        }
    });
    address
}

fn pass_on(from: TcpStream, mut to: TcpStream, change: &dyn Fn(String) -> String) {
    let lines = BufReader::new(&from).lines().map_while(Result::ok);
    for line in lines.map(change).take_while(|line| !line.is_empty()) {
        // Either end may go at any time.
        if to.write_all(format!("{line}\r\n").as_bytes()).is_err() {
            break;
        }
    }
    let _ = (to.shutdown(Shutdown::Both), from.shutdown(Shutdown::Both));
}
