//! Persons and hosts, the CAs above them, and the files that name the trusted CAs.

use openssl::hash::MessageDigest;

use super::{HOST, NAME, Table, info, rsa_1024, shown, small_curve};
use crate::grid::{Grid, policy_name, sent};
use crate::pki::*;

impl Table {
    pub(super) fn holders(&mut self) {
        self.holder(
            "holder expired",
            "the certificate of /O=Grid/CN=Jo expired 3 days ago: ask the CA",
            |b| b.valid(-9 * DAY, -3 * DAY - HOUR),
        );
        self.holder(
            "holder of tomorrow",
            "the certificate of /O=Grid/CN=Jo is valid only in 23 h",
            |b| b.valid(DAY - 60, 2 * DAY),
        );
        self.holder(
            "MD5 holder",
            "/O=Grid/CN=Jo is signed with MD5, which is not safe",
            |b| b.digest(MessageDigest::md5()),
        );
        self.holder(
            "SHA-1 holder",
            "/O=Grid/CN=Jo is signed with SHA-1, which is not safe",
            |b| b.digest(MessageDigest::sha1()),
        );
        self.holder(
            "holder with a short key",
            "the key of /O=Grid/CN=Jo is RSA 1024",
            |b| b.key(rsa_1024()),
        );
        self.holder(
            "holder is a CA",
            "/O=Grid/CN=Jo is a CA's, not a person's",
            |b| b.extension(BASIC_CONSTRAINTS, true, CA_TRUE),
        );
        self.holder(
            "holder with an unknown critical extension",
            "/O=Grid/CN=Jo has the critical extension 1.2.3.4.6",
            |b| b.extension("1.2.3.4.6", true, &[5, 0]),
        );
        self.holder("no name", "has no subject", |mut b| {
            b.subject.clear();
            b
        });
        self.holder("a slash in a value", "could pass for another's", |mut b| {
            b.subject = vec![("O".into(), "Grid/CN=Jo".into())];
            b
        });
    }

    pub(super) fn roots(&mut self) {
        self.root(
            "root expired",
            "the CA certificate /O=Grid/CN=CA expired 25 h ago: install",
            |b| b.valid(-9 * DAY, -DAY - HOUR - 60),
        );
        self.root(
            "root is no CA",
            "the issuer /O=Grid/CN=CA is no CA (basic constraints)",
            |b| b.without(BASIC_CONSTRAINTS),
        );
        self.root(
            "root may not sign",
            "the issuer /O=Grid/CN=CA may not sign certificates (key usage)",
            |b| b.without(KEY_USAGE).extension(KEY_USAGE, true, USAGE_END),
        );
        self.root(
            "name constraints",
            "the certificate of /O=Grid/CN=CA constrains names",
            |b| b.extension("2.5.29.30", true, &[0x30, 0]),
        );
        self.root(
            "root with a short key",
            "the key of /O=Grid/CN=CA is RSA 1024",
            |b| b.key(rsa_1024()),
        );
        self.root(
            "root with a small curve",
            "the key of /O=Grid/CN=CA is EC 192, allowed are 224",
            |b| b.key(small_curve()),
        );
    }

