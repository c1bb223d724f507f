//! The rules of proxies. RFC 3820 §3 and §4, and what the Grid Community Toolkit makes of them.

use super::Refusal;
use super::refusal::ProxyFault;
use crate::cert::Certificate;
use crate::cert::extensions::{ProxyInfo, ProxyPolicy};

/// Checks a path from a proxy (first) to its holder (last). Names, signatures and times were looked
/// at before.
pub(super) fn check(path: &[Certificate]) -> Result<(), Refusal> {
    for (below, pair) in path.windows(2).enumerate() {
        let [certificate, issuer] = pair else {
            continue;
        };
        let Some(proxy) = certificate.proxy() else {
            continue;
        };
        check_one(certificate, proxy, issuer, below).map_err(|fault| Refusal::Proxy {
            subject: certificate.subject().to_string(),
            fault,
        })?;
    }
    Ok(())
}

/// `below` is the number of proxies under this one.
fn check_one(
    certificate: &Certificate,
    proxy: &ProxyInfo,
    issuer: &Certificate,
    below: usize,
) -> Result<(), ProxyFault> {
    let extensions = certificate.extensions();
    if !proxy.critical {
        return Err(ProxyFault::NotCritical);
    }
    // RFC 3820 §3.8.2: the three languages known here have no text. In others it may forbid
    // anything.
    match &proxy.policy {
        ProxyPolicy::Other(language) => return Err(ProxyFault::Language(language.clone())),
        _ if proxy.has_policy_text => return Err(ProxyFault::PolicyText),
        _ => {}
    }
    if extensions.is_ca {
        return Err(ProxyFault::Authority);
    }
    if extensions
        .key_usage
        .is_some_and(|usage| usage.key_cert_sign())
    {
        return Err(ProxyFault::CertSign);
    }
    if extensions.has_alternative_names {
        return Err(ProxyFault::AlternativeNames);
    }
    if proxy
        .path_length
        .is_some_and(|most| below as u64 > u64::from(most))
    {
        return Err(ProxyFault::PathLength {
            most: proxy.path_length.unwrap_or(0),
            below,
        });
    }
    if issuer.extensions().is_ca {
        return Err(ProxyFault::IssuerIsAuthority);
    }
    let usage = issuer.extensions().key_usage;
    if usage.is_some_and(|usage| !usage.digital_signature()) {
        return Err(ProxyFault::IssuerUsage);
    }
    if let Some(above) = issuer.proxy() {
        if above.kind != proxy.kind {
            return Err(ProxyFault::MixedKinds {
                one: proxy.kind.name(),
                other: above.kind.name(),
            });
        }
        if above.policy == ProxyPolicy::Limited && proxy.policy == ProxyPolicy::Impersonation {
            return Err(ProxyFault::FullBelowLimited);
        }
    }
    Ok(())
}
