//! TLS of the kernel for what a protected channel sends: `sendfile` goes from the page cache
//! through the cipher to the card.
//!
//! ```text
//!   keys of ours ──TLS_TX──► the kernel seals what is written ──► 2^24 records, or the peer asks
//!        ▲                                                              │
//!        └──────── the next keys ◄── record "new keys follow" ◄─────────┘
//! ```
//! Only kernels that take new keys are of use (Linux 6.14 and later): the others would have to end
//! a channel where its key is used up. What is received is opened by us, since a peer may change
//! its keys at any time, and no kernel reads on over that. See
//! `docs/adr/0089-kernel-tls-for-senders.md`.
//!
//! By hand: the crate ktls takes its keys from rustls and drives tokio's sockets; ours come from
//! OpenSSL and go to mio's.

use std::{
    io::{self, IoSlice},
    net::{Ipv4Addr, TcpListener, TcpStream},
    os::fd::AsFd,
    sync::LazyLock,
    time::Duration,
};

use godwit_gsi::{
    Records,
    records::{
        Cipher, HANDSHAKE, NEW_KEYS, RECORD_CLEAR_BYTES_MAX, RECORDS_A_KEY_MAX, SendingKeys,
    },
};
use nix::{
    libc,
    sys::socket::{
        setsockopt,
        sockopt::{TcpTlsTx, TcpUlp, TlsCryptoInfo},
    },
};
use socket2::{MsgHdr, SockRef};
use zeroize::Zeroize as _;

/// Salt, then what the kernel calls iv: the one half of the nonce that RFC 8446 does not tell
/// apart.
const SALT_BYTES: usize = libc::TLS_CIPHER_AES_GCM_128_SALT_SIZE;

/// Records that one call makes at most: a channel's turn is half as many bytes.
const RECORDS_A_CALL: u64 = 512;

/// Longest wait for a connection to ourselves.
const PROBE_LIMIT: Duration = Duration::from_secs(1);

/// The kernel seals what is sent on a connection.
pub(crate) struct KernelTls {
    /// Records that it may seal before it needs new keys.
    left: u64,
    /// Records that it may seal with each of them.
    most: u64,
    /// New keys that it has been given.
    renewed: u64,
}

impl KernelTls {
    /// From now on the kernel seals what is written to `socket`, on which nothing that `records`
    /// has sealed waits any more. `None`, and all as it was, where it does not.
    pub(crate) fn begin(socket: &impl AsFd, records: &Records) -> Option<Self> {
        Self::begin_for(socket, records, RECORDS_A_KEY_MAX)
    }

    fn begin_for(socket: &impl AsFd, records: &Records, most: u64) -> Option<Self> {
        if !is_supported() {
            return None;
        }
        let keys = records.sending_keys().ok()??;
        let given = setsockopt(socket, TcpUlp::default(), b"tls")
            .map_err(io::Error::from)
            .and_then(|()| set_keys(socket, &keys));
        if let Err(error) = given {
            // A socket with this protocol and without keys is as any other.
            tracing::debug!(%error, "the kernel does not encrypt a data connection");
            return None;
        }
        Some(Self {
            left: most.saturating_sub(keys.sequence),
            most,
            renewed: 0,
        })
    }

    /// Gives the kernel new keys where they are due: before each call that writes.
    ///
    /// # Errors
    /// `WouldBlock`, and later again; any other ends the connection.
    pub(crate) fn renew_where_due(
        &mut self,
        socket: &impl AsFd,
        records: &mut Records,
    ) -> io::Result<()> {
        if self.left > RECORDS_A_CALL && !records.owes_new_keys() {
            return Ok(());
        }
        send_record(socket, HANDSHAKE, &NEW_KEYS)?;
        let keys = records.renew_sending_keys().map_err(io::Error::other)?;
        let keys = keys.ok_or_else(|| io::Error::other("no new keys"))?;
        set_keys(socket, &keys)?;
        self.left = self.most;
        self.renewed += 1;
        Ok(())
    }

    /// The kernel took `bytes` with one call, in records of its own choice: this counts the most
    /// there can be.
    pub(crate) fn took(&mut self, bytes: usize) {
        let records = 1 + bytes.div_ceil(RECORD_CLEAR_BYTES_MAX) as u64;
        self.left = self.left.saturating_sub(records);
    }
}

