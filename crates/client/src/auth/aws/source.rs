//! Where the keys of a profile come from: the environment and the files say it, and nothing is
//! asked.

use std::path::{Path, PathBuf};

use godwit_proto::command::Password;

use super::{
    Keys,
    endpoints::{AwsService, Endpoints},
    is_region,
    profiles::ProfileFiles,
    role::RoleHost,
    sso::{SsoRole, token_file},
    sts::{AssumedRole, Sts, WebIdentity},
};

/// Roles that are assumed one by the other.
const ROLES_MAX: usize = 8;

/// What is done for keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct KeySource {
    pub(super) first: FirstKeys,
    /// Assumed in this order, each with the keys of the one before.
    pub(super) roles: Vec<AssumedRole>,
}

/// Keys that need no others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum FirstKeys {
    Known(Keys),
    WebIdentity(WebIdentity),
    Sso(SsoRole),
    Process { profile: String, command: String },
    Host { profile: String, host: RoleHost },
}

/// Keys that are to be asked for, and the service that has those of roles.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct AskedKeys {
    pub(super) source: KeySource,
    pub(super) sts: Sts,
}

/// Keys, and the identity of a pod, in the environment.
#[derive(Clone, Debug, Default)]
pub(super) struct KeyVariables {
    pub(super) keys: Option<Keys>,
    token_file: Option<String>,
    role: Option<String>,
    session: Option<String>,
}

impl KeyVariables {
    /// By the variables that `text` finds.
    pub(super) fn of_environment(text: impl Fn(&str) -> Option<String>) -> Self {
        let pair = text("AWS_ACCESS_KEY_ID").zip(text("AWS_SECRET_ACCESS_KEY"));
        Self {
            keys: pair.map(|(access, secret)| Keys {
                access,
                secret: Password::new(secret),
                token: text("AWS_SESSION_TOKEN").map(Password::new),
            }),
            token_file: text("AWS_WEB_IDENTITY_TOKEN_FILE"),
            role: text("AWS_ROLE_ARN"),
            session: text("AWS_ROLE_SESSION_NAME"),
        }
    }

    /// Keys that were handed over.
    pub(super) fn of_keys(keys: Keys) -> Self {
        Self {
            keys: Some(keys),
            ..Self::default()
        }
    }
}

/// What sources are found in.
pub(super) struct Sources<'a> {
    pub(super) variables: &'a KeyVariables,
    pub(super) files: &'a ProfileFiles,
    pub(super) endpoints: &'a Endpoints,
    pub(super) sso_cache: Option<&'a Path>,
    /// The one that is asked for.
    pub(super) profile: &'a str,
}

impl<'a> Sources<'a> {
    /// `is_of_url`: the URL names the profile, and variables have no say. `is_named`: it, or a
    /// variable.
    ///
    /// # Errors
    /// There is none, or what the profile says makes no sense: a message for the user.
    pub(super) fn find(&self, is_of_url: bool, is_named: bool) -> Result<KeySource, String> {
        let of_variables = self.variables.keys.clone().filter(|_| !is_of_url);
        if let Some(keys) = of_variables {
            return Ok(KeySource {
                first: FirstKeys::Known(keys),
                roles: Vec::new(),
            });
        }
        let mut roles = Vec::new();
        let mut visited = vec![self.profile];
        let first = loop {
            let profile = visited[visited.len() - 1];
            let is_source = !roles.is_empty();
            // One that has keys may be its own source.
            if !self.is_assumed(profile) || is_source && self.has_own_keys(profile) {
                break self.first(profile, is_of_url || is_source)?;
            }
            if roles.len() == ROLES_MAX {
                let profile = self.profile;
                return Err(format!(
                    "profile {profile} needs more than {ROLES_MAX} roles (source_profile)"
                ));
            }
            roles.push(self.role(profile)?);
            match self.source_of(profile)? {
                SourceKeys::Are(first) => break Some(first),
                SourceKeys::OfProfile(next) => {
                    let is_own = next == profile && self.has_own_keys(next);
                    if visited.contains(&next) && !is_own {
                        visited.push(next);
                        let circle = visited.join(", ");
                        return Err(format!(
                            "profiles are in a circle (source_profile): {circle}"
                        ));
                    }
                    visited.push(next);
                }
            }
        };
        let profile = visited[visited.len() - 1];
        let first = match first {
            Some(first) => first,
            None if roles.is_empty() && !is_named => FirstKeys::Host {
                profile: profile.to_owned(),
                host: RoleHost::Any,
            },
            None => return Err(no_keys(profile)),
        };
        roles.reverse();
        Ok(KeySource { first, roles })
    }

