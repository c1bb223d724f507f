//! The files of profiles: sections, and keys in them.

use std::{collections::HashMap, fs::File, io::Read as _, path::Path};

use crate::auth::private_file::read_private;

/// Longest file that is read.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Both files of a user.
#[derive(Debug, Default)]
pub(super) struct ProfileFiles {
    /// It comes first.
    pub(super) credentials: Profiles,
    pub(super) config: Profiles,
}

impl ProfileFiles {
    /// Reads those that exist. Blocks.
    ///
    /// # Errors
    /// One cannot be read, or others can read the secrets in it: a message for the user.
    pub(super) fn read(credentials: Option<&Path>, config: Option<&Path>) -> Result<Self, String> {
        Ok(Self {
            credentials: Profiles::read(credentials, true)?,
            config: Profiles::read(config, false)?,
        })
    }

    /// What either file says of a profile.
    pub(super) fn value(&self, profile: &str, key: &str) -> Option<&str> {
        let in_credentials = self.credentials.value(profile, key);
        in_credentials.or_else(|| self.in_config(profile, key))
    }

    /// What `config` says of it.
    pub(super) fn in_config(&self, profile: &str, key: &str) -> Option<&str> {
        let of_section = self.config.value(&format!("profile {profile}"), key);
        of_section.or_else(|| self.config.value(profile, key))
    }

    /// Whether a profile is in either file.
    pub(super) fn has(&self, profile: &str) -> bool {
        let section = format!("profile {profile}");
        self.credentials.has(profile) || self.config.has(&section) || self.config.has(profile)
    }
}

/// One file. Keys below another one have its name and a dot before theirs.
#[derive(Debug, Default)]
pub(super) struct Profiles(HashMap<(String, String), String>);

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

    pub(super) fn parse(text: &str) -> Self {
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
                section = section_of(name);
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

    pub(super) fn value(&self, section: &str, key: &str) -> Option<&str> {
        let value = self.0.get(&(section.to_owned(), key.to_owned()))?;
        (!value.is_empty()).then_some(value.as_str())
    }

    pub(super) fn has(&self, section: &str) -> bool {
        self.0.keys().any(|(name, _)| name == section)
    }
}

/// A name between brackets, whose second word may be quoted: `[profile "a b"]`.
fn section_of(text: &str) -> String {
    let kind = text.split_whitespace().next();
    let words = match kind {
        Some("profile" | "sso-session" | "services") => shlex::split(text),
        _ => None,
    };
    let words = words.unwrap_or_else(|| text.split_whitespace().map(str::to_owned).collect());
    words.join(" ")
}
