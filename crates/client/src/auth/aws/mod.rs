//! Keys, region and service of `s3://`, found as the AWS tools find them.
//!
//! | | in this order |
//! |---|---|
//! | profile | the user of the URL, `AWS_PROFILE`, `default` |
//! | keys | `AWS_ACCESS_KEY_ID` with `AWS_SECRET_ACCESS_KEY` and `AWS_SESSION_TOKEN`, unless the URL names a profile; the profile in `~/.aws/credentials`, then in `~/.aws/config` |
//! | service | `--s3-endpoint`, `AWS_ENDPOINT_URL_S3`, `AWS_ENDPOINT_URL`, `endpoint_url` of the profile, AWS |
//! | region | `--s3-region`, `AWS_REGION`, `AWS_DEFAULT_REGION`, `region` of the profile, `us-east-1` |
//!
//! Where no profile is named and there are no keys, the role of the container or the instance is
//! asked for ([`role`]).
//!
//! `AWS_SHARED_CREDENTIALS_FILE` and `AWS_CONFIG_FILE` name other files. The user `anonymous`
//! has no keys.

mod role;

use std::{
    collections::HashMap,
    ffi::OsString,
    fs::File,
    io::Read as _,
    path::{Path, PathBuf},
};

use godwit_http_client::{Origin, Scheme, Url};
use godwit_proto::command::Password;
use tokio::task::spawn_blocking;

use self::role::RoleSource;
use super::private_file::read_private;

/// Longest file that is read.
const FILE_BYTES_MAX: u64 = 1 << 20;

const ANONYMOUS: &str = "anonymous";

const REGION: &str = "us-east-1";

/// What the environment says.
#[derive(Clone, Debug, Default)]
pub struct AwsEnvironment {
    keys: Option<Keys>,
    profile: Option<String>,
    region: Option<String>,
    endpoint: Option<String>,
    /// These need not exist.
    credentials: Option<PathBuf>,
    config: Option<PathBuf>,
    role: RoleSource,
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

/// Why it is not known where a bucket is, or as whom it is asked.
#[derive(Debug, thiserror::Error)]
enum NoService {
    /// No keys were found.
    #[error(
        "no keys: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or have profile {0} in \
         ~/.aws/credentials; s3://anonymous@bucket/key asks without"
    )]
    Keys(String),
    /// What was said is of no use.
    #[error("{0}")]
    Unfit(String),
}

