//! Bearer tokens of the WLCG profile: the accepted issuers, and the rights that a token gives here.
//!
//! Source: WLCG Common JWT Profiles 1.0, "Capability-based Authorization".

use std::{
    fs::File,
    io::{self, Read as _},
    path::Path,
    time::SystemTime,
};

use godwit_gsi::token::{ANY_AUDIENCE, Claims, KeySet, Token};
use godwit_proto::FtpPath;
use tracing::error;

use super::rights::{Access, Grant, Rights};
use crate::config::{IssuerSettings, TokenSettings};

/// Longest key set that is read.
const KEYS_BYTES_MAX: u64 = 1024 * 1024;

/// Longest subject: OpenID Connect Core §2.
const SUBJECT_CHARS_MAX: usize = 255;

/// Most words of a scope that are read.
const SCOPES_MAX: usize = 256;

/// The bearer of a valid token.
#[derive(Debug)]
pub(crate) struct Bearer {
    /// `iss`.
    pub(crate) issuer: String,
    /// `sub`: a name among those of its issuer.
    pub(crate) subject: String,
    pub(crate) rights: Rights,
}

/// Verifies a token with the keys of its issuer. Reads them, so that changed ones count at once: it
/// may block.
///
/// # Errors
/// Why it is refused, for its bearer.
pub(crate) fn admit(
    settings: &TokenSettings,
    text: &str,
    now: SystemTime,
) -> Result<Bearer, String> {
    let token = Token::parse(text).map_err(|error| error.to_string())?;
    let issuers = settings.issuers.iter();
    let mut issuers = issuers.filter(|issuer| issuer.url == token.issuer());
    let issuer = issuers
        .next()
        .ok_or("the token's issuer is not trusted here")?;
    let keys = keys_of(issuer).map_err(|error| {
        error!(
            issuer = issuer.url, file = ?issuer.keys, %error,
            "no login with a token of this issuer succeeds"
        );
        "the server cannot read the keys of the token's issuer"
    })?;
    let claims = token.verify(&keys).map_err(|error| error.to_string())?;
    let mut audiences = settings.audiences.clone();
    audiences.push(ANY_AUDIENCE.to_owned());
    claims
        .check(&audiences, now)
        .map_err(|error| error.to_string())?;
    bearer(&claims)
}

/// Reads the keys of an issuer.
///
/// # Errors
/// When the file cannot be read, or holds none.
pub(crate) fn keys_of(issuer: &IssuerSettings) -> io::Result<KeySet> {
    let bytes = read_bounded(&issuer.keys)?;
    KeySet::parse(&bytes).map_err(io::Error::other)
}

fn read_bounded(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut file = File::open(path)?.take(KEYS_BYTES_MAX + 1);
    file.read_to_end(&mut bytes)?;
    match bytes.len() as u64 > KEYS_BYTES_MAX {
        true => Err(io::Error::other(format!(
            "larger than {KEYS_BYTES_MAX} bytes"
        ))),
        false => Ok(bytes),
    }
}

/// The rights of a valid token's claims.
fn bearer(claims: &Claims) -> Result<Bearer, String> {
    match claims.wlcg_version.as_deref() {
        Some(version) if version.split('.').next() == Some("1") => {}
        Some(_) => return Err("the token is of a version of the WLCG profile other than 1".into()),
        None => return Err("the token is not of the WLCG profile: it has no wlcg.ver".into()),
    }
    let words = claims.scope.split_ascii_whitespace().take(SCOPES_MAX);
    let grants: Vec<Grant> = words.filter_map(grant).collect();
    if grants.is_empty() {
        return Err(
            "the token allows nothing here: its scope has no storage.read, .create or .modify"
                .into(),
        );
    }
    // A truncated subject could be the subject of another user.
    if claims.subject.chars().count() > SUBJECT_CHARS_MAX {
        return Err(format!(
            "the token's subject has more than {SUBJECT_CHARS_MAX} characters"
        ));
    }
    Ok(Bearer {
        issuer: claims.issuer.clone(),
        subject: claims.subject.clone(),
        rights: Rights::new(grants, Some(claims.expires())),
    })
}

