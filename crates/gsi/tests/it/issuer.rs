//! Issuers of bearer tokens for tests.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use godwit_gsi::token::KeySet;
use openssl::{
    bn::{BigNum, BigNumContext},
    ec::EcKey,
    ecdsa::EcdsaSig,
    hash::MessageDigest,
    pkey::{PKey, Private},
    rsa::Rsa,
    sha::sha256,
    sign::Signer,
};
use serde_json::{Value, json};

use crate::pki;

pub(crate) fn base64(bytes: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

/// An issuer of tokens.
pub(crate) struct Issuer {
    pub(crate) algorithm: &'static str,
    key: PKey<Private>,
    pub(crate) jwk: Value,
}

impl Issuer {
    pub(crate) fn es256(kid: &str) -> Self {
        let key = pki::ec_key();
        let ec: EcKey<Private> = key.ec_key().unwrap();
        let (mut x, mut y) = (BigNum::new().unwrap(), BigNum::new().unwrap());
        let mut context = BigNumContext::new().unwrap();
        let point = ec.public_key();
        point
            .affine_coordinates(ec.group(), &mut x, &mut y, &mut context)
            .unwrap();
        let [x, y] = [x, y].map(|n| base64(n.to_vec_padded(32).unwrap()));
        let jwk = json!({"kty": "EC", "crv": "P-256", "kid": kid, "use": "sig", "x": x, "y": y});
        Self {
            algorithm: "ES256",
            key,
            jwk,
        }
    }

    pub(crate) fn rs256(kid: &str, bits: u32) -> Self {
        let rsa = Rsa::generate(bits).unwrap();
        let (n, e) = (base64(rsa.n().to_vec()), base64(rsa.e().to_vec()));
        let jwk = json!({"kty": "RSA", "alg": "RS256", "kid": kid, "n": n, "e": e});
        let key = PKey::from_rsa(rsa).unwrap();
        Self {
            algorithm: "RS256",
            key,
            jwk,
        }
    }

    pub(crate) fn ed25519(kid: &str) -> Self {
        let key = PKey::generate_ed25519().unwrap();
        let x = base64(key.raw_public_key().unwrap());
        let jwk = json!({"kty": "OKP", "crv": "Ed25519", "kid": kid, "x": x});
        Self {
            algorithm: "EdDSA",
            key,
            jwk,
        }
    }

    pub(crate) fn sign(&self, header: &Value, claims: &Value) -> String {
        let signed = format!(
            "{}.{}",
            base64(header.to_string()),
            base64(claims.to_string())
        );
        let bytes = signed.as_bytes();
        let signature = match self.algorithm {
            "ES256" => {
                let signature =
                    EcdsaSig::sign(&sha256(bytes), &self.key.ec_key().unwrap()).unwrap();
                let parts = [signature.r(), signature.s()].map(|n| n.to_vec_padded(32).unwrap());
                parts.concat()
            }
            "RS256" => {
                let mut signer = Signer::new(MessageDigest::sha256(), &self.key).unwrap();
                signer.sign_oneshot_to_vec(bytes).unwrap()
            }
            _ => {
                let mut signer = Signer::new_without_digest(&self.key).unwrap();
                signer.sign_oneshot_to_vec(bytes).unwrap()
            }
        };
        format!("{signed}.{}", base64(signature))
    }

    pub(crate) fn token(&self, claims: &Value) -> String {
        let header = json!({"alg": self.algorithm, "typ": "JWT", "kid": self.jwk["kid"]});
        self.sign(&header, claims)
    }

    pub(crate) fn keys(&self) -> KeySet {
        keys(&[&self.jwk])
    }
}

pub(crate) fn keys(all: &[&Value]) -> KeySet {
    KeySet::parse(json!({ "keys": all }).to_string().as_bytes()).unwrap()
}
