//! What storage refuses must reach the client with the right code and the system's words.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use crate::{
    client::{EOD, EOF, block, data_block},
    harness::{TestServer, pattern},
};

#[test]
fn failures_are_typed() {
    let server = TestServer::start();
    std::fs::create_dir(server.path("d")).unwrap();
    server.write("f", b"abc");
    let mut ftp = server.login();
    for (command, code, word) in [
        ("SIZE /none", 550, "No such file or directory"),
        ("CWD /f", 550, "Not a directory"),
        ("MKD /f", 550, "File exists"),
        ("MKD /none/d", 550, "No such file or directory"),
        ("RMD /f", 550, "Not a directory"),
        ("RNFR /none", 550, "No such file or directory"),
        ("MLST /none", 550, "No such file or directory"),
    ] {
        let reply = ftp.expect(command, code);
        assert!(reply.text().contains(word), "{command}: {reply:?}");
    }
    for (command, word) in [
        ("RETR /none", "No such file or directory"),
        ("RETR /d", "Is a directory"),
        ("STOR /d", "Is a directory"),
        ("STOR /none/f", "No such file or directory"),
        ("STOR /f/g", "Not a directory"),
    ] {
        ftp.pasv();
        let reply = ftp.call(command);
        assert_eq!(reply.code, 550, "{command}: {reply:?}");
        assert!(reply.text().contains(word), "{command}: {reply:?}");
    }
}

#[test]
fn a_full_disk_is_reported() {
    let Some(disk) = SmallDisk::mount() else {
        println!("skipped: cannot mount a small tmpfs (needs root)");
        return;
    };
    let server = TestServer::at(disk.path(), |_| {});
    let bytes = pattern(3 << 20, 1);
    let mut ftp = server.login();
    let mut data = ftp.passive();
    ftp.send("STOR /f");
    ftp.await_code(150);
    let _ = std::io::Write::write_all(&mut data, &bytes);
    drop(data);
    let (_, reply) = ftp.final_reply();
    assert_eq!(reply.code, 552, "{reply:?}");
    assert!(reply.text().contains("No space left on device"));

    ftp.expect("DELE /f", 250);
    ftp.expect("MODE E", 200);
    let mut data = ftp.passive();
    ftp.send("STOR /f");
    ftp.await_code(150);
    let blocks = [data_block(0, &bytes), block(EOF | EOD, 0, 1, b"")].concat();
    let _ = std::io::Write::write_all(&mut data, &blocks);
    let (_, reply) = ftp.final_reply();
    assert_eq!(reply.code, 552, "{reply:?}");
    ftp.expect("DELE /f", 250);
    ftp.expect("MODE S", 200);
    ftp.expect("TYPE A", 200);
    let mut data = ftp.passive();
    ftp.send("STOR /f");
    ftp.await_code(150);
    let _ = std::io::Write::write_all(&mut data, &bytes);
    drop(data);
    let (_, reply) = ftp.final_reply();
    assert_eq!(reply.code, 552, "{reply:?}");
    ftp.expect("DELE /f", 250);
    assert_eq!(ftp.put("STOR /f", b"fits").code, 226);
}

/// A file system of 1 MiB.
pub(crate) struct SmallDisk {
    path: PathBuf,
    _folder: Option<tempfile::TempDir>,
}

impl SmallDisk {
    fn mount() -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let mut disk = Self::mount_at(folder.path())?;
        disk._folder = Some(folder);
        Some(disk)
    }

    /// `None`: this takes root.
    pub(crate) fn mount_at(path: &Path) -> Option<Self> {
        let status = Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=1m", "godwit-test"])
            .arg(path)
            .stderr(std::process::Stdio::null())
            .status();
        status.is_ok_and(|s| s.success()).then(|| Self {
            path: path.to_owned(),
            _folder: None,
        })
    }

    fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Lazily: a server of a test that failed may still have files open.
        let _ = Command::new("umount").arg("-l").arg(&self.path).status();
    }
}
