//! The record protection of TLS 1.3, once the handshake is over (RFC 8446 §5, §4.6, §6, §7.2 and
//! §7.3).
//!
//! Bounded: one record at a time, and [`MESSAGES_BYTES_MAX`] of messages that span several.
//! Whatever the peer sends costs no more than opening it.

use ring::{
    aead::{
        AES_128_GCM, AES_256_GCM, Aad, Algorithm, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey,
    },
    hkdf::{HKDF_SHA256, HKDF_SHA384, KeyType, Prk},
};
use zeroize::Zeroizing;

use crate::outgoing::Outgoing;
use crate::record::{
    HEADER_BYTES, NEW_KEYS_BYTES, Opened, RECORD_CLEAR_BYTES_MAX, TAG_BYTES, WrapError,
    record_bytes,
};

/// Of each of the three suites.
const NONCE_BYTES: usize = 12;

/// Records under one key of ours. RFC 8446 §5.5 lets AES-GCM seal 2^24.5 full records: new keys
/// come after 256 GiB.
pub(crate) const RECORDS_MAX: u64 = 1 << 24;

/// Longest message of the handshake that may come behind it: a ticket can hold a chain of
/// certificates.
const MESSAGES_BYTES_MAX: usize = 64 * 1024;

const NEW_SESSION_TICKET: u8 = 4;
const KEY_UPDATE: u8 = 24;
/// A message that new keys follow, and none are asked for (RFC 8446 §4.6.3).
pub(crate) const NEW_KEYS: [u8; 5] = [KEY_UPDATE, 0, 0, 1, 0];
const CLOSE_NOTIFY: u8 = 0;
const USER_CANCELED: u8 = 90;

/// What a record is of. Its number is the byte behind the clear bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Content {
    Alert = 21,
    Handshake = 22,
    Data = 23,
}

/// What records are sealed with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cipher {
    /// AES with 128 bits in Galois/counter mode.
    Aes128Gcm,
    /// With 256.
    Aes256Gcm,
    /// ChaCha20 and Poly1305.
    ChaCha20Poly1305,
}

/// What seals the records that we send, for the kernel to do it in our stead (RFC 8446 §5.2, §5.3
/// and §7.3).
pub struct SendingKeys {
    /// What they are of.
    pub cipher: Cipher,
    /// As many bytes as the cipher has.
    pub key: Zeroizing<Vec<u8>>,
    /// What numbers of records are combined with.
    pub iv: [u8; NONCE_BYTES],
    /// Number of the next record.
    pub sequence: u64,
}

/// A cipher suite.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Suite {
    cipher: Cipher,
    hkdf: ring::hkdf::Algorithm,
}

impl Suite {
    /// By OpenSSL's name, which is the registry's.
    pub(crate) fn named(name: &str) -> Option<Self> {
        let (cipher, hkdf) = match name {
            "TLS_AES_128_GCM_SHA256" => (Cipher::Aes128Gcm, HKDF_SHA256),
            "TLS_AES_256_GCM_SHA384" => (Cipher::Aes256Gcm, HKDF_SHA384),
            "TLS_CHACHA20_POLY1305_SHA256" => (Cipher::ChaCha20Poly1305, HKDF_SHA256),
            _ => return None,
        };
        Some(Self { cipher, hkdf })
    }

    fn aead(self) -> &'static Algorithm {
        match self.cipher {
            Cipher::Aes128Gcm => &AES_128_GCM,
            Cipher::Aes256Gcm => &AES_256_GCM,
            Cipher::ChaCha20Poly1305 => &CHACHA20_POLY1305,
        }
    }
}

/// Both directions of a connection.
pub(crate) struct Traffic {
    ours: Keys,
    theirs: Keys,
    /// Of a message that is not all here.
    message: Vec<u8>,
    /// The peer wants new keys of us before anything else.
    owes_keys: bool,
    is_closed: bool,
    /// Something came that was not the next record: nothing opens any more.
    is_broken: bool,
}