    /// Whether a profile is a role that is assumed with other keys.
    fn is_assumed(&self, profile: &str) -> bool {
        let says = |key| self.files.value(profile, key).is_some();
        says("role_arn") && !says("web_identity_token_file")
    }

    fn has_own_keys(&self, profile: &str) -> bool {
        let files = self.files;
        let in_credentials = keys_in(|key| files.credentials.value(profile, key));
        in_credentials
            .or_else(|| keys_in(|key| files.in_config(profile, key)))
            .is_some()
    }

    fn role(&self, profile: &str) -> Result<AssumedRole, String> {
        let value = |key| self.files.value(profile, key);
        if value("mfa_serial").is_some() {
            return Err(format!(
                "profile {profile} wants a code of a device (mfa_serial), which godwit does not \
                 ask for: run it with what `aws configure export-credentials --profile {} \
                 --format env` prints",
                self.profile
            ));
        }
        let seconds = value("duration_seconds").map(|text| {
            let wrong = || format!("profile {profile}: duration_seconds is no number: {text:?}");
            text.parse().map_err(|_| wrong())
        });
        let owned = |key| value(key).map(str::to_owned);
        Ok(AssumedRole {
            arn: owned("role_arn").unwrap_or_default(),
            session: owned("role_session_name"),
            external_id: owned("external_id"),
            seconds: seconds.transpose()?,
        })
    }

