//! What the fuzz targets do with bytes, one function a target; the test of the corpora replays
//! through the same.
//!
//! No input may cause a panic or prove an identity, and what was parsed must survive being written
//! and read again.

use std::sync::{Mutex, OnceLock};

use godwit_gsi::cert::credential::certificates_from_pem;
use godwit_gsi::cert::proxy::{self, DelegationRequest, ProxyRequest};
use godwit_gsi::cert::{Certificate, Credential};
use godwit_gsi::gridmap::{AllowList, Gridmap, MAPPED_USER};
use godwit_gsi::name::DistinguishedName;
use godwit_gsi::token::{KeySet, Token};
use godwit_gsi::verify::signing_policy::SigningPolicy;
use godwit_gsi::verify::{HostName, Policy, verify};
use godwit_gsi::wrap::{Wrap, WrapError};
use godwit_gsi::{Context, adat};

use crate::pair::{Ends, join};
use crate::pki::{ec_key, now};

/// Keys take their time to make.
fn ends() -> &'static Ends {
    static ENDS: OnceLock<Ends> = OnceLock::new();
    ENDS.get_or_init(Ends::new)
}

/// Tokens in text, and an acceptor that is fed with anything.
pub(crate) fn adat(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    if let Ok(token) = adat::decode(&text) {
        assert_eq!(adat::encode(&token), text.trim());
    }
    let token = adat::token_of_reply(&text).ok().flatten();
    for token in [bytes, &token.unwrap_or_default()] {
        let mut acceptor = Context::accept(ends().server()).expect("waits");
        let _ = acceptor.handle_input(now(), token);
        assert!(acceptor.outcome().is_none());
        let mut initiator = Context::initiate(ends().client(None)).expect("begins");
        let _ = initiator.handle_input(now(), token);
        assert!(initiator.outcome().is_none());
    }
}

/// Bearer tokens without a valid signature, and sets of foreign keys.
pub(crate) fn token(bytes: &[u8]) {
    const KEYS: &[u8] = br#"{"keys":[{"kty":"OKP","crv":"Ed25519",
        "x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}]}"#;
    let keys = KeySet::parse(KEYS).expect("a key");
    let text = String::from_utf8_lossy(bytes);
    if let Ok(token) = Token::parse(text.trim()) {
        assert!(token.verify(&keys).is_err(), "it was accepted");
    }
    if let (Ok(keys), Ok(token)) = (KeySet::parse(bytes), Token::parse(RFC_8037_TOKEN)) {
        let _ = token.verify(&keys);
    }
}

/// RFC 8037 §A.4 has the key; the claims are ours, and the signature is of no key.
const RFC_8037_TOKEN: &str = "eyJhbGciOiJFZERTQSJ9.eyJpc3MiOiJpIiwiZXhwIjoxfQ.AAAA";

/// Certificates, their verification, and requests for proxies.
pub(crate) fn certificate(bytes: &[u8]) {
    let ends = ends();
    let read = Certificate::from_der(bytes).ok().into_iter();
    for certificate in read.chain(certificates_from_pem(bytes).unwrap_or_default()) {
        let der = certificate.to_der().expect("der");
        assert_eq!(Certificate::from_der(&der).as_ref(), Ok(&certificate));
        let _ = HostName::new("a.example.org").check(&certificate);
        let _ = certificate.subject().common_names().count();
        let chain = [vec![certificate], crate::grid::sent(&ends.user)].concat();
        let verified = verify(&chain, &ends.grid.anchors(), &Policy::default(), now());
        assert!(verified.is_err(), "{verified:?}");
    }
    let _ = Credential::from_pem(bytes, bytes, Some(b"sesame"));
    let _ = proxy::sign_request(&ends.user, bytes, &ProxyRequest::default(), now());
    let asked = DelegationRequest::with_key(ec_key()).expect("asks");
    let user = ends.user.certificate().clone();
    assert!(asked.finish(bytes, &[user]).is_err());
}

/// The holder's certificate of the grid that everything is verified against.
pub(crate) fn good_certificate() -> Vec<u8> {
    ends().user.chain()[0].to_der().expect("der")
}

/// Gridmap files and allow lists.
pub(crate) fn gridmap(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let (map, faults) = Gridmap::parse(&text);
    assert!(map.len() + faults.len() <= text.lines().count());
    let (list, _) = AllowList::parse(&text);
    for line in text.lines() {
        let Some(name) = DistinguishedName::parse(line) else {
            continue;
        };
        assert_eq!(
            DistinguishedName::parse(name.as_str()).as_ref(),
            Some(&name)
        );
        assert!(name.same_as(&name));
        let _ = list.allows(&name);
        if let Ok(account) = map.account(&name, MAPPED_USER) {
            assert_eq!(map.account(&name, account), Ok(account));
        }
    }
}

/// Signing policies.
pub(crate) fn signing_policy(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let Ok(policy) = SigningPolicy::parse(&text) else {
        return;
    };
    let subject = DistinguishedName::parse("/O=Grid/CN=Jo").expect("a name");
    for word in text.split(['\'', '"', ' ']) {
        if let Some(authority) = DistinguishedName::parse(word) {
            let allowed = policy.allows(&authority, &subject);
            assert!(!allowed || policy.names(&authority));
        }
    }
}

/// Protected commands and replies, behind an established context.
pub(crate) fn wrap(bytes: &[u8]) {
    // A handshake takes its time, and most inputs leave the streams behind it as they were.
    static JOINED: Mutex<Option<(Wrap, Wrap)>> = Mutex::new(None);
    let kept = JOINED.lock().expect("no panic").take();
    let (mut client, mut server) = kept.unwrap_or_else(|| {
        let joined = join(ends().client(None), ends().server()).expect("joins");
        (joined.initiator.wrap, joined.acceptor.wrap)
    });
    let mut untouched = true;
    // Nobody but the other end can have sealed anything; no bytes are sealed in no records.
    let mut nothing = |clear: Result<Option<Vec<u8>>, WrapError>| {
        untouched &= matches!(
            clear,
            Ok(None) | Err(WrapError::Token(_) | WrapError::Incomplete)
        );
        clear.map_or(true, |clear| clear.is_none_or(|clear| clear.is_empty()))
    };
    let text = String::from_utf8_lossy(bytes);
    for line in text.lines() {
        assert!(nothing(server.clear_command(line)));
        assert!(nothing(client.clear_reply(line)));
    }
    // Types of records (RFC 8446 §B.1); what begins otherwise is refused at its first byte.
    if let Some(20..=24) = bytes.first() {
        let mut clear = Vec::new();
        let _ = server.open(bytes, &mut clear);
        assert!(clear.is_empty());
        untouched = false;
    }
    if untouched {
        *JOINED.lock().expect("no panic") = Some((client, server));
    }
}