impl From<String> for NoService {
    fn from(why: String) -> Self {
        Self::Unfit(why)
    }
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
        let pair = text("AWS_ACCESS_KEY_ID").zip(text("AWS_SECRET_ACCESS_KEY"));
        Self {
            keys: pair.map(|(access, secret)| Keys {
                access,
                secret: Password::new(secret),
                token: text("AWS_SESSION_TOKEN").map(Password::new),
            }),
            profile: text("AWS_PROFILE"),
            region: text("AWS_REGION").or_else(|| text("AWS_DEFAULT_REGION")),
            endpoint: text("AWS_ENDPOINT_URL_S3").or_else(|| text("AWS_ENDPOINT_URL")),
            credentials: file("AWS_SHARED_CREDENTIALS_FILE", "credentials"),
            config: file("AWS_CONFIG_FILE", "config"),
            role: RoleSource::of_environment(text),
        }
    }

    /// Keys that were handed over, and nothing else: no file and no variable is looked at.
    pub fn of_keys(access: String, secret: Password, token: Option<Password>) -> Self {
        Self {
            keys: Some(Keys {
                access,
                secret,
                token,
            }),
            ..Self::default()
        }
    }

    /// The same with the service at `endpoint` and in `region`, where they are given.
    #[must_use]
    pub fn at(self, endpoint: Option<String>, region: Option<String>) -> Self {
        Self {
            endpoint: endpoint.or(self.endpoint),
            region: region.or(self.region),
            ..self
        }
    }

    /// The service of `bucket`, as `user` of its URL.
    ///
    /// # Errors
    /// There are no keys, or a file is unfit: a message for the user.
    pub(crate) async fn service(
        &self,
        bucket: &str,
        user: Option<&str>,
    ) -> Result<Service, String> {
        let told = |error: NoService| error.to_string();
        let found = self.read_service(bucket, user).await;
        let is_named = user.is_some() || self.profile.is_some();
        if matches!(found, Err(NoService::Keys(_)))
            && !is_named
            && let Some(keys) = self.role.keys().await?
        {
            let with_keys = Self {
                keys: Some(keys),
                ..self.clone()
            };
            return with_keys.read_service(bucket, user).await.map_err(told);
        }
        found.map_err(told)
    }

    async fn read_service(&self, bucket: &str, user: Option<&str>) -> Result<Service, NoService> {
        let aws = self.clone();
        let (bucket, user) = (bucket.to_owned(), user.map(str::to_owned));
        let read = move || aws.service_by_files(&bucket, user.as_deref());
        let read = spawn_blocking(read).await;
        read.unwrap_or_else(|error| Err(format!("read the files of keys: {error}").into()))
    }

    /// Blocks.
    fn service_by_files(&self, bucket: &str, user: Option<&str>) -> Result<Service, NoService> {
        let credentials = Profiles::read(self.credentials.as_deref(), true)?;
        let config = Profiles::read(self.config.as_deref(), false)?;
        self.service_by(bucket, user, &credentials, &config)
    }

    fn service_by(
        &self,
        bucket: &str,
        user: Option<&str>,
        credentials: &Profiles,
        config: &Profiles,
    ) -> Result<Service, NoService> {
        let named = user.filter(|user| *user != ANONYMOUS);
        let chosen = named.or(self.profile.as_deref());
        let profile = chosen.unwrap_or("default");
        let of_profile = |key: &str| {
            let in_config = config.value(&format!("profile {profile}"), key);
            let in_config = in_config.or_else(|| config.value(profile, key));
            credentials.value(profile, key).or(in_config)
        };
        let keys = match (user, &self.keys, named) {
            (Some(ANONYMOUS), ..) => None,
            (_, Some(keys), None) => Some(keys.clone()),
            _ => Some(keys_of(profile, of_profile)?),
        };
        let region = self.region.clone();
        let region = region.or_else(|| of_profile("region").map(str::to_owned));
        let region = region.unwrap_or_else(|| REGION.to_owned());
        let is_name = |text: &str| {
            let allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
            !text.is_empty() && text.bytes().all(allowed)
        };
        if !is_name(&region) {
            let why = format!("{region:?} is no name of a region (--s3-region, AWS_REGION)");
            return Err(why.into());
        }
        let services = of_profile("services").map(|name| format!("services {name}"));
        let of_services = services.and_then(|section| config.value(&section, "s3.endpoint_url"));
        let endpoint = self.endpoint.as_deref();
        let endpoint = endpoint
            .or(of_services)
            .or_else(|| of_profile("endpoint_url"));
        let style = of_profile("s3.addressing_style");
        let (mut origin, is_of_region) = match endpoint {
            Some(url) => (endpoint_of(url)?, false),
            None => (of_region(&region), true),
        };
        let is_bucket_in_host = match style {
            Some("virtual") => true,
            Some("path") => false,
            _ => is_of_region && fits_host(bucket),
        };
        if is_bucket_in_host {
            origin.host = format!("{}.{}", bucket.to_ascii_lowercase(), origin.host);
        }
        Ok(Service {
            origin,
            is_bucket_in_host,
            region,
            is_of_region,
            keys,
        })
    }
}

