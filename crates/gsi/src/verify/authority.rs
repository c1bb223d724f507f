//! The rules of CAs: RFC 5280 §6.1, revocation lists, and signing policies.

use std::time::SystemTime;

use openssl::x509::{CrlStatus, X509CrlRef};

use super::anchors::{Anchors, MaySign};
use super::refusal::{AuthorityFault, CrlFault, Refusal};
use crate::cert::Certificate;
use crate::cert::certificate::system_time;

/// Checks the holder and the CAs above it, nearest first. Signatures and times were looked at
/// before.
pub(super) fn check(
    holder: &Certificate,
    above: &[Certificate],
    anchors: &dyn Anchors,
    now: SystemTime,
) -> Result<(), Refusal> {
    if above.is_empty() {
        // Trusted as it is: no policy applies.
        return Ok(());
    }
    if holder.extensions().is_ca {
        return Err(Refusal::HolderIsAuthority {
            subject: holder.subject().to_string(),
        });
    }
    let mut intermediates = 0;
    let mut signed = holder;
    for authority in above {
        check_one(authority, intermediates).map_err(|fault| Refusal::Authority {
            subject: authority.subject().to_string(),
            fault,
        })?;
        check_revoked(signed, authority, anchors, now)?;
        check_signing_policy(signed, authority, anchors)?;
        if !authority.is_self_issued() {
            intermediates += 1;
        }
        signed = authority;
    }
    Ok(())
}

/// `below` is the number of intermediate CAs under this one.
fn check_one(authority: &Certificate, below: u32) -> Result<(), AuthorityFault> {
    let extensions = authority.extensions();
    // Certificates of version 1 cannot say that they are a CA; as a root, being in the directory
    // says it.
    let is_old_root = authority.as_x509().version() == 0 && authority.is_self_issued();
    if authority.proxy().is_some() || !(extensions.is_ca || is_old_root) {
        return Err(AuthorityFault::NotAuthority);
    }
    if extensions
        .key_usage
        .is_some_and(|usage| !usage.key_cert_sign())
    {
        return Err(AuthorityFault::KeyUsage);
    }
    match extensions.ca_path_length {
        Some(most) if below > most => Err(AuthorityFault::PathLength { most, below }),
        _ => Ok(()),
    }
}

/// Lists are optional: without one for the CA nothing is revoked. But one that exists must be
/// good.
fn check_revoked(
    certificate: &Certificate,
    authority: &Certificate,
    anchors: &dyn Anchors,
    now: SystemTime,
) -> Result<(), Refusal> {
    let name = authority.as_x509().subject_name();
    let lists = anchors.revocations(authority.subject_hash())?;
    let lists = lists.iter().filter(|list| {
        let order = list.issuer_name().try_cmp(name);
        order.is_ok_and(std::cmp::Ordering::is_eq)
    });
    let mut fault = None;
    let mut is_listed = false;
    for list in lists {
        match check_list(list, authority, now) {
            Ok(()) => {
                is_listed = true;
                match list.get_by_cert(certificate.as_x509()) {
                    CrlStatus::NotRevoked | CrlStatus::RemoveFromCrl(_) => {}
                    CrlStatus::Revoked(_) => {
                        return Err(Refusal::Revoked {
                            subject: certificate.subject().to_string(),
                            issuer: authority.subject().to_string(),
                        });
                    }
                }
            }
            Err(found) => fault = Some(found),
        }
    }
    match fault {
        Some(fault) if !is_listed => Err(Refusal::Crl {
            issuer: authority.subject().to_string(),
            hash: authority.subject_hash(),
            anchors: anchors.describe(),
            fault,
        }),
        _ => Ok(()),
    }
}

fn check_list(list: &X509CrlRef, authority: &Certificate, now: SystemTime) -> Result<(), CrlFault> {
    let key = authority.public_key().map_err(|_| CrlFault::Signature)?;
    if !list.verify(&key).unwrap_or(false) {
        return Err(CrlFault::Signature);
    }
    if let Some(begin) = system_time(list.last_update())
        && begin > now
    {
        return Err(CrlFault::NotYetValid);
    }
    let end = list.next_update().and_then(system_time);
    match end.map(|end| now.duration_since(end)) {
        Some(Ok(ago)) => Err(CrlFault::Expired { ago }),
        _ => Ok(()),
    }
}

fn check_signing_policy(
    certificate: &Certificate,
    authority: &Certificate,
    anchors: &dyn Anchors,
) -> Result<(), Refusal> {
    let subject = || certificate.subject().to_string();
    let issuer = || authority.subject().to_string();
    match anchors.may_sign(authority.subject_hash())? {
        MaySign::Anything => Ok(()),
        MaySign::Nothing { file } => Err(Refusal::NoSigningPolicy {
            issuer: issuer(),
            file,
        }),
        MaySign::Subjects { file, policy } => {
            if !policy.names(authority.subject()) {
                return Err(Refusal::SigningPolicyOfOther {
                    issuer: issuer(),
                    file,
                });
            }
            if !policy.allows(authority.subject(), certificate.subject()) {
                return Err(Refusal::OutsideSigningPolicy {
                    subject: subject(),
                    issuer: issuer(),
                    file,
                });
            }
            Ok(())
        }
    }
}
