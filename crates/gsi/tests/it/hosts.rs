//! Names of hosts.

use godwit_gsi::verify::{HostName, Refusal};

use crate::pki::Blueprint;

#[test]
fn a_certificate_is_for_its_host_only() {
    for (subject, alternatives, host, expected) in [
        ("/O=Grid/CN=a.example.org", &[][..], "a.example.org", true),
        ("/O=Grid/CN=a.example.org", &[], "A.Example.ORG.", true),
        ("/O=Grid/CN=host/a.example.org", &[], "a.example.org", true),
        ("/O=Grid/CN=ldap/a.example.org", &[], "a.example.org", false),
        ("/O=Grid/CN=a.example.org", &[], "b.example.org", false),
        (
            "/O=Grid/CN=a.example.org/CN=b.example.org",
            &[],
            "a.example.org",
            false,
        ),
        ("/O=a.example.org/CN=x", &[], "a.example.org", false),
        (
            "/O=Grid/CN=x",
            &["a.example.org", "b.example.org"],
            "b.example.org",
            true,
        ),
        // Alternative names of the kind replace the common name.
        (
            "/O=Grid/CN=a.example.org",
            &["b.example.org"],
            "a.example.org",
            false,
        ),
        ("/O=Grid/CN=x", &["*.example.org"], "a.example.org", true),
        ("/O=Grid/CN=x", &["*.example.org"], "a.b.example.org", false),
        ("/O=Grid/CN=x", &["*.org"], "example.org", false),
        ("/O=Grid/CN=x", &["192.0.2.1"], "192.0.2.1", true),
        ("/O=Grid/CN=x", &["192.0.2.1"], "192.0.2.2", false),
        ("/O=Grid/CN=x", &["2001:db8::1"], "2001:db8:0::1", true),
        ("/O=Grid/CN=192.0.2.1", &[], "192.0.2.1", true),
        (
            "/O=Grid/CN=192.0.2.1",
            &["a.example.org"],
            "192.0.2.1",
            false,
        ),
        // An address is no name, a wildcard is no address.
        ("/O=Grid/CN=x", &["*.0.2.1"], "192.0.2.1", false),
        (
            "/O=Grid/CN=a.example.org",
            &["192.0.2.1"],
            "a.example.org",
            true,
        ),
        ("/O=Grid", &[], "a.example.org", false),
    ] {
        let host_credential = Blueprint::host(subject, alternatives).self_signed();
        let checked = HostName::new(host).check(host_credential.certificate());
        assert_eq!(
            checked.is_ok(),
            expected,
            "{subject} {alternatives:?} {host}"
        );
        if let Err(refusal) = checked {
            assert!(matches!(&refusal, Refusal::Host { .. }));
            assert!(refusal.to_string().starts_with("the certificate is for "));
        }
    }
}
