//! Keys of a role, which the security token service (STS) issues to those who may have them.

use std::{
    fs::File,
    io::{self, Read as _},
    path::{Path, PathBuf},
    time::SystemTime,
};

use form_urlencoded::Serializer;
use godwit_gsi::ftps::Authorities;
use godwit_http::s3::sts::{TemporaryKeys, VERSION, read_refusal};
use godwit_http_client::{Body, HeaderValue, Method, Origin, Request, header, printable};
use godwit_proto::command::Password;
use tokio::task::spawn_blocking;

use super::{
    Keys,
    ask::{KeyAnswer, ask_service},
    issued::IssuedKeys,
    signature,
};

const SERVICE: &str = "sts";

/// Longest token of a web identity: the service takes 20,000 characters.
const TOKEN_BYTES_MAX: u64 = 64 << 10;

/// Refusals that another attempt may not get.
const PASSING: [&str; 4] = [
    "IDPCommunicationError",
    "RequestLimitExceeded",
    "Throttling",
    "ThrottlingException",
];

/// A role that is assumed with other keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct AssumedRole {
    pub(super) arn: String,
    pub(super) session: Option<String>,
    pub(super) external_id: Option<String>,
    /// `None`: as long as the service says.
    pub(super) seconds: Option<u32>,
}

/// A role that is assumed with the token of another service, as pods of Kubernetes do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct WebIdentity {
    pub(super) token_file: PathBuf,
    pub(super) arn: String,
    pub(super) session: Option<String>,
}

/// The service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Sts {
    pub(super) origin: Origin,
    pub(super) region: String,
    pub(super) authorities: Authorities,
}

impl Sts {
    /// The keys of `role`, for those who have `keys`.
    ///
    /// # Errors
    /// A message for the user.
    pub(super) async fn assume(
        &self,
        role: &AssumedRole,
        keys: &Keys,
    ) -> Result<IssuedKeys, String> {
        let session = role.session.clone().unwrap_or_else(session_name);
        let seconds = role.seconds.map(|seconds| seconds.to_string());
        let form = form([
            ("Action", Some("AssumeRole")),
            ("RoleArn", Some(&role.arn)),
            ("RoleSessionName", Some(&session)),
            ("ExternalId", role.external_id.as_deref()),
            ("DurationSeconds", seconds.as_deref()),
        ]);
        let request = || {
            let mut request = post(&form);
            let scope = signature::scope(SystemTime::now(), &self.region, SERVICE)?;
            signature::sign(&mut request, &self.origin, keys, &scope)?;
            Ok(request)
        };
        let secrets = [Some(&keys.secret), keys.token.as_ref()];
        let issued = self.ask("AssumeRole", request, &secrets).await;
        issued.map_err(|why| failed(&role.arn, &why))
    }

    /// The keys of the role, for the one whose token is in the file.
    ///
    /// # Errors
    /// A message for the user.
    pub(super) async fn assume_with(&self, identity: &WebIdentity) -> Result<IssuedKeys, String> {
        let failed = |why: String| failed(&identity.arn, &why);
        // It is read each time: others write newer ones.
        let file = identity.token_file.clone();
        let token = spawn_blocking(move || read_token(&file)).await;
        let token = token.map_err(|error| failed(error.to_string()))?;
        let token = token.map_err(|why| {
            let file = identity.token_file.display();
            failed(format!("read its token in {file}: {why}"))
        })?;
        let session = identity.session.clone().unwrap_or_else(session_name);
        let form = form([
            ("Action", Some("AssumeRoleWithWebIdentity")),
            ("RoleArn", Some(&identity.arn)),
            ("RoleSessionName", Some(&session)),
            ("WebIdentityToken", Some(token.reveal())),
        ]);
        let request = || Ok(post(&form));
        let secrets = [Some(&token)];
        let issued = self.ask("AssumeRoleWithWebIdentity", request, &secrets);
        issued.await.map_err(failed)
    }

    async fn ask(
        &self,
        action: &str,
        request: impl Fn() -> Result<Request, String>,
        secrets: &[Option<&Password>],
    ) -> Result<IssuedKeys, String> {
        let passes = |(_, body): &KeyAnswer| {
            read_refusal(body).is_some_and(|refusal| PASSING.contains(&&*refusal.code))
        };
        let answer = ask_service(&self.authorities, &self.origin, request, passes).await;
        let (status, body) = answer?;
        if !status.is_success() {
            let why = told(&body, secrets);
            return Err(format!("{} said {status}{why}", self.origin));
        }
        let keys = TemporaryKeys::read(&body, action);
        let keys = keys.map_err(|error| format!("{}: {error}", self.origin))?;
        IssuedKeys::new(keys.access, keys.secret, Some(keys.token), keys.expires)
    }
}

fn failed(arn: &str, why: &str) -> String {
    format!("assume the role {}: {why}", printable(arn.as_bytes()))
}

/// What a refusal says. Further lines may have the request, with its token.
fn told(body: &[u8], secrets: &[Option<&Password>]) -> String {
    let Some(refusal) = read_refusal(body) else {
        return String::new();
    };
    let line = refusal.message.lines().next().unwrap_or_default();
    let text = format!("{}: {line}", refusal.code);
    let is_secret = |secret: &&Password| text.contains(secret.reveal());
    match secrets.iter().flatten().any(is_secret) {
        true => String::new(),
        false => format!(": {}", printable(text.as_bytes())),
    }
}

/// Of those who give none.
fn session_name() -> String {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    format!("godwit-{}", since.unwrap_or_default().as_secs())
}

fn form<const N: usize>(fields: [(&str, Option<&str>); N]) -> Password {
    let mut form = Serializer::new(String::new());
    form.append_pair("Version", VERSION);
    for (name, value) in fields {
        if let Some(value) = value {
            form.append_pair(name, value);
        }
    }
    Password::new(form.finish())
}

fn post(form: &Password) -> Request {
    let kind = HeaderValue::from_static("application/x-www-form-urlencoded; charset=utf-8");
    let request = Request::new(Method::POST, "/").with(header::CONTENT_TYPE, kind);
    request.with_body(Body::Bytes(form.reveal().as_bytes().to_vec().into()))
}

/// Blocks.
fn read_token(path: &Path) -> io::Result<Password> {
    let mut text = String::new();
    let mut file = File::open(path)?.take(TOKEN_BYTES_MAX + 1);
    let length = file.read_to_string(&mut text)?;
    match text.trim() {
        "" => Err(io::Error::other("it is empty")),
        _ if length as u64 > TOKEN_BYTES_MAX => Err(io::Error::other("it is too long")),
        token => Ok(Password::new(token)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_refusal_says_is_shown_without_the_request() {
        let body = |message: &str| {
            format!(
                "<ErrorResponse><Error><Code>AccessDenied</Code><Message>{message}</Message>\
                 </Error></ErrorResponse>"
            )
        };
        let secret = Password::new("t0ken");
        let told = |message: &str| told(body(message).as_bytes(), &[Some(&secret), None]);
        assert_eq!(told("no\x1b[1m"), ": AccessDenied: no [1m");
        assert_eq!(told("no\nx-amz-security-token:t0ken"), ": AccessDenied: no");
        assert_eq!(told("no t0ken"), "");
    }

    #[test]
    fn forms_are_encoded() {
        let form = form([("A", Some("a/b c&d+")), ("B", None)]);
        assert_eq!(form.reveal(), "Version=2011-06-15&A=a%2Fb+c%26d%2B");
    }
}