    pub(super) fn intermediates(&mut self) {
        self.intermediate(
            "intermediate without the CA flag",
            "the issuer /O=Grid/CN=Sub is no CA (basic constraints)",
            |b| b.without(BASIC_CONSTRAINTS),
            |_, _, _| {},
        );
        self.intermediate(
            "intermediate expired",
            "the CA certificate /O=Grid/CN=Sub expired 5 days ago",
            |b| b.valid(-9 * DAY, -5 * DAY - HOUR),
            |_, _, _| {},
        );
        self.intermediate(
            "intermediate revoked",
            "the certificate of /O=Grid/CN=Sub was revoked by /O=Grid/CN=CA",
            |b| b,
            |grid, _, _| grid.revoke(&[15], &grid.authority, (-DAY, DAY)),
        );
        self.intermediate(
            "intermediate without policy",
            "no signing policy for the CA /O=Grid/CN=Sub: install",
            |b| b,
            |grid, middle, _| grid.remove(&policy_name(middle.certificate())),
        );
        self.intermediate(
            "intermediate not sent",
            "(/O=Grid/CN=Sub) in ",
            |b| b,
            |_, _, all| all.truncate(1),
        );

        let under = |length: &[u8]| {
            let root = self.authority("/O=Grid/CN=CA").without(BASIC_CONSTRAINTS);
            let grid = Grid::with(root.extension(BASIC_CONSTRAINTS, true, length));
            let middle = self.authority("/O=Grid/CN=Sub").issued_by(&grid.authority);
            grid.set_policy(middle.certificate(), "'\"/O=Grid/*\"'");
            let holder = self.named(NAME).issued_by(&middle);
            shown(grid, &holder)
        };
        let (bad, good) = (under(CA_TRUE_LENGTH_0), under(CA_TRUE));
        let message = "the issuer /O=Grid/CN=CA may have 0 CAs below it and has 1";
        self.add("path length of CAs", message, bad, good);
    }

    pub(super) fn strangers(&mut self) {
        let elsewhere = self.authority("/O=Other/CN=CA").self_signed();
        let stranger = self.named(NAME).issued_by(&elsewhere);
        let bad = shown(self.grid(), &stranger);
        let good = self.good_holder();
        self.add("unknown CA", "(/O=Other/CN=CA) in ", bad, good);

        let mut bad = shown(self.grid(), &stranger);
        bad.sent.extend(sent(&elsewhere));
        let good = self.good_holder();
        let message = "the root CA /O=Other/CN=CA (hash";
        self.add("unknown CA sent along", message, bad, good);

        let bad = shown(self.grid(), &self.named(NAME).self_signed());
        let good = self.good_holder();
        let message = "the root CA /O=Grid/CN=Jo (hash";
        self.add("signed by itself", message, bad, good);

        let impostor = self.authority("/O=Grid/CN=CA").self_signed();
        let bad = shown(self.grid(), &self.named(NAME).issued_by(&impostor));
        let good = self.good_holder();
        let message = "the signature on the certificate of /O=Grid/CN=Jo is not by /O=Grid/CN=CA";
        self.add("CA of the same name", message, bad, good);

        let mut bad = self.good_holder();
        let root = bad.grid.authority.certificate().clone();
        bad.sent.extend(vec![root; 32]);
        let good = self.good_holder();
        self.add("chain without end", "more than 32 certificates", bad, good);
    }

    pub(super) fn policies_and_lists(&mut self) {
        let policy_of = |grid: &Grid| policy_name(grid.authority.certificate());
        let hash_of = |grid: &Grid| format!("{:08x}", grid.authority.certificate().subject_hash());
        self.place(
            "no signing policy",
            "no signing policy for the CA /O=Grid/CN=CA: install",
            |grid| grid.remove(&policy_of(grid)),
        );
        self.place(
            "outside of the signing policy",
            "the CA /O=Grid/CN=CA may not certify /O=Grid/CN=Jo (signing policy",
            |grid| grid.set_policy(grid.authority.certificate(), "'\"/O=Else/*\"'"),
        );
        self.place(
            "signing policy of another",
            "has no entry for the CA /O=Grid/CN=CA",
            |grid| {
                let other = "access_id_CA X509 '/O=X'\npos_rights globus CA:sign\n\
                             cond_subjects globus '*'\n";
                grid.write(&policy_of(grid), other.as_bytes());
            },
        );
        self.place(
            "signing policy not understood",
            "signing_policy: line 2: expected access_id_CA",
            |grid| grid.write(&policy_of(grid), b"\nneg_rights globus CA:sign\n"),
        );
        self.place(
            "CA file without a certificate",
            ".0: no certificate found",
            |grid| grid.write(&(hash_of(grid) + ".0"), b"junk"),
        );
        self.place(
            "revoked",
            "the certificate of /O=Grid/CN=Jo was revoked by /O=Grid/CN=CA",
            |grid| grid.revoke(&[7, 4711], &grid.authority, (-DAY, DAY)),
        );
        self.place(
            "revocation list expired",
            "expired 2 days ago: fetch a new one",
            |grid| grid.revoke(&[7], &grid.authority, (-9 * DAY, -2 * DAY - HOUR)),
        );
        self.place(
            "revocation list of tomorrow",
            "is not valid yet: the clock is wrong",
            |grid| grid.revoke(&[7], &grid.authority, (DAY, 2 * DAY)),
        );
        self.place(
            "revocation list by another",
            "is not signed by it",
            |grid| grid.revoke(&[7], &grid.user, (-DAY, DAY)),
        );
        self.place(
            "revocation list without a list",
            "the revocation list cannot be read",
            |grid| grid.write(&(hash_of(grid) + ".r0"), b"junk"),
        );

        let bad = self.good_proxy();
        bad.grid.revoke(&[4711], &bad.grid.authority, (-DAY, DAY));
        let good = self.good_proxy();
        good.grid.revoke(&[7], &good.grid.authority, (-DAY, DAY));
        let message = "the certificate of /O=Grid/CN=Jo was revoked by";
        self.add("proxy of somebody revoked", message, bad, good);
    }

