//! Where jobs may go. The service is a way into networks that its users cannot reach themselves, so
//! every URL is checked, by the parser that agents use.
//!
//! Names of hosts are not resolved here: an answer of today says nothing of tomorrow's. Agents
//! check the addresses that they connect to, by the scope that comes with each unit.

use std::{
    net::IpAddr,
    os::unix::ffi::OsStrExt as _,
    path::{Component, Path, PathBuf},
};

use godwit_client::spec::addresses::AddressScope;
use godwit_proto::{
    ChecksumAlgorithm,
    url::{Location, RemoteUrl, Scheme},
};
use godwit_scheduler::matches;
use godwit_service_api::{
    agent::{self, BucketKeys, Secret},
    job::{FileRequest, MAX_FILE_BYTES, MAX_METADATA_BYTES, MAX_URL_BYTES},
};
use lettre::Address;
use reqwest::Url;

use crate::mock;
use crate::problem::{Answer, ApiError, Kind};
use crate::store::endpoint_of;

/// Most bytes of a mail address (RFC 5321).
const ADDRESS_BYTES_MAX: usize = 254;

/// Where jobs may go.
#[derive(Clone, Debug, Default)]
pub struct EndpointPolicy {
    /// Patterns over `scheme://host:port`; empty: everything but addresses of this host and of
    /// private networks.
    pub endpoints: Vec<String>,
    /// The service is of one person, and its agent reaches what that person reaches.
    pub personal: bool,
    /// Directories of the agents' hosts that `file` URLs may name.
    pub local: Vec<PathBuf>,
    /// Webhooks may be told by plain HTTP and to private addresses.
    pub any_webhook: bool,
    /// Patterns of addresses that messages may go to; `None`: there is no relay for them.
    pub mail_to: Option<Vec<String>>,
}

impl EndpointPolicy {
    /// Where names and servers may lead agents to. Who lists endpoints knows their networks, and
    /// may list addresses of any kind; a name of a list may yet lead to no address of the agent's
    /// own host.
    pub(crate) fn scope(&self) -> agent::AddressScope {
        match (self.personal, self.endpoints.is_empty()) {
            (true, _) => agent::AddressScope::Any,
            (false, false) => agent::AddressScope::Site,
            (false, true) => agent::AddressScope::Public,
        }
    }

    /// Whether a file may be copied so, with what the user attached to it.
    pub(crate) fn check_file(&self, file: &FileRequest) -> Answer<()> {
        self.check_copy(file)?;
        check_metadata(file.metadata.as_ref())
    }

    /// Whether a file may be copied so.
    pub(crate) fn check_copy(&self, file: &FileRequest) -> Answer<()> {
        if !mock::is_mock(file) {
            self.check_ends(file)?;
        }
        if file.bytes.is_some_and(|bytes| bytes > MAX_FILE_BYTES) {
            let detail = format!("at most {MAX_FILE_BYTES}");
            return Err(ApiError::new(Kind::Invalid, detail).at("/bytes"));
        }
        if let Some(checksum) = &file.checksum {
            check_checksum(checksum).map_err(|error| error.at("/checksum"))?;
        }
        Ok(())
    }

    fn check_ends(&self, file: &FileRequest) -> Answer<()> {
        let source = self
            .check_url(&file.source)
            .map_err(|error| error.at("/source"))?;
        let destination = self
            .check_url(&file.destination)
            .map_err(|error| error.at("/destination"))?;
        if let (Location::Local(_), Location::Local(_)) = (source, destination) {
            let error = ApiError::new(Kind::Url, "one end must be a server");
            return Err(error.at("/destination"));
        }
        Ok(())
    }

    /// Whether jobs may name a URL.
    pub(super) fn check_url(&self, url: &str) -> Answer<Location> {
        let wrong = |why: &str| ApiError::new(Kind::Url, why);
        if url.len() > MAX_URL_BYTES {
            return Err(wrong("it is too long"));
        }
        if !url.contains("://") || url.chars().any(|c| c.is_control() || c == ' ') {
            return Err(wrong("a URL is scheme://host/path, without blanks"));
        }
        let location = Location::parse(url.as_bytes()).map_err(|error| match error {
            godwit_proto::url::UrlError::Scheme(_) => {
                ApiError::new(Kind::Scheme, "use gsiftp, ftp or ftpes")
            }
            error => wrong(&error.to_string()),
        })?;
        match &location {
            Location::Remote(remote) => self.check_remote(url, remote)?,
            Location::Local(path) => {
                self.check_local(Path::new(std::ffi::OsStr::from_bytes(path)))?
            }
            Location::Standard => return Err(wrong("a URL is scheme://host/path")),
        }
        Ok(location)
    }

