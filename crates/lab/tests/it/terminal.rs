//! The live display of a transfer, on a terminal of 80 columns and 24 lines in tmux.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use godwit_lab::peers::godwit;

use crate::support::{Kind, Need, Site, have, wait_until, write_noise};

/// A terminal without a user. Dropping it ends what runs on it.
struct Terminal {
    folder: tempfile::TempDir,
}

impl Terminal {
    fn new() -> Terminal {
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), private()).unwrap();
        Terminal { folder }
    }

    fn tmux(&self, arguments: &[&str]) -> Output {
        let socket = self.folder.path().join("tmux");
        let mut command = Command::new("tmux");
        command.arg("-f").arg("/dev/null").arg("-S").arg(socket);
        command.env("XDG_RUNTIME_DIR", self.folder.path());
        command
            .env("TERM", "xterm-256color")
            .env("LC_ALL", "C.UTF-8");
        command.args(arguments).output().unwrap()
    }

    /// What shows on it stays there when the command has ended.
    fn run(&self, command: &str) {
        let lasting = format!("{command}; echo exit $?; read last");
        let run = ["new-session", "-d", "-x", "80", "-y", "24", &lasting];
        let started = self.tmux(&run);
        assert!(started.status.success(), "{started:?}");
    }

    fn shows(&self) -> String {
        String::from_utf8_lossy(&self.tmux(&["capture-pane", "-p"]).stdout).into_owned()
    }

    #[track_caller]
    fn await_all(&self, wanted: &[&str]) {
        let mut seen = String::new();
        let all = || {
            seen = self.shows();
            wanted.iter().all(|wanted| seen.contains(wanted))
        };
        wait_until(&format!("a terminal shows {wanted:?}"), all);
    }

    fn press(&self, key: &str) {
        self.tmux(&["send-keys", key]);
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        self.tmux(&["kill-server"]);
    }
}

fn private() -> fs::Permissions {
    std::os::unix::fs::PermissionsExt::from_mode(0o700)
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// A transfer that takes longer than any test waits for.
fn slow_copy(site: &Site, how: &str) -> String {
    write_noise(&site.at("large"), 64_000_000, 1);
    let client = godwit::binary("godwit").unwrap();
    let (url, target) = (site.url("large"), site.local("copy"));
    format!(
        "{} cp {how} --no-journal --max-rate 4M {url} {}",
        text(&client),
        text(&target)
    )
}

#[test]
fn a_screen_shows_goodput_setting_limit_and_files_and_q_ends_the_copy() {
    if !have(&[Need::Godwit, Need::Godwitd, Need::Tmux]) {
        return;
    }
    let terminal = Terminal::new();
    let site = Site::new(Kind::Godwitd);
    terminal.run(&slow_copy(&site, "--tui"));
    let whole = ["transfer: ", "Mbit/s", "goodput, a column a second"];
    terminal.await_all(&whole);
    terminal.await_all(&["limited by: policy", "setting: ", "moving", "/large", "█"]);
    terminal.press("q");
    terminal.await_all(&["interrupted", "exit 130"]);
    assert!(!terminal.shows().contains("goodput"), "the screen is gone");
}

#[test]
fn a_screen_that_has_no_terminal_is_refused() {
    if !have(&[Need::Godwit]) {
        return;
    }
    let finished = godwit::godwit(["cp", "--tui", "ftp://127.0.0.1:1/f", "/dev/null"]).unwrap();
    assert_eq!(finished.status.code(), Some(2));
    let said = finished.log();
    assert!(said.contains("needs a terminal"), "{said}");
}

#[test]
fn top_shows_exactly_the_running_copies() {
    if !have(&[Need::Godwit, Need::Godwitd, Need::Tmux]) {
        return;
    }
    let terminal = Terminal::new();
    let site = Site::new(Kind::Godwitd);
    let top = |arguments: &[&str]| {
        let mut command = Command::new(godwit::binary("godwit").unwrap());
        command.arg("top").args(arguments);
        command.env("XDG_RUNTIME_DIR", terminal.folder.path());
        String::from_utf8(command.output().unwrap().stdout).unwrap()
    };
    assert_eq!(top(&[]), "");
    terminal.run(&slow_copy(&site, "-q"));
    wait_until("top tells of it", || top(&[]).contains("large -> "));
    let mut status = serde_json::Value::Null;
    wait_until("the length is known", || {
        status = serde_json::from_str(&top(&["--json"])).unwrap();
        status["bytes_total"] == 64_000_000
    });
    assert_eq!(status["source"], site.url("large"));
    let client = godwit::binary("godwit").unwrap();
    let shown = format!("{} top; read last", text(&client));
    terminal.tmux(&["new-window", &shown]);
    terminal.await_all(&["PID", "large -> ", "goodput, a column a second", "up, down"]);
    terminal.press("q");
    wait_until("top has left", || !terminal.shows().contains("PID"));
}
