//! Who asks, in the terms of FTS3: a name, virtual organisations, an id of what was delegated.

use axum::{Json, extract::FromRequestParts, http::request::Parts};
use ring::digest;
use serde_json::{Value, json};
use std::sync::Arc;
use uuid::Uuid;

use super::refusal::{FtsResult, Refusal};
use crate::{
    accounts::{Evidence, Shown},
    api::{Api, Caller},
};

/// From which clients compute ids of jobs and virtual organisations.
pub(super) const BASE_ID: Uuid = Uuid::from_u128(0x0187_4efb_4735_4595_bc9c_591a_ef82_40c9);

/// How the caller showed who it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Method {
    Certificate,
    Token,
}

impl Method {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Method::Certificate => "certificate",
            Method::Token => "oauth2",
        }
    }
}

/// The caller of a request of FTS3.
pub(super) struct Identity {
    pub(super) caller: Caller,
    /// Distinguished name of the certificate, else the name of the account.
    pub(super) dn: String,
    pub(super) method: Method,
}

impl FromRequestParts<Arc<Api>> for Identity {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, api: &Arc<Api>) -> FtsResult<Self> {
        let evidence = Evidence::of(parts);
        let caller = Caller::from_request_parts(parts, api).await?;
        let (dn, method) = match (evidence.bearer, evidence.certificate) {
            (None, Shown::Name { name, .. }) => (name, Method::Certificate),
            _ => (caller.name().to_owned(), Method::Token),
        };
        Ok(Identity { caller, dn, method })
    }
}

impl Identity {
    /// The first 16 hexadecimal digits of SHA-1 over the name.
    pub(super) fn delegation_id(&self) -> String {
        delegation_id(&self.dn, &[])
    }

    /// At least one: groups of the account, else a name that only this user has.
    pub(super) fn organisations(&self) -> Vec<String> {
        match self.caller.groups().is_empty() {
            true => vec![self.delegation_id()],
            false => self.caller.groups().to_vec(),
        }
    }

    /// The one that jobs are filed under.
    pub(super) fn organisation(&self) -> String {
        self.organisations().swap_remove(0)
    }
}

/// SHA-1 over the name and each attribute, as a file name: 16 hexadecimal digits.
pub(super) fn delegation_id(name: &str, attributes: &[&str]) -> String {
    let parts = [name].into_iter().chain(attributes.iter().copied());
    let hash = sha1(parts.map(str::as_bytes));
    hash.as_ref()[..8]
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

/// The id that a client computes for a submission of its own name.
pub(super) fn deterministic_id(organisation: &str, sid: &str) -> Uuid {
    named(&named(&BASE_ID, organisation), sid)
}

/// Version 5 (RFC 9562, 5.5).
fn named(space: &Uuid, name: &str) -> Uuid {
    let hash = sha1([space.as_bytes().as_slice(), name.as_bytes()]);
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&hash.as_ref()[..16]);
    uuid::Builder::from_sha1_bytes(bytes).into_uuid()
}

/// What clients compute with; nothing is protected by it.
fn sha1<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> digest::Digest {
    let mut context = digest::Context::new(&digest::SHA1_FOR_LEGACY_USE_ONLY);
    for part in parts {
        context.update(part);
    }
    context.finish()
}

/// `GET /whoami`
pub(super) async fn whoami(identity: Identity) -> Json<Value> {
    let organisations = identity.organisations();
    let ids: Vec<String> = organisations
        .iter()
        .map(|name| named(&BASE_ID, name).to_string())
        .collect();
    let everything = match identity.caller.is_operator() {
        true => "all",
        false => "",
    };
    Json(json!({
        "user_dn": identity.dn,
        "dn": [identity.dn],
        "base_id": BASE_ID,
        "voms_cred": [],
        "vos": organisations,
        "vos_id": ids,
        "roles": [],
        "level": {
            "transfer": if identity.caller.is_operator() { "all" } else { "vo" },
            "datamanagement": everything,
            "config": everything,
        },
        "delegation_id": identity.delegation_id(),
        "method": identity.method.as_str(),
        "is_root": identity.caller.is_operator(),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_those_that_clients_compute() {
        assert_eq!(BASE_ID.to_string(), "01874efb-4735-4595-bc9c-591aef8240c9");
        assert_eq!(
            named(&BASE_ID, "testvo").to_string(),
            "477b9065-8416-5b27-be32-ff1573788e71"
        );
        let attribute = "/testvo/Role=lcgadmin/Capability=NULL";
        let null = "/testvo/Role=NULL/Capability=NULL";
        assert_eq!(
            delegation_id("/DC=ch/DC=cern/CN=Test User", &[null, attribute]),
            "ac4ba2be183546e6"
        );
    }
}
