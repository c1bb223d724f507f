//! Keys, region and service of `s3://`, found as the AWS tools find them.
//!
//! | | in this order |
//! |---|---|
//! | profile | the user of the URL, `AWS_PROFILE`, `default` |
//! | keys | `AWS_ACCESS_KEY_ID` with `AWS_SECRET_ACCESS_KEY` and `AWS_SESSION_TOKEN`, unless the URL names a profile; the profile's role (`role_arn`); a web identity, of `AWS_WEB_IDENTITY_TOKEN_FILE` unless the URL names a profile, or of the profile; its single sign-on; its keys in `~/.aws/credentials`; its `credential_process`; its keys in `~/.aws/config`; where no profile is named, the role of the container or the instance |
//! | service | `--s3-endpoint`, `AWS_ENDPOINT_URL_S3`, `AWS_ENDPOINT_URL`, `s3.endpoint_url` of the profile's `services`, `endpoint_url` of the profile, AWS |
//! | STS, SSO | the same with `AWS_ENDPOINT_URL_STS` and `sts.endpoint_url`, `_SSO` and `sso.endpoint_url` |
//! | region | `--s3-region`, `AWS_REGION`, `AWS_DEFAULT_REGION`, `region` of the profile, `us-east-1` |
//!
//! `AWS_SHARED_CREDENTIALS_FILE` and `AWS_CONFIG_FILE` name other files. The user `anonymous`
//! has no keys.
//!
//! # Map
//! - [`source`]: where keys come from, by the variables and the files ([`profiles`])
//! - [`sts`], [`sso`], [`process`], [`role`]: who issues them; [`issued`] and [`cache`]: what
//!   they have issued
//! - [`endpoints`]: where services are; [`mod@ask`]: requests to them; [`signature`]: who asks

mod ask;
mod cache;
mod endpoints;
mod issued;
mod process;
mod profiles;
mod role;
pub(crate) mod signature;
mod source;
mod sso;
mod sts;

use std::{ffi::OsString, path::PathBuf};

use godwit_gsi::ftps::Authorities;
use godwit_http_client::Origin;
use godwit_proto::command::Password;
use tokio::task::spawn_blocking;

use self::{
    cache::KeyCache,
    endpoints::{AwsService, Endpoints},
    issued::IssuedKeys,
    profiles::ProfileFiles,
    role::RoleSource,
    source::{AskedKeys, FirstKeys, KeySource, KeyVariables, Sources, no_keys},
    sts::Sts,
};

const ANONYMOUS: &str = "anonymous";

const REGION: &str = "us-east-1";

/// What the environment says.
#[derive(Clone, Debug, Default)]
pub struct AwsEnvironment {
    variables: KeyVariables,
    profile: Option<String>,
    region: Option<String>,
    endpoints: Endpoints,
    /// These need not exist.
    credentials: Option<PathBuf>,
    config: Option<PathBuf>,
    sso_cache: Option<PathBuf>,
    role: RoleSource,
    /// For services that issue keys.
    authorities: Authorities,
    cache: KeyCache,
}

/// What requests are signed with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Keys {
    pub(crate) access: String,
    pub(crate) secret: Password,
    /// Of keys that end.
    pub(crate) token: Option<Password>,
}

/// Where a bucket is, and as whom it is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Service {
    /// The bucket is a part of the host's name.
    pub(crate) origin: Origin,
    /// Else it is the first name of each path.
    pub(crate) is_bucket_in_host: bool,
    pub(crate) region: String,
    /// It is one of AWS, found by the region.
    pub(crate) is_of_region: bool,
    /// `None`: nobody.
    pub(crate) keys: Option<Keys>,
}

