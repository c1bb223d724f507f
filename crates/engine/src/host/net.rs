//! Names to addresses, listeners in a port range, limits of the process.

use std::{
    fs,
    hash::{BuildHasher, RandomState},
    io,
    net::{IpAddr, SocketAddr, TcpListener, ToSocketAddrs},
    ops::RangeInclusive,
    os::fd::AsFd,
    sync::OnceLock,
    time::Duration,
};

use rustix::process::{
    DumpableBehavior, Resource, Rlimit, getrlimit, set_dumpable_behavior, setrlimit,
};
use socket2::{Domain, Protocol, SockRef, Socket, TcpKeepalive, Type};

/// Ports that passive data channels may use.
pub type PortRange = RangeInclusive<u16>;

/// Connections that wait to be accepted. A sender may open as many channels at once as it has
/// parallelism.
const BACKLOG: i32 = 1024;

/// Random ports that are tried before the kernel looks for one.
const TRIES: u32 = 16;

/// A listener on `address` with a free port, of `range` where there is one (tried from a random
/// start). Backlog 1024, close-on-exec, non-blocking. AddrInUse where the range is used up, and the
/// message says which range.
pub fn listen(
    address: IpAddr,
    range: Option<&PortRange>,
    socket_buffer_bytes: Option<u64>,
) -> io::Result<TcpListener> {
    let Some(range) = range else {
        return listen_anywhere(address, socket_buffer_bytes);
    };
    let (first, last) = (u32::from(*range.start()), u32::from(*range.end()));
    let count = (last + 1).saturating_sub(first);
    let start = random_below(count);
    for i in 0..count {
        // At most `last`, which was a u16.
        let port = u16::try_from(first + (start + i) % count).unwrap_or(u16::MAX);
        match listen_on(SocketAddr::new(address, port), socket_buffer_bytes) {
            Err(e) if e.kind() == io::ErrorKind::AddrInUse => {}
            other => return other,
        }
    }
    Err(io::Error::new(
        io::ErrorKind::AddrInUse,
        format!("all ports {first}-{last} of {address} are in use"),
    ))
}

/// The kernel's own search takes ports for used whose last connections linger in TIME_WAIT. Where
/// each of many files goes over a connection of its own there are thousands of them, and it would
/// walk past them for every file.
fn listen_anywhere(address: IpAddr, socket_buffer_bytes: Option<u64>) -> io::Result<TcpListener> {
    for _ in 0..TRIES {
        let Some(port) = usual_ports().any() else {
            break;
        };
        match listen_on(SocketAddr::new(address, port), socket_buffer_bytes) {
            Err(e) if e.kind() == io::ErrorKind::AddrInUse => {}
            other => return other,
        }
    }
    listen_on(SocketAddr::new(address, 0), socket_buffer_bytes)
}

/// The ports that the kernel gives to sockets that name none. Read once; a process that confines
/// itself reads them before.
pub fn usual_ports() -> &'static UsualPorts {
    static USUAL: OnceLock<UsualPorts> = OnceLock::new();
    USUAL.get_or_init(|| {
        let read = |name| fs::read_to_string(format!("/proc/sys/net/ipv4/{name}"));
        let range = read("ip_local_port_range").unwrap_or_default();
        let reserved = read("ip_local_reserved_ports").unwrap_or_default();
        UsualPorts::of(&range, &reserved)
    })
}

/// See [`usual_ports`].
#[derive(Debug, PartialEq, Eq)]
pub struct UsualPorts {
    range: Option<PortRange>,
    /// In it, and kept for services by the administrator.
    reserved: Vec<PortRange>,
}

impl UsualPorts {
    /// As the kernel writes them: `32768\t60999`, and `8080,9148-9150`.
    fn of(range: &str, reserved: &str) -> Self {
        let words: Vec<_> = range.split_whitespace().collect();
        let reserved = reserved.trim().split(',').filter_map(|ports| {
            let (first, last) = ports.split_once('-').unwrap_or((ports, ports));
            parse_port_range(&format!("{first}-{last}"))
        });
        Self {
            range: parse_port_range(&words.join("-")),
            reserved: reserved.collect(),
        }
    }

