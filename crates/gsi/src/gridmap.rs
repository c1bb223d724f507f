//! Who is which local user: gridmap files, and lists of who may come at all.
//!
//! ```text
//! # comment
//! "/C=NL/O=Grid/CN=Jo Doe"        jo,jogrid
//! "/O=Grid/CN=say \"hi\" \\ \xC3\xB6"  hi
//! /O=Grid/CN=NoBlanks             other
//! ```
//!
//! A name in double quotes, or without blanks and bare; then local accounts, separated by commas or
//! blanks, the first of which is the default. In quotes `\"`, `\\` and `\xHH` are escapes. Names
//! are compared as [`DistinguishedName::same_as`] does. Several lines for one name add up.

use std::collections::HashMap;

use crate::name::{DistinguishedName, TEXT_BYTES_MAX};

/// Most bytes of a file: a million users.
pub const FILE_BYTES_MAX: usize = 256 * 1024 * 1024;
/// Most accounts of one name.
pub const ACCOUNTS_MAX: usize = 256;
/// Longest local account, as `useradd` has it.
pub const ACCOUNT_BYTES_MAX: usize = 256;

/// The name that clients log in with to be given their default account.
pub const MAPPED_USER: &str = ":globus-mapping:";

/// A gridmap file, read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Gridmap {
    accounts: HashMap<String, Vec<String>>,
}

/// A line that cannot be understood. The others count.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {fault}")]
pub struct GridmapFault {
    /// Where, from 1.
    pub line: usize,
    /// Why.
    pub fault: &'static str,
}

/// Why a user is not let in.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NotMapped {
    /// No line has this name.
    #[error("no gridmap entry for {identity}")]
    Unknown {
        /// Who came.
        identity: String,
    },
    /// The name has other accounts.
    #[error("{identity} may not log in as {account}")]
    OtherAccount {
        /// Who came.
        identity: String,
        /// What was asked for.
        account: String,
    },
}

impl Gridmap {
    /// Reads a file. A bad line does not lock out the users of the others: it is left out and
    /// reported.
    #[must_use]
    pub fn parse(text: &str) -> (Self, Vec<GridmapFault>) {
        let mut map = Self::default();
        let mut faults = Vec::new();
        for (index, line) in text.lines().enumerate() {
            match entry(line) {
                Ok(Some((name, accounts))) => {
                    let known = map.accounts.entry(name.folded()).or_default();
                    for account in accounts {
                        if !known.contains(&account) && known.len() < ACCOUNTS_MAX {
                            known.push(account);
                        }
                    }
                }
                Ok(None) => {}
                Err(fault) => faults.push(GridmapFault {
                    line: index + 1,
                    fault,
                }),
            }
        }
        (map, faults)
    }

    /// The account for a user who has proven to be `identity` and logs in as `user`: with
    /// [`MAPPED_USER`] the default, else `user` itself if it is among the accounts.
    ///
    /// # Errors
    /// When there is no such line, or the account is not in it.
    pub fn account(&self, identity: &DistinguishedName, user: &str) -> Result<&str, NotMapped> {
        let accounts = self.accounts.get(&identity.folded());
        let unknown = || NotMapped::Unknown {
            identity: identity.to_string(),
        };
        let accounts = accounts.ok_or_else(unknown)?;
        let found = if user == MAPPED_USER {
            accounts.first()
        } else {
            accounts.iter().find(|account| *account == user)
        };
        let found = found.map(String::as_str);
        found.ok_or_else(|| NotMapped::OtherAccount {
            identity: identity.to_string(),
            account: user.to_owned(),
        })
    }

    /// How many names it knows.
    #[must_use]
    pub fn len(&self) -> usize {
        self.accounts.len()
    }

    /// It maps no identity.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.accounts.is_empty()
    }
}

/// Who may come, whatever account they get: one name a line, written as in a gridmap file, with `*`
/// at the end for all names that begin so.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AllowList {
    names: Vec<String>,
    prefixes: Vec<String>,
}

