//! A directory of CAs as sites have it.

use std::fs;
use std::path::Path;
use std::time::SystemTime;

use godwit_gsi::cert::{Certificate, Credential};
use godwit_gsi::verify::{Directory, Peer, Policy, Refusal, verify};
use openssl::asn1::{Asn1Integer, Asn1Object, Asn1OctetString};
use openssl::bn::BigNum;
use openssl::hash::MessageDigest;
use openssl::x509::{X509CrlBuilder, X509Extension, X509RevokedBuilder};
use tempfile::TempDir;

use crate::pki::{self, Blueprint, DAY};

/// A CA in a directory, with a policy that lets it sign everything beneath `/O=Grid`.
pub(crate) struct Grid {
    folder: TempDir,
    now: SystemTime,
    pub(crate) authority: Credential,
    pub(crate) user: Credential,
}

impl Grid {
    pub(crate) fn new() -> Self {
        Self::with(Blueprint::authority("/O=Grid/CN=CA"))
    }

    pub(crate) fn with(authority: Blueprint) -> Self {
        let now = authority.now;
        let authority = authority.self_signed();
        let user = Blueprint::user("/O=Grid/CN=Jo").at(now);
        let grid = Self {
            folder: TempDir::new().expect("a folder"),
            now,
            user: user.issued_by(&authority),
            authority,
        };
        grid.install(grid.authority.certificate());
        grid.set_policy(grid.authority.certificate(), r#"'"/O=Grid/*"'"#);
        grid
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn anchors(&self) -> Directory {
        Directory::new(self.path().to_owned())
    }

    pub(crate) fn install(&self, authority: &Certificate) {
        let pem = authority.as_x509().to_pem().expect("pem");
        for number in 0.. {
            let name = format!("{:08x}.{number}", authority.subject_hash());
            if !self.path().join(&name).exists() {
                return self.write(&name, &pem);
            }
        }
    }

    pub(crate) fn set_policy(&self, authority: &Certificate, patterns: &str) {
        let text = format!(
            "access_id_CA X509 '{}'\npos_rights globus CA:sign\ncond_subjects globus {patterns}\n",
            authority.subject()
        );
        self.write(&policy_name(authority), text.as_bytes());
    }

    pub(crate) fn write(&self, name: &str, content: &[u8]) {
        fs::write(self.path().join(name), content).expect("writes");
    }

    pub(crate) fn remove(&self, name: &str) {
        fs::remove_file(self.path().join(name)).expect("removes");
    }

    /// A revocation list of the CA, signed by `signer`, valid for these seconds around now.
    pub(crate) fn revoke(&self, serials: &[u32], signer: &Credential, valid: (i64, i64)) {
        let authority = self.authority.certificate();
        let mut list = X509CrlBuilder::new().unwrap();
        list.set_issuer_name(authority.as_x509().subject_name())
            .unwrap();
        let at = |seconds| pki::asn1_time(self.now, seconds);
        list.set_last_update(&at(valid.0)).unwrap();
        list.set_next_update(&at(valid.1)).unwrap();
        // RFC 5280 §5.2 wants these two.
        for (oid, content) in [
            ("2.5.29.20", &[2, 1, 1][..]),
            ("2.5.29.35", &[0x30, 3, 0x80, 1, 1]),
        ] {
            let oid = Asn1Object::from_str(oid).unwrap();
            let content = Asn1OctetString::new_from_bytes(content).unwrap();
            let extension = X509Extension::new_from_der(&oid, false, &content).unwrap();
            list.append_extension(extension).unwrap();
        }
        for serial in serials {
            let mut revoked = X509RevokedBuilder::new().unwrap();
            let serial = BigNum::from_u32(*serial).unwrap();
            let serial = Asn1Integer::from_bn(&serial).unwrap();
            revoked.set_serial_number(&serial).unwrap();
            revoked.set_revocation_date(&at(-DAY)).unwrap();
            list.add_revoked(revoked.build()).unwrap();
        }
        list.sign(signer.key(), MessageDigest::sha256()).unwrap();
        let pem = list.build().unwrap().to_pem().unwrap();
        self.write(&format!("{:08x}.r0", authority.subject_hash()), &pem);
    }

    pub(crate) fn verify(&self, credential: &Credential) -> Result<Peer, Refusal> {
        self.verify_at(credential, pki::now())
    }

    pub(crate) fn verify_at(
        &self,
        credential: &Credential,
        now: SystemTime,
    ) -> Result<Peer, Refusal> {
        verify(&sent(credential), &self.anchors(), &Policy::default(), now)
    }
}

/// What a peer with this credential sends.
pub(crate) fn sent(credential: &Credential) -> Vec<Certificate> {
    let mut all = vec![credential.certificate().clone()];
    all.extend_from_slice(credential.chain());
    all
}

pub(crate) fn policy_name(authority: &Certificate) -> String {
    format!("{:08x}.signing_policy", authority.subject_hash())
}