impl Traffic {
    /// `ours`, `theirs`: the application traffic secrets of the handshake. `None` when they are not
    /// of the suite.
    pub(crate) fn new(suite: Suite, ours: &[u8], theirs: &[u8]) -> Option<Self> {
        Some(Self {
            ours: Keys::new(suite, ours)?,
            theirs: Keys::new(suite, theirs)?,
            message: Vec::new(),
            owes_keys: false,
            is_closed: false,
            is_broken: false,
        })
    }

    /// Seals what was put into `outgoing`, all of it under one key.
    pub(crate) fn seal(
        &mut self,
        content: Content,
        outgoing: &mut Outgoing,
    ) -> Result<(), WrapError> {
        let end = self.ours.sequence.saturating_add(outgoing.records());
        let new_keys = match std::mem::take(&mut self.owes_keys) || end > RECORDS_MAX {
            true => Some(self.ours.announce_new()?),
            false => None,
        };
        outgoing.seal_in_place(new_keys, |record| self.ours.seal(content, record))
    }

    /// Says that nothing follows, in place of what was put.
    pub(crate) fn close(&mut self, outgoing: &mut Outgoing) {
        const WARNING: u8 = 1;
        outgoing.put(&[WARNING, CLOSE_NOTIFY]);
        // A stream that is broken says nothing.
        drop(self.seal(Content::Alert, outgoing));
    }

    /// What seals what we send.
    pub(crate) fn sending_keys(&self) -> Result<SendingKeys, WrapError> {
        self.ours.sending_keys()
    }

    /// The same, the next generation, which the peer must know of.
    pub(crate) fn renew_sending_keys(&mut self) -> Result<SendingKeys, WrapError> {
        self.owes_keys = false;
        self.ours.renew()?;
        self.ours.sending_keys()
    }

    pub(crate) fn owes_keys(&self) -> bool {
        self.owes_keys
    }

    pub(crate) fn open(&mut self, bytes: &mut [u8]) -> Result<Opened, WrapError> {
        if self.is_broken {
            return Err(broken("it was broken before"));
        }
        let opened = self.open_records(bytes);
        self.is_broken = opened.is_err();
        opened
    }

    fn open_records(&mut self, bytes: &mut [u8]) -> Result<Opened, WrapError> {
        let (mut clear, mut taken) = (0, 0);
        while !self.is_closed
            && let Some(length) = record_bytes(&bytes[taken..])?
        {
            let end = taken + length;
            let (content, count) = self.theirs.open(&mut bytes[clear..end], taken - clear)?;
            taken = end;
            let came = clear..clear + count;
            match content {
                DATA if self.message.is_empty() => clear = came.end,
                HANDSHAKE if count > 0 => self.hear_messages(&bytes[came])?,
                ALERT => self.hear_alert(&bytes[came])?,
                _ => return Err(broken("a record that has no place here")),
            }
        }
        Ok(Opened {
            clear,
            // Nothing counts that comes behind the end.
            taken: if self.is_closed { bytes.len() } else { taken },
            is_closed: self.is_closed,
        })
    }

    /// RFC 8446 §4.6: tickets, which we never use, and new keys.
    fn hear_messages(&mut self, bytes: &[u8]) -> Result<(), WrapError> {
        self.message.extend_from_slice(bytes);
        while let [kind, high, middle, low, rest @ ..] = &*self.message {
            let length = u32::from_be_bytes([0, *high, *middle, *low]) as usize;
            if length > MESSAGES_BYTES_MAX {
                return Err(broken("an overlong message behind the handshake"));
            }
            let Some(body) = rest.get(..length) else {
                break;
            };
            let is_last = rest.len() == length;
            match (*kind, body) {
                (NEW_SESSION_TICKET, _) => {}
                // The next record has the new keys, so that nothing may follow in this one.
                (KEY_UPDATE, [asks @ 0..=1]) if is_last => {
                    // An answer to many requests is one update (§4.6.3).
                    self.owes_keys |= *asks == 1;
                    self.theirs.renew()?;
                }
                _ => return Err(broken("an unexpected message behind the handshake")),
            }
            let next = self.message.len() - (rest.len() - length);
            self.message.drain(..next);
        }
        Ok(())
    }