impl AllowList {
    /// Reads a list. Faults are reported as by [`Gridmap::parse`].
    #[must_use]
    pub fn parse(text: &str) -> (Self, Vec<GridmapFault>) {
        let mut list = Self::default();
        let mut faults = Vec::new();
        for (index, line) in text.lines().enumerate() {
            match name_and_rest(line) {
                Ok(Some((text, ""))) => {
                    let Some(name) = DistinguishedName::parse(&text) else {
                        faults.push(fault(index, "not a name"));
                        continue;
                    };
                    let folded = name.folded();
                    match folded.strip_suffix('*') {
                        // `/` alone would mean every user, by mistake.
                        Some(prefix) if prefix.contains('=') => {
                            list.prefixes.push(prefix.to_owned());
                        }
                        Some(_) => faults.push(fault(index, "`*` needs a name before it")),
                        None if text.ends_with('*') => {
                            faults.push(fault(index, "`*` needs a name that begins with `/`"));
                        }
                        None => list.names.push(folded),
                    }
                }
                Ok(Some(_)) => faults.push(fault(index, "something follows the name")),
                Ok(None) => {}
                Err(found) => faults.push(fault(index, found)),
            }
        }
        (list, faults)
    }

    /// This one may come.
    #[must_use]
    pub fn allows(&self, identity: &DistinguishedName) -> bool {
        let folded = identity.folded();
        self.names.contains(&folded)
            || self
                .prefixes
                .iter()
                .any(|prefix| folded.starts_with(prefix))
    }
}

fn fault(index: usize, fault: &'static str) -> GridmapFault {
    GridmapFault {
        line: index + 1,
        fault,
    }
}

/// One line: the name and its accounts, or nothing.
fn entry(line: &str) -> Result<Option<(DistinguishedName, Vec<String>)>, &'static str> {
    let Some((text, rest)) = name_and_rest(line)? else {
        return Ok(None);
    };
    let name = DistinguishedName::parse(&text).ok_or("not a name")?;
    let accounts: Vec<String> = rest
        .split([',', ' ', '\t'])
        .filter(|account| !account.is_empty())
        .map(str::to_owned)
        .collect();
    if accounts.is_empty() {
        return Err("no account behind the name");
    }
    if accounts.len() > ACCOUNTS_MAX {
        return Err("too many accounts");
    }
    if accounts
        .iter()
        .any(|account| account.len() > ACCOUNT_BYTES_MAX)
    {
        return Err("an overlong account");
    }
    Ok(Some((name, accounts)))
}

/// Splits off the name, its quotes and escapes resolved. Bytes outside of printable ASCII stay, or
/// become, `\xHH`, as they are in names of certificates.
fn name_and_rest(line: &str) -> Result<Option<(String, &str)>, &'static str> {
    let line = line.trim();
    if line.is_empty() || line.starts_with('#') {
        return Ok(None);
    }
    let Some(quoted) = line.strip_prefix('"') else {
        let end = line.find([' ', '\t']).unwrap_or(line.len());
        let (name, rest) = line.split_at(end);
        return Ok(Some((name.to_owned(), rest.trim_start())));
    };
    let mut name = String::new();
    let mut characters = quoted.char_indices();
    while let Some((at, character)) = characters.next() {
        if name.len() > TEXT_BYTES_MAX {
            return Err("an overlong name");
        }
        match character {
            '"' => return Ok(Some((name, quoted[at + 1..].trim_start()))),
            '\\' => match characters.next() {
                Some((_, escaped @ ('"' | '\\'))) => name.push(escaped),
                Some((_, 'x')) => {
                    let high = characters.next().and_then(|(_, c)| c.to_digit(16));
                    let low = characters.next().and_then(|(_, c)| c.to_digit(16));
                    let (Some(high), Some(low)) = (high, low) else {
                        return Err("\\x wants two hexadecimal digits");
                    };
                    push_byte(&mut name, high << 4 | low);
                }
                _ => return Err("an unknown escape"),
            },
            ' '..='~' => name.push(character),
            other => {
                let mut bytes = [0; 4];
                for byte in other.encode_utf8(&mut bytes).bytes() {
                    push_byte(&mut name, u32::from(byte));
                }
            }
        }
    }
    Err("a quote stays open")
}

