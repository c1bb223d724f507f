//! Bearer tokens: JSON Web Tokens in their compact form (RFC 7515 §7.1, RFC 7519), signed by an
//! issuer whose keys are known.
//!
//! ```text
//!   text ──parse──► Token ──issuer()──► whose keys?
//!        ──verify(keys)──► Claims ──check(audiences, now)──► good
//! ```
//! What goes wrong with tokens elsewhere is not offered: there is no `none` and no shared secret, a
//! key has one algorithm and is used for no other (RFC 8725 §3.1), and claims have one type each.
//! Nothing of a token is trusted, and no key of it used, before its signature is verified.
//!
//! By hand: OpenSSL, which is linked anyway, verifies the signatures; jsonwebtoken brings a second
//! library for them, and reads the clock, which is an argument here.

use std::fmt;
use std::time::{Duration, SystemTime};

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use openssl::bn::BigNum;
use openssl::ec::{EcGroup, EcKey};
use openssl::ecdsa::EcdsaSig;
use openssl::error::ErrorStack;
use openssl::hash::MessageDigest;
use openssl::nid::Nid;
use openssl::pkey::{Id, PKey, Public};
use openssl::rsa::Rsa;
use openssl::sha::sha256;
use openssl::sign::Verifier;
use serde::Deserialize;

use crate::verify::{RSA_BITS_MAX, Strength};

/// Longest token. Tokens of the grids' have some 1.5 KiB.
pub const TOKEN_BYTES_MAX: usize = 16 * 1024;

/// Most keys of an issuer that are considered.
pub const KEYS_MAX: usize = 64;

/// The audience that means every service (WLCG Common JWT Profiles).
pub const ANY_AUDIENCE: &str = "https://wlcg.cern.ch/jwt/v1/any";

/// How far clocks may be apart where a token is not valid yet. That it has expired is taken as it
/// is said.
const SKEW: Duration = Duration::from_secs(60);

/// Why a token is refused. Messages hold no part of it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TokenError {
    /// Three parts in base64url, of which two are JSON of known types.
    #[error("this is no token: {0}")]
    Malformed(&'static str),
    /// `none`, a shared secret, or another that is not taken.
    #[error("the token is not signed by ES256, RS256 or EdDSA")]
    Algorithm,
    /// The issuer has no key of this name and kind.
    #[error("no key of the issuer is the token's: its keys here may be old")]
    UnknownKey,
    /// The issuer did not write this.
    #[error("the token's signature is wrong")]
    Signature,
    /// It is for other services.
    #[error("the token is for another service (its aud names none of this server's)")]
    Audience,
    /// It was good.
    #[error("the token has expired {} s ago", .0.as_secs())]
    Expired(Duration),
    /// It will be good.
    #[error("the token is valid in {} s only: compare clocks", .0.as_secs())]
    NotYetValid(Duration),
}

/// The text of a key set (RFC 7517 §5) cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KeySetError {
    /// No JSON, or another.
    #[error("no JSON Web Key Set: {0}")]
    Malformed(String),
    /// None that could have signed a token.
    #[error("the key set has no key for ES256, RS256 or EdDSA")]
    Empty,
}

/// Algorithms of signatures that are taken (RFC 7518 §3.1, RFC 8037 §3.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Algorithm {
    Es256,
    Rs256,
    EdDsa,
}

/// Public keys of an issuer.
pub struct KeySet {
    keys: Vec<Key>,
}

struct Key {
    id: Option<String>,
    algorithm: Algorithm,
    key: PKey<Public>,
}

/// A token that is not verified yet.
pub struct Token<'a> {
    header: Header,
    claims: Claims,
    /// Header and claims as they were signed.
    signed: &'a str,
    signature: Vec<u8>,
}

#[derive(Deserialize)]
struct Header {
    alg: String,
    kid: Option<String>,
    /// Extensions that must be understood: none is (RFC 7515 §4.1.11).
    crit: Option<serde_json::Value>,
}