impl AwsEnvironment {
    /// Reads the environment through `variable`.
    pub(super) fn of_environment(variable: impl Fn(&str) -> Option<OsString>) -> Self {
        let text = |name: &str| {
            let value = variable(name)?.into_string().ok()?;
            (!value.trim().is_empty()).then(|| value.trim().to_owned())
        };
        let in_home = |name: &str| {
            let home = variable("HOME").filter(|home| !home.is_empty())?;
            Some(PathBuf::from(home).join(".aws").join(name))
        };
        let file = |name: &str, own: &str| {
            let named = variable(name).filter(|value| !value.is_empty());
            named.map(PathBuf::from).or_else(|| in_home(own))
        };
        Self {
            variables: KeyVariables::of_environment(text),
            profile: text("AWS_PROFILE"),
            region: text("AWS_REGION").or_else(|| text("AWS_DEFAULT_REGION")),
            endpoints: Endpoints::of_environment(text),
            credentials: file("AWS_SHARED_CREDENTIALS_FILE", "credentials"),
            config: file("AWS_CONFIG_FILE", "config"),
            sso_cache: in_home("sso/cache"),
            role: RoleSource::of_environment(text),
            ..Self::default()
        }
    }

    /// Keys that were handed over, and nothing else: no file and no variable is looked at.
    pub fn of_keys(access: String, secret: Password, token: Option<Password>) -> Self {
        let keys = Keys {
            access,
            secret,
            token,
        };
        Self {
            variables: KeyVariables::of_keys(keys),
            ..Self::default()
        }
    }

    /// The same with the service at `endpoint` and in `region`, where they are given.
    #[must_use]
    pub fn at(self, endpoint: Option<String>, region: Option<String>) -> Self {
        Self {
            endpoints: self.endpoints.with_s3(endpoint),
            region: region.or(self.region),
            ..self
        }
    }

    /// The same, with whom services that issue keys have to be vouched for by.
    #[must_use]
    pub(crate) fn trusting(self, authorities: &Authorities) -> Self {
        Self {
            authorities: authorities.clone(),
            ..self
        }
    }

    /// The service of `bucket`, as `user` of its URL, with other keys than `refused`, if there are
    /// any.
    ///
    /// # Errors
    /// There are no keys, or a file is unfit: a message for the user.
    pub(crate) async fn service(
        &self,
        bucket: &str,
        user: Option<&str>,
        refused: Option<&Keys>,
    ) -> Result<Service, String> {
        let aws = self.clone();
        let (named_bucket, named_user) = (bucket.to_owned(), user.map(str::to_owned));
        let read = move || aws.service_by_files(&named_bucket, named_user.as_deref());
        let read = spawn_blocking(read).await;
        let (service, asked) =
            read.unwrap_or_else(|error| Err(format!("read the files of keys: {error}")))?;
        let Some(asked) = asked else {
            return Ok(service);
        };
        let issue = self.issue(&asked);
        let keys = self.cache.keys(user, &asked, refused, issue).await?;
        Ok(Service {
            keys: Some(keys),
            ..service
        })
    }

    /// Blocks. Keys that are missing are to be asked for.
    fn service_by_files(
        &self,
        bucket: &str,
        user: Option<&str>,
    ) -> Result<(Service, Option<AskedKeys>), String> {
        let (credentials, config) = (self.credentials.as_deref(), self.config.as_deref());
        let files = ProfileFiles::read(credentials, config)?;
        self.service_by(bucket, user, &files)
    }