    fn check_remote(&self, url: &str, remote: &RemoteUrl) -> Answer<()> {
        if remote.user.is_some() || remote.password.is_some() {
            let hint = "store a credential for the endpoint: POST /api/v1/credentials";
            return Err(ApiError::new(Kind::UserInfo, hint));
        }
        // HTTP in clear leads to where clouds tell secrets; the ssh keys are those of the agent.
        let is_own = matches!(remote.scheme, Scheme::Sshftp | Scheme::Http | Scheme::Dav);
        if is_own && !self.personal {
            let hint = "use https, davs, s3, gsiftp, ftp or ftpes";
            return Err(ApiError::new(Kind::Scheme, hint));
        }
        let host = remote.host.to_ascii_lowercase();
        // Where a bucket is, its keys say: see `check_keys`.
        let is_bucket = remote.scheme == Scheme::S3;
        let address = if is_bucket { None } else { address_of(&host)? };
        // The queue must go by the host that the agent connects to.
        let shown = match host.contains(':') {
            true => format!("[{host}]"),
            false => host.clone(),
        };
        let meant = format!("{}://{shown}:{}", remote.scheme.as_str(), remote.port);
        let endpoint = endpoint_of(url).unwrap_or_default();
        if Some(&endpoint) != endpoint_of(&meant).as_ref() {
            return Err(ApiError::new(Kind::Url, "the host is ambiguous"));
        }
        let is_allowed = match self.endpoints.is_empty() {
            true => is_bucket || !is_private(&host, address),
            false => self
                .endpoints
                .iter()
                .any(|pattern| matches(pattern, &endpoint)),
        };
        match is_allowed {
            true => Ok(()),
            false => Err(ApiError::new(Kind::Endpoint, format!("not to {endpoint}"))),
        }
    }

    /// The service that a user's keys are for is a host like others.
    pub(super) fn check_keys(&self, secret: &Secret) -> Answer<()> {
        let Secret::Keys(BucketKeys {
            service: Some(service),
            ..
        }) = secret
        else {
            return Ok(());
        };
        let rest = service
            .strip_prefix("https://")
            .or_else(|| service.strip_prefix("http://"));
        match rest.is_some_and(|rest| !rest.contains(['/', '?', '#'])) {
            true => self.check_url(&format!("{service}/")).map(drop),
            false => {
                let detail = "the service of keys is https://host:port";
                Err(ApiError::new(Kind::Invalid, detail))
            }
        }
    }

    fn check_local(&self, path: &Path) -> Answer<()> {
        let is_plain = |c: Component<'_>| matches!(c, Component::RootDir | Component::Normal(_));
        let is_allowed = self.local.iter().any(|folder| path.starts_with(folder));
        match path.is_absolute() && path.components().all(is_plain) && is_allowed {
            true => Ok(()),
            false => {
                let detail = "not to local files there; who runs the service allows directories \
                    with --allow-local DIR";
                Err(ApiError::new(Kind::Endpoint, detail))
            }
        }
    }

    /// Whether the end of a job may be told there.
    pub(crate) fn check_webhook(&self, url: &str) -> Answer<()> {
        let wrong = |why: &str| ApiError::new(Kind::Url, why);
        let parsed = Url::parse(url).map_err(|_| wrong("a webhook is an https URL"))?;
        if !parsed.username().is_empty() || parsed.password().is_some() {
            return Err(ApiError::new(Kind::UserInfo, "webhooks are signed instead"));
        }
        if !matches!(parsed.scheme(), "https" | "http") {
            return Err(wrong("a webhook is an https URL"));
        }
        let host = parsed
            .host_str()
            .unwrap_or_default()
            .trim_matches(['[', ']']);
        let is_public = parsed.scheme() == "https" && !is_private(host, address_of(host)?);
        match url.len() <= MAX_URL_BYTES && (is_public || self.any_webhook) {
            true => Ok(()),
            false => Err(ApiError::new(
                Kind::Endpoint,
                "a webhook is a public https URL",
            )),
        }
    }

    /// Whether the end of a job may be told there by mail.
    pub(crate) fn check_mail(&self, address: &str) -> Answer<()> {
        let Some(patterns) = &self.mail_to else {
            let why = "this service sends no mail: its operator must set a relay for it first";
            return Err(ApiError::new(Kind::Invalid, why));
        };
        // Some relays take `%` and `!` for a way to another host.
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "._+-=&'~#".contains(c);
        let parts = address.rsplit_once('@');
        let is_plain = parts.is_some_and(|(user, host)| {
            user.chars().all(is_plain) && host.chars().all(is_plain) && address_of(host).is_ok()
        });
        let is_address = is_plain && address.len() <= ADDRESS_BYTES_MAX;
        if !is_address || address.parse::<Address>().is_err() {
            let why = "a mail address is user@host.example.org, without a name";
            return Err(ApiError::new(Kind::Invalid, why));
        }
        let address = address.to_ascii_lowercase();
        match patterns.iter().any(|pattern| matches(pattern, &address)) {
            true => Ok(()),
            false => Err(ApiError::new(
                Kind::Endpoint,
                "the operator does not allow this address",
            )),
        }
    }
}