    fn source_of(&self, profile: &str) -> Result<SourceKeys<'a>, String> {
        let says = |what: String| Err(format!("profile {profile} has role_arn {what}"));
        let files = self.files;
        let value = |key| files.value(profile, key);
        match (value("source_profile"), value("credential_source")) {
            (Some(_), Some(_)) => {
                says("with both source_profile and credential_source: remove one".to_owned())
            }
            (None, None) => says("without source_profile or credential_source".to_owned()),
            (Some(next), None) if !files.has(next) => {
                says(format!("with source_profile {next}, which does not exist"))
            }
            (Some(next), None) => Ok(SourceKeys::OfProfile(next)),
            (None, Some(source)) => {
                let host = match source {
                    "Environment" => {
                        let keys = self.variables.keys.clone().ok_or_else(|| {
                            format!(
                                "profile {profile} has credential_source Environment: set \
                                 AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
                            )
                        })?;
                        return Ok(SourceKeys::Are(FirstKeys::Known(keys)));
                    }
                    "Ec2InstanceMetadata" => RoleHost::Instance,
                    "EcsContainer" => RoleHost::Container,
                    _ => {
                        return says(format!(
                            "with credential_source {source:?}, which is none of Environment, \
                             Ec2InstanceMetadata and EcsContainer"
                        ));
                    }
                };
                let profile = profile.to_owned();
                Ok(SourceKeys::Are(FirstKeys::Host { profile, host }))
            }
        }
    }

    /// Of a profile that assumes no role by other keys; `None`: it says nothing of keys.
    fn first(&self, profile: &str, by_files_alone: bool) -> Result<Option<FirstKeys>, String> {
        if let Some(identity) = self.web_identity(profile, by_files_alone)? {
            return Ok(Some(FirstKeys::WebIdentity(identity)));
        }
        if let Some(role) = self.sso_role(profile)? {
            return Ok(Some(FirstKeys::Sso(role)));
        }
        let files = self.files;
        if let Some(keys) = keys_in(|key| files.credentials.value(profile, key)) {
            return Ok(Some(FirstKeys::Known(keys)));
        }
        if let Some(command) = files.value(profile, "credential_process") {
            let (profile, command) = (profile.to_owned(), command.to_owned());
            return Ok(Some(FirstKeys::Process { profile, command }));
        }
        let keys = keys_in(|key| files.in_config(profile, key));
        Ok(keys.map(FirstKeys::Known))
    }

    fn web_identity(
        &self,
        profile: &str,
        by_files_alone: bool,
    ) -> Result<Option<WebIdentity>, String> {
        let value = |variable: &Option<String>, key| {
            let variable = variable.clone().filter(|_| !by_files_alone);
            variable.or_else(|| self.files.value(profile, key).map(str::to_owned))
        };
        let variables = self.variables;
        let Some(file) = value(&variables.token_file, "web_identity_token_file") else {
            return Ok(None);
        };
        let arn = value(&variables.role, "role_arn");
        let arn = arn.ok_or_else(|| {
            format!("{file} has a token for a role: set AWS_ROLE_ARN, or role_arn of {profile}")
        })?;
        Ok(Some(WebIdentity {
            token_file: PathBuf::from(file),
            arn,
            session: value(&variables.session, "role_session_name"),
        }))
    }

    fn sso_role(&self, profile: &str) -> Result<Option<SsoRole>, String> {
        let files = self.files;
        let own = |key| files.value(profile, key);
        if own("sso_account_id")
            .or_else(|| own("sso_role_name"))
            .is_none()
        {
            return Ok(None);
        }
        let session = own("sso_session");
        let section = session.map(|name| format!("sso-session {name}"));
        if let Some(section) = section.as_ref().filter(|name| !files.config.has(name)) {
            return Err(format!(
                "profile {profile}: there is no section [{section}]"
            ));
        }
        let setting = |key| {
            let section = section.as_deref();
            let of_session = section.and_then(|section| files.config.value(section, key));
            let found = of_session.or_else(|| own(key));
            found.ok_or_else(|| format!("profile {profile} has no {key}, which SSO needs"))
        };
        let (start, region) = (setting("sso_start_url")?, setting("sso_region")?);
        if !is_region(region) {
            let why = format!("profile {profile}: sso_region is no name of a region: {region:?}");
            return Err(why);
        }
        let folder = self
            .sso_cache
            .ok_or("HOME is not set, where tokens of SSO are")?;
        let named = self.endpoints.named(AwsService::Sso, files, self.profile)?;
        Ok(Some(SsoRole {
            profile: profile.to_owned(),
            account: setting("sso_account_id")?.to_owned(),
            role: setting("sso_role_name")?.to_owned(),
            token_file: token_file(folder, session.unwrap_or(start)),
            origin: named.unwrap_or_else(|| AwsService::Sso.of_region(region)),
        }))
    }
}

/// With what a role is assumed.
enum SourceKeys<'a> {
    Are(FirstKeys),
    OfProfile(&'a str),
}

/// What to do without keys.
pub(super) fn no_keys(profile: &str) -> String {
    format!(
        "no keys: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or have profile {profile} in \
         ~/.aws/credentials; s3://anonymous@bucket/key asks without"
    )
}

fn keys_in<'a>(value: impl Fn(&str) -> Option<&'a str>) -> Option<Keys> {
    let access = value("aws_access_key_id")?;
    let secret = value("aws_secret_access_key")?;
    Some(Keys {
        access: access.to_owned(),
        secret: Password::new(secret),
        token: value("aws_session_token").map(Password::new),
    })
}

#[cfg(test)]
mod tests {
    use super::{super::profiles::Profiles, *};

    const CREDENTIALS: &str = "[plain]\naws_access_key_id = A\naws_secret_access_key = S\n\
        [self]\naws_access_key_id = B\naws_secret_access_key = T\n\
        [both]\naws_access_key_id = C\naws_secret_access_key = U\n";

