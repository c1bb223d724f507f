//! `login` and `logout`: a token of an issuer that a service trusts, by the device flow (RFC 8628).

use godwit_gsi::token::Token;
use godwit_service_api::account::{LoginIssuer, UserView};
use reqwest::{Method, Url};
use serde::Serialize;
use tokio_util::sync::CancellationToken;

use super::{
    ServiceTarget,
    connection::{Connection, ServiceError},
    issuer::{DeviceCode, Issuer, Tokens, shown, url_of},
    logins::{Login, LoginError, LoginFile},
    show,
};
use crate::report::events::{Event, Observer};

/// What people do to log in, as JSON.
#[derive(Serialize)]
struct Prompt<'a> {
    service: &'a str,
    issuer: &'a str,
    client_id: &'a str,
    audience: Option<&'a str>,
    scope: &'a str,
    user_code: &'a str,
    verification_uri: &'a str,
    verification_uri_complete: Option<&'a str>,
    expires_in: u64,
}

/// A login that has succeeded, as JSON.
#[derive(Serialize)]
struct Done<'a> {
    service: &'a str,
    issuer: &'a str,
    user: &'a str,
    expires: String,
    renewable: bool,
}

/// Logs in, and keeps the token.
pub(super) async fn login(
    connection: &Connection,
    target: &ServiceTarget,
    wanted: Option<&str>,
    json: bool,
    print: &impl Fn(String),
    stop: &CancellationToken,
) -> Result<(), ServiceError> {
    let service = connection.url();
    let file = file_of(connection, target)?;
    let request = connection.request(Method::GET, "/login/issuers");
    let issuers: Vec<LoginIssuer> = connection.fetch(request).await?;
    let chosen = chosen(&issuers, wanted).map_err(|why| impossible(service, why))?;
    let url = url_of(chosen).map_err(LoginError::from)?;
    let work = async {
        let issuer = Issuer::find(chosen, connection.is_local()).await?;
        let code = issuer.device_code().await?;
        print(match json {
            true => show::json(&prompt(service, &url, chosen, &code)),
            false => invitation(service, &url, chosen, &code),
        });
        issuer.tokens(&code).await
    };
    let tokens = tokio::select! {
        tokens = work => tokens.map_err(LoginError::from)?,
        () = stop.cancelled() => return Err(LoginError::Interrupted.into()),
    };
    let user = user_of(connection, chosen, &tokens).await?;
    let login = Login {
        issuer: chosen.clone(),
        tokens,
    };
    let lock = file.lock().await?;
    file.write(&login)?;
    drop(lock);
    let done = Done {
        service,
        issuer: url.as_str(),
        user: &user,
        expires: login.tokens.expires.to_string(),
        renewable: login.tokens.refresh.is_some(),
    };
    print(match (json, done.renewable) {
        (true, _) => show::json(&done),
        (false, true) => format!("logged in as {user}"),
        (false, false) => format!("logged in as {user} until {}", done.expires),
    });
    Ok(())
}

/// Forgets the token, and asks the issuer to forget it, too.
pub(super) async fn logout(
    connection: &Connection,
    target: &ServiceTarget,
    observer: &dyn Observer,
) -> Result<(), ServiceError> {
    let file = file_of(connection, target)?;
    let lock = file.lock().await?;
    // A file that cannot be read goes, too.
    let login = file.read_to_withdraw();
    let removed = file.remove()?;
    drop(lock);
    let warn = |text: String| observer.on_event(&Event::Warning { text });
    if !removed {
        warn(format!("there was no login at {}", connection.url()));
    }
    let withdrawn = async {
        let Some(login) = login? else {
            return Ok(());
        };
        let token = login.tokens.refresh.unwrap_or(login.tokens.access);
        let issuer = Issuer::find(&login.issuer, connection.is_local()).await?;
        Ok::<_, LoginError>(issuer.withdraw(&token).await?)
    };
    if let Err(error) = withdrawn.await {
        warn(format!(
            "the issuer was not told that the token is not needed: {error}"
        ));
    }
    Ok(())
}

fn file_of(connection: &Connection, target: &ServiceTarget) -> Result<LoginFile, ServiceError> {
    let impossible = |why: &str| impossible(connection.url(), why.to_owned());
    let folder = target.logins.as_deref();
    let folder = folder.ok_or_else(|| impossible("there is no folder for it: set HOME"))?;
    connection
        .login_file(folder)
        .ok_or_else(|| impossible("it needs an https:// URL that is not too long"))
}

fn impossible(service: &str, why: String) -> ServiceError {
    let service = service.to_owned();
    LoginError::Impossible { service, why }.into()
}