/// The address, where a host is one. Forms that other programs take for addresses, as `127.1` or
/// `0x7f000001`, are refused.
fn address_of(host: &str) -> Answer<Option<IpAddr>> {
    let host = host.strip_suffix('.').unwrap_or(host);
    if let Ok(address) = host.parse::<IpAddr>() {
        return Ok(Some(address));
    }
    let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_');
    let last = host.rsplit('.').next().unwrap_or_default();
    let is_number = last.starts_with("0x") || last.bytes().all(|b| b.is_ascii_digit());
    match host.chars().all(is_name) && !is_number {
        true => Ok(None),
        false => Err(ApiError::new(
            Kind::Url,
            "the host is no name and no address",
        )),
    }
}

/// This host, or a network that is not the Internet.
pub(crate) fn is_private(host: &str, address: Option<IpAddr>) -> bool {
    let host = host.strip_suffix('.').unwrap_or(host);
    let local = ["localhost", "localdomain", "local", "internal"];
    match address {
        Some(address) => !AddressScope::Public.allows(address),
        None => {
            host.starts_with("localhost")
                || host.starts_with("ip6-")
                || host
                    .rsplit('.')
                    .next()
                    .is_some_and(|last| local.contains(&last))
        }
    }
}

fn check_checksum(text: &str) -> Answer<()> {
    let wrong = || ApiError::new(Kind::Invalid, "a checksum is algorithm:hexadecimal value");
    let (algorithm, value) = text.split_once(':').ok_or_else(wrong)?;
    let algorithm: ChecksumAlgorithm = algorithm.parse().map_err(|_| wrong())?;
    algorithm.normalize_value(value).map(drop).ok_or_else(wrong)
}