    const CONFIG: &str = "[profile one]\nrole_arn = arn:1\nsource_profile = two\n\
        external_id = x\nrole_session_name = n\nduration_seconds = 900\n\
        [profile two]\nrole_arn = arn:2\nsource_profile = plain\n\
        [profile self]\nrole_arn = arn:3\nsource_profile = self\n\
        [profile left]\nrole_arn = arn:4\nsource_profile = right\n\
        [profile right]\nrole_arn = arn:5\nsource_profile = left\n\
        [profile alone]\nrole_arn = arn:6\nsource_profile = alone\n\
        [profile gone]\nrole_arn = arn:7\nsource_profile = absent\n\
        [profile twice]\nrole_arn = a\nsource_profile = plain\ncredential_source = Environment\n\
        [profile mfa]\nrole_arn = a\nsource_profile = plain\nmfa_serial = arn:mfa\n\
        [profile pod]\nrole_arn = arn:8\nweb_identity_token_file = /t\n\
        [profile of-pod]\nrole_arn = arn:9\nsource_profile = pod\n\
        [profile ec2]\nrole_arn = a\ncredential_source = Ec2InstanceMetadata\n\
        [profile odd]\nrole_arn = a\ncredential_source = Elsewhere\n\
        [profile long]\nrole_arn = a\nsource_profile = plain\nduration_seconds = 1h\n\
        [profile empty]\nregion = r\n\
        [profile of-empty]\nrole_arn = a\nsource_profile = empty\n\
        [profile both]\ncredential_process = p\naws_access_key_id = D\n\
        aws_secret_access_key = V\n\
        [profile process]\ncredential_process = p 'q r'\naws_access_key_id = D\n\
        aws_secret_access_key = V\n\
        [profile sso]\nsso_session = s\nsso_account_id = 1\nsso_role_name = r\n\
        [profile old-sso]\nsso_start_url = https://x/start\nsso_region = cn-north-1\n\
        sso_account_id = 1\nsso_role_name = r\n\
        [profile half-sso]\nsso_account_id = 1\nsso_session = s\n\
        [profile lost-sso]\nsso_account_id = 1\nsso_session = none\n\
        [sso-session s]\nsso_start_url = https://x/start\nsso_region = eu-west-1\n";

    /// With variables, for a profile that the URL does not name.
    fn find_with(variables: &[(&str, &str)], profile: &str) -> Result<KeySource, String> {
        sources(variables, profile, false)
    }

    fn find(profile: &str) -> Result<KeySource, String> {
        sources(&[], profile, true)
    }

    fn sources(
        variables: &[(&str, &str)],
        profile: &str,
        is_of_url: bool,
    ) -> Result<KeySource, String> {
        let text = |name: &str| {
            let pair = variables.iter().find(|(known, _)| *known == name);
            pair.map(|(_, value)| (*value).to_owned())
        };
        let sources = Sources {
            variables: &KeyVariables::of_environment(text),
            files: &ProfileFiles {
                credentials: Profiles::parse(CREDENTIALS),
                config: Profiles::parse(CONFIG),
            },
            endpoints: &Endpoints::of_environment(text),
            sso_cache: Some(Path::new("/c")),
            profile,
        };
        sources.find(is_of_url, profile != "default")
    }

    fn access(source: &KeySource) -> &str {
        match &source.first {
            FirstKeys::Known(keys) => &keys.access,
            _ => "",
        }
    }

    fn arns(source: &KeySource) -> Vec<&str> {
        source.roles.iter().map(|role| &*role.arn).collect()
    }

    const KEYS: [(&str, &str); 2] = [("AWS_ACCESS_KEY_ID", "E"), ("AWS_SECRET_ACCESS_KEY", "F")];

    const POD: [(&str, &str); 2] = [
        ("AWS_WEB_IDENTITY_TOKEN_FILE", "/pod"),
        ("AWS_ROLE_ARN", "arn:pod"),
    ];

    #[test]
    fn roles_are_assumed_from_the_profile_that_has_keys_on() {
        let source = find("one").unwrap();
        assert_eq!(
            (access(&source), arns(&source)),
            ("A", vec!["arn:2", "arn:1"])
        );
        let role = &source.roles[1];
        assert_eq!(role.external_id.as_deref(), Some("x"));
        assert_eq!(
            (role.session.as_deref(), role.seconds),
            (Some("n"), Some(900))
        );
        let source = find("self").unwrap();
        assert_eq!((access(&source), arns(&source)), ("B", vec!["arn:3"]));
        let source = find("of-pod").unwrap();
        assert!(matches!(source.first, FirstKeys::WebIdentity(_)));
        assert_eq!(arns(&source), ["arn:9"]);
        let source = find("ec2").unwrap();
        let is_of_host =
            |host| matches!(&source.first, FirstKeys::Host { host: of, .. } if *of == host);
        assert!(is_of_host(RoleHost::Instance));
    }

