//! Settings of GSI: the given ones, and defaults as in the grid's tools.

use std::path::PathBuf;

use clap::ValueEnum;
use godwit_gsi::{
    cert::files::{Locations, effective_uid},
    gridmap::AllowList,
};

use godwit_proto::security::MinProtection;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::{Anonymous, ConfigError, Options};

/// How users authenticate by certificate, and which may log in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GsiSettings {
    /// Certificate and key of the server: the first pair whose certificate exists.
    pub host: Vec<(PathBuf, PathBuf)>,
    /// Directory of trusted CAs.
    pub authorities: PathBuf,
    /// Maps identities to accounts; `None`: only `allowed` identities may log in.
    pub gridmap: Option<PathBuf>,
    /// Identities that may log in without an account. Other processes do not use them.
    #[serde(skip)]
    pub allowed: AllowList,
}

/// [`MinProtection`], as settings spell it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs)]
pub enum Protect {
    Clear,
    Identity,
    Integrity,
    Private,
}

impl From<Protect> for MinProtection {
    fn from(protect: Protect) -> Self {
        match protect {
            Protect::Clear => Self::Clear,
            Protect::Identity => Self::Identity,
            Protect::Integrity => Self::Integrity,
            Protect::Private => Self::Private,
        }
    }
}

/// For `serde(with)`.
impl Protect {
    pub(super) fn serialize<S: Serializer>(
        floor: &MinProtection,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        let protect = match floor {
            MinProtection::Clear => Self::Clear,
            MinProtection::Identity => Self::Identity,
            MinProtection::Integrity => Self::Integrity,
            MinProtection::Private => Self::Private,
        };
        Serialize::serialize(&protect, to)
    }

    pub(super) fn deserialize<'a, D: Deserializer<'a>>(from: D) -> Result<MinProtection, D::Error> {
        <Self as Deserialize>::deserialize(from).map(MinProtection::from)
    }
}

/// The minimum protection, checked: without identities data channels cannot be protected.
pub(super) fn floor_of(
    protect: Option<Protect>,
    has_channels: bool,
    anonymous: Anonymous,
) -> Result<MinProtection, ConfigError> {
    let floor = protect.map_or(MinProtection::Clear, MinProtection::from);
    if floor == MinProtection::Clear {
        return Ok(floor);
    }
    let refused = |reason: &str| Err(ConfigError::value("protect", reason));
    if !has_channels {
        return refused("protected channels need GSI or TLS: add --gsi or --tls");
    }
    if anonymous != Anonymous::Off {
        return refused("anonymous users have no protected channels: leave --anonymous out");
    }
    Ok(floor)
}

/// `None` without GSI.
pub(super) fn gsi_of(
    options: &Options,
    environment: &impl Fn(&str) -> Option<String>,
) -> Result<Option<GsiSettings>, ConfigError> {
    let of_grid = options.trusted_certs.is_some()
        || options.gridmap.is_some()
        || !options.allow_subject.is_empty();
    let shows = options.cert.is_some() || options.key.is_some();
    let implied = of_grid || shows && !options.wants_tls();
    if !options.gsi.unwrap_or(implied) {
        return Ok(None);
    }
    let locations = locations(environment);
    let host = host_of(options, &locations)?;
    let authorities = options
        .trusted_certs
        .clone()
        .or_else(|| locations.authority_directory().map(Into::into));
    let authorities = authorities.ok_or_else(|| {
        let places = locations
            .authorities
            .iter()
            .map(|path| path.display().to_string());
        let places = places.collect::<Vec<_>>().join(", ");
        let reason = format!("there is no directory of trusted CAs at {places}");
        ConfigError::value("trusted-certs", reason)
    })?;
    let gridmap = options.gridmap.clone().or_else(|| {
        let by_file = options.allow_subject.is_empty();
        by_file.then(|| locations.gridmap.clone())
    });
    Ok(Some(GsiSettings {
        host,
        authorities,
        gridmap,
        allowed: allowed(&options.allow_subject)?,
    }))
}

pub(super) fn locations(environment: &impl Fn(&str) -> Option<String>) -> Locations {
    Locations::new(|name| environment(name).map(Into::into), effective_uid())
}