/// The kernel has TLS, and takes new keys for what is sent: tried once, on a connection to
/// ourselves.
pub fn is_supported() -> bool {
    static HAD: LazyLock<bool> = LazyLock::new(|| match probe() {
        Ok(()) => true,
        Err(error) => {
            tracing::debug!(%error, "no kernel TLS that renews keys: user space encrypts data");
            false
        }
    });
    *HAD
}

fn probe() -> io::Result<()> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let socket = TcpStream::connect_timeout(&listener.local_addr()?, PROBE_LIMIT)?;
    setsockopt(&socket, TcpUlp::default(), b"tls")?;
    let keys = SendingKeys {
        cipher: Cipher::Aes128Gcm,
        key: vec![0; 16].into(),
        iv: [0; _],
        sequence: 0,
    };
    set_keys(&socket, &keys)?;
    // Linux before 6.14 says EBUSY.
    set_keys(&socket, &keys)
}

fn set_keys(socket: &impl AsFd, keys: &SendingKeys) -> io::Result<()> {
    fn fit<const N: usize>(bytes: &[u8]) -> io::Result<[u8; N]> {
        (bytes.try_into()).map_err(|_| io::Error::other("keys of another cipher"))
    }
    let info = |cipher_type| libc::tls_crypto_info {
        version: libc::TLS_1_3_VERSION,
        cipher_type,
    };
    let (salt, iv) = keys.iv.split_at(SALT_BYTES);
    let (salt, iv, rec_seq) = (fit(salt)?, fit(iv)?, keys.sequence.to_be_bytes());
    let set = match keys.cipher {
        Cipher::Aes128Gcm => {
            let mut info = libc::tls12_crypto_info_aes_gcm_128 {
                info: info(libc::TLS_CIPHER_AES_GCM_128),
                iv,
                key: fit(&keys.key)?,
                salt,
                rec_seq,
            };
            let set = setsockopt(socket, TcpTlsTx, &TlsCryptoInfo::Aes128Gcm(info));
            info.key.zeroize();
            set
        }
        Cipher::Aes256Gcm => {
            let mut info = libc::tls12_crypto_info_aes_gcm_256 {
                info: info(libc::TLS_CIPHER_AES_GCM_256),
                iv,
                key: fit(&keys.key)?,
                salt,
                rec_seq,
            };
            let set = setsockopt(socket, TcpTlsTx, &TlsCryptoInfo::Aes256Gcm(info));
            info.key.zeroize();
            set
        }
        Cipher::ChaCha20Poly1305 => return Err(io::ErrorKind::Unsupported.into()),
    };
    Ok(set?)
}