    #[test]
    fn profiles_that_make_no_sense_are_named() {
        for (profile, said) in [
            ("left", "left, right, left"),
            ("alone", "alone, alone"),
            ("gone", "source_profile absent"),
            ("twice", "both source_profile and credential_source"),
            ("mfa", "export-credentials --profile mfa"),
            ("odd", "\"Elsewhere\""),
            ("long", "duration_seconds"),
            ("of-empty", "profile empty"),
            ("empty", "profile empty"),
            ("half-sso", "no sso_role_name"),
            ("lost-sso", "[sso-session none]"),
        ] {
            let error = find(profile).unwrap_err();
            assert!(error.contains(said), "{profile}: {error}");
        }
        let error = find_with(&POD[..1], "default").unwrap_err();
        assert!(error.contains("AWS_ROLE_ARN"), "{error}");
    }

    #[test]
    fn chains_of_roles_end() {
        let found = |roles: usize| {
            let config: String = (0..roles)
                .map(|at| format!("[profile p{at}]\nrole_arn=a\nsource_profile=p{}\n", at + 1))
                .chain([format!("[profile p{roles}]\ncredential_process=c\n")])
                .collect();
            let sources = Sources {
                variables: &KeyVariables::default(),
                files: &ProfileFiles {
                    config: Profiles::parse(&config),
                    ..Default::default()
                },
                endpoints: &Endpoints::default(),
                sso_cache: None,
                profile: "p0",
            };
            sources.find(true, true)
        };
        assert_eq!(found(ROLES_MAX).unwrap().roles.len(), ROLES_MAX);
        let error = found(ROLES_MAX + 1).unwrap_err();
        assert!(error.contains("more than 8 roles"), "{error}");
    }

    #[test]
    fn sources_are_in_the_order_of_the_tools_of_aws() {
        let source = find_with(&[KEYS, POD].concat(), "one").unwrap();
        assert_eq!((access(&source), source.roles.len()), ("E", 0));
        let source = find_with(&POD, "one").unwrap();
        assert_eq!((access(&source), source.roles.len()), ("A", 2));
        let FirstKeys::WebIdentity(identity) = find_with(&POD, "plain").unwrap().first else {
            panic!("a web identity");
        };
        assert_eq!((&*identity.arn, identity.session), ("arn:pod", None));
        assert_eq!(access(&sources(&POD, "plain", true).unwrap()), "A");
        assert_eq!(access(&find("both").unwrap()), "C");
        let FirstKeys::Process { command, .. } = find("process").unwrap().first else {
            panic!("a process");
        };
        assert_eq!(command, "p 'q r'");
        let FirstKeys::Host { host, .. } = find_with(&[], "default").unwrap().first else {
            panic!("a host");
        };
        assert_eq!(host, RoleHost::Any);
    }

    #[test]
    fn tokens_of_sso_are_found_by_the_session_or_the_start() {
        let sso = |variables: &[(&str, &str)], profile| match find_with(variables, profile) {
            Ok(KeySource {
                first: FirstKeys::Sso(role),
                ..
            }) => (role.token_file, role.origin.to_string()),
            other => panic!("{other:?}"),
        };
        let portal = "https://portal.sso.eu-west-1.amazonaws.com";
        let expected = (token_file(Path::new("/c"), "s"), portal.to_owned());
        assert_eq!(sso(&[], "sso"), expected);
        let portal = "https://portal.sso.cn-north-1.amazonaws.com.cn";
        let by_start = token_file(Path::new("/c"), "https://x/start");
        assert_eq!(sso(&[], "old-sso"), (by_start, portal.to_owned()));
        let named = sso(&[("AWS_ENDPOINT_URL_SSO", "http://h:1")], "sso");
        assert_eq!(named.1, "http://h:1");
    }
}