    fn service_by(
        &self,
        bucket: &str,
        user: Option<&str>,
        files: &ProfileFiles,
    ) -> Result<(Service, Option<AskedKeys>), String> {
        let named = user.filter(|user| *user != ANONYMOUS);
        let chosen = named.or(self.profile.as_deref());
        let profile = chosen.unwrap_or("default");
        let region = self.region.as_deref();
        let region = region.or_else(|| files.value(profile, "region"));
        let region = region.unwrap_or(REGION).to_owned();
        if !is_region(&region) {
            let why = format!("{region:?} is no name of a region (--s3-region, AWS_REGION)");
            return Err(why);
        }
        let (keys, asked) = match user {
            Some(ANONYMOUS) => (None, None),
            _ => {
                let sources = Sources {
                    variables: &self.variables,
                    files,
                    endpoints: &self.endpoints,
                    sso_cache: self.sso_cache.as_deref(),
                    profile,
                };
                let source = sources.find(named.is_some(), chosen.is_some())?;
                match source {
                    KeySource {
                        first: FirstKeys::Known(keys),
                        roles,
                    } if roles.is_empty() => (Some(keys), None),
                    source => {
                        let named = self.endpoints.named(AwsService::Sts, files, profile)?;
                        let sts = Sts {
                            origin: named.unwrap_or_else(|| AwsService::Sts.of_region(&region)),
                            region: region.clone(),
                            authorities: self.authorities.clone(),
                        };
                        (None, Some(AskedKeys { source, sts }))
                    }
                }
            }
        };
        let endpoint = self.endpoints.named(AwsService::S3, files, profile)?;
        let is_of_region = endpoint.is_none();
        let mut origin = endpoint.unwrap_or_else(|| AwsService::S3.of_region(&region));
        let is_bucket_in_host = match files.value(profile, "s3.addressing_style") {
            Some("virtual") => true,
            Some("path") => false,
            _ => is_of_region && fits_host(bucket),
        };
        if is_bucket_in_host {
            origin.host = format!("{}.{}", bucket.to_ascii_lowercase(), origin.host);
        }
        let service = Service {
            origin,
            is_bucket_in_host,
            region,
            is_of_region,
            keys,
        };
        Ok((service, asked))
    }

    async fn issue(&self, asked: &AskedKeys) -> Result<IssuedKeys, String> {
        let AskedKeys { source, sts } = asked;
        let mut issued = match &source.first {
            FirstKeys::Known(keys) => IssuedKeys::lasting(keys.clone()),
            FirstKeys::WebIdentity(identity) => sts.assume_with(identity).await?,
            FirstKeys::Sso(role) => role.keys(&self.authorities).await?,
            FirstKeys::Process { profile, command } => process::keys_of(profile, command).await?,
            FirstKeys::Host { profile, host } => {
                let keys = self.role.keys(*host).await?;
                keys.ok_or_else(|| no_keys(profile))?
            }
        };
        for role in &source.roles {
            issued = sts.assume(role, &issued.keys).await?;
        }
        Ok(issued)
    }
}

impl Service {
    /// The same in another region, where the service has said that a bucket is there.
    pub(crate) fn in_region(&self, bucket: &str, region: &str) -> Self {
        let mut origin = self.origin.clone();
        if self.is_of_region {
            origin = AwsService::S3.of_region(region);
            if self.is_bucket_in_host {
                origin.host = format!("{bucket}.{}", origin.host);
            }
        }
        Self {
            origin,
            region: region.to_owned(),
            ..self.clone()
        }
    }
}

/// It is a part of the names of hosts.
fn is_region(text: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    !text.is_empty() && text.bytes().all(allowed)
}

/// Certificates for all buckets of a service are for one name more, and names are in lower case.
fn fits_host(bucket: &str) -> bool {
    let allowed = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    (3..=63).contains(&bucket.len()) && bucket.bytes().all(allowed)
}

#[cfg(test)]
mod tests {
    use super::{profiles::Profiles, *};

    const CREDENTIALS: &str = "[default]\naws_access_key_id = A\naws_secret_access_key = S=1\n\
        # no\n[other]\naws_access_key_id=B\naws_secret_access_key=T\naws_session_token=U\n";

    const CONFIG: &str = "[default]\nregion = eu-west-1\n[profile other]\n\
        endpoint_url = http://127.0.0.1:9000/\ns3 =\n  addressing_style = virtual\n\
        [profile \"of the lab\"]\nregion = eu-north-1\n\
        [profile mapped]\nservices = local\nrole_arn = arn:x\n\
        [services local]\ns3 =\n  endpoint_url = https://s3.example:8443\n";

    fn environment(pairs: &[(&str, &str)]) -> AwsEnvironment {
        let found = |name: &str| {
            let pair = pairs.iter().find(|(known, _)| *known == name);
            pair.map(|(_, value)| OsString::from(value))
        };
        AwsEnvironment::of_environment(found)
    }