    /// One of them by chance; `None` where they are not known, or the one that was hit is reserved.
    fn any(&self) -> Option<u16> {
        let range = self.range.as_ref()?;
        let (first, last) = (u32::from(*range.start()), u32::from(*range.end()));
        let port = u16::try_from(first + random_below(last - first + 1)).ok()?;
        let is_reserved = self.reserved.iter().any(|ports| ports.contains(&port));
        (!is_reserved).then_some(port)
    }
}

fn listen_on(address: SocketAddr, socket_buffer_bytes: Option<u64>) -> io::Result<TcpListener> {
    // Close-on-exec from the start.
    let socket = Socket::new(
        Domain::for_address(address),
        Type::STREAM.nonblocking(),
        Some(Protocol::TCP),
    )?;
    // A port whose last connections linger in TIME_WAIT is free; one that another socket listens on
    // stays refused.
    socket.set_reuse_address(true)?;
    if let Some(bytes) = socket_buffer_bytes {
        // Before listen(2): connections inherit them, and the window scale is agreed on in the
        // handshake.
        let bytes = usize::try_from(bytes.min(i32::MAX as u64)).unwrap_or(usize::MAX);
        socket.set_recv_buffer_size(bytes)?;
        socket.set_send_buffer_size(bytes)?;
    }
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

/// Spreads listeners over a range, nothing more.
fn random_below(bound: u32) -> u32 {
    let random = RandomState::new().hash_one(0_u8) % u64::from(bound.max(1));
    u32::try_from(random).unwrap_or(0)
}

/// `A-B` or `A,B` (as `GLOBUS_TCP_PORT_RANGE` spells it), `1 <= A <= B`.
pub fn parse_port_range(text: &str) -> Option<PortRange> {
    let (first, last) = text.trim().split_once(['-', ','])?;
    let port = |text: &str| -> Option<u16> {
        let text = text.trim();
        // u16::from_str takes a sign.
        text.bytes()
            .all(|b| b.is_ascii_digit())
            .then(|| text.parse().ok())
            .flatten()
    };
    let (first, last) = (port(first)?, port(last)?);
    (1 <= first && first <= last).then_some(first..=last)
}

/// The congestion control that a TCP socket here has from the start.
pub fn usual_congestion() -> io::Result<String> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::TCP))?;
    let name = socket.tcp_congestion()?;
    let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
    Ok(String::from_utf8_lossy(name).into_owned())
}

/// Whether this process may send with the congestion control `name`. The kernel may load it for the
/// asking.
///
/// # Errors
/// NotFound where the kernel does not have it, PermissionDenied where only root may use it
/// (`net.ipv4.tcp_allowed_congestion_control`).
pub fn try_congestion(name: &str) -> io::Result<()> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::TCP))?;
    socket.set_tcp_congestion(name.as_bytes())
}

/// For a connection of short messages beside data: while fewer than four packets are on their way,
/// the kernel doubles the retransmission timeout only from the seventh attempt on. Otherwise losses
/// on a path that data fills can hold a message up for ten seconds. Source: Linux,
/// `Documentation/networking/tcp-thin.rst`.
///
/// # Errors
/// Those of setsockopt(2) for `TCP_THIN_LINEAR_TIMEOUTS`, where the kernel does not have it.
pub fn set_linear_timeouts(socket: &impl AsFd) -> io::Result<()> {
    SockRef::from(socket).set_tcp_thin_linear_timeouts(true)
}

/// Minutes may pass between two messages: a peer that lost power is noticed, and middleboxes are
/// kept awake.
///
/// # Errors
/// Those of setsockopt(2).
pub fn keep_alive(socket: &impl AsFd) -> io::Result<()> {
    let keepalive = TcpKeepalive::new().with_time(Duration::from_secs(60));
    SockRef::from(socket).set_tcp_keepalive(&keepalive)
}

/// Lets this process open as many descriptors as it may: the soft limit becomes the hard one.
/// Returns the limit that holds then, `u64::MAX` for none.
pub fn raise_fd_limit() -> u64 {
    let now = getrlimit(Resource::Nofile);
    let wanted = Rlimit {
        current: now.maximum,
        maximum: now.maximum,
    };
    let reached = match setrlimit(Resource::Nofile, wanted) {
        Ok(()) => now.maximum,
        Err(_) => now.current,
    };
    reached.unwrap_or(u64::MAX)
}