/// A right to storage in a word of a scope. Other words are for others, and a path that is not
/// folded is no path.
fn grant(word: &str) -> Option<Grant> {
    let (name, path) = word.split_once(':')?;
    let access = match name {
        // Staging is reading from slower storage; here all are equally slow.
        "storage.read" | "storage.stage" => Access::Read,
        "storage.create" => Access::Create,
        "storage.modify" => Access::Modify,
        _ => return None,
    };
    let path = FtpPath::new(path).ok().filter(FtpPath::is_absolute)?;
    let folds = |part: &[u8]| part == b"." || part == b"..";
    if path.as_bytes().split(|byte| *byte == b'/').any(folds) {
        return None;
    }
    Some(Grant { access, path })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::access::rights::Operation;

    fn claims(scope: &str, version: Option<&str>) -> Claims {
        let mut claims = serde_json::json!({
            "iss": "i", "sub": "jo", "aud": "a", "exp": 100, "scope": scope,
        });
        if let Some(version) = version {
            claims["wlcg.ver"] = version.into();
        }
        serde_json::from_value(claims).unwrap()
    }

    fn may(scope: &str, deed: Operation, path: &str) -> bool {
        let rights = bearer(&claims(scope, Some("1.0"))).unwrap().rights;
        let path = FtpPath::new(path).unwrap();
        rights.check(deed, &path, SystemTime::UNIX_EPOCH).is_ok()
    }

    #[test]
    fn words_of_a_scope_are_rights() {
        let scope = "openid storage.read:/ storage.create:/new/ storage.modify:/mine compute.read";
        assert!(may(scope, Operation::Read, "/anything"));
        assert!(
            may(scope, Operation::Create, "/new/f") && !may(scope, Operation::Modify, "/new/f")
        );
        assert!(may(scope, Operation::Modify, "/mine/f") && !may(scope, Operation::Modify, "/min"));
        assert!(may("storage.stage:/tape", Operation::Read, "/tape/f"));
        assert!(!may("storage.read:/data", Operation::Read, "/database"));
    }

    #[test]
    fn words_that_are_not_understood_allow_nothing() {
        for scope in [
            "",
            "storage.read",
            "storage.read:",
            "storage.read:data",
            "storage.read:/a/../b",
            "storage.read:/..",
            "storage.read:/./",
            "Storage.read:/",
            "storage.write:/",
            "storage.readx:/",
            "storage.read/:/",
        ] {
            let refused = bearer(&claims(scope, Some("1.0"))).unwrap_err();
            assert!(refused.contains("allows nothing"), "{scope}: {refused}");
        }
    }

    #[test]
    fn the_profile_is_demanded_and_its_end_kept() {
        for version in [None, Some("2.0"), Some(""), Some("10.0")] {
            let refused = bearer(&claims("storage.read:/", version)).unwrap_err();
            assert!(refused.contains("WLCG"), "{refused}");
        }
        let bearer = bearer(&claims("storage.read:/", Some("1.1"))).unwrap();
        let end = SystemTime::UNIX_EPOCH + Duration::from_secs(100);
        let check = |now| bearer.rights.check(Operation::Read, &FtpPath::root(), now);
        assert!(check(end - Duration::from_secs(1)).is_ok() && check(end).is_err());
        assert_eq!(
            (bearer.issuer.as_str(), bearer.subject.as_str()),
            ("i", "jo")
        );
    }

    #[test]
    fn a_subject_is_whole_or_refused() {
        let with = |length: usize| {
            let mut claims = claims("storage.read:/", Some("1.0"));
            claims.subject = "x".repeat(length);
            bearer(&claims)
        };
        let longest = with(SUBJECT_CHARS_MAX).unwrap();
        assert_eq!(longest.subject.len(), SUBJECT_CHARS_MAX);
        assert!(with(SUBJECT_CHARS_MAX + 1).unwrap_err().contains("subject"));
    }
}
