//! Network namespaces of our own: each is a machine with its own interfaces, addresses and limits.
//!
//! They have no names, only descriptors, so the kernel removes them with us however we end. What
//! can outlive us are programs started inside, and files; [`state`](crate::state) finds both.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use nix::sched::CloneFlags;
use rustix::mount::MountPropagationFlags;
use rustix::thread::LinkNameSpaceType;

use crate::emulator::{Device, Mode, TUN_NODE};

/// Set for the copy of ourselves that runs in a user namespace, so that it does not try again.
const IN_USER_NAMESPACE_ENV: &str = "GODWIT_LAB_USER_NAMESPACE";

/// Something this machine does not let us do, without which there is no emulated network.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no emulated network here: {what}; {remedy}")]
pub struct Unavailable {
    /// What is missing.
    pub what: String,
    /// What would help.
    pub remedy: String,
}

impl Unavailable {
    pub(crate) fn new(what: impl Into<String>, remedy: impl Into<String>) -> Unavailable {
        Unavailable {
            what: what.into(),
            remedy: remedy.into(),
        }
    }
}

/// Whether emulated networks can be had here: makes a namespace and a TUN device in it, and lets
/// them go.
///
/// # Errors
/// [`Unavailable`], for the first thing that is missing.
pub fn available() -> Result<(), Unavailable> {
    match Command::new("ip").arg("-V").output() {
        Ok(output) if output.status.success() => {}
        _ => {
            return Err(Unavailable::new(
                "the command ip was not found",
                "install the package iproute2",
            ));
        }
    }
    let namespace = Namespace::create().map_err(|error| {
        Unavailable::new(
            format!("network namespaces: {error}"),
            "run as root, or where users may make namespaces as `unshare -Urnm COMMAND`",
        )
    })?;
    let device = namespace.enter(&View::default(), || Device::open("lab0", Mode::Offload));
    match device.and_then(|opened| opened) {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err(Unavailable::new(
            format!("TUN devices: {TUN_NODE} does not exist"),
            "load the kernel module tun, or give this container the device",
        )),
        Err(error) => Err(Unavailable::new(
            format!("TUN devices: {TUN_NODE}: {error}"),
            format!("run as root, or as root: chmod 0666 {TUN_NODE}"),
        )),
    }
}

/// For an ordinary user, starts this program again as root of a user namespace of its own, where
/// networks can be made; returns at once for root. Call it before anything else.
///
/// # Errors
/// [`Unavailable`] when user namespaces are not allowed.
pub fn become_root_of_a_user_namespace() -> Result<(), Unavailable> {
    let inside = std::env::var_os(IN_USER_NAMESPACE_ENV).is_some();
    if inside || rustix::process::geteuid().is_root() {
        return Ok(());
    }
    let unshare = || {
        let mut command = Command::new("unshare");
        command.args(["--user", "--map-root-user", "--net", "--mount", "--"]);
        command
    };
    let allowed = unshare().arg("true").output();
    if !allowed.is_ok_and(|output| output.status.success()) {
        return Err(Unavailable::new(
            "not root, and user namespaces are not allowed",
            "run as root, or as root: sysctl -w user.max_user_namespaces=10000 \
             kernel.apparmor_restrict_unprivileged_userns=0",
        ));
    }
    // Not /proc/self/exe, which would be unshare(1) by the time it is read.
    let program = std::env::current_exe()
        .map_err(|error| Unavailable::new(format!("our own path: {error}"), "run as root"))?;
    let error = unshare()
        .arg(program)
        .args(std::env::args_os().skip(1))
        .env(IN_USER_NAMESPACE_ENV, "1")
        .exec();
    Err(Unavailable::new(format!("unshare: {error}"), "run as root"))
}

/// Whether we are in a user namespace: then nothing of the machine itself can be changed.
pub(crate) fn in_user_namespace() -> bool {
    owner_and_size().is_some_and(|(_, size)| size != u64::from(u32::MAX))
}

/// Who we are outside of user namespaces, as far as that can be seen.
pub(crate) fn outer_uid() -> u32 {
    match owner_and_size() {
        // The map that `unshare --map-root-user` writes.
        Some((owner, 1)) => owner,
        _ => rustix::process::getuid().as_raw(),
    }
}

