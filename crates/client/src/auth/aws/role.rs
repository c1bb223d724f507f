//! Keys that a machine or a container has by its role, as the AWS tools ask for them: a container
//! by `AWS_CONTAINER_CREDENTIALS_RELATIVE_URI` or `_FULL_URI`, an instance by its metadata service
//! (version 2), which `AWS_EC2_METADATA_SERVICE_ENDPOINT` moves and `AWS_EC2_METADATA_DISABLED`
//! switches off.

use std::{
    fs::File,
    io::{self, Read as _},
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use godwit_http_client::{
    Connector, HeaderName, HeaderValue, Limits, Method, Policy, Request, Scheme, Url,
};
use godwit_proto::command::Password;
use serde::Deserialize;

use super::{
    ask::{ANSWER_BYTES_MAX, KeyAnswer, ask},
    issued::{IssuedKeys, time},
};

/// Where containers of ECS ask.
const CONTAINER_HOST: &str = "http://169.254.170.2";

/// Where instances ask.
const INSTANCE_HOST: &str = "http://169.254.169.254";

/// Hosts that keys of containers are asked from in clear, beside this one.
const CONTAINER_HOSTS: [IpAddr; 3] = [
    IpAddr::V4(Ipv4Addr::new(169, 254, 170, 2)),
    IpAddr::V4(Ipv4Addr::new(169, 254, 170, 23)),
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x23)),
];

/// Time for name lookup and for the connection; answers have five times as much. On machines
/// without such a service, packets to its address are lost without an error.
const LIMIT: Duration = Duration::from_secs(1);

/// Who is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RoleHost {
    /// The host of the container.
    Container,
    /// The metadata service of the instance.
    Instance,
    /// The first where a container is said to be, else the second.
    Any,
}

/// The services that are asked for keys. Default: none.
#[derive(Clone, Debug, Default)]
pub(super) struct RoleSource {
    container: Option<String>,
    /// What a container shows.
    authorization: Option<Password>,
    authorization_file: Option<PathBuf>,
    instance: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct RoleKeys {
    access_key_id: String,
    secret_access_key: String,
    token: Option<String>,
    expiration: Option<String>,
}

impl RoleSource {
    /// By the variables that `text` finds.
    pub(super) fn of_environment(text: impl Fn(&str) -> Option<String>) -> Self {
        let relative = text("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI");
        let relative = relative.map(|path| format!("{CONTAINER_HOST}{path}"));
        let is_off = text("AWS_EC2_METADATA_DISABLED").is_some_and(|said| said == "true");
        let host = text("AWS_EC2_METADATA_SERVICE_ENDPOINT");
        let host = host.unwrap_or_else(|| INSTANCE_HOST.to_owned());
        Self {
            container: relative.or_else(|| text("AWS_CONTAINER_CREDENTIALS_FULL_URI")),
            authorization: text("AWS_CONTAINER_AUTHORIZATION_TOKEN").map(Password::new),
            authorization_file: text("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE").map(PathBuf::from),
            instance: (!is_off).then_some(host),
        }
    }

    /// The keys of the role; `None` where no service answers.
    ///
    /// # Errors
    /// Who answers has none: a message for the user.
    pub(super) async fn keys(&self, host: RoleHost) -> Result<Option<IssuedKeys>, String> {
        let container = self.container.as_ref();
        let container = container.filter(|_| host != RoleHost::Instance);
        let instance = self.instance.as_ref();
        let instance = instance.filter(|_| host != RoleHost::Container);
        match (container, instance) {
            (Some(url), _) => self.of_container(url).await.map(Some),
            (None, Some(host)) => of_instance(host).await,
            (None, None) => Ok(None),
        }
    }