impl Service {
    /// The same in another region, where the service has said that a bucket is there.
    pub(crate) fn in_region(&self, bucket: &str, region: &str) -> Self {
        let mut origin = self.origin.clone();
        if self.is_of_region {
            origin = of_region(region);
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

fn of_region(region: &str) -> Origin {
    let tail = match region.starts_with("cn-") {
        true => "amazonaws.com.cn",
        false => "amazonaws.com",
    };
    Origin {
        scheme: Scheme::Https,
        host: format!("s3.{region}.{tail}"),
        port: 443,
    }
}

fn endpoint_of(url: &str) -> Result<Origin, String> {
    let shown = url.split('?').next().unwrap_or_default();
    let parsed =
        Url::parse(url).map_err(|error| format!("--s3-endpoint or AWS_ENDPOINT_URL: {error}"))?;
    match parsed.target() {
        "/" => Ok(parsed.origin),
        _ => Err(format!(
            "--s3-endpoint or AWS_ENDPOINT_URL: {shown} has a path, which no service of S3 has"
        )),
    }
}

/// Certificates for all buckets of a service are for one name more, and names are in lower case.
fn fits_host(bucket: &str) -> bool {
    let allowed = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    (3..=63).contains(&bucket.len()) && bucket.bytes().all(allowed)
}

fn keys_of<'a>(
    profile: &str,
    of_profile: impl Fn(&str) -> Option<&'a str>,
) -> Result<Keys, NoService> {
    let pair = of_profile("aws_access_key_id").zip(of_profile("aws_secret_access_key"));
    if let Some((access, secret)) = pair {
        return Ok(Keys {
            access: access.to_owned(),
            secret: Password::new(secret),
            token: of_profile("aws_session_token").map(Password::new),
        });
    }
    let others = [
        "role_arn",
        "sso_session",
        "sso_start_url",
        "credential_process",
        "web_identity_token_file",
    ];
    let other = others.iter().find(|key| of_profile(key).is_some());
    let other = other.ok_or_else(|| NoService::Keys(profile.to_owned()))?;
    Err(NoService::Unfit(format!(
        "profile {profile} gets its keys by {other}, which godwit does not know: run it with those \
         of `aws configure export-credentials --format env`"
    )))
}

/// A file of profiles: sections, and keys in them. Keys below another one have its name and a dot
/// before theirs.
#[derive(Debug, Default)]
struct Profiles(HashMap<(String, String), String>);

impl Profiles {
    fn read(path: Option<&Path>, is_private: bool) -> Result<Self, String> {
        let Some(path) = path.filter(|path| path.exists()) else {
            return Ok(Self::default());
        };
        if is_private {
            let text = read_private(path).map_err(|error| error.to_string())?;
            return Ok(Self::parse(&text));
        }
        let mut text = String::new();
        let read =
            File::open(path).and_then(|file| file.take(FILE_BYTES_MAX).read_to_string(&mut text));
        read.map_err(|error| format!("read {}: {error}", path.display()))?;
        Ok(Self::parse(&text))
    }

    fn parse(text: &str) -> Self {
        let mut values = HashMap::new();
        let (mut section, mut above) = (String::new(), String::new());
        for line in text.lines() {
            let is_below = line.starts_with([' ', '\t']);
            let line = line.trim();
            if line.is_empty() || line.starts_with(['#', ';']) {
                continue;
            }
            if let Some(name) = line
                .strip_prefix('[')
                .and_then(|rest| rest.strip_suffix(']'))
            {
                section = name.split_whitespace().collect::<Vec<_>>().join(" ");
                above.clear();
                continue;
            }
            let Some((key, value)) = line.split_once('=') else {
                continue;
            };
            let (key, value) = (key.trim().to_ascii_lowercase(), value.trim());
            let key = match is_below && !above.is_empty() {
                true => format!("{above}.{key}"),
                false => {
                    above = key.clone();
                    key
                }
            };
            values.insert((section.clone(), key), value.to_owned());
        }
        Self(values)
    }

    fn value(&self, section: &str, key: &str) -> Option<&str> {
        let value = self.0.get(&(section.to_owned(), key.to_owned()))?;
        (!value.is_empty()).then_some(value.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CREDENTIALS: &str = "[default]\naws_access_key_id = A\naws_secret_access_key = S=1\n\
        # no\n[other]\naws_access_key_id=B\naws_secret_access_key=T\naws_session_token=U\n";

    const CONFIG: &str = "[default]\nregion = eu-west-1\n[profile other]\n\
        endpoint_url = http://127.0.0.1:9000/\ns3 =\n  addressing_style = virtual\n\
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
        let (credentials, config) = (Profiles::parse(CREDENTIALS), Profiles::parse(CONFIG));
        let found = environment(pairs).service_by(bucket, user, &credentials, &config);
        found.map_err(|error| error.to_string())
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