    pub(super) fn nothing(&mut self) {
        let mut bad = self.good_holder();
        bad.sent.clear();
        let good = self.good_holder();
        self.add(
            "nothing",
            "sent no certificate: it needs a proxy",
            bad,
            good,
        );
    }

    pub(super) fn names_of_hosts(&mut self) {
        let with = |names: &[&str], subject: &str| {
            let grid = self.grid();
            let host = Blueprint::host(subject, names).at(self.now);
            let host = host.issued_by(&grid.authority);
            shown(grid, &host)
        };
        let anonymous = "/O=Grid/CN=Jo";
        let cases = [
            (
                "common name of another host",
                "the certificate is for /O=Grid/CN=b.example.org, not for host 127.0.0.1",
                with(&[], "/O=Grid/CN=b.example.org"),
                with(&[], "/O=Grid/CN=127.0.0.1"),
            ),
            (
                "address of another host",
                "the certificate is for 192.0.2.1, not for host 127.0.0.1",
                with(&["192.0.2.1"], anonymous),
                with(&["192.0.2.1", HOST], anonymous),
            ),
            (
                "common name beside alternative names",
                "the certificate is for b.example.org, not for host 127.0.0.1",
                with(&["b.example.org"], "/O=Grid/CN=127.0.0.1"),
                with(&["b.example.org", HOST], "/O=Grid/CN=127.0.0.1"),
            ),
            (
                "a star for an address",
                "the certificate is for *.0.0.1, not for host 127.0.0.1",
                with(&["*.0.0.1"], anonymous),
                with(&["*.0.0.1", HOST], anonymous),
            ),
        ];
        for (name, message, bad, good) in cases {
            self.add(name, message, bad, good);
        }

        // Its holder is itself, whatever host the certificate above it names.
        let grid = self.grid();
        let independent = proxy_cert_info(INDEPENDENT, None, None);
        let host = self.holder_of(&grid);
        let proxy = info(self.proxy_of(&host), true, &independent).issued_by(&host);
        let bad = shown(grid, &proxy);
        let good = self.good_proxy();
        let message = "the certificate is for the independent proxy /O=Grid/CN=Jo/CN=1, not for \
                       host 127.0.0.1";
        self.add("independent proxy of the host", message, bad, good);

        // Anybody can give a proxy of his own the name of a host.
        let grid = self.grid();
        let user = Blueprint::user(NAME)
            .at(self.now)
            .issued_by(&grid.authority);
        let proxy = Blueprint::proxy(&user, HOST).at(self.now);
        let proxy = info(proxy, true, &independent).issued_by(&user);
        let bad = shown(grid, &proxy);
        let good = self.good_proxy();
        let message = "is for the independent proxy /O=Grid/CN=Jo/CN=127.0.0.1, not for host";
        self.add("independent proxy named as the host", message, bad, good);
    }
}
