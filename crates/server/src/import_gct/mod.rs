//! `--import-gct-config`: the configuration of `globus-gridftp-server` as a settings file of
//! godwitd.
//!
//! - [`grammar`]: files, directories and command lines as that server reads them
//! - [`table`]: what becomes of each option
//! - this file: the settings, and the three lists behind them as comments
//!
//! Source: `globus_i_gfs_config.c` 13.24 of the Grid Community Toolkit.

mod grammar;
mod table;
#[cfg(test)]
mod tests;

use std::{
    fmt,
    net::IpAddr,
    path::{Path, PathBuf},
};

use self::{
    grammar::{Said, read},
    table::{Fate, Kind, fate_of, row_of},
};
use crate::config::DEFAULT_PORT;

pub use self::grammar::ImportError;

/// What a configuration comes to. [`Display`](fmt::Display) is a settings file.
#[derive(Debug, Default)]
pub struct ImportedConfig {
    from: PathBuf,
    /// Keys of the settings file with their values, as TOML.
    settings: Vec<(&'static str, String)>,
    taken: Vec<String>,
    meaningless: Vec<String>,
    undecided: Vec<String>,
}

/// Values that several options have a part in.
#[derive(Default)]
struct Parts {
    port: Option<u16>,
    control: Option<IpAddr>,
    anonymous: bool,
    root: Option<String>,
    banner: Option<String>,
    /// A certificate of the host was named.
    has_certificate: bool,
}

impl ImportedConfig {
    /// Reads a file, or all files of a directory as that server does (`gridftp.d`).
    ///
    /// # Errors
    /// What that server would refuse, too: an unknown option, a line that is none, a value of
    /// another kind; and what cannot be read.
    pub fn read(path: &Path) -> Result<Self, ImportError> {
        let mut imported = Self {
            from: path.to_owned(),
            ..Self::default()
        };
        let mut parts = Parts::default();
        for said in read(path)? {
            imported.take(&said, &mut parts)?;
        }
        imported.finish(parts);
        Ok(imported)
    }

    /// The administrator must decide before the settings do the same.
    pub fn is_undecided(&self) -> bool {
        !self.undecided.is_empty()
    }

    fn take(&mut self, said: &Said, parts: &mut Parts) -> Result<(), ImportError> {
        if let Some(variable) = said.name.strip_prefix('$') {
            self.variable(said, variable, parts);
            return Ok(());
        }
        let row = row_of(&said.name).ok_or_else(|| said.wrong("unknown option"))?;
        let value = &said.value[..];
        match row.kind {
            Kind::Flag(_) if !matches!(value, "0" | "1") => {
                return Err(said.wrong("its value must be 0 or 1"));
            }
            Kind::Number if number(value).is_none() => {
                return Err(said.wrong("its value must be a number"));
            }
            _ => {}
        }
        let fate = match row.kind {
            Kind::Flag(default) if (value == "1") == default => Fate::Default,
            _ => fate_of(row, value),
        };
        match fate {
            Fate::Default => self.note(said, "as by default"),
            Fate::Meaningless(why) => self.meaningless.push(format!("{said}: {why}")),
            Fate::Undecided(why) => self.undecided.push(format!("{said}: {why}")),
            Fate::Set(key, toml) => {
                self.note(said, key);
                self.set(key, toml);
            }
            Fate::Port(port) => {
                parts.port = Some(port);
                self.note(said, "listen");
            }
            Fate::Interface { control, data } => match value.parse::<IpAddr>() {
                Err(_) => self.undecided.push(format!(
                    "{said}: addresses are needed here, not names: see listen and data-address"
                )),
                Ok(address) => {
                    if control {
                        parts.control = Some(address);
                    }
                    if data {
                        self.set("data-address", format!("[{}]", text(value)));
                    }
                    self.note(said, if data { "data-address" } else { "listen" });
                }
            },
            Fate::Anonymous => {
                parts.anonymous = true;
                self.note(said, "anonymous");
            }
            Fate::Root => {
                parts.root = Some(value.to_owned());
                self.note(said, "root");
            }
            Fate::Banner => {
                parts.banner = Some(value.to_owned());
                self.note(said, "banner");
            }
            Fate::BannerFile => match std::fs::read_to_string(value) {
                Ok(read) => {
                    parts.banner = Some(read);
                    self.note(said, "banner, as it is now");
                }
                Err(error) => self.undecided.push(format!("{said}: {error}")),
            },
        }
        Ok(())
    }