    fn hear_alert(&mut self, alert: &[u8]) -> Result<(), WrapError> {
        match alert {
            [_, CLOSE_NOTIFY] => self.is_closed = true,
            // An end follows.
            [_, USER_CANCELED] => {}
            [_, number] => {
                return Err(broken(&format!(
                    "the peer has sent alert {number} ({})",
                    alert_name(*number)
                )));
            }
            _ => return Err(broken("an alert of a wrong length")),
        }
        Ok(())
    }
}

const ALERT: u8 = Content::Alert as u8;
const HANDSHAKE: u8 = Content::Handshake as u8;
const DATA: u8 = Content::Data as u8;

/// Those of RFC 8446 §6.2 that may come behind a handshake.
fn alert_name(number: u8) -> &'static str {
    match number {
        10 => "unexpected message",
        20 => "bad record MAC",
        22 => "record overflow",
        42 => "bad certificate",
        43 => "unsupported certificate",
        44 => "certificate revoked",
        45 => "certificate expired",
        46 => "certificate unknown",
        47 => "illegal parameter",
        48 => "unknown CA",
        49 => "access denied",
        50 => "decode error",
        51 => "decrypt error",
        80 => "internal error",
        116 => "certificate required",
        _ => "of another kind",
    }
}

/// What one direction is sealed with.
struct Keys {
    suite: Suite,
    secret: Zeroizing<Vec<u8>>,
    key: LessSafeKey,
    iv: [u8; NONCE_BYTES],
    /// Records so far with this key.
    sequence: u64,
}

impl Keys {
    fn new(suite: Suite, secret: &[u8]) -> Option<Self> {
        let secret = Zeroizing::new(secret.to_vec());
        if secret.len() != suite.hkdf.len() {
            return None;
        }
        let key = expand_key(suite, &secret)?;
        let iv = expand(suite, &secret, b"iv", NONCE_BYTES)?;
        Some(Self {
            key: LessSafeKey::new(UnboundKey::new(suite.aead(), &key).ok()?),
            iv: (**iv).try_into().ok()?,
            suite,
            secret,
            sequence: 0,
        })
    }

    /// The next generation (RFC 8446 §7.2).
    fn renew(&mut self) -> Result<(), WrapError> {
        let next = expand(self.suite, &self.secret, b"traffic upd", self.secret.len());
        let keys = next.and_then(|secret| Self::new(self.suite, &secret));
        *self = keys.ok_or_else(|| broken("no new keys"))?;
        Ok(())
    }

    fn sending_keys(&self) -> Result<SendingKeys, WrapError> {
        let key = expand_key(self.suite, &self.secret);
        Ok(SendingKeys {
            cipher: self.suite.cipher,
            key: key.ok_or_else(|| broken("no key"))?,
            iv: self.iv,
            sequence: self.sequence,
        })
    }

    /// The record that says that the next has new keys, and these.
    fn announce_new(&mut self) -> Result<[u8; NEW_KEYS_BYTES], WrapError> {
        let mut record = [0; NEW_KEYS_BYTES];
        record[HEADER_BYTES..][..NEW_KEYS.len()].copy_from_slice(&NEW_KEYS);
        self.seal(Content::Handshake, &mut record)?;
        self.renew()?;
        Ok(record)
    }

    /// Seals a record in whose midst, between what is its header and its tail, are the clear bytes.
    fn seal(&mut self, content: Content, record: &mut [u8]) -> Result<(), WrapError> {
        let too_short = || broken("a record too short");
        let too_long = |_| broken("a record too long");
        let (head, body) = (record.split_first_chunk_mut()).ok_or_else(too_short)?;
        *head = u16::try_from(body.len()).map(header).map_err(too_long)?;
        let (body, tag) = (body.split_last_chunk_mut::<TAG_BYTES>()).ok_or_else(too_short)?;
        *body.last_mut().ok_or_else(too_short)? = content as u8;
        let (nonce, aad) = (self.nonce()?, Aad::from(*head));
        let sealed = self.key.seal_in_place_separate_tag(nonce, aad, body);
        let sealed = sealed.map_err(|_| broken("it cannot be sealed"))?;
        tag.copy_from_slice(sealed.as_ref());
        Ok(())
    }