/// The first line of the map of user ids: whom the first id inside stands for, and how many ids
/// are mapped. All of them, outside of any user namespace.
fn owner_and_size() -> Option<(u32, u64)> {
    let map = std::fs::read_to_string("/proc/self/uid_map").ok()?;
    let mut fields = map.split_ascii_whitespace().skip(1);
    Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
}

/// A network namespace that exists as long as this value, or as a program inside it.
#[derive(Debug)]
pub struct Namespace {
    net: File,
}

/// How the machine looks to programs inside.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct View {
    /// What the machine is called; its own name when empty.
    pub host_name: String,
    /// Files that hide others.
    pub overlays: Vec<Overlay>,
}

/// A file that programs inside see in the place of another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Overlay {
    /// The file.
    pub source: PathBuf,
    /// What it hides.
    pub target: PathBuf,
}

impl Namespace {
    /// A new namespace with nothing but a loopback interface that is down.
    ///
    /// # Errors
    /// What the kernel says: not permitted, too many namespaces.
    pub fn create() -> io::Result<Namespace> {
        on_a_thread(|| {
            nix::sched::unshare(CloneFlags::CLONE_NEWNET)?;
            // Not /proc/self: that is the main thread, which stays where it is.
            let net = File::open("/proc/thread-self/ns/net")?;
            Ok(Namespace { net })
        })?
    }

    /// Runs `inside` on a thread in the namespace, with this view. Sockets it opens belong to the
    /// namespace for good; programs it starts stay there, with the view.
    ///
    /// # Errors
    /// What the kernel says on the way in.
    ///
    /// # Panics
    /// When `inside` does.
    pub fn enter<T: Send>(&self, view: &View, inside: impl FnOnce() -> T + Send) -> io::Result<T> {
        let net = self.net.as_fd();
        on_a_thread(|| {
            move_into(net)?;
            take_name(&view.host_name)?;
            lay_over(&view.overlays)?;
            Ok(inside())
        })?
    }

    /// The number by which `/proc/PID/ns/net` names it; another may get it once this one is gone.
    ///
    /// # Errors
    /// None in practice: what stat(2) says.
    pub fn inode(&self) -> io::Result<u64> {
        Ok(self.net.metadata()?.ino())
    }

    /// The descriptor, which others may open as `/proc/PID/fd/N`.
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        self.net.as_fd()
    }
}

/// Runs `inside` on a thread in the namespace of another process.
pub(crate) fn enter_process<T: Send>(pid: u32, inside: impl FnOnce() -> T + Send) -> io::Result<T> {
    let net = File::open(format!("/proc/{pid}/ns/net"))?;
    Namespace { net }.enter(&View::default(), inside)
}

/// The number of the network namespace of a process; `None` when it is gone or not ours to see.
pub(crate) fn inode_of_process(pid: u32) -> Option<u64> {
    let metadata = std::fs::metadata(format!("/proc/{pid}/ns/net")).ok()?;
    Some(metadata.ino())
}

fn move_into(net: BorrowedFd<'_>) -> io::Result<()> {
    rustix::thread::move_into_link_name_space(net, Some(LinkNameSpaceType::Network))?;
    Ok(())
}

/// Gives the calling thread, and what it starts, another name of the machine.
fn take_name(name: &str) -> io::Result<()> {
    if name.is_empty() {
        return Ok(());
    }
    nix::sched::unshare(CloneFlags::CLONE_NEWUTS)?;
    rustix::system::sethostname(name.as_bytes())?;
    Ok(())
}

/// Gives the calling thread a view of the file system of its own, and puts files in place there.
fn lay_over(overlays: &[Overlay]) -> io::Result<()> {
    if overlays.is_empty() {
        return Ok(());
    }
    nix::sched::unshare(CloneFlags::CLONE_NEWNS)?;
    // Mounts of the machine still show up here, ours do not show up there.
    let ours = MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC;
    rustix::mount::mount_change("/", ours)?;
    for Overlay { source, target } in overlays {
        // A machine may have no such file; then there is nothing to hide.
        if Path::exists(target) {
            rustix::mount::mount_bind(source, target)?;
        }
    }
    Ok(())
}

/// Runs `work` on a thread of its own, since what it does to its thread cannot be undone.
fn on_a_thread<T: Send>(work: impl FnOnce() -> T + Send) -> io::Result<T> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new()
            .name("in-namespace".into())
            .spawn_scoped(scope, work)?;
        match thread.join() {
            Ok(value) => Ok(value),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}
