//! A host of an emulated network: a namespace with an address, limits of its own, and programs.

use std::fs;
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::emulator::{Device, Mode};
use crate::netns::{Namespace, Overlay, View};
use crate::network::Error;
use crate::peers::process::{self, Finished, Options, Process};
use crate::state::{self, RunDir};

/// The name of a host's interface to the emulator.
pub const INTERFACE: &str = "lab0";

/// Packets or segments the interface holds until the emulator reads them. Plenty: what is dropped
/// here is dropped by no model. The kernel's default of 500 is not enough for the first
/// bursts of 128 channels.
const INTERFACE_QUEUE: u32 = 65_536;

/// What a host is like.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct HostConfig {
    /// Its name: letters, digits and `-`.
    pub name: String,
    /// Congestion control: `cubic`, `reno`, `bbr` or what else the kernel has. Default: the
    /// machine's.
    pub congestion_control: Option<String>,
    /// Receive buffers, bytes: minimum, default, maximum of `tcp_rmem`. The kernel tunes a
    /// connection's buffer up to the maximum unless the program asks for a size. Default: the
    /// kernel's.
    pub tcp_rmem: Option<[u64; 3]>,
    /// The same for send buffers: `tcp_wmem`.
    pub tcp_wmem: Option<[u64; 3]>,
    /// Other settings, `net.` and so on, in this order.
    pub sysctls: Vec<(String, String)>,
}

impl HostConfig {
    /// A host with the kernel's defaults.
    pub fn new(name: impl Into<String>) -> HostConfig {
        HostConfig {
            name: name.into(),
            ..HostConfig::default()
        }
    }

    /// Chooses the congestion control.
    #[must_use]
    pub fn congestion_control(mut self, name: impl Into<String>) -> HostConfig {
        self.congestion_control = Some(name.into());
        self
    }

    /// Lets the kernel tune buffers up to `max_bytes`, in both directions.
    #[must_use]
    pub fn tuned_buffers(mut self, max_bytes: u64) -> HostConfig {
        self.tcp_rmem = Some([4096, 131_072.min(max_bytes), max_bytes]);
        self.tcp_wmem = Some([4096, 16_384.min(max_bytes), max_bytes]);
        self
    }

    /// All settings, ours first so that the configuration may override them.
    fn settings(&self) -> Vec<(String, String)> {
        let triple = |[min, default, max]: [u64; 3]| format!("{min} {default} {max}");
        // Without it the threshold that one run ends with is where the next one starts.
        let mut settings = vec![("net.ipv4.tcp_no_metrics_save".to_owned(), "1".to_owned())];
        let mut add = |key: &str, value: Option<String>| {
            settings.extend(value.map(|value| (key.to_owned(), value)));
        };
        add(
            "net.ipv4.tcp_congestion_control",
            self.congestion_control.clone(),
        );
        add("net.ipv4.tcp_rmem", self.tcp_rmem.map(triple));
        add("net.ipv4.tcp_wmem", self.tcp_wmem.map(triple));
        settings.extend(self.sysctls.iter().cloned());
        settings
    }
}

/// A host. Programs started in it are killed when its network is dropped.
#[derive(Debug)]
pub struct Host {
    name: String,
    address: Ipv4Addr,
    namespace: Namespace,
    view: View,
}

impl Host {
    /// Makes the namespace with loopback up, the interface and all settings. `names` are all hosts
    /// of the network.
    pub(crate) fn create(
        config: &HostConfig,
        address: Ipv4Addr,
        mtu: u32,
        mode: Mode,
        names: &[(String, Ipv4Addr)],
        run: &RunDir,
    ) -> Result<(Host, Arc<Device>), Error> {
        let os = |action: &str| Error::os(&config.name, action);
        let directory = run.path().join(&config.name);
        fs::create_dir(&directory).map_err(os("make its directory"))?;
        let overlays = write_overlays(&directory, names).map_err(os("write its files"))?;
        let namespace = Namespace::create().map_err(os("make its namespace"))?;
        let inode = namespace.inode().map_err(os("look at its namespace"))?;
        run.note_namespace(inode)
            .map_err(os("note its namespace"))?;
        // For people: nsenter --net=/run/godwit-lab/RUN/HOST/net tcpdump -i lab0
        let fd = namespace.as_fd().as_raw_fd();
        let target = format!("/proc/{}/fd/{fd}", std::process::id());
        std::os::unix::fs::symlink(target, directory.join("net"))
            .map_err(os("link its namespace"))?;

        let batch = directory.join("ip.batch");
        let commands = format!(
            "link set dev lo up alias \"{mark}\"\n\
             link set dev {INTERFACE} mtu {mtu} txqueuelen {INTERFACE_QUEUE}\n\
             address add {address}/24 dev {INTERFACE}\n\
             link set dev {INTERFACE} up\n",
            mark = run.mark(),
        );
        fs::write(&batch, commands).map_err(os("write its files"))?;
        let device = namespace
            .enter(&View::default(), || {
                // No program here uses IPv6, and its neighbour discovery would be noise.
                let _ = fs::write(state::setting_file("net.ipv6.conf.all.disable_ipv6"), "1");
                let _ = fs::write(
                    state::setting_file("net.ipv6.conf.default.disable_ipv6"),
                    "1",
                );
                let device = Device::open(INTERFACE, mode)?;
                configure_interfaces(&batch)?;
                Ok(Arc::new(device))
            })
            .and_then(|opened| opened)
            .map_err(os("make its interface"))?;
        let host = Host {
            name: config.name.clone(),
            address,
            namespace,
            view: View {
                host_name: config.name.clone(),
                overlays,
            },
        };
        for (key, value) in config.settings() {
            host.set(&key, &value)?;
        }
        Ok((host, device))
    }