    async fn of_container(&self, url: &str) -> Result<IssuedKeys, String> {
        let failed = |why: String| format!("ask the container's host for keys: {why}");
        let url = Url::parse(url).map_err(|error| failed(error.to_string()))?;
        if url.origin.scheme == Scheme::Https {
            return Err(failed(format!("{} is not asked over TLS", url.origin)));
        }
        let mut request = Request::new(Method::GET, url.target());
        let shown = match &self.authorization_file {
            Some(path) => {
                let unread = |error| failed(format!("read {}: {error}", path.display()));
                Some(read(path).map_err(unread)?)
            }
            None => self
                .authorization
                .as_ref()
                .map(|token| token.reveal().into()),
        };
        if let Some(shown) = shown {
            let value = HeaderValue::from_str(shown.trim());
            let value = value.map_err(|_| failed("its authorization is no line".to_owned()))?;
            request = request.with(HeaderName::from_static("authorization"), value);
        }
        let near = |_: &_, address: std::net::SocketAddr| {
            address.ip().is_loopback() || CONTAINER_HOSTS.contains(&address.ip())
        };
        let asked = ask_near(&url, request, Arc::new(near)).await;
        let (status, body) = asked.map_err(failed)?;
        match status.is_success() {
            true => keys_in(&body).map_err(failed),
            false => Err(failed(format!("{} said {status}", url.origin))),
        }
    }
}

/// The file of an authorization, which the host of the container keeps.
fn read(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    let mut file = File::open(path)?.take(ANSWER_BYTES_MAX as u64);
    file.read_to_string(&mut text)?;
    Ok(text)
}

/// Of the role that the instance has.
async fn of_instance(host: &str) -> Result<Option<IssuedKeys>, String> {
    const ROLES: &str = "/latest/meta-data/iam/security-credentials/";
    let failed = |why: String| format!("ask the instance's metadata for keys: {why}");
    let any = || Arc::new(|_: &_, _| true);
    let host = host.trim_end_matches('/');
    let url = |path: &str| {
        Url::parse(&format!("{host}{path}")).map_err(|error| failed(error.to_string()))
    };
    let token_url = url("/latest/api/token")?;
    let lifetime = HeaderName::from_static("x-aws-ec2-metadata-token-ttl-seconds");
    let request = Request::new(Method::PUT, token_url.target());
    let request = request.with(lifetime, HeaderValue::from_static("60"));
    // A machine that is no instance, or one that may not ask.
    let token = match ask_near(&token_url, request, any()).await {
        Ok((status, token)) if status.is_success() => token,
        _ => return Ok(None),
    };
    let token = HeaderValue::from_bytes(&token);
    let token = token.map_err(|_| failed("its token is no line".to_owned()))?;
    let get = async |path: &str| {
        let url = url(path)?;
        let name = HeaderName::from_static("x-aws-ec2-metadata-token");
        let request = Request::new(Method::GET, url.target()).with(name, token.clone());
        let (status, body) = ask_near(&url, request, any()).await.map_err(failed)?;
        match status.is_success() {
            true => Ok(body),
            false => Err(failed(format!("{host}{path} said {status}"))),
        }
    };
    let roles = String::from_utf8(get(ROLES).await?);
    let roles = roles.map_err(|_| failed("the role is no text".to_owned()))?;
    let role = roles.lines().next().unwrap_or_default().trim();
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"+=,.@_-".contains(&byte);
    if role.is_empty() || !role.bytes().all(is_name) {
        return Err(failed("the instance has no role".to_owned()));
    }
    let keys = get(&format!("{ROLES}{role}")).await?;
    keys_in(&keys).map(Some).map_err(failed)
}

fn keys_in(body: &[u8]) -> Result<IssuedKeys, String> {
    // What it says may hold secrets.
    let keys: RoleKeys =
        serde_json::from_slice(body).map_err(|_| "the answer has no keys".to_owned())?;
    let token = keys.token.map(Password::new);
    let secret = Password::new(keys.secret_access_key);
    let expires = keys.expiration.as_deref().and_then(time);
    IssuedKeys::new(keys.access_key_id, secret, token, expires)
}

async fn ask_near(url: &Url, request: Request, may: Policy) -> Result<KeyAnswer, String> {
    let limits = Limits {
        resolve: LIMIT,
        connect: LIMIT,
        answer: 5 * LIMIT,
        silence: 5 * LIMIT,
        ..Limits::default()
    };
    let answer = ask(&Connector::new(None, may, limits), &url.origin, request).await;
    answer.map_err(|error| error.to_string())
}