/// Memory of this process goes to no core file, and other processes of the user do not read it.
pub fn forbid_core_dumps() -> io::Result<()> {
    let none = Rlimit {
        current: Some(0),
        maximum: Some(0),
    };
    setrlimit(Resource::Core, none)?;
    Ok(set_dumpable_behavior(DumpableBehavior::NotDumpable)?)
}

/// Addresses of a host by getaddrinfo(3), in the system's order of preference. Blocks; at least one
/// address.
pub fn resolve(host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    // URLs put IPv6 addresses in brackets.
    let bare = host
        .strip_prefix('[')
        .and_then(|h| h.strip_suffix(']'))
        .unwrap_or(host);
    let mut found = Vec::new();
    for address in (bare, port).to_socket_addrs()? {
        if !found.contains(&address) {
            found.push(address);
        }
    }
    if found.is_empty() {
        return Err(io::Error::new(
            io::ErrorKind::AddrNotAvailable,
            format!("host {host} has no address"),
        ));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, TcpStream};

    use super::*;

    const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

    #[test]
    fn usual_ports_are_those_of_the_kernel_without_the_reserved() {
        let usual = UsualPorts::of("40000\t40003\n", "8080,40001-40002\n");
        assert_eq!(usual.reserved, [8080..=8080, 40001..=40002]);
        let given: Vec<_> = (0..1000).filter_map(|_| usual.any()).collect();
        assert!(
            given.contains(&40000) && given.contains(&40003),
            "{given:?}"
        );
        assert!(
            given.iter().all(|port| [40000, 40003].contains(port)),
            "{given:?}"
        );
        assert_eq!(UsualPorts::of("", "\n").any(), None);
        // Everything is reserved: the kernel looks for one.
        assert_eq!(UsualPorts::of("5 6", "1-9").any(), None);
    }

    #[test]
    fn a_listener_without_a_range_has_a_usual_port() {
        let port = listen(HERE, None, None)
            .unwrap()
            .local_addr()
            .unwrap()
            .port();
        let usual = usual_ports().range.clone().unwrap();
        assert!(usual.contains(&port), "{port}, {usual:?}");
    }

    #[test]
    fn port_ranges() {
        assert_eq!(parse_port_range("50000-51000"), Some(50_000..=51_000));
        assert_eq!(parse_port_range(" 50000,51000 "), Some(50_000..=51_000));
        assert_eq!(parse_port_range("7 , 7"), Some(7..=7));
        for wrong in [
            "", "1", "0-5", "9-8", "1-65536", "+1-2", "a-b", "1--2", "-5",
        ] {
            assert_eq!(parse_port_range(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_used_up_range_is_named() {
        let held = listen(HERE, None, Some(1 << 16)).unwrap();
        let port = held.local_addr().unwrap().port();
        let error = listen(HERE, Some(&(port..=port)), None).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
        assert!(
            error
                .to_string()
                .contains(&format!("{port}-{port} of 127.0.0.1")),
            "{error}"
        );
    }

    #[test]
    fn a_free_port_of_the_range_is_found() {
        // Ports that were free a moment ago; others may take one of them, but hardly all.
        let ends: Vec<u16> = (0..2)
            .map(|_| {
                listen(HERE, None, None)
                    .unwrap()
                    .local_addr()
                    .unwrap()
                    .port()
            })
            .collect();
        let range = *ends.iter().min().unwrap()..=*ends.iter().max().unwrap();
        let listener = listen(HERE, Some(&range), None).unwrap();
        let address = listener.local_addr().unwrap();
        assert!(range.contains(&address.port()));
        assert_eq!(
            listener.accept().unwrap_err().kind(),
            io::ErrorKind::WouldBlock
        );
        TcpStream::connect(address).unwrap();
    }

    #[test]
    fn a_known_congestion_control_is_set_and_an_unknown_refused() {
        let usual = usual_congestion().unwrap();
        assert!(!usual.is_empty());
        try_congestion(&usual).unwrap();
        assert!(try_congestion("no such").is_err());
    }

    #[test]
    fn limits_and_names() {
        assert!(raise_fd_limit() >= 256);
        assert_eq!(resolve("127.0.0.1", 5).unwrap(), [SocketAddr::new(HERE, 5)]);
        assert_eq!(resolve("[::1]", 5).unwrap(), ["[::1]:5".parse().unwrap()]);
    }
}
