//! Large files that are put one behind the other: the next goes out before the server has said a
//! word of the last.

use std::{
    fs,
    io::{self, BufRead as _, BufReader, Write as _},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    path::Path,
    process::Stdio,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process};

use crate::{
    harness::{Ran, Served, bytes, godwit, nap, run, text, tree},
    many::{assert_same, cutting_proxy},
};

/// Bytes of a file that does not travel among the small ones.
const LENGTH: usize = 20 << 20;

/// What becomes of the server's words that a transfer is over, on the control channel.
#[derive(Clone, Copy)]
enum Words {
    /// They come late, as from far away.
    Late(Duration),
    /// Those of the first transfer come, and then none until all is well again.
    Lost,
}

/// Stands between client and server on the control channel. With the second all is well.
fn between(server: SocketAddr, words: Words) -> (SocketAddr, Arc<AtomicBool>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (over, well) = (
        Arc::new(AtomicUsize::new(0)),
        Arc::new(AtomicBool::new(false)),
    );
    let heals = Arc::clone(&well);
    thread::spawn(move || {
        for client in listener.incoming() {
            let client = client.unwrap();
            let server = TcpStream::connect(server).unwrap();
            let (mut from, mut to) = (client.try_clone().unwrap(), server.try_clone().unwrap());
            thread::spawn(move || {
                // Either end may go at any time.
                let _ = io::copy(&mut from, &mut to);
                let _ = to.shutdown(Shutdown::Both);
            });
            let (over, well) = (Arc::clone(&over), Arc::clone(&well));
            thread::spawn(move || {
                let mut client = client;
                for line in BufReader::new(server).split(b'\n') {
                    let Ok(line) = line else { break };
                    if line.starts_with(b"226 ") {
                        match words {
                            Words::Late(late) => thread::sleep(late),
                            Words::Lost if over.fetch_add(1, Ordering::Relaxed) == 0 => {}
                            Words::Lost if well.load(Ordering::Relaxed) => {}
                            Words::Lost => continue,
                        }
                    }
                    if client.write_all(&[&line[..], b"\n"].concat()).is_err() {
                        break;
                    }
                }
                let _ = client.shutdown(Shutdown::Both);
            });
        }
    });
    (address, heals)
}

fn write_large(top: &Path, count: u64) {
    fs::create_dir(top).unwrap();
    for i in 0..count {
        fs::write(top.join(format!("large{i}")), bytes(LENGTH, i)).unwrap();
    }
}

#[test]
fn the_next_file_starts_before_the_reply_for_the_last() {
    let served = Served::start();
    let here = tempfile::tempdir().unwrap();
    let top = here.path().join("top");
    write_large(&top, 4);
    let late = Words::Late(Duration::from_millis(200));
    for options in [
        &["--verify"][..],
        &["--no-verify"],
        &["--durability", "file"],
    ] {
        let to = format!("up{}", options[0]);
        let (proxy, _) = between(served.address, late);
        let url = format!("ftp://{proxy}/{to}");
        let fixed = ["cp", "-r", "-vv", "-c", "1", "-p", "2"];
        let ran = run(&[&fixed[..], options, &[text(&top), &url]].concat()).expect(0, &["4 files"]);
        let at = |what| ran.err.match_indices(what).map(|(at, _)| at).collect();
        let (asked, over): (Vec<_>, Vec<_>) = (at("-> STOR "), at("<- 226 "));
        assert_eq!((asked.len(), over.len()), (4, 4), "{}", ran.err);
        for (next, last) in asked[1..].iter().zip(&over) {
            assert!(next < last, "{}", ran.err);
        }
        assert_same(&top, &served.path(&to));
    }
}

#[test]
fn files_sent_behind_a_lost_session_arrive() {
    let served = Served::start();
    let here = tempfile::tempdir().unwrap();
    let top = here.path().join("top");
    write_large(&top, 4);
    // A login takes some 1000 bytes of replies, a file some 50.
    for bytes in (900..1500).step_by(100) {
        let proxy = cutting_proxy(served.address, vec![bytes; 3]);
        let to = format!("up{bytes}");
        let url = format!("ftp://{proxy}/{to}");
        run(&["cp", "-r", "-c", "1", text(&top), &url]).expect(0, &["4 files"]);
        // No temporary file is left either.
        assert_same(&top, &served.path(&to));
    }
}

#[test]
fn an_interrupt_leaves_only_partial_files_that_can_be_resumed() {
    let is_part = |name: &String| name.contains(".godwit-");
    for journal in [false, true] {
        let served = Served::start();
        let here = tempfile::tempdir().unwrap();
        let top = here.path().join("top");
        write_large(&top, 4);
        let (proxy, well) = between(served.address, Words::Lost);
        let url = format!("ftp://{proxy}/up/");
        let options: &[&str] = if journal { &[] } else { &["--no-journal"] };
        let copy = || {
            let top = format!("{}/", text(&top));
            let fixed = ["cp", "-r", "-c", "1", "-p", "2", &top, &url];
            let mut command = godwit(&[&fixed[..], options].concat());
            command.env("XDG_STATE_HOME", here.path().join("state"));
            command.stderr(Stdio::piped()).spawn().unwrap()
        };
        let mut child = copy();
        let up = served.path("up");
        // The first has its name, the server has the second, whose answer is lost, and begins with
        // the third.
        let names = || match up.exists() {
            true => tree(&up),
            false => Vec::new(),
        };
        let parts = || names().into_iter().filter(is_part).count();
        while (names().len(), parts()) != (3, 2) {
            assert_eq!(child.try_wait().unwrap(), None);
            nap();
        }
        kill_process(Pid::from_child(&child), Signal::INT).unwrap();
        let ran: Ran = child.wait_with_output().unwrap().into();
        ran.expect(130, &[]);
        assert_eq!(parts(), if journal { 2 } else { 0 });
        well.store(true, Ordering::Relaxed);
        let again: Ran = copy().wait_with_output().unwrap().into();
        again.expect(0, &[]);
        assert_same(&top, &up);
    }
}