/// What users attach is bounded.
pub(super) fn check_metadata(metadata: Option<&serde_json::Value>) -> Answer<()> {
    match metadata.map_or(0, |metadata| metadata.to_string().len()) > MAX_METADATA_BYTES {
        true => {
            let detail = format!("at most {MAX_METADATA_BYTES} bytes");
            Err(ApiError::new(Kind::Invalid, detail).at("/metadata"))
        }
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_this_host_and_of_private_networks_are_refused() {
        let policy = EndpointPolicy::default();
        for host in [
            "localhost",
            "LOCALHOST.",
            "a.localhost",
            "127.0.0.1",
            "127.0.0.1.",
            "127.8.8.8:2811",
            "127.1",
            "0x7f.0.0.1",
            "0x7f000001",
            "2130706433",
            "0177.0.0.1",
            "0.0.0.0",
            "10.0.0.1",
            "172.16.0.1",
            "192.168.1.1",
            "169.254.169.254",
            "100.64.0.1",
            "224.0.0.1",
            "255.255.255.255",
            "[::]",
            "[::1]",
            "[::ffff:127.0.0.1]",
            "[::ffff:a9fe:a9fe]",
            "[::127.0.0.1]",
            "[64:ff9b::7f00:1]",
            "[2002:7f00:1::]",
            "[fe80::1]",
            "[fc00::1]",
            "[ff02::1]",
            "metadata.google.internal",
            "127.0.0.1#.example.org",
            "example.org?@127.0.0.1",
            "example.org%00.127.0.0.1",
        ] {
            let url = format!("gsiftp://{host}/x");
            assert!(policy.check_url(&url).is_err(), "{url}");
        }
        for host in [
            "a.example.org",
            "198.51.100.7",
            "[2001:db8::1]",
            "a.example.org:5000",
        ] {
            let url = format!("gsiftp://{host}/x");
            assert!(policy.check_url(&url).is_ok(), "{url}");
        }
    }

    #[test]
    fn a_list_of_endpoints_is_all_that_is_allowed() {
        let policy = EndpointPolicy {
            endpoints: vec![
                "gsiftp://*.example.org:*".to_owned(),
                "ftp://127.0.0.1:*".to_owned(),
            ],
            local: vec![PathBuf::from("/data")],
            ..EndpointPolicy::default()
        };
        for url in [
            "gsiftp://a.example.org/x",
            "gsiftp://A.example.org.:2811/x",
            "gsiftp://a.example.org:5000/x",
            "ftp://127.0.0.1:99/x",
            "file:///data/x",
        ] {
            assert!(policy.check_url(url).is_ok(), "{url}");
        }
        for url in [
            "ftp://a.example.org/x",
            "gsiftp://a.example.org.evil.example/x",
            "gsiftp://example.com/x",
            "ftp://127.0.0.2:99/x",
            "file:///data/../etc/passwd",
            "file:///data/%2e%2e/etc/passwd",
            "file:///database/x",
            "file://host/data/x",
            "http://a.example.org/x",
            "sshftp://a.example.org/x",
            "/data/x",
            "-",
            "",
            "gsiftp:///x",
            "gsiftp://a.example.org:0/x",
            "gsiftp://a.example.org/x y",
            "gsiftp://a.example.org/x\n",
        ] {
            assert!(policy.check_url(url).is_err(), "{url}");
        }
    }

    #[test]
    fn patterns_know_the_usual_port_of_each_scheme() {
        // Buckets have no ports.
        let schemes = Scheme::ALL
            .into_iter()
            .filter(|scheme| *scheme != Scheme::S3);
        for scheme in schemes {
            let endpoint = format!("{}://h", scheme.as_str());
            let pattern = format!("*:{}", scheme.default_port());
            assert!(matches(&pattern, &endpoint), "{pattern} {endpoint}");
            assert!(!matches("*:99", &endpoint) && !matches(&pattern, &format!("{endpoint}:99")));
        }
    }

    #[test]
    fn http_in_clear_is_for_the_own_agent_alone() {
        let file = |scheme: &str| FileRequest {
            source: format!("{scheme}://a.example.org/x"),
            destination: "ftp://b.example.org/x".to_owned(),
            ..FileRequest::default()
        };
        for allowed in [Vec::new(), vec!["*".to_owned()]] {
            let policy = EndpointPolicy {
                endpoints: allowed,
                ..EndpointPolicy::default()
            };
            for (scheme, is_allowed) in [
                ("https", true),
                ("davs", true),
                ("http", false),
                ("dav", false),
            ] {
                let checked = policy.check_file(&file(scheme));
                assert_eq!(checked.is_ok(), is_allowed, "{scheme}");
            }
        }
    }

    #[test]
    fn no_file_is_so_large_that_sums_overflow() {
        let policy = EndpointPolicy::default();
        let mut file = FileRequest {
            source: "ftp://a.example.org/x".to_owned(),
            destination: "ftp://b.example.org/x".to_owned(),
            bytes: Some(MAX_FILE_BYTES),
            ..FileRequest::default()
        };
        assert!(policy.check_file(&file).is_ok());
        for bytes in [MAX_FILE_BYTES + 1, u64::MAX] {
            file.bytes = Some(bytes);
            assert!(policy.check_file(&file).is_err());
        }
    }

    #[test]
    fn passwords_in_urls_are_refused_and_not_shown() {
        let error = EndpointPolicy::default().check_url("ftp://jo:hunter2@a.example.org/x");
        let error = format!("{:?}", error.unwrap_err());
        assert!(
            error.contains("credentials_in_url") && !error.contains("hunter2"),
            "{error}"
        );
    }

    #[test]
    fn addresses_of_mail_are_plain_and_allowed_by_the_operator() {
        let policy = EndpointPolicy {
            mail_to: Some(vec!["*@example.org".to_owned()]),
            ..EndpointPolicy::default()
        };
        for address in [
            "jo@example.org",
            "jo.m+godwit@Example.ORG",
            "o'neil@example.org",
        ] {
            assert!(policy.check_mail(address).is_ok(), "{address}");
        }
        for address in [
            "",
            "jo",
            "@example.org",
            "jo@example.com",
            "jo@example.org@example.com",
            "jo%example.com@example.org",
            "example.com!jo@example.org",
            "<jo@example.org>",
            "Jo <jo@example.org>",
            "\"jo\"@example.org",
            "jo@example.org\r\nBcc: al@example.org",
            "jo@example.org,al@example.org",
            "jo @example.org",
            "jö@example.org",
        ] {
            assert!(policy.check_mail(address).is_err(), "{address}");
        }
        assert!(
            EndpointPolicy::default()
                .check_mail("jo@example.org")
                .is_err()
        );
    }

    #[test]
    fn webhooks_are_public_https() {
        let policy = EndpointPolicy::default();
        assert!(policy.check_webhook("https://hooks.example.org/x").is_ok());
        for url in [
            "http://hooks.example.org/x",
            "https://127.0.0.1/x",
            "https://[::1]/x",
            "https://0x7f000001/x",
            "https://jo:pw@hooks.example.org/",
            "file:///etc/passwd",
            "x",
        ] {
            assert!(policy.check_webhook(url).is_err(), "{url}");
        }
    }
}