    /// Its name, which programs in the network can look up.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its address.
    pub fn address(&self) -> Ipv4Addr {
        self.address
    }

    /// Runs `inside` on a thread in the host: sockets it opens and programs it starts belong to
    /// the host, which is called by its name, `/etc/hosts` names the hosts of the network, and no
    /// name server is asked. So
    /// `host.enter(|| GctServer::serving(root).ip(address).start())` starts a server in it.
    ///
    /// # Errors
    /// [`Error::Os`] when the thread cannot get in.
    ///
    /// # Panics
    /// When `inside` does.
    pub fn enter<T: Send>(&self, inside: impl FnOnce() -> T + Send) -> Result<T, Error> {
        self.namespace
            .enter(&self.view, inside)
            .map_err(Error::os(&self.name, "enter it"))
    }

    /// Starts a program in the host.
    ///
    /// # Errors
    /// [`Error::Os`], [`Error::Program`].
    pub fn spawn(&self, command: Command, options: Options) -> Result<Process, Error> {
        Ok(self.enter(|| Process::spawn(command, options))??)
    }

    /// Runs a program in the host to its end, at most for `timeout`.
    ///
    /// # Errors
    /// [`Error::Os`], [`Error::Program`].
    pub fn run(&self, command: Command, timeout: Duration) -> Result<Finished, Error> {
        Ok(self.enter(|| process::run(command, timeout))??)
    }

    /// Sets one of the host's kernel settings: `net.ipv4.tcp_sack`.
    ///
    /// # Errors
    /// [`Error::Setting`] when there is none of that name or the kernel does not like the value.
    pub fn set(&self, key: &str, value: &str) -> Result<(), Error> {
        self.namespace
            .enter(&View::default(), || {
                fs::write(state::setting_file(key), value)
            })
            .and_then(|written| written)
            .map_err(|source| Error::Setting {
                host: self.name.clone(),
                key: key.to_owned(),
                value: value.to_owned(),
                source,
            })
    }

    /// Reads one of the host's kernel settings.
    ///
    /// # Errors
    /// [`Error::Os`] when there is none of that name.
    pub fn get(&self, key: &str) -> Result<String, Error> {
        self.namespace
            .enter(&View::default(), || {
                fs::read_to_string(state::setting_file(key))
            })
            .and_then(|read| read)
            .map(|text| text.trim().to_owned())
            .map_err(Error::os(&self.name, &format!("read {key}")))
    }

    /// Packets that its interface dropped since no program read them in time: drops that no path
    /// decided on.
    ///
    /// # Errors
    /// [`Error::Os`] when the kernel cannot say.
    pub fn interface_drops(&self) -> Result<u64, Error> {
        let file = "/proc/thread-self/net/dev";
        let text = self
            .namespace
            .enter(&View::default(), || fs::read_to_string(file))
            .and_then(|read| read)
            .map_err(Error::os(&self.name, &format!("read {file}")))?;
        Ok(interface_drops(&text))
    }
}

/// What the interface dropped, from `/proc/net/dev`: `lab0: bytes packets errs drop ...`, eight
/// figures for what came in, then the same for what went out.
fn interface_drops(text: &str) -> u64 {
    let prefix = format!("{INTERFACE}:");
    text.lines()
        .find_map(|line| line.trim_start().strip_prefix(&prefix))
        .and_then(|fields| fields.split_ascii_whitespace().nth(11)?.parse().ok())
        .unwrap_or(0)
}

/// Files that make names of hosts known without a name server. Some programs look up the name of
/// their address or the address of their host's name, and end without an answer.
fn write_overlays(directory: &Path, names: &[(String, Ipv4Addr)]) -> io::Result<Vec<Overlay>> {
    let mut hosts = "127.0.0.1 localhost\n".to_owned();
    for (name, address) in names {
        hosts.push_str(&format!("{address} {name}\n"));
    }
    let files = [
        ("hosts", hosts),
        (
            "nsswitch.conf",
            "passwd: files\ngroup: files\nhosts: files\n".to_owned(),
        ),
    ];
    (files.into_iter())
        .map(|(name, text)| {
            let source = directory.join(name);
            fs::write(&source, text)?;
            Ok(Overlay {
                source,
                target: PathBuf::from("/etc").join(name),
            })
        })
        .collect()
}

fn configure_interfaces(batch: &Path) -> io::Result<()> {
    let output = Command::new("ip").arg("-batch").arg(batch).output()?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(io::Error::other(format!("ip: {}", said.trim())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drops_are_those_of_what_goes_out() {
        let text = "Inter-| Receive | Transmit\n    lo: 1 2 3 4 5 6 7 8 9 10 11 12\n  \
                    lab0: 1 2 3 4 5 6 7 8 9 10 11 42 13 14 15 16\n";
        assert_eq!(interface_drops(text), 42);
        assert_eq!(interface_drops(""), 0);
    }

    #[test]
    fn the_configuration_has_the_last_word() {
        let mut config = HostConfig::new("a")
            .congestion_control("reno")
            .tuned_buffers(1 << 26);
        config.sysctls = vec![("net.ipv4.tcp_no_metrics_save".into(), "0".into())];
        let settings = config.settings();
        let pairs: Vec<(&str, &str)> = (settings.iter())
            .map(|(key, value)| (key.as_str(), value.as_str()))
            .collect();
        assert_eq!(
            pairs,
            [
                ("net.ipv4.tcp_no_metrics_save", "1"),
                ("net.ipv4.tcp_congestion_control", "reno"),
                ("net.ipv4.tcp_rmem", "4096 131072 67108864"),
                ("net.ipv4.tcp_wmem", "4096 16384 67108864"),
                ("net.ipv4.tcp_no_metrics_save", "0"),
            ]
        );
    }
}