    /// Opens the record that is at `start` of `bytes` and all the rest of it: its clear bytes are
    /// at the beginning then. What it is of, and how many they are.
    fn open(&mut self, bytes: &mut [u8], start: usize) -> Result<(u8, usize), WrapError> {
        let body = start + HEADER_BYTES;
        let header: [u8; HEADER_BYTES] = bytes
            .get(start..body)
            .and_then(|header| header.try_into().ok())
            .ok_or_else(|| broken("no record of TLS"))?;
        if header[..3] != [DATA, 3, 3] {
            return Err(broken("a record that is not protected"));
        }
        let nonce = self.nonce()?;
        let opened = self
            .key
            .open_within(nonce, Aad::from(header), bytes, body..)
            .map_err(|_| broken("a record was changed, or one is missing"))?;
        // Behind the content is its type, behind that nothing but zeros (§5.4).
        let padding = opened.iter().rev().take_while(|&&byte| byte == 0).count();
        match opened.split_at(opened.len() - padding).0 {
            [content @ .., kind] if content.len() <= RECORD_CLEAR_BYTES_MAX => {
                Ok((*kind, content.len()))
            }
            _ => Err(broken("a record without a type, or too long")),
        }
    }

    /// Each is used once (§5.3).
    fn nonce(&mut self) -> Result<Nonce, WrapError> {
        let mut nonce = self.iv;
        for (byte, number) in nonce[NONCE_BYTES - 8..]
            .iter_mut()
            .zip(self.sequence.to_be_bytes())
        {
            *byte ^= number;
        }
        self.sequence =
            (self.sequence.checked_add(1)).ok_or_else(|| broken("no number is left"))?;
        Ok(Nonce::assume_unique_for_key(nonce))
    }
}

fn header(length: u16) -> [u8; HEADER_BYTES] {
    let [high, low] = length.to_be_bytes();
    [DATA, 3, 3, high, low]
}

fn expand_key(suite: Suite, secret: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
    expand(suite, secret, b"key", suite.aead().key_len())
}

/// HKDF-Expand-Label without a context (RFC 8446 §7.1).
fn expand(suite: Suite, secret: &[u8], label: &[u8], bytes: usize) -> Option<Zeroizing<Vec<u8>>> {
    const PREFIX: &[u8] = b"tls13 ";
    struct Bytes(usize);
    impl KeyType for Bytes {
        fn len(&self) -> usize {
            self.0
        }
    }
    let length = u16::try_from(bytes).ok()?.to_be_bytes();
    let label_length = [u8::try_from(PREFIX.len() + label.len()).ok()?];
    let info = [&length[..], &label_length, PREFIX, label, &[0]];
    let mut out = Zeroizing::new(vec![0; bytes]);
    let secret = Prk::new_less_safe(suite.hkdf, secret);
    let expanded = secret.expand(&info, Bytes(bytes)).ok()?;
    expanded.fill(&mut out).ok()?;
    Some(out)
}

