//! A peer that asks TLS 1.3 for new keys, again and again (RFC 8446 §4.6.3). No library does that
//! on purpose, so the test makes the records.

use std::sync::{Arc, Mutex};

use godwit_gsi::{ftps::Server, wrap::WrapError};
use openssl::{
    hash::MessageDigest,
    pkey::PKey,
    sign::Signer,
    ssl::{Ssl, SslContext, SslMethod},
    symm::{Cipher, encrypt_aead},
};

use crate::grid::Grid;
use crate::pipe::connect;
use crate::pki::Blueprint;

/// What a client of TLS_AES_128_GCM_SHA256 seals with.
struct Keys(Vec<u8>);

impl Keys {
    /// RFC 8446 §7.1, HKDF-Expand-Label without a context, for one block of SHA-256 at most.
    fn expand(&self, label: &str, bytes: u8) -> Vec<u8> {
        let label = format!("tls13 {label}");
        let length = u8::try_from(label.len()).unwrap();
        let info = [&[0, bytes, length], label.as_bytes(), &[0, 1]].concat();
        let key = PKey::hmac(&self.0).unwrap();
        let mut signer = Signer::new(MessageDigest::sha256(), &key).unwrap();
        let mut block = signer.sign_oneshot_to_vec(&info).unwrap();
        block.truncate(bytes.into());
        block
    }

    /// The record that asks for new keys and announces ours; they hold from then on.
    fn ask(&mut self) -> Vec<u8> {
        const HANDSHAKE: u8 = 22;
        let header = [23, 3, 3, 0, 6 + 16];
        let update = [24, 0, 0, 1, 1, HANDSHAKE];
        let (key, iv) = (self.expand("key", 16), self.expand("iv", 12));
        let mut tag = [0; 16];
        let cipher = Cipher::aes_128_gcm();
        let sealed = encrypt_aead(cipher, &key, Some(&iv), &header, &update, &mut tag);
        self.0 = self.expand("traffic upd", 32);
        [&header, &*sealed.unwrap(), &tag].concat()
    }
}

#[test]
fn a_peer_that_keeps_asking_for_new_keys_is_dropped() {
    let grid = Grid::new();
    let host = Blueprint::host("/O=Grid/CN=host", &["localhost"]).issued_by(&grid.authority);
    let mut server = Server::new(&host, None).unwrap().accept().unwrap();
    let secrets = Arc::new(Mutex::new(Vec::new()));
    let told = Arc::clone(&secrets);
    let mut context = SslContext::builder(SslMethod::tls_client()).unwrap();
    context.set_ciphersuites("TLS_AES_128_GCM_SHA256").unwrap();
    context.set_keylog_callback(move |_, line| told.lock().unwrap().push(line.to_owned()));
    let ssl = Ssl::new(&context.build()).unwrap();
    let (_, secured) = connect(ssl, &mut server);
    let mut wrap = secured.wrap;

    let secrets = secrets.lock().unwrap();
    let secret = secrets
        .iter()
        .find_map(|line| line.strip_prefix("CLIENT_TRAFFIC_SECRET_0 "));
    let (_, secret) = secret.unwrap().split_once(' ').unwrap();
    let bytes = (0..secret.len()).step_by(2);
    let bytes = bytes.map(|at| u8::from_str_radix(&secret[at..at + 2], 16).unwrap());
    let mut keys = Keys(bytes.collect());
    let mut clear = Vec::new();
    let mut ask = |wrap: &mut godwit_gsi::Wrap| wrap.open(&keys.ask(), &mut clear);
    // The answers leave with the next data.
    for _ in 0..3 {
        for _ in 0..400 {
            ask(&mut wrap).unwrap();
        }
        let mut sealed = Vec::new();
        wrap.seal(b"226 Done.\r\n", &mut sealed).unwrap();
        assert!(sealed.len() > 400 * 20, "{} bytes", sealed.len());
    }
    let given_up = (0..4000).find_map(|_| ask(&mut wrap).err());
    assert_eq!(given_up, Some(WrapError::Answers));
}
