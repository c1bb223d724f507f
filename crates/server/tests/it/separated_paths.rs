//! Paths of sessions with processes of their own, against a user who changes directories and links
//! beneath them, and against `/proc`.

use std::{
    fs,
    os::unix::fs::{chown, symlink},
    sync::atomic::{AtomicBool, Ordering},
};

use rustix::fs::{CWD, RenameFlags, renameat_with};

use crate::{
    client::{Ftp, read_all},
    privsep::{JO, uid},
    separated_logins::Site,
};

/// Logged in as Jo.
fn login(site: &Site) -> Ftp {
    let mut ftp = Ftp::connect(site.program.address);
    ftp.await_code(220);
    ftp.expect(&format!("USER {JO}"), 331);
    ftp.expect("PASS se cret", 230);
    ftp.expect("TYPE I", 200);
    ftp
}

/// What the file holds, or nothing.
fn get(ftp: &mut Ftp, path: &str) -> Option<Vec<u8>> {
    let data = ftp.passive();
    if ftp.call(&format!("RETR {path}")).code != 150 {
        return None;
    }
    let bytes = read_all(data);
    (ftp.reply().code == 226).then_some(bytes)
}

fn list(ftp: &mut Ftp, path: &str) -> Option<String> {
    let data = ftp.passive();
    if ftp.call(&format!("NLST {path}")).code != 150 {
        return None;
    }
    let bytes = read_all(data);
    (ftp.reply().code == 226).then(|| String::from_utf8(bytes).unwrap())
}

/// A directory and a link out of the root change places all the time.
#[test]
fn a_directory_that_becomes_a_link_stays_in_the_root() {
    let Some(site) = Site::new(&["--allow-clear-passwords"]) else {
        return;
    };
    let at = |name: &str| site.at(name);
    fs::create_dir(at("out")).unwrap();
    fs::create_dir(at("root/jo/d")).unwrap();
    symlink("../../out", at("root/jo/l")).unwrap();
    for (folder, content) in [("out", "outside"), ("root/jo/d", "inside")] {
        for name in ["f", "victim"] {
            fs::write(at(folder).join(name), content).unwrap();
        }
        for name in ["", "f", "victim"] {
            chown(at(folder).join(name), Some(uid(JO)), Some(uid(JO))).unwrap();
        }
    }
    let over = AtomicBool::new(false);
    let (read, listed) = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                let (one, other) = (at("root/jo/d"), at("root/jo/l"));
                renameat_with(CWD, &one, CWD, &other, RenameFlags::EXCHANGE).unwrap();
            }
        });
        let mut ftp = login(&site);
        let (mut read, mut listed) = (Vec::new(), Vec::new());
        for round in 0..50 {
            read.extend(get(&mut ftp, "/jo/d/f"));
            listed.extend(list(&mut ftp, "/jo/d"));
            ftp.put(&format!("STOR /jo/d/new{round}"), b"x");
            ftp.call(&format!("MKD /jo/d/made{round}"));
            ftp.call("SITE CHMOD 777 /jo/d/victim");
            ftp.call("DELE /jo/d/victim");
            ftp.call(&format!("RNFR /jo/d/new{round}"));
            ftp.call(&format!("RNTO /jo/d/named{round}"));
        }
        over.store(true, Ordering::Relaxed);
        (read, listed)
    });
    assert!(read.iter().all(|bytes| bytes == b"inside"));
    assert!(listed.iter().all(|names| !names.contains("outside")));
    let left = fs::read_dir(at("out")).unwrap();
    let mut left: Vec<_> = left.map(|entry| entry.unwrap().file_name()).collect();
    left.sort();
    assert_eq!(left, ["f", "victim"], "nothing was made or removed outside");
    assert_eq!(fs::read(at("out/f")).unwrap(), b"outside");
}

/// With the whole system beneath the root a user sees what a terminal would show, and nothing of
/// the server's processes.
#[test]
fn the_systems_own_files_tell_nothing_of_the_server() {
    let Some(site) = Site::serving("/", &["--allow-clear-passwords"]) else {
        return;
    };
    let mut ftp = login(&site);
    assert!(get(&mut ftp, "/etc/passwd").is_some());
    let [session] = site.program.children("privsep-session")[..] else {
        panic!("one session")
    };
    let pre_login = site.program.children("privsep-front")[0];
    let monitor = site.program.child.id();
    let processes = [session, pre_login, monitor].map(|pid| pid.to_string());
    for process in ["self", "1"]
        .into_iter()
        .chain(processes.iter().map(String::as_str))
    {
        for name in [
            "environ",
            "mem",
            "fd/0",
            "root/etc/passwd",
            "cwd/etc/passwd",
            "auxv",
        ] {
            let path = format!("/proc/{process}/{name}");
            assert!(get(&mut ftp, &path).is_none(), "{path}");
        }
    }
    for path in ["/etc/shadow", "/dev/mem", "/proc/kcore"] {
        assert!(get(&mut ftp, path).is_none(), "{path}");
    }
    assert!(list(&mut ftp, "/root").is_none());
}
