//! The environment in which the commands of a page run: a network, a host name, users and
//! directories of their own, so that pages can use real ports, hosts and paths.

use std::{ffi::OsStr, fmt::Write as _, fs, path::Path, process::Command};

use tempfile::TempDir;

use crate::{
    page::{Act, Block, read},
    support::{am_root, have, programs, skip, told, tree, within},
};

/// Seconds. A page takes ten, more on a busy machine; a hang costs a run so much.
const PAGE_LIMIT: u32 = 400;

const SCRIPTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/stage");

/// A file system beneath which the true one stays as it is.
const PROBE: &str = "mount -t tmpfs tmpfs /mnt && mkdir /mnt/upper /mnt/work && \
                     mount -t overlay overlay \
                     -o lowerdir=/etc,upperdir=/mnt/upper,workdir=/mnt/work /etc";

/// Whether there can be a stage here; told as a skip of the running test where not.
pub(crate) fn is_possible() -> bool {
    let ours = ["godwit", "godwitd", "godwit-service", "godwit-lab"];
    let tools = [("unshare", "util-linux"), ("ip", "iproute2")];
    if !have(&ours, &tools) || !am_root() {
        return false;
    }
    let probed = apart().args(["sh", "-c", PROBE]).output().unwrap();
    if !probed.status.success() {
        skip(&told(&probed));
    }
    probed.status.success()
}

/// What follows runs in a network, file systems, processes and a name of its own, and ends with
/// whichever test started it.
fn apart() -> Command {
    let mut command = within(PAGE_LIMIT, "unshare");
    command.args(["--mount", "--uts", "--net", "--pid", "--fork"]);
    command.args(["--kill-child", "--mount-proc", "--"]);
    command
}

/// Runs what a page says, here or in another `root` where the package is installed; panics with all
/// that was said where something is not as the page shows it.
pub(crate) fn play(page: &Path, root: Option<&Path>) {
    let acts = read(page);
    let folder = match root {
        Some(root) => TempDir::new_in(root.join("tmp")).unwrap(),
        None => TempDir::new().unwrap(),
    };
    let place = prepare(&acts, folder.path(), root);
    let mut command = apart();
    command.args(["sh", &format!("{SCRIPTS}/play.sh"), &place]);
    let built = programs();
    let programs = match root {
        Some(_) => OsStr::new(""),
        None => built.as_os_str(),
    };
    command.arg(programs).arg(root.unwrap_or(Path::new("")));
    let played = command.output().unwrap();
    let mut told = told(&played);
    let faults: Vec<_> = blocks(&acts)
        .flat_map(|(block, first)| judge(block, first, folder.path()))
        .collect();
    for fault in &faults {
        let _ = write!(told, "\n{}:{fault}", page.display());
    }
    assert!(played.status.success() && faults.is_empty(), "{told}");
}

/// The blocks that are run, with the number of the first command of each.
fn blocks(acts: &[Act]) -> impl Iterator<Item = (&Block, usize)> {
    let running = acts.iter().filter_map(|act| match act {
        Act::Block(block) if is_run(block) => Some(block),
        _ => None,
    });
    running.scan(0, |next, block| {
        let first = *next;
        *next += block.commands.len();
        Some((block, first))
    })
}

fn is_run(block: &Block) -> bool {
    !block.is("elsewhere") && !block.is("package")
}

/// Writes commands and plan; where they lie, as seen from within.
fn prepare(acts: &[Act], folder: &Path, root: Option<&Path>) -> String {
    let place = match root {
        Some(root) => Path::new("/").join(folder.strip_prefix(root).unwrap()),
        None => folder.to_owned(),
    };
    let place = place.display();
    let mut plan = String::new();
    let mut running = blocks(acts);
    for act in acts {
        match act {
            Act::Stage(name) => {
                let _ = writeln!(plan, "stage {place}/{name}.sh");
            }
            Act::Block(block) if is_run(block) => {
                let (_, first) = running.next().unwrap();
                let _ = write!(plan, "{}", if block.root { "root" } else { "you" });
                for (number, command) in (first..).zip(&block.commands) {
                    let _ = write!(plan, " {number}");
                    fs::write(folder.join(format!("{number}.command")), &command.text).unwrap();
                }
                plan.push('\n');
            }
            Act::Block(_) => {}
        }
    }
    fs::write(folder.join("plan"), plan).unwrap();
    let copied = Command::new("cp")
        .current_dir(tree())
        .args(["-R", &format!("{SCRIPTS}/."), "packaging"])
        .arg(folder)
        .status();
    assert!(copied.unwrap().success());
    fs::create_dir(folder.join("etc")).unwrap();
    // Users write here what their commands say.
    let everybody = Command::new("chmod").arg("1777").arg(folder).status();
    assert!(everybody.unwrap().success());
    place.to_string()
}

/// What is not as the page says.
fn judge(block: &Block, first: usize, folder: &Path) -> Vec<String> {
    let mut faults = Vec::new();
    let last = block.commands.len() - 1;
    for (place, command) in block.commands.iter().enumerate() {
        let of = |what: &str| fs::read_to_string(folder.join(format!("{}.{what}", first + place)));
        let (line, text) = (block.line, &command.text);
        let Ok(status) = of("status") else {
            faults.push(format!("{line}: {text}: was not run"));
            break;
        };
        let output = of("output").unwrap_or_default();
        if (status.trim() != "0") != (block.is("fails") && place == last) {
            faults.push(format!("{line}: {text}: status {}{output}", status));
        } else if let Some(shown) = command.unsaid(&output) {
            faults.push(format!(
                "{line}: {text}: does not say {shown:?} but:\n{output}"
            ));
        }
    }
    faults
}