/// The issuer that the user wants, else the only one.
fn chosen<'a>(issuers: &'a [LoginIssuer], wanted: Option<&str>) -> Result<&'a LoginIssuer, String> {
    let plain = |url: &str| url.trim_end_matches('/').to_owned();
    let is_wanted =
        |one: &&LoginIssuer| wanted.is_none_or(|wanted| plain(wanted) == plain(&one.issuer));
    let mut fitting = issuers.iter().filter(is_wanted);
    match (fitting.next(), fitting.next(), wanted) {
        (Some(only), None, _) => Ok(only),
        (None, ..) if issuers.is_empty() => {
            Err("its operator has set no issuer for command lines".to_owned())
        }
        _ => {
            let urls: Vec<_> = issuers.iter().map(|one| shown(&one.issuer)).collect();
            Err(format!("choose one with --issuer: {}", urls.join(", ")))
        }
    }
}

fn prompt<'a>(
    service: &'a str,
    url: &'a Url,
    issuer: &'a LoginIssuer,
    code: &'a DeviceCode,
) -> Prompt<'a> {
    Prompt {
        service,
        issuer: url.as_str(),
        client_id: &issuer.client_id,
        audience: issuer.audience.as_deref(),
        scope: &issuer.scope,
        user_code: &code.user_code,
        verification_uri: code.address.as_str(),
        verification_uri_complete: code.complete.as_ref().map(|url| url.as_str()),
        expires_in: code.lifetime.as_secs(),
    }
}

/// What people do to log in, and what the service has chosen for them. A code that is in the
/// address they compare (RFC 8628, section 3.3.1).
fn invitation(service: &str, url: &Url, issuer: &LoginIssuer, code: &DeviceCode) -> String {
    let (user_code, minutes) = (&code.user_code, code.lifetime.as_secs().div_ceil(60));
    let to_do = match &code.complete {
        Some(complete) => format!("open {complete} and compare the code: {user_code}"),
        None => format!("open {} and enter the code: {user_code}", code.address),
    };
    let (client, scope) = (shown(&issuer.client_id), shown(&issuer.scope));
    let audience = issuer.audience.as_deref();
    let audience = audience.map_or("any audience".to_owned(), |audience| {
        format!("the audience {}", shown(audience))
    });
    format!(
        "to log in to {service} by {url} within {minutes} minutes,\n{to_do}\n\
         the service gets a token of the client {client} for {audience} with the scopes {scope}"
    )
}

/// The name of the user at the service, which thereby has verified the token.
async fn user_of(
    connection: &Connection,
    issuer: &LoginIssuer,
    tokens: &Tokens,
) -> Result<String, ServiceError> {
    let service = connection.url().to_owned();
    if let Some(why) = misdirected(issuer, tokens) {
        return Err(LoginError::Mistrusted { service, why }.into());
    }
    let connection = connection.clone().with_token(tokens.access.clone());
    let request = connection.request(Method::GET, "/me");
    match connection.fetch::<UserView>(request).await {
        Ok(user) => Ok(user.name),
        Err(error) if error.status() == Some(401) => {
            let why = mistrusted(issuer, tokens);
            Err(LoginError::Mistrusted { service, why }.into())
        }
        Err(error) => Err(error),
    }
}

/// Why the service must not see a token: it would be good at other services.
fn misdirected(issuer: &LoginIssuer, tokens: &Tokens) -> Option<String> {
    let audience = issuer.audience.as_deref()?;
    let token = Token::parse(tokens.access.reveal()).ok()?;
    let is_meant = token.audience().names().iter().any(|name| name == audience);
    (!is_meant).then(|| {
        let (client, audience) = (shown(&issuer.client_id), shown(audience));
        format!(
            "the token of {} is not for the audience {audience}: the issuer must allow it to the \
             client {client}",
            issuer.issuer
        )
    })
}

/// Why a service may not take a token of its issuer: it tells others nothing.
fn mistrusted(issuer: &LoginIssuer, tokens: &Tokens) -> String {
    match Token::parse(tokens.access.reveal()) {
        Err(_) => format!(
            "the token of {} is none that a service can verify (a JWT)",
            issuer.issuer
        ),
        Ok(token) => format!(
            "it does not know you: its operator can add your identity oidc:{}#{}",
            token.issuer(),
            token.subject()
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_only_issuer_is_chosen_and_among_several_the_user_chooses() {
        let issuer = |url: &str| LoginIssuer {
            issuer: url.to_owned(),
            client_id: "cli".to_owned(),
            scope: String::new(),
            audience: None,
        };
        let (one, two) = (issuer("https://one/"), issuer("https://two"));
        let (both, only) = ([one.clone(), two.clone()], [one.clone()]);
        assert_eq!(chosen(&only, None), Ok(&one));
        assert_eq!(chosen(&both, Some("https://one")), Ok(&one));
        assert_eq!(chosen(&both, Some("https://two")), Ok(&two));
        let listed = chosen(&both, None).expect_err("two");
        assert!(listed.contains("https://one/, https://two"), "{listed}");
        assert!(chosen(&only, Some("https://evil")).is_err());
        assert!(chosen(&[], None).is_err());
    }
}
