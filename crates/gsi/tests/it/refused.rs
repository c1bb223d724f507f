//! Every kind of bad credential, refused with its own message by the verifier.

use std::collections::BTreeSet;

use godwit_gsi::verify::{HostName, Peer, Policy, Refusal, verify};

use crate::bad::{HOST, Shown, Whose, cases};
use crate::pki::now;

fn judge(shown: &Shown, whose: Whose) -> Result<Peer, Refusal> {
    let own = shown.sent.first();
    // No refusal may be for want of the key.
    assert!(own.is_none_or(|own| own.public_key().unwrap().public_eq(&shown.key)));
    let peer = verify(
        &shown.sent,
        &shown.grid.anchors(),
        &Policy::default(),
        now(),
    )?;
    if whose == Whose::Host {
        HostName::new(HOST).check(peer.acting())?;
    }
    Ok(peer)
}

#[test]
fn each_bad_credential_has_its_own_message() {
    let mut messages = BTreeSet::new();
    for whose in [Whose::User, Whose::Host] {
        for case in cases(whose, now()) {
            let refusal = judge(&case.bad, whose).expect_err(case.name).to_string();
            assert!(refusal.contains(case.message), "{}: {refusal}", case.name);
            assert!(refusal.contains(": "), "{} has no remedy", case.name);
            let folder = case.bad.grid.path().display().to_string();
            messages.insert(refusal.replace(&folder, ""));
            let good = judge(&case.good, whose);
            good.unwrap_or_else(|refusal| panic!("good {}: {refusal}", case.name));
        }
    }
    assert!(messages.len() >= 50, "{messages:#?}");
}