/// What a token says. Times are in seconds since 1970.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Claims {
    /// Its issuer.
    #[serde(rename = "iss")]
    pub issuer: String,
    /// For whom.
    #[serde(rename = "sub", default)]
    pub subject: String,
    /// What services may take it.
    #[serde(rename = "aud", default)]
    pub audience: Audience,
    /// From then on it is good for nothing.
    #[serde(rename = "exp")]
    expires: f64,
    #[serde(rename = "nbf")]
    not_before: Option<f64>,
    #[serde(rename = "iat")]
    issued_at: Option<f64>,
    /// What may be done with it, words with a blank between (RFC 8693 §4.2).
    #[serde(default)]
    pub scope: String,
    /// What the client gave the issuer for this login (OpenID Connect Core §2).
    pub nonce: Option<String>,
    /// The client that it was issued to, where several services may take it (the same).
    #[serde(rename = "azp")]
    pub authorized_party: Option<String>,
    /// Version of the WLCG profile that it keeps to.
    #[serde(rename = "wlcg.ver")]
    pub wlcg_version: Option<String>,
}

/// `aud`: one word or several.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub enum Audience {
    /// As text.
    One(String),
    /// As an array.
    Several(Vec<String>),
}

impl<'a> Token<'a> {
    /// Takes a token apart.
    ///
    /// # Errors
    /// [`TokenError::Malformed`].
    pub fn parse(text: &'a str) -> Result<Self, TokenError> {
        if text.len() > TOKEN_BYTES_MAX {
            return Err(TokenError::Malformed("it is too long"));
        }
        let (signed, signature) = text.rsplit_once('.').ok_or(NOT_THREE)?;
        let (header, claims) = signed.split_once('.').ok_or(NOT_THREE)?;
        if claims.contains('.') {
            return Err(NOT_THREE);
        }
        Ok(Self {
            header: serde_json::from_slice(&decoded(header)?)
                .map_err(|_| TokenError::Malformed("its header is not understood"))?,
            claims: serde_json::from_slice(&decoded(claims)?)
                .map_err(|_| TokenError::Malformed("its claims are not understood"))?,
            signed,
            signature: decoded(signature)?,
        })
    }

    /// Who would have issued it: only for finding the keys.
    #[must_use]
    pub fn issuer(&self) -> &str {
        &self.claims.issuer
    }

    /// For whom it would be: for its bearer.
    #[must_use]
    pub fn subject(&self) -> &str {
        &self.claims.subject
    }

    /// What services it is for, as it says: for its bearer, who chooses whom to show it to.
    #[must_use]
    pub fn audience(&self) -> &Audience {
        &self.claims.audience
    }

    /// What it says, if one of `keys` has signed it.
    ///
    /// # Errors
    /// Why it is not trusted.
    pub fn verify(self, keys: &KeySet) -> Result<Claims, TokenError> {
        if self.header.crit.is_some() {
            return Err(TokenError::Malformed("it wants what is not understood"));
        }
        let algorithm = Algorithm::named(&self.header.alg).ok_or(TokenError::Algorithm)?;
        let kid = self.header.kid.as_deref();
        let mut fitting = (keys.keys.iter())
            .filter(|key| key.algorithm == algorithm && (kid.is_none() || key.id.as_deref() == kid))
            .peekable();
        if fitting.peek().is_none() {
            return Err(TokenError::UnknownKey);
        }
        let (signed, signature) = (self.signed.as_bytes(), &self.signature);
        // A fault of OpenSSL's is no proof.
        match fitting.any(|key| key.has_signed(signed, signature).unwrap_or(false)) {
            true => Ok(self.claims),
            false => Err(TokenError::Signature),
        }
    }
}

const NOT_THREE: TokenError = TokenError::Malformed("it has not three parts");

fn decoded(part: &str) -> Result<Vec<u8>, TokenError> {
    let decoded = URL_SAFE_NO_PAD.decode(part);
    decoded.map_err(|_| TokenError::Malformed("a part is no base64url"))
}

