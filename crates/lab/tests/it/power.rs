//! Power failures: everything that the server has confirmed, and everything that the client had to
//! sync, survives, and every final name belongs to a whole file.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::process::Command;

use godwit_lab::faults::ForgetfulDisk;
use godwit_lab::peers::godwit::{self, Godwitd};
use godwit_lab::peers::process::{Options, Process, Signal};
use godwit_proto::temporary::is_temporary;

use crate::support::{LONG, Need, have, wait_until, write_noise};

/// A copy to a server whose disk forgets.
struct Place {
    folder: tempfile::TempDir,
    disk: ForgetfulDisk,
}

impl Place {
    /// `None`, with a printed skip, where there is no such disk or no program.
    fn new() -> Option<Place> {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        for name in ["source", "disk", "at"] {
            fs::create_dir(path(name)).unwrap();
        }
        if !have(&[Need::Godwit, Need::Godwitd]) {
            return None;
        }
        match ForgetfulDisk::mount(&path("disk"), &path("at")) {
            Ok(disk) => Some(Place { folder, disk }),
            Err(why) => {
                let _ = writeln!(io::stderr().lock(), "skipped a loss of power: {why}");
                None
            }
        }
    }

    fn write(&self, name: &str, bytes: usize) {
        write_noise(&self.folder.path().join("source").join(name), bytes, 1);
    }

    fn server(&self, durability: &str) -> Godwitd {
        let config = Godwitd::serving(self.disk.path());
        let config = config.arg("--durability").arg(durability);
        config.start().unwrap()
    }

    fn arguments(&self, server: &Godwitd) -> [String; 6] {
        let source = format!("{}/", self.folder.path().join("source").display());
        ["cp", "-r", "-p", "2", &source, &server.url("")].map(str::to_owned)
    }

    fn copy(&self, server: &Godwitd) {
        let finished = godwit::godwit(self.arguments(server)).unwrap();
        assert!(finished.status.success(), "{}", finished.log());
    }

    /// The machine of the server is without power for a moment.
    fn lose_power(&self, server: Godwitd) {
        // Kills it, and waits until it has ended.
        drop(server);
        self.disk.lose_power().unwrap();
    }

    /// How many final names there are; each must stand for the whole file.
    #[track_caller]
    fn whole_files(&self) -> usize {
        let (source, disk) = (
            self.folder.path().join("source"),
            self.folder.path().join("disk"),
        );
        let names = fs::read_dir(&disk).unwrap().map(|e| e.unwrap().file_name());
        let mut whole = 0;
        for name in names.filter(|name| !is_temporary(name.as_encoded_bytes())) {
            let same = fs::read(source.join(&name)).unwrap() == fs::read(disk.join(&name)).unwrap();
            assert!(same, "{}: a final name for something else", name.display());
            whole += 1;
        }
        whole
    }
}

const SIZES: [usize; 6] = [0, 1, 1000, 70_000, 300_001, 3_000_001];

#[test]
fn files_acknowledged_by_the_server_survive_power_loss_only_with_durability_file() {
    let Some(place) = Place::new() else { return };
    for (i, size) in SIZES.into_iter().enumerate() {
        place.write(&format!("f{i}"), size);
    }
    let server = place.server("none");
    place.copy(&server);
    assert_eq!(place.whole_files(), SIZES.len());
    place.lose_power(server);
    assert_eq!(place.whole_files(), 0, "the disk loses what was not synced");
    let server = place.server("file");
    place.copy(&server);
    place.lose_power(server);
    assert_eq!(place.whole_files(), SIZES.len());
}

#[test]
fn after_a_power_loss_the_same_command_completes_every_file() {
    let Some(place) = Place::new() else { return };
    const FILES: usize = 12;
    for i in 0..FILES {
        place.write(&format!("f{i}"), 3_000_000 + i);
    }
    for enough in [1, FILES / 2, FILES - 1] {
        let server = place.server("file");
        let mut command = Command::new(godwit::binary("godwit").unwrap());
        command
            .args(place.arguments(&server))
            .args(["--retries", "1"]);
        let client = Process::spawn(command, Options::default()).unwrap();
        let names = || {
            let disk = place.folder.path().join("disk");
            fs::read_dir(disk).unwrap().count()
        };
        wait_until("some names are there", || names() >= enough);
        place.lose_power(server);
        place.whole_files();
        client.signal(Signal::KILL).unwrap();
        client.wait(LONG).unwrap();
        let server = place.server("file");
        place.copy(&server);
        place.lose_power(server);
        assert_eq!(place.whole_files(), FILES);
        for i in 0..FILES {
            fs::remove_file(place.disk.path().join(format!("f{i}"))).unwrap();
        }
        File::open(place.disk.path()).unwrap().sync_all().unwrap();
    }
}

#[test]
fn files_received_by_the_client_survive_power_loss_only_with_durability_file() {
    let Some(place) = Place::new() else { return };
    for (i, size) in SIZES.into_iter().enumerate() {
        place.write(&format!("f{i}"), size);
    }
    let server = Godwitd::serving(place.folder.path().join("source"));
    let server = server.start().unwrap();
    let to = format!("{}/", place.disk.path().display());
    for (durability, whole) in [("none", 0), ("file", SIZES.len())] {
        let get = ["cp", "-r", "-p", "2", "--durability", durability];
        let finished = godwit::godwit([&get[..], &[&server.url(""), &to]].concat()).unwrap();
        assert!(finished.status.success(), "{}", finished.log());
        assert_eq!(place.whole_files(), SIZES.len());
        place.disk.lose_power().unwrap();
        assert_eq!(place.whole_files(), whole, "{durability}");
    }
}