fn push_byte(name: &mut String, byte: u32) {
    use std::fmt::Write as _;
    match char::from_u32(byte) {
        Some(plain @ ' '..='~') => name.push(plain),
        _ => {
            let _ = write!(name, "\\x{byte:02X}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> DistinguishedName {
        DistinguishedName::parse(text).expect("a name")
    }

    const FILE: &str = r#"
# "/O=Grid/CN=Commented" out
"/C=NL/O=Grid/CN=Jo Doe"   jo,jogrid pool
   /O=Grid/CN=Bare bare
"/O=Grid/CN=say \"hi\" \\ \xC3\xB6" hi
"/O=Grid/USERID=7/Email=a@b" seven
"CN=Turned,O=Grid" turned
"/C=NL/O=Grid/CN=Jo Doe" late,jo
"#;

    #[test]
    fn each_name_has_its_accounts() {
        let (map, faults) = Gridmap::parse(FILE);
        assert_eq!(faults, []);
        assert_eq!(map.len(), 5);
        let jo = name("/C=NL/O=Grid/CN=Jo Doe");
        assert_eq!(map.account(&jo, MAPPED_USER), Ok("jo"));
        for account in ["jo", "jogrid", "pool", "late"] {
            assert_eq!(map.account(&jo, account), Ok(account));
        }
        let error = map.account(&jo, "root").expect_err("refuses");
        assert_eq!(
            error.to_string(),
            "/C=NL/O=Grid/CN=Jo Doe may not log in as root"
        );
        for (text, account) in [
            ("/o=GRID/cn=bare", "bare"),
            ("/O=Grid/CN=say \"hi\" \\ \\xC3\\xB6", "hi"),
            ("/O=Grid/UID=7/emailAddress=a@b", "seven"),
            ("/O=Grid/CN=Turned", "turned"),
        ] {
            assert_eq!(map.account(&name(text), MAPPED_USER), Ok(account), "{text}");
        }
        for text in [
            "/O=Grid/CN=Commented",
            "/C=NL/O=Grid/CN=Jo Doe/CN=1",
            "/O=Grid",
        ] {
            let error = map.account(&name(text), MAPPED_USER).expect_err("refuses");
            assert!(matches!(error, NotMapped::Unknown { .. }), "{text}");
        }
    }

    #[test]
    fn a_bad_line_is_told_and_locks_nobody_else_out() {
        for (line, fault) in [
            ("\"/O=Grid/CN=Jo jo", "a quote stays open"),
            ("\"/O=Grid/CN=Jo\"", "no account behind the name"),
            (
                "\"/O=Grid/CN=\\xG0\" jo",
                "\\x wants two hexadecimal digits",
            ),
            ("\"/O=Grid/CN=\\n\" jo", "an unknown escape"),
            ("\"Jo\" jo", "not a name"),
        ] {
            let text = format!("/O=a/CN=a a\n{line}\n/O=b/CN=b b\n");
            let (map, faults) = Gridmap::parse(&text);
            assert_eq!(map.len(), 2, "{line}");
            assert_eq!(faults, [GridmapFault { line: 2, fault }]);
        }
    }

    #[test]
    fn an_empty_map_knows_nobody() {
        let (map, _) = Gridmap::parse("");
        assert!(map.is_empty());
        assert!(map.account(&name("/O=Grid/CN=Jo"), MAPPED_USER).is_err());
    }

    #[test]
    fn allow_lists_know_names_and_their_beginnings() {
        let (list, faults) = AllowList::parse(
            "# the project\n\"/O=Grid/CN=Jo Doe\"\n/O=Site/OU=Data/*\n*\n/*\n/O=x/CN=y z\n\
             CN=Jo*,O=Site\n\"CN=Jo,O=Site*\"\n\"/O=Blank/CN=Jo *\"\n",
        );
        let lines: Vec<usize> = faults.iter().map(|fault| fault.line).collect();
        assert_eq!(lines, [4, 5, 6, 8]);
        for (text, expected) in [
            ("/O=Grid/CN=Jo Doe", true),
            ("/O=Grid/CN=Jo Doe/CN=1", false),
            ("/O=Site/OU=Data/CN=Anna", true),
            ("/O=Site/OU=DataX/CN=Anna", false),
            ("/O=Other/CN=Anna", false),
            ("/O=Site/CN=Jo Doe", true),
            ("/O=Blank/CN=Jo Doe", true),
            ("/O=Blank/CN=John Doe", false),
        ] {
            assert_eq!(list.allows(&name(text)), expected, "{text}");
        }
    }
}
