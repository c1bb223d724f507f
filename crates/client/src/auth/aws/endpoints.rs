//! Which server a service of AWS, or one in its place, is asked at.

use godwit_http_client::{Origin, Scheme, Url};

use super::profiles::ProfileFiles;

/// Services that are asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AwsService {
    S3,
    Sts,
    /// The portal of single sign-on.
    Sso,
}

impl AwsService {
    /// In names of hosts; in the section of a profile's services; who names its endpoint.
    fn names(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Self::S3 => ("s3", "s3", "--s3-endpoint or AWS_ENDPOINT_URL"),
            Self::Sts => ("sts", "sts", "AWS_ENDPOINT_URL_STS or AWS_ENDPOINT_URL"),
            Self::Sso => (
                "portal.sso",
                "sso",
                "AWS_ENDPOINT_URL_SSO or AWS_ENDPOINT_URL",
            ),
        }
    }

    /// That of AWS in a region.
    pub(super) fn of_region(self, region: &str) -> Origin {
        let tail = match region.starts_with("cn-") {
            true => "amazonaws.com.cn",
            false => "amazonaws.com",
        };
        Origin {
            scheme: Scheme::Https,
            host: format!("{}.{region}.{tail}", self.names().0),
            port: 443,
        }
    }
}

/// Endpoints that the environment or the command line names.
#[derive(Clone, Debug, Default)]
pub(super) struct Endpoints {
    s3: Option<String>,
    sts: Option<String>,
    sso: Option<String>,
    /// Of all that are not named.
    all: Option<String>,
}

impl Endpoints {
    /// By the variables that `text` finds.
    pub(super) fn of_environment(text: impl Fn(&str) -> Option<String>) -> Self {
        Self {
            s3: text("AWS_ENDPOINT_URL_S3"),
            sts: text("AWS_ENDPOINT_URL_STS"),
            sso: text("AWS_ENDPOINT_URL_SSO"),
            all: text("AWS_ENDPOINT_URL"),
        }
    }

    /// With buckets at `s3`, if given.
    pub(super) fn with_s3(self, s3: Option<String>) -> Self {
        Self {
            s3: s3.or(self.s3),
            ..self
        }
    }

    /// The one that is named for a service, here or by the profile.
    ///
    /// # Errors
    /// It is none: a message for the user.
    pub(super) fn named(
        &self,
        service: AwsService,
        files: &ProfileFiles,
        profile: &str,
    ) -> Result<Option<Origin>, String> {
        let own = match service {
            AwsService::S3 => &self.s3,
            AwsService::Sts => &self.sts,
            AwsService::Sso => &self.sso,
        };
        let (_, key, named_by) = service.names();
        let of_services = || {
            let section = format!("services {}", files.value(profile, "services")?);
            files.config.value(&section, &format!("{key}.endpoint_url"))
        };
        let url = own.as_deref().or(self.all.as_deref());
        let url = url.or_else(of_services);
        let url = url.or_else(|| files.value(profile, "endpoint_url"));
        url.map(|url| origin_of(url, named_by)).transpose()
    }
}

fn origin_of(url: &str, named_by: &str) -> Result<Origin, String> {
    let shown = url.split('?').next().unwrap_or_default();
    let parsed = Url::parse(url).map_err(|error| format!("{named_by}: {error}"))?;
    match parsed.target() {
        "/" => Ok(parsed.origin),
        _ => Err(format!(
            "{named_by}: {shown} has a path, which no service has"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::{super::profiles::Profiles, *};

    const CONFIG: &str = "[profile p]\nendpoint_url = https://profile\nservices = s\n\
        [profile q]\nendpoint_url = https://profile\n\
        [services s]\nsts =\n  endpoint_url = https://services\n";

    #[test]
    fn endpoints_are_named_for_one_service_and_for_all() {
        let files = ProfileFiles {
            config: Profiles::parse(CONFIG),
            ..ProfileFiles::default()
        };
        let named = |variables: &[(&str, &str)], service, profile| {
            let text = |name: &str| {
                let pair = variables.iter().find(|(known, _)| *known == name);
                pair.map(|(_, value)| (*value).to_owned())
            };
            let endpoints = Endpoints::of_environment(text).with_s3(None);
            let origin = endpoints.named(service, &files, profile);
            origin.map(|origin| origin.map(|origin| origin.to_string()))
        };
        let all = ("AWS_ENDPOINT_URL", "https://all");
        let own = ("AWS_ENDPOINT_URL_STS", "http://own:1");
        for (variables, service, profile, expected) in [
            (&[all, own][..], AwsService::Sts, "p", Some("http://own:1")),
            (&[all, own], AwsService::Sso, "p", Some("https://all")),
            (&[all], AwsService::S3, "p", Some("https://all")),
            (&[], AwsService::Sts, "p", Some("https://services")),
            (&[], AwsService::Sso, "p", Some("https://profile")),
            (&[], AwsService::Sts, "q", Some("https://profile")),
            (&[], AwsService::Sts, "r", None),
        ] {
            let found = named(variables, service, profile).unwrap();
            assert_eq!(found.as_deref(), expected, "{service:?} {profile}");
        }
        let wrong = [("AWS_ENDPOINT_URL_STS", "https://h/path")];
        let error = named(&wrong, AwsService::Sts, "p").unwrap_err();
        assert!(error.contains("AWS_ENDPOINT_URL_STS"), "{error}");
    }
}
