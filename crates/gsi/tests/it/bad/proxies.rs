//! Proxies.

use godwit_gsi::cert::ProxyKind;
use godwit_gsi::cert::proxy::ProxyRequest;
use openssl::hash::MessageDigest;

use super::{NAME, Shown, Table, full, info, rsa_1024, shown};
use crate::grid::sent;
use crate::pki::*;

impl Table {
    pub(super) fn proxies(&mut self) {
        self.proxy(
            "proxy expired",
            "the proxy /O=Grid/CN=Jo/CN=1 expired 2 h ago: run `godwit proxy init`",
            |b| b.valid(-DAY, -2 * HOUR - 60),
        );
        self.proxy(
            "proxy of tomorrow",
            "the proxy /O=Grid/CN=Jo/CN=1 is valid only in 23 h: one of the two clocks is wrong",
            |b| b.valid(DAY - 60, 2 * DAY),
        );
        self.proxy(
            "proxyCertInfo not critical",
            "has a proxyCertInfo that is not critical",
            |b| info(b, false, &full()),
        );
        self.proxy(
            "unknown policy language",
            "restricted by a policy in the language 1.2.3.4",
            |b| info(b, true, &proxy_cert_info("1.2.3.4", None, Some(b"x"))),
        );
        self.proxy(
            "any policy language",
            "in the language 1.3.6.1.5.5.7.21.0",
            |b| info(b, true, &proxy_cert_info("1.3.6.1.5.5.7.21.0", None, None)),
        );
        self.proxy(
            "policy text",
            "policy text where its language has none",
            |b| info(b, true, &proxy_cert_info(INHERIT_ALL, None, Some(b"x"))),
        );
        self.proxy("proxy as CA", "says that it is a CA", |b| {
            b.extension(BASIC_CONSTRAINTS, true, CA_TRUE)
        });
        self.proxy("proxy signs certificates", "(keyCertSign)", |b| {
            b.extension(KEY_USAGE, true, &[3, 2, 2, 0x84])
        });
        self.proxy("proxy of a host's name", "has alternative names", |b| {
            let name = tlv(0x30, &tlv(0x82, b"a.example"));
            b.extension(ALTERNATIVE_NAMES, false, &name)
        });
        self.proxy(
            "MD5 proxy",
            "/O=Grid/CN=Jo/CN=1 is signed with MD5, which is not safe",
            |b| b.digest(MessageDigest::md5()),
        );
        self.proxy(
            "SHA-1 proxy",
            "/O=Grid/CN=Jo/CN=1 is signed with SHA-1, which is not safe",
            |b| b.digest(MessageDigest::sha1()),
        );
        self.proxy(
            "proxy with a short key",
            "the key of /O=Grid/CN=Jo/CN=1 is RSA 1024, allowed are 2048 to 16384 bits: make a new \
             one",
            |b| b.key(rsa_1024()),
        );
        self.proxy(
            "proxy with an unknown critical extension",
            "/O=Grid/CN=Jo/CN=1 has the critical extension 1.2.3.4.5",
            |b| b.extension("1.2.3.4.5", true, &[5, 0]),
        );
        for (name, subject) in [
            ("proxy of another's name", "/O=Grid/CN=Eve/CN=1"),
            ("proxy with two names more", "/O=Grid/CN=Jo/CN=1/CN=2"),
            ("proxy with another attribute", "/O=Grid/CN=Jo/OU=1"),
        ] {
            let message = "is not named after its issuer (issuer's name and one CN more)";
            self.proxy(name, message, |mut b| {
                b.subject = Blueprint::new(subject).subject;
                b
            });
        }
        self.proxy(
            "a holder's certificate by a holder",
            "the issuer /O=Grid/CN=Jo is no CA",
            |b| b.without(PROXY_CERT_INFO),
        );

        let grid = self.grid();
        let direct = self.proxy_of(&grid.authority).issued_by(&grid.authority);
        let mut bad = shown(grid, &direct);
        bad.sent.extend(sent(&bad.grid.authority));
        let good = self.good_proxy();
        let message = "is issued by a CA; only persons, hosts and proxies";
        self.add("proxy by a CA", message, bad, good);

        let grid = self.grid();
        let holder = self.holder_of(&grid);
        let forged = self.proxy_of(&holder);
        let key = forged.key.clone();
        let forged = forged.signed_by(holder.certificate().as_x509().subject_name(), &key);
        let bad = Shown {
            sent: vec![forged, holder.certificate().clone()],
            grid,
            key,
        };
        let good = self.good_proxy();
        let message =
            "the signature on the certificate of /O=Grid/CN=Jo/CN=1 is not by /O=Grid/CN=Jo";
        self.add("forged proxy", message, bad, good);

        let grid = self.grid();
        let holder = self.named(NAME).without(KEY_USAGE);
        let holder = holder.extension(KEY_USAGE, true, USAGE_NO_SIGNATURES);
        let holder = holder.issued_by(&grid.authority);
        let bad = shown(grid, &self.proxy_of(&holder).issued_by(&holder));
        let good = self.good_proxy();
        let message = "is issued with a key that is not for signatures";
        self.add("holder's key not for signatures", message, bad, good);
    }

    pub(super) fn chains_of_proxies(&mut self) {
        let two = |above: &[u8], oid: &str, content: &[u8]| {
            let grid = self.grid();
            let holder = self.holder_of(&grid);
            let first = info(self.proxy_of(&holder), true, above).issued_by(&holder);
            let second = Blueprint::proxy(&first, "2").at(self.now);
            let second = second.extension(oid, true, content).issued_by(&first);
            shown(grid, &second)
        };
        let limited = proxy_cert_info(LIMITED, None, None);
        let none_below = proxy_cert_info(INHERIT_ALL, Some(0), None);
        let one_below = proxy_cert_info(INHERIT_ALL, Some(1), None);
        let fully = full();
        let mut forgotten = two(&fully, PROXY_CERT_INFO, &fully);
        forgotten.sent.remove(1);
        for (name, message, bad, good) in [
            (
                "full below limited",
                "is a full one below a limited one",
                two(&limited, PROXY_CERT_INFO, &fully),
                two(&limited, PROXY_CERT_INFO, &limited),
            ),
            (
                "kinds mixed",
                "kind draft (GT 3) below one of the kind RFC 3820",
                two(&fully, PROXY_CERT_INFO_GT3, &fully),
                two(&fully, PROXY_CERT_INFO, &fully),
            ),
            (
                "path length of proxies",
                "may have 0 proxies below it and has 1",
                two(&none_below, PROXY_CERT_INFO, &fully),
                two(&one_below, PROXY_CERT_INFO, &fully),
            ),
            (
                "a proxy between is missing",
                "came without the certificate of its issuer /O=Grid/CN=Jo/CN=1",
                forgotten,
                self.good_proxy_of_proxy(),
            ),
        ] {
            self.add(name, message, bad, good);
        }

        let grid = self.grid();
        let legacy = |request| ProxyRequest {
            kind: ProxyKind::Legacy,
            ..request
        };
        let first = self.below(&self.holder_of(&grid), &legacy(ProxyRequest::limited()));
        let second = Blueprint::proxy(&first, "proxy")
            .at(self.now)
            .issued_by(&first);
        let bad = shown(grid, &second);
        let grid = self.grid();
        let first = self.below(&self.holder_of(&grid), &legacy(ProxyRequest::default()));
        let second = self.below(&first, &legacy(ProxyRequest::limited()));
        let good = shown(grid, &second);
        let message = "CN=limited proxy/CN=proxy is a full one below a limited one";
        self.add("legacy full below limited", message, bad, good);
    }
}