fn broken(why: &str) -> WrapError {
    WrapError::Tls(why.into())
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*};

    use super::*;

    /// Both ends of a connection whose handshake had these secrets.
    fn ends() -> (Traffic, Traffic) {
        let suite = Suite::named("TLS_AES_128_GCM_SHA256").unwrap();
        let (one, other) = ([1; 32], [2; 32]);
        (
            Traffic::new(suite, &one, &other).unwrap(),
            Traffic::new(suite, &other, &one).unwrap(),
        )
    }

    fn seal(from: &mut Traffic, content: Content, clear: &[u8]) -> Vec<u8> {
        let mut outgoing = Outgoing::default();
        assert_eq!(outgoing.put(clear), clear.len());
        from.seal(content, &mut outgoing).unwrap();
        outgoing.unsent().to_vec()
    }

    fn open(to: &mut Traffic, mut bytes: Vec<u8>) -> Result<Vec<u8>, WrapError> {
        let opened = to.open(&mut bytes)?;
        assert_eq!(opened.taken, bytes.len());
        bytes.truncate(opened.clear);
        Ok(bytes)
    }

    const ASK: [u8; 5] = [KEY_UPDATE, 0, 0, 1, 1];

    #[test]
    fn secrets_are_of_their_suite() {
        for (name, bytes) in [
            ("TLS_AES_128_GCM_SHA256", 32),
            ("TLS_AES_256_GCM_SHA384", 48),
            ("TLS_CHACHA20_POLY1305_SHA256", 32),
        ] {
            let suite = Suite::named(name).unwrap();
            for (length, fits) in [(bytes, true), (bytes - 1, false), (0, false)] {
                let secret = vec![1; length];
                assert_eq!(Traffic::new(suite, &secret, &secret).is_some(), fits);
            }
        }
        assert!(Suite::named("ECDHE-RSA-AES128-GCM-SHA256").is_none());
    }

    /// RFC 8448 §3, "{server} derive write traffic keys for application data", and the record of
    /// the client's 50 bytes.
    #[test]
    fn keys_and_records_are_those_of_the_published_trace() {
        let bytes = |hex: &str| -> Vec<u8> {
            let hex: String = hex.split_whitespace().collect();
            let at = (0..hex.len()).step_by(2);
            at.map(|i| u8::from_str_radix(&hex[i..i + 2], 16).unwrap())
                .collect()
        };
        let suite = Suite::named("TLS_AES_128_GCM_SHA256").unwrap();
        let client = bytes(
            "9e 40 64 6c e7 9a 7f 9d c0 5a f8 88 9b ce 65 52 87 5a fa 0b 06 df 00 87 f7 92 eb b7 \
             c1 75 04 a5",
        );
        let mut traffic = Traffic::new(suite, &client, &[0; 32]).unwrap();
        let clear: Vec<u8> = (0..50).collect();
        let sealed = bytes(
            "17 03 03 00 43 a2 3f 70 54 b6 2c 94 d0 af fa fe 82 28 ba 55 cb ef ac ea 42 f9 14 aa \
             66 bc ab 3f 2b 98 19 a8 a5 b4 6b 39 5b d5 4a 9a 20 44 1e 2b 62 97 4e 1f 5a 62 92 a2 \
             97 70 14 bd 1e 3d ea e6 3a ee bb 21 69 49 15 e4",
        );
        assert_eq!(seal(&mut traffic, Content::Data, &clear), sealed);
    }

    #[test]
    fn new_keys_are_taken_and_asked_for_once_answered_once() {
        let (mut one, mut other) = ends();
        for _ in 0..1000 {
            let ask = seal(&mut one, Content::Handshake, &ASK);
            one.ours.renew().unwrap();
            assert_eq!(open(&mut other, ask), Ok(Vec::new()));
        }
        let sealed = seal(&mut one, Content::Data, b"under new keys");
        assert_eq!(open(&mut other, sealed), Ok(b"under new keys".to_vec()));
        // One record with the answer, one with what is said.
        let sealed = seal(&mut other, Content::Data, b"so do I");
        assert_eq!(sealed.len(), 2 * (HEADER_BYTES + 1 + TAG_BYTES) + 5 + 7);
        assert_eq!(open(&mut one, sealed), Ok(b"so do I".to_vec()));
        let sealed = seal(&mut other, Content::Data, b"once");
        assert_eq!(sealed.len(), HEADER_BYTES + 4 + 1 + TAG_BYTES);
        assert_eq!(open(&mut one, sealed), Ok(b"once".to_vec()));
    }

    #[test]
    fn no_key_seals_more_than_it_may() {
        let (mut one, mut other) = ends();
        one.ours.sequence = RECORDS_MAX - 1;
        other.theirs.sequence = RECORDS_MAX - 1;
        let clear = vec![3; 3 * RECORD_CLEAR_BYTES_MAX];
        let sealed = seal(&mut one, Content::Data, &clear);
        assert_eq!(one.ours.sequence, 3, "none of them had the old keys");
        assert!(open(&mut other, sealed) == Ok(clear));
        one.ours.sequence = RECORDS_MAX - 1;
        other.theirs.sequence = RECORDS_MAX - 1;
        let sealed = seal(&mut one, Content::Data, b"the last");
        assert_eq!(one.ours.sequence, RECORDS_MAX);
        assert_eq!(open(&mut other, sealed), Ok(b"the last".to_vec()));
    }

    #[test]
    fn a_ticket_may_span_records_without_interruption() {
        let (mut one, mut other) = ends();
        let ticket = [&[NEW_SESSION_TICKET, 0, 0x4e, 0x20][..], &[5; 20_000], &ASK].concat();
        let mut sealed = seal(&mut one, Content::Handshake, &ticket);
        one.ours.renew().unwrap();
        sealed.extend(seal(&mut one, Content::Data, b"then"));
        assert_eq!(open(&mut other, sealed), Ok(b"then".to_vec()));

        let sealed = seal(&mut one, Content::Handshake, &ticket[..100]);
        assert_eq!(open(&mut other, sealed), Ok(Vec::new()));
        let sealed = seal(&mut one, Content::Data, b"between");
        assert!(open(&mut other, sealed).is_err());
    }

    #[test]
    fn messages_forbidden_after_the_handshake_are_refused() {
        let refused = |content: Content, clear: &[u8]| {
            let (mut one, mut other) = ends();
            let sealed = seal(&mut one, content, clear);
            let error = open(&mut other, sealed).expect_err("refused");
            assert!(one.open(&mut []).is_ok());
            error.to_string()
        };
        for clear in [
            &[KEY_UPDATE, 0, 0, 1, 2][..],
            &[KEY_UPDATE, 0, 0, 2, 1, 1],
            &[KEY_UPDATE, 0, 0, 0],
            // Something behind new keys.
            &[KEY_UPDATE, 0, 0, 1, 0, NEW_SESSION_TICKET],
            // A hello, a request for a certificate; longer than anything.
            &[1, 0, 0, 0],
            &[13, 0, 0, 1, 0],
            &[NEW_SESSION_TICKET, 1, 0, 1],
        ] {
            refused(Content::Handshake, clear);
        }
        assert!(refused(Content::Alert, &[2, 80]).ends_with("alert 80 (internal error)"));
        assert!(refused(Content::Alert, &[2, 200]).ends_with("alert 200 (of another kind)"));
        refused(Content::Alert, &[1]);
        refused(Content::Alert, &[1, 0, 0]);
    }

    #[test]
    fn zeros_behind_the_type_are_padding() {
        let (mut one, mut other) = ends();
        for (clear, opened) in [
            (&b"text\x17\0\0\0"[..], Some(&b"text"[..])),
            (b"\0\0\x17", Some(b"\0\0")),
            (b"\x17", Some(b"")),
            // Nothing says what it is of; nothing at all.
            (b"\0\0\0", None),
            (b"", None),
            // An empty message; one of a type that there is not.
            (b"\x16", None),
            (b"text\x18", None),
        ] {
            let mut sealed = [&[0; HEADER_BYTES][..], clear].concat();
            // As `seal`, without a type.
            let length = u16::try_from(clear.len() + TAG_BYTES).unwrap();
            sealed[..HEADER_BYTES].copy_from_slice(&header(length));
            let nonce = one.ours.nonce().unwrap();
            let aad = Aad::from(header(length));
            let body = &mut sealed[HEADER_BYTES..];
            let tag = one.ours.key.seal_in_place_separate_tag(nonce, aad, body);
            sealed.extend_from_slice(tag.unwrap().as_ref());
            assert_eq!(
                open(&mut other, sealed).ok().as_deref(),
                opened,
                "{clear:?}"
            );
        }
    }

    proptest! {
        #[test]
        fn any_record_opens_or_is_refused(
            said in vec((0usize..3, vec(prop_oneof![any::<u8>(), 0..26u8], 0..40)), 0..12),
        ) {
            let (mut one, mut other) = ends();
            for (kind, clear) in said {
                let content = [Content::Alert, Content::Handshake, Content::Data][kind];
                let sealed = seal(&mut one, content, &clear);
                match open(&mut other, sealed) {
                    Ok(opened) if content == Content::Data && !other.is_closed => {
                        prop_assert_eq!(opened, clear);
                    }
                    Ok(opened) => prop_assert!(opened.is_empty()),
                    Err(WrapError::Tls(_)) => break,
                    Err(error) => prop_assert!(false, "{error}"),
                }
                if other.theirs.sequence == 0 {
                    one.ours.renew().unwrap();
                }
            }
        }
    }
}