    /// `$NAME value`: the environment of that server.
    fn variable(&mut self, said: &Said, name: &str, parts: &mut Parts) {
        let key = match name {
            "X509_USER_CERT" => "cert",
            "X509_USER_KEY" => "key",
            "X509_CERT_DIR" => "trusted-certs",
            "GRIDMAP" => "gridmap",
            "GLOBUS_TCP_PORT_RANGE" => match table::port_range(&said.value) {
                Some(range) => return self.keep(said, "port-range", range),
                None => return self.undecided.push(format!("{said}: is no range of ports")),
            },
            _ if table::AUTHORIZATION
                .iter()
                .any(|known| name.starts_with(known)) =>
            {
                return self.undecided.push(format!(
                    "{said}: authorization modules (LCMAPS, Argus and others) are not supported: \
                     write the accounts into a gridmap file"
                ));
            }
            _ => {
                return self.meaningless.push(format!("{said}: is not read here"));
            }
        };
        parts.has_certificate |= key == "cert";
        self.keep(said, key, text(&said.value));
    }

    fn keep(&mut self, said: &Said, key: &'static str, toml: String) {
        self.note(said, key);
        self.set(key, toml);
    }

    fn note(&mut self, said: &Said, what: &str) {
        self.taken.push(format!("{said}: {what}"));
    }

    /// The last word counts, as there.
    fn set(&mut self, key: &'static str, toml: String) {
        self.settings.retain(|(other, _)| *other != key);
        self.settings.push((key, toml));
    }

    fn finish(&mut self, parts: Parts) {
        let port = parts.port.unwrap_or(DEFAULT_PORT);
        if parts.port.is_some() || parts.control.is_some() {
            let all = match parts.control {
                Some(address) => std::net::SocketAddr::new(address, port).to_string(),
                None => format!("[::]:{port}"),
            };
            self.set("listen", format!("[{}]", text(&all)));
        }
        // That server shows all of the machine, as far as the account may see it.
        self.set("root", text(parts.root.as_deref().unwrap_or("/")));
        if parts.anonymous {
            self.set("anonymous", text("rw"));
        }
        if !parts.anonymous || parts.has_certificate {
            self.set("gsi", "true".to_owned());
        }
        if let Some(banner) = &parts.banner {
            self.set("banner", text(banner.trim_end()));
        }
        self.settings.sort_by_key(|(key, _)| *key);
    }
}

impl fmt::Display for ImportedConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let from = self.from.display();
        writeln!(f, "# What {from} says, for godwitd --config FILE.")?;
        for (key, value) in &self.settings {
            writeln!(f, "{key} = {value}")?;
        }
        for (title, lines) in [
            ("Taken", &self.taken),
            ("Without meaning here", &self.meaningless),
            ("To be decided", &self.undecided),
        ] {
            let none = if lines.is_empty() { " nothing" } else { "" };
            writeln!(f, "\n# {title}:{none}")?;
            for line in lines {
                writeln!(f, "#   {}", line.replace(char::is_control, " "))?;
            }
        }
        Ok(())
    }
}

/// A TOML string.
fn text(value: &str) -> String {
    toml::Value::String(value.to_owned()).to_string()
}

/// A number as that server reads it: `K`, `M` and `G` are powers of 1024, -1 is unset.
fn number(value: &str) -> Option<i64> {
    let digits = value.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let factor = match &value[digits.len()..] {
        "" | "b" | "B" => 1,
        "k" | "K" => 1 << 10,
        "m" | "M" => 1 << 20,
        "g" | "G" => 1 << 30,
        _ => return None,
    };
    digits.parse::<i64>().ok()?.checked_mul(factor)
}