/// Sends a record of its own, of a type that is not data (linux, Documentation/networking/tls.rst,
/// "Sending TLS control messages").
fn send_record(socket: &impl AsFd, kind: u8, bytes: &[u8]) -> io::Result<()> {
    // struct cmsghdr and one byte, with what fills up its last word.
    let header = size_of::<libc::cmsghdr>();
    let mut control = Vec::with_capacity(header + size_of::<usize>());
    control.extend_from_slice(&(header + 1).to_ne_bytes());
    control.extend_from_slice(&libc::SOL_TLS.to_ne_bytes());
    control.extend_from_slice(&libc::TLS_SET_RECORD_TYPE.to_ne_bytes());
    control.push(kind);
    control.resize(header + size_of::<usize>(), 0);
    let bytes = [IoSlice::new(bytes)];
    let message = MsgHdr::new().with_buffers(&bytes).with_control(&control);
    // The kernel takes all of a record or nothing.
    let send = || SockRef::from(socket).sendmsg(&message, libc::MSG_NOSIGNAL);
    loop {
        match send() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            sent => return sent.map(drop),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io::{Read as _, Seek as _, Write as _},
        thread,
    };

    use godwit_gsi::records::RECORD_BYTES_MAX;
    use rustix::net::SendFlags;

    use super::*;

    const SUITES: [(&str, usize); 2] = [
        ("TLS_AES_128_GCM_SHA256", 32),
        ("TLS_AES_256_GCM_SHA384", 48),
    ];

    fn is_skipped(test: &str) -> bool {
        if !is_supported() {
            eprintln!("skipped: {test}: this kernel has no TLS that takes new keys");
        }
        !is_supported()
    }

    /// Both ends of a connection: a socket each, and what seals and opens.
    fn joined(suite: (&str, usize)) -> [(TcpStream, Records); 2] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let one = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let other = listener.accept().unwrap().0;
        let (name, bytes) = suite;
        let (ours, theirs) = (vec![1; bytes], vec![2; bytes]);
        let records =
            |ours: &[u8], theirs: &[u8]| Records::with_secrets(name, ours, theirs).unwrap();
        [
            (one, records(&ours, &theirs)),
            (other, records(&theirs, &ours)),
        ]
    }

    /// Opens what comes until the end.
    fn open_all((mut socket, mut records): (TcpStream, Records)) -> Vec<u8> {
        let (mut sealed, mut clear) = (Vec::new(), Vec::new());
        let mut buffer = vec![0; RECORD_BYTES_MAX];
        loop {
            let count = socket.read(&mut buffer).unwrap();
            if count == 0 {
                assert!(sealed.is_empty(), "half a record");
                return clear;
            }
            sealed.extend_from_slice(&buffer[..count]);
            let opened = records.open(&mut sealed).expect("opens");
            clear.extend_from_slice(&sealed[..opened.clear]);
            sealed.drain(..opened.taken);
        }
    }

    #[test]
    fn a_kernel_without_it_leaves_a_connection_as_it_was() {
        let [(mut one, records), (mut other, _)] = joined(("TLS_CHACHA20_POLY1305_SHA256", 32));
        // This cipher is never given to it, so that this holds everywhere.
        assert!(KernelTls::begin(&one, &records).is_none());
        one.write_all(b"in clear").unwrap();
        drop(one);
        let mut came = Vec::new();
        other.read_to_end(&mut came).unwrap();
        assert_eq!(came, b"in clear");
    }

    #[test]
    fn kernel_tls_renews_keys_in_time() {
        if is_skipped("kernel_tls_renews_keys_in_time") {
            return;
        }
        for suite in SUITES {
            let [(one, mut records), other] = joined(suite);
            let opens = thread::spawn(move || open_all(other));
            let content: Vec<u8> = (0..3_000_000u32)
                .map(|at| (at.wrapping_mul(31) >> 7).to_le_bytes()[0])
                .collect();
            let mut file = tempfile::tempfile().unwrap();
            file.write_all(&content).unwrap();
            file.rewind().unwrap();
            let most = RECORDS_A_CALL + 8;
            let kernel = KernelTls::begin_for(&one, &records, most);
            let mut kernel = kernel.unwrap();
            let (mut at, mut sent) = (0_u64, Vec::new());
            while at < content.len() as u64 {
                let header = format!("header of {at};");
                kernel.renew_where_due(&one, &mut records).unwrap();
                let flags = SendFlags::MORE;
                let count = rustix::net::send(&one, header.as_bytes(), flags).unwrap();
                assert_eq!(count, header.len());
                kernel.took(count);
                sent.extend_from_slice(header.as_bytes());
                kernel.renew_where_due(&one, &mut records).unwrap();
                let from = usize::try_from(at).unwrap();
                let count = rustix::fs::sendfile(&one, &file, Some(&mut at), 100_000).unwrap();
                kernel.took(count);
                sent.extend_from_slice(&content[from..from + count]);
            }
            assert!(kernel.renewed > 20, "{}", kernel.renewed);
            drop(one);
            assert!(opens.join().unwrap() == sent);
        }
    }

    #[test]
    fn keys_that_the_peer_asks_for_come_before_anything_else() {
        if is_skipped("keys_that_the_peer_asks_for_come_before_anything_else") {
            return;
        }
        for suite in SUITES {
            let [(mut one, mut records), (other, mut theirs)] = joined(suite);
            let mut kernel = KernelTls::begin(&one, &records).unwrap();
            KernelTls::begin(&other, &theirs).unwrap();
            // RFC 8446 §4.6.3: update_requested.
            send_record(&other, HANDSHAKE, &[NEW_KEYS[0], 0, 0, 1, 1]).unwrap();
            let keys = theirs.renew_sending_keys().unwrap().unwrap();
            set_keys(&other, &keys).unwrap();
            let mut asked = vec![0; 27];
            one.read_exact(&mut asked).unwrap();
            assert_eq!(records.open(&mut asked).unwrap().clear, 0);
            assert!(records.owes_new_keys());
            kernel.renew_where_due(&one, &mut records).unwrap();
            assert_eq!(kernel.renewed, 1);
            assert!(!records.owes_new_keys());
            one.write_all(b"under new keys").unwrap();
            drop(one);
            assert_eq!(open_all((other, theirs)), b"under new keys");
        }
    }
}