impl Claims {
    /// Whether it is for one of `audiences`, and good at `now`.
    ///
    /// # Errors
    /// Why not.
    pub fn check(&self, audiences: &[String], now: SystemTime) -> Result<(), TokenError> {
        if !self
            .audience
            .names()
            .iter()
            .any(|name| audiences.contains(name))
        {
            return Err(TokenError::Audience);
        }
        if let Ok(ago) = now.duration_since(self.expires()) {
            return Err(TokenError::Expired(ago));
        }
        let begins = [self.not_before, self.issued_at].into_iter().flatten();
        let begins = begins.fold(0.0, f64::max);
        // A time that no clock can show never comes.
        let ahead = match time(begins) {
            Some(begins) => begins.duration_since(now).unwrap_or_default(),
            None => Duration::MAX,
        };
        match ahead > SKEW {
            true => Err(TokenError::NotYetValid(ahead)),
            false => Ok(()),
        }
    }

    /// From then on it is good for nothing.
    #[must_use]
    pub fn expires(&self) -> SystemTime {
        // What no clock can show is no promise: it counts as the beginning, when nothing was good.
        time(self.expires).unwrap_or(SystemTime::UNIX_EPOCH)
    }
}

/// RFC 7519 §2, NumericDate. `None` for what no clock can show.
fn time(seconds: f64) -> Option<SystemTime> {
    let since = Duration::try_from_secs_f64(seconds).ok()?;
    SystemTime::UNIX_EPOCH.checked_add(since)
}

impl Audience {
    /// All names.
    #[must_use]
    pub fn names(&self) -> &[String] {
        match self {
            Self::One(only) => std::slice::from_ref(only),
            Self::Several(all) => all,
        }
    }

    /// Whether it means services of `host`: a name is a host name or a URL, with or without a port,
    /// or [`ANY_AUDIENCE`].
    #[must_use]
    pub fn includes_host(&self, host: &str) -> bool {
        let mut names = self.names().iter();
        names.any(|name| name == ANY_AUDIENCE || names_host(name, host))
    }
}

/// Whether `name`, a host name or a URL, with or without a port, is of `host`. A port makes no
/// difference: the certificate that a server shows is for a host.
#[must_use]
pub fn names_host(name: &str, host: &str) -> bool {
    let authority = name.split_once("://").map_or(name, |(_, rest)| rest);
    let end = authority.find(['/', '?', '#']);
    let authority = &authority[..end.unwrap_or(authority.len())];
    let is_digits = |port: &str| port.bytes().all(|digit| digit.is_ascii_digit());
    let named = match authority.rsplit_once(':') {
        // What is left of an address of IPv6 without brackets would be another one.
        Some((named, port))
            if is_digits(port) && (!named.contains(':') || named.ends_with(']')) =>
        {
            named
        }
        _ => authority,
    };
    let inner = named
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'));
    let named = inner.unwrap_or(named);
    let bare = |host: &str| host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase();
    !named.is_empty() && bare(named) == bare(host)
}

impl Default for Audience {
    fn default() -> Self {
        Self::Several(Vec::new())
    }
}

impl Algorithm {
    fn named(name: &str) -> Option<Self> {
        match name {
            "ES256" => Some(Self::Es256),
            "RS256" => Some(Self::Rs256),
            "EdDSA" => Some(Self::EdDsa),
            _ => None,
        }
    }
}

/// A key as RFC 7517 §4 has it. Numbers are big-endian in base64url.
#[derive(Deserialize)]
struct Jwk {
    kty: String,
    kid: Option<String>,
    #[serde(rename = "use")]
    purpose: Option<String>,
    alg: Option<String>,
    crv: Option<String>,
    x: Option<String>,
    y: Option<String>,
    n: Option<String>,
    e: Option<String>,
}

