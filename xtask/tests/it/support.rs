//! Programs, ours and others', and how skips are printed.

use std::{
    env,
    ffi::OsStr,
    path::{Path, PathBuf},
    process::{Command, Output},
};

/// As in the tests against real peers: what is missing is a failure then, and no skip.
const REQUIRE_PEERS: &str = "GODWIT_REQUIRE_PEERS";

/// Where scripts/install-test-deps.sh puts programs that no package brings.
const BESIDE: &str = "/usr/local/lib/godwit-peers/bin";

fn are_required() -> bool {
    env::var_os(REQUIRE_PEERS).is_some_and(|value| value == "1")
}

/// Where our programs lie: above the tests.
pub(crate) fn programs() -> PathBuf {
    let test = env::current_exe().unwrap();
    test.ancestors().nth(2).unwrap().to_owned()
}

/// A command that is killed after so many seconds.
pub(crate) fn within(seconds: u32, program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new("timeout");
    command.arg("--signal=KILL").arg(seconds.to_string());
    command.arg(program);
    command
}

/// What a command says on standard output; panics with all that it says where it fails.
pub(crate) fn said(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", told(&output));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// All that a command has said.
pub(crate) fn told(output: &Output) -> String {
    let [out, err] = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes));
    format!("{}\n{out}{err}", output.status)
}

/// Whether all of our `programs` are built, and all `tools` of a package each are installed; the
/// skip is told where they are not.
pub(crate) fn have(ours: &[&str], tools: &[(&str, &str)]) -> bool {
    let built = ours.iter().filter(|name| !programs().join(name).exists());
    let unbuilt = built.map(|name| format!("{name} is not built: cargo build --workspace --bins"));
    let paths = env::var_os("PATH").unwrap_or_default();
    let directories: Vec<_> = env::split_paths(&paths).collect();
    let is_there = |tool: &str| {
        directories
            .iter()
            .any(|directory: &PathBuf| directory.join(tool).exists())
    };
    let missing = tools.iter().filter(|(tool, _)| !is_there(tool));
    let missing = missing.map(|(tool, package)| format!("{tool} is missing: install {package}"));
    match unbuilt.chain(missing).next() {
        None => true,
        Some(why) => {
            assert!(!are_required(), "{why}");
            skip(&why);
            false
        }
    }
}

/// A program that scripts/install-test-deps.sh puts beside the others, unless there is one already;
/// the skip is told where there is none.
pub(crate) fn peer(name: &str) -> Option<PathBuf> {
    let home = env::var_os("HOME").unwrap_or_default();
    let paths = env::var_os("PATH").unwrap_or_default();
    let folders = env::split_paths(&paths);
    let folders = folders.chain([Path::new(&home).join("go/bin"), PathBuf::from(BESIDE)]);
    let found = folders
        .map(|folder| folder.join(name))
        .find(|path| path.exists());
    if found.is_none() {
        let why = format!("{name} is missing: scripts/install-test-deps.sh installs it");
        assert!(!are_required(), "{why}");
        skip(&why);
    }
    found
}

/// Whether we are root, and may mount; the skip is told where we are not.
pub(crate) fn am_root() -> bool {
    let ours = said(Command::new("id").arg("-u"));
    let root = ours.trim() == "0";
    if !root {
        skip("it mounts file systems of its own, which needs root");
    }
    root
}

pub(crate) fn skip(why: &str) {
    let thread = std::thread::current();
    eprintln!("skipped {}: {why}", thread.name().unwrap_or("a test"));
}

/// The top of the tree.
pub(crate) fn tree() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}
