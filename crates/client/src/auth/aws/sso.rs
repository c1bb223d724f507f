//! Keys of a role that a user has by single sign-on: the token that `aws sso login` has left is
//! shown to the portal. It is not renewed here.

use std::{
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use godwit_gsi::ftps::Authorities;
use godwit_http::s3::{query, signing::hex};
use godwit_http_client::{HeaderName, HeaderValue, Method, Origin, Request, StatusCode, printable};
use godwit_proto::command::Password;
use openssl::sha::sha1;
use serde::Deserialize;
use tokio::task::spawn_blocking;

use super::{
    ask::ask_service,
    issued::{IssuedKeys, time},
};
use crate::auth::private_file::read_private;

/// A role of a user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SsoRole {
    pub(super) profile: String,
    pub(super) account: String,
    pub(super) role: String,
    /// Where the token is.
    pub(super) token_file: PathBuf,
    /// The portal.
    pub(super) origin: Origin,
}

/// What `aws sso login` leaves, in part.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct CachedToken {
    access_token: String,
    expires_at: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PortalAnswer {
    role_credentials: PortalKeys,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PortalKeys {
    access_key_id: String,
    secret_access_key: String,
    session_token: String,
    /// Milliseconds since 1970.
    expiration: u64,
}

#[derive(Deserialize)]
struct PortalRefusal {
    message: String,
}

/// The file of the token, in the folder of the tools: by the name of the session, or the URL by
/// which it starts.
pub(super) fn token_file(folder: &Path, session: &str) -> PathBuf {
    folder.join(format!("{}.json", hex(&sha1(session.as_bytes()))))
}

impl SsoRole {
    /// Asks the portal.
    ///
    /// # Errors
    /// A message for the user.
    pub(super) async fn keys(&self, authorities: &Authorities) -> Result<IssuedKeys, String> {
        let file = self.token_file.clone();
        let token = spawn_blocking(move || read_token(&file, SystemTime::now())).await;
        let token = token.map_err(|error| error.to_string())?;
        let token = token.map_err(|why| self.to_log_in(&why))?;
        let pairs = [("role_name", &*self.role), ("account_id", &*self.account)];
        let target = format!("/federation/credentials{}", query(&pairs));
        let value = HeaderValue::from_str(token.reveal());
        let mut value = value.map_err(|_| self.to_log_in("its token is no line"))?;
        value.set_sensitive(true);
        let name = HeaderName::from_static("x-amz-sso_bearer_token");
        let request = || {
            let request = Request::new(Method::GET, target.clone());
            Ok(request.with(name.clone(), value.clone()))
        };
        let failed = |why: String| format!("keys of profile {}: {why}", self.profile);
        let answer = ask_service(authorities, &self.origin, request, |_| false).await;
        let (status, body) = answer.map_err(failed)?;
        if status == StatusCode::UNAUTHORIZED {
            return Err(self.to_log_in("the portal does not take its token"));
        }
        if !status.is_success() {
            let why = told(&body, &token);
            return Err(failed(format!("{} said {status}{why}", self.origin)));
        }
        keys_in(&body).map_err(failed)
    }

    fn to_log_in(&self, why: &str) -> String {
        let profile = &self.profile;
        format!(
            "profile {profile} is not logged in: {why}: run `aws sso login --profile {profile}`"
        )
    }
}

/// Blocks.
fn read_token(path: &Path, now: SystemTime) -> Result<Password, String> {
    let text = read_private(path).map_err(|error| error.to_string())?;
    let name = path.display();
    let cached: CachedToken =
        serde_json::from_str(&text).map_err(|_| format!("{name} has no token"))?;
    // Older tools have other words for the zone.
    let expires = time(&cached.expires_at.replace("UTC", "Z"));
    let expires = expires.ok_or_else(|| format!("{name} does not say when its token ends"))?;
    match expires > now {
        true => Ok(Password::new(cached.access_token)),
        false => Err("its token has expired".to_owned()),
    }
}

fn keys_in(body: &[u8]) -> Result<IssuedKeys, String> {
    // What it says may hold secrets.
    let answer: PortalAnswer =
        serde_json::from_slice(body).map_err(|_| "the answer has no keys".to_owned())?;
    let keys = answer.role_credentials;
    let expires = SystemTime::UNIX_EPOCH.checked_add(Duration::from_millis(keys.expiration));
    let secret = Password::new(keys.secret_access_key);
    let token = Some(Password::new(keys.session_token));
    IssuedKeys::new(keys.access_key_id, secret, token, expires)
}

fn told(body: &[u8], token: &Password) -> String {
    match serde_json::from_slice::<PortalRefusal>(body) {
        Ok(said) if !said.message.contains(token.reveal()) => {
            format!(": {}", printable(said.message.as_bytes()))
        }
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt as _};

    use super::*;

    #[test]
    fn tokens_are_where_the_tools_of_aws_leave_them() {
        let file = token_file(Path::new("/c"), "https://d-92671207e4.awsapps.com/start");
        let name = "/c/13f9d35043871d073ab260e020f0ffde092cb14b.json";
        assert_eq!(file, Path::new(name));
    }

    #[test]
    fn tokens_end() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t");
        let read = |text: &str, seconds| {
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
            let now = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
            read_token(&path, now).map(|token| token.reveal().to_owned())
        };
        for zone in ["Z", "UTC"] {
            let expires = format!("2020-01-01T00:00:00{zone}");
            let text = format!("{{\"accessToken\": \"t\", \"expiresAt\": \"{expires}\"}}");
            assert_eq!(read(&text, 1_577_836_799).unwrap(), "t");
            let refused = read(&text, 1_577_836_800).unwrap_err();
            assert!(refused.contains("expired"), "{refused}");
        }
        for text in [
            "",
            "{}",
            "{\"accessToken\": \"t\", \"expiresAt\": \"soon\"}",
        ] {
            assert!(read(text, 0).is_err(), "{text}");
        }
    }
}