#[derive(Deserialize)]
struct Jwks {
    keys: Vec<serde_json::Value>,
}

impl KeySet {
    /// Reads a key set. Keys of other kinds and for other purposes are skipped, as RFC 7517 §5
    /// wants it.
    ///
    /// # Errors
    /// When it is none, or none of its keys could have signed a token.
    pub fn parse(json: &[u8]) -> Result<Self, KeySetError> {
        let set: Jwks = serde_json::from_slice(json)
            .map_err(|error| KeySetError::Malformed(error.to_string()))?;
        let keys = set.keys.into_iter().take(KEYS_MAX);
        let keys: Vec<Key> = keys
            .filter_map(|key| Key::of(serde_json::from_value(key).ok()?))
            .collect();
        match keys.is_empty() {
            true => Err(KeySetError::Empty),
            false => Ok(Self { keys }),
        }
    }
}

impl Key {
    /// `None`: of no use here.
    fn of(jwk: Jwk) -> Option<Self> {
        let number = |text: &Option<String>| -> Option<BigNum> {
            let bytes = URL_SAFE_NO_PAD.decode(text.as_ref()?).ok()?;
            BigNum::from_slice(&bytes).ok()
        };
        let (name, key) = match (jwk.kty.as_str(), jwk.crv.as_deref()) {
            ("EC", Some("P-256")) => {
                let group = EcGroup::from_curve_name(Nid::X9_62_PRIME256V1).ok()?;
                let (x, y) = (number(&jwk.x)?, number(&jwk.y)?);
                let key = EcKey::from_public_key_affine_coordinates(&group, &x, &y).ok()?;
                key.check_key().ok()?;
                ("ES256", PKey::from_ec_key(key).ok()?)
            }
            ("RSA", _) => {
                let key = Rsa::from_public_components(number(&jwk.n)?, number(&jwk.e)?).ok()?;
                let key = PKey::from_rsa(key).ok()?;
                let bits = Strength::Modern.rsa_bits_min()..=RSA_BITS_MAX;
                ("RS256", Some(key).filter(|key| bits.contains(&key.bits()))?)
            }
            ("OKP", Some("Ed25519")) => {
                let bytes = URL_SAFE_NO_PAD.decode(jwk.x.as_ref()?).ok()?;
                let key = PKey::public_key_from_raw_bytes(&bytes, Id::ED25519).ok()?;
                ("EdDSA", key)
            }
            _ => return None,
        };
        let signs = jwk.purpose.is_none_or(|purpose| purpose == "sig");
        let fits = jwk.alg.is_none_or(|alg| alg == name);
        (signs && fits).then_some(Self {
            id: jwk.kid,
            algorithm: Algorithm::named(name)?,
            key,
        })
    }

    fn has_signed(&self, signed: &[u8], signature: &[u8]) -> Result<bool, ErrorStack> {
        match self.algorithm {
            Algorithm::Rs256 => {
                let mut verifier = Verifier::new(MessageDigest::sha256(), &self.key)?;
                verifier.verify_oneshot(signature, signed)
            }
            Algorithm::EdDsa => {
                Verifier::new_without_digest(&self.key)?.verify_oneshot(signature, signed)
            }
            Algorithm::Es256 => {
                // RFC 7518 §3.4: two numbers of 32 bytes each.
                let Some((r, s)) = signature
                    .split_at_checked(32)
                    .filter(|(_, s)| s.len() == 32)
                else {
                    return Ok(false);
                };
                let (r, s) = (BigNum::from_slice(r)?, BigNum::from_slice(s)?);
                let signature = EcdsaSig::from_private_components(r, s)?;
                signature.verify(&sha256(signed), &*self.key.ec_key()?)
            }
        }
    }
}

/// The claims are unverified, and the rest is a secret.
impl fmt::Debug for Token<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Token").finish_non_exhaustive()
    }
}

impl fmt::Debug for KeySet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KeySet({} keys)", self.keys.len())
    }
}
