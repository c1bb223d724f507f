//! From certificates in any order to a path.
//!
//! A signature is verified before anything is known of who sent it, and takes up to some
//! milliseconds: of what was sent each is tried as an issuer once at most. Names of proxies get
//! shorter towards the holder, and of CAs each name is passed once.

use super::refusal::ProxyFault;
use super::{Anchors, Refusal};
use crate::cert::Certificate;
use crate::cert::credential::CHAIN_MAX;

/// From the peer's own certificate through its proxies to the holder's, that one included. All of
/// them must have been sent, for no directory has them.
pub(super) fn to_holder(sent: &[Certificate]) -> Result<Vec<Certificate>, Refusal> {
    let mut path = vec![sent.first().ok_or(Refusal::NoCertificate)?.clone()];
    for _ in 0..CHAIN_MAX {
        let last = &path[path.len() - 1];
        if last.proxy().is_none() {
            return Ok(path);
        }
        if !last.extends_issuer() {
            return Err(Refusal::Proxy {
                subject: last.subject().to_string(),
                fault: ProxyFault::Name,
            });
        }
        let issuer = issuer_among(last, sent).ok_or_else(|| missing_or_forged(last, sent))?;
        path.push(issuer.clone());
    }
    Err(Refusal::TooManyCertificates { max: CHAIN_MAX })
}

/// The CAs above the holder, nearest first, up to a root that is trusted. Empty when the holder's
/// own certificate is trusted as it is.
pub(super) fn to_anchor(
    holder: &Certificate,
    sent: &[Certificate],
    anchors: &dyn Anchors,
) -> Result<Vec<Certificate>, Refusal> {
    if anchors.authorities(holder.subject_hash())?.contains(holder) {
        return Ok(Vec::new());
    }
    let mut above: Vec<Certificate> = Vec::new();
    let mut untried: Vec<&Certificate> = sent.iter().collect();
    for _ in 0..CHAIN_MAX {
        let last = above.last().unwrap_or(holder);
        if last.is_self_issued() {
            // Found among what was sent only, or it had ended the search below.
            return Err(Refusal::UntrustedRoot {
                subject: last.subject().to_string(),
                hash: last.subject_hash(),
                anchors: anchors.describe(),
            });
        }
        let trusted = anchors.authorities(last.issuer_hash())?;
        if let Some(authority) = issuer_among(last, &trusted) {
            above.push(authority.clone());
            if authority.is_self_issued() {
                return Ok(above);
            }
        } else if let Some(intermediate) = issuer_among(last, untried.iter().copied()) {
            untried.retain(|one| !last.names_as_issuer(one));
            above.push(intermediate.clone());
        } else if trusted.iter().any(|ca| last.names_as_issuer(ca)) {
            return Err(missing_or_forged(last, &trusted));
        } else {
            return Err(Refusal::NoAuthority {
                issuer: last.issuer().to_string(),
                hash: last.issuer_hash(),
                anchors: anchors.describe(),
            });
        }
    }
    Err(Refusal::TooManyCertificates { max: CHAIN_MAX })
}

/// Several may have the name, as when a CA was renewed: the signature decides, and of several the
/// one valid longest.
fn issuer_among<'a>(
    certificate: &Certificate,
    candidates: impl IntoIterator<Item = &'a Certificate>,
) -> Option<&'a Certificate> {
    candidates
        .into_iter()
        .filter(|other| certificate.names_as_issuer(other) && certificate.is_signed_by(other))
        .max_by_key(|other| other.not_after())
}

fn missing_or_forged(certificate: &Certificate, candidates: &[Certificate]) -> Refusal {
    let subject = certificate.subject().to_string();
    let issuer = certificate.issuer().to_string();
    if candidates.iter().any(|ca| certificate.names_as_issuer(ca)) {
        Refusal::Signature { subject, issuer }
    } else {
        Refusal::IssuerNotSent { subject, issuer }
    }
}