    fn service(
        pairs: &[(&str, &str)],
        bucket: &str,
        user: Option<&str>,
    ) -> Result<Service, String> {
        let files = ProfileFiles {
            credentials: Profiles::parse(CREDENTIALS),
            config: Profiles::parse(CONFIG),
        };
        let (service, _) = environment(pairs).service_by(bucket, user, &files)?;
        Ok(service)
    }

    const KEYS: [(&str, &str); 2] = [("AWS_ACCESS_KEY_ID", "E"), ("AWS_SECRET_ACCESS_KEY", "F")];

    #[test]
    fn keys_come_from_where_the_tools_of_aws_have_them() {
        let access = |pairs: &[(&str, &str)], user| {
            let keys = service(pairs, "b", user).unwrap().keys;
            keys.map(|keys| (keys.access, keys.secret.reveal().to_owned()))
        };
        let pair = |one: &str, two: &str| Some((one.to_owned(), two.to_owned()));
        assert_eq!(access(&[], None), pair("A", "S=1"));
        assert_eq!(access(&KEYS, None), pair("E", "F"));
        assert_eq!(access(&KEYS, Some("other")), pair("B", "T"));
        assert_eq!(access(&[("AWS_PROFILE", "other")], None), pair("B", "T"));
        assert_eq!(access(&KEYS, Some("anonymous")), None);
    }

    #[test]
    fn keys_that_are_missing_are_an_error_that_says_what_to_do() {
        let error = service(&[], "b", Some("nobody")).unwrap_err();
        assert!(error.contains("AWS_ACCESS_KEY_ID"), "{error}");
        let error = service(&[], "b", Some("mapped")).unwrap_err();
        assert!(error.contains("role_arn"), "{error}");
    }

    #[test]
    fn services_are_those_of_the_environment_of_the_profile_or_of_the_region() {
        let origin = |pairs: &[(&str, &str)], bucket: &str, user| {
            let found = service(pairs, bucket, user).unwrap();
            (found.origin.to_string(), found.region)
        };
        let told = |one: &str, two: &str| (one.to_owned(), two.to_owned());
        let aws = told("https://abc.s3.eu-west-1.amazonaws.com", "eu-west-1");
        assert_eq!(origin(&[], "abc", None), aws);
        let dotted = told("https://s3.eu-west-1.amazonaws.com", "eu-west-1");
        assert_eq!(origin(&[], "a.b.c", None), dotted);
        let other = told("http://abc.127.0.0.1:9000", REGION);
        assert_eq!(origin(&[], "abc", Some("other")), other);
        let said = [
            ("AWS_ENDPOINT_URL", "https://h:1"),
            ("AWS_REGION", "r"),
            KEYS[0],
            KEYS[1],
        ];
        assert_eq!(origin(&said, "abc", None), told("https://h:1", "r"));
        let mapped = [("AWS_PROFILE", "mapped"), KEYS[0], KEYS[1]];
        let mapped = service(&mapped, "abc", None).unwrap();
        assert_eq!(mapped.origin.to_string(), "https://s3.example:8443");
        let quoted = [("AWS_PROFILE", "of the lab"), KEYS[0], KEYS[1]];
        assert_eq!(service(&quoted, "abc", None).unwrap().region, "eu-north-1");
        let moved = service(&[], "abc", None)
            .unwrap()
            .in_region("abc", "cn-north-1");
        let there = "https://abc.s3.cn-north-1.amazonaws.com.cn";
        assert_eq!(moved.origin.to_string(), there);
        for (name, value) in [
            ("AWS_ENDPOINT_URL", "h:1"),
            ("AWS_ENDPOINT_URL", "https://h/x"),
            ("AWS_REGION", "a/b"),
        ] {
            assert!(service(&[(name, value)], "abc", None).is_err(), "{value}");
        }
    }

    #[test]
    fn secrets_are_not_shown() {
        let shown = format!("{:?} {:?}", environment(&KEYS), service(&KEYS, "b", None));
        assert!(!shown.contains("\"F\"") && shown.contains("***"), "{shown}");
    }
}