pub(super) fn host_of(
    options: &Options,
    locations: &Locations,
) -> Result<Vec<(PathBuf, PathBuf)>, ConfigError> {
    match (&options.cert, &options.key) {
        (Some(cert), key) => Ok(vec![(cert.clone(), key.as_ref().unwrap_or(cert).clone())]),
        (None, None) => Ok(locations.host.clone()),
        (None, Some(_)) => {
            let reason = "it belongs to a certificate: name that with --cert";
            Err(ConfigError::value("key", reason))
        }
    }
}

/// Names have no quotes here: a command line has its own.
fn allowed(names: &[String]) -> Result<AllowList, ConfigError> {
    let quoted: Vec<_> = names
        .iter()
        .map(|name| match name.starts_with('"') {
            true => name.clone(),
            false => format!("\"{}\"", name.replace('\\', "\\\\").replace('"', "\\\"")),
        })
        .collect();
    let (list, faults) = AllowList::parse(&quoted.join("\n"));
    match faults.first() {
        None => Ok(list),
        Some(fault) => {
            let name = names.get(fault.line - 1).map_or("", String::as_str);
            let reason = format!("{name:?}: {}", fault.fault);
            Err(ConfigError::value("allow-subject", reason))
        }
    }
}

#[cfg(test)]
mod tests {
    use godwit_gsi::name::DistinguishedName;

    use super::*;

    fn resolve(options: &Options) -> Result<Option<GsiSettings>, String> {
        let environment = |name: &str| match name {
            "X509_CERT_DIR" => Some("/".to_owned()),
            "GRIDMAP" => Some("/map".to_owned()),
            _ => None,
        };
        gsi_of(options, &environment).map_err(|error| error.to_string())
    }

    #[test]
    fn any_setting_of_gsi_turns_it_on() {
        assert_eq!(resolve(&Options::default()), Ok(None));
        let off = Options {
            gsi: Some(false),
            gridmap: Some("/m".into()),
            ..Options::default()
        };
        assert_eq!(resolve(&off), Ok(None));
        let on = Options {
            gsi: Some(true),
            ..Options::default()
        };
        let settings = resolve(&on).unwrap().unwrap();
        assert_eq!(settings.gridmap, Some("/map".into()));
        assert_eq!(settings.authorities, PathBuf::from("/"));
        let pair = |name: &str| {
            let at = PathBuf::from("/etc/grid-security");
            (
                at.join(format!("{name}cert.pem")),
                at.join(format!("{name}key.pem")),
            )
        };
        assert_eq!(settings.host.first(), Some(&pair("host")));
        let named = Options {
            cert: Some("/c".into()),
            gridmap: Some("/m".into()),
            ..Options::default()
        };
        let settings = resolve(&named).unwrap().unwrap();
        assert_eq!(settings.host, [("/c".into(), "/c".into())]);
        assert_eq!(settings.gridmap, Some("/m".into()));
        let key = Options {
            key: Some("/k".into()),
            ..Options::default()
        };
        assert!(resolve(&key).unwrap_err().starts_with("key: "));
    }

    #[test]
    fn allowed_subjects_replace_the_default_gridmap_file() {
        let some = Options {
            allow_subject: vec!["/O=Grid/CN=Jo Doe".to_owned(), "/O=Grid/OU=P/*".to_owned()],
            ..Options::default()
        };
        let settings = resolve(&some).unwrap().unwrap();
        assert_eq!(settings.gridmap, None);
        for (name, allowed) in [
            ("/O=Grid/CN=Jo Doe", true),
            ("/O=Grid/CN=Jo Doe/CN=1", false),
            ("/O=Grid/OU=P/CN=Kim", true),
            ("/O=Grid/OU=Q/CN=Kim", false),
        ] {
            let name = DistinguishedName::parse(name).unwrap();
            assert_eq!(settings.allowed.allows(&name), allowed, "{name}");
        }
        let all = Options {
            allow_subject: vec!["*".to_owned()],
            ..Options::default()
        };
        assert!(
            resolve(&all)
                .unwrap_err()
                .starts_with("allow-subject: \"*\"")
        );
    }

    #[test]
    fn minimum_protection_needs_authenticated_users() {
        let floor =
            |protect, has_channels, anonymous| floor_of(protect, has_channels, anonymous).ok();
        let private = Some(Protect::Private);
        assert_eq!(
            floor(None, false, Anonymous::Rw),
            Some(MinProtection::Clear)
        );
        assert_eq!(
            floor(private, true, Anonymous::Off),
            Some(MinProtection::Private)
        );
        assert_eq!(floor(private, true, Anonymous::Ro), None);
        assert_eq!(floor(private, false, Anonymous::Off), None);
    }
}
