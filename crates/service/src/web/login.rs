//! Logins: by token, password, certificate of the connection, or issuer; and the end of a session.

use axum::{
    Extension,
    body::Body,
    extract::State,
    http::{HeaderMap, HeaderValue, StatusCode, header},
    response::{IntoResponse, Redirect, Response},
};
use maud::{Markup, html};
use serde::Deserialize;
use zeroize::Zeroizing;

use super::{
    Web,
    cookies::Cookie,
    frame::{PageError, bare, notice, with_status},
    text::visible,
    visitor::{Form, PageQuery, Posted, same_site},
};
use crate::{
    accounts::{
        AccessError, Evidence, Peer, Shown as Certificate, oidc::BrowserLogin, sessions::NewSession,
    },
    problem::{Answer, ApiError, Kind},
};

#[derive(Deserialize)]
pub(super) struct LoginQuery {
    #[serde(default)]
    next: String,
}

/// The page of logins.
pub(super) async fn page(
    State(web): State<Web>,
    Extension(peer): Extension<Peer>,
    PageQuery(asked): PageQuery<LoginQuery>,
) -> Response {
    let body = forms(&web, &peer, same_site(&asked.next), None);
    bare(StatusCode::OK, "Log in", &body)
}

/// A token, or a name and a password.
pub(super) async fn by_secret(
    State(web): State<Web>,
    Extension(peer): Extension<Peer>,
    headers: HeaderMap,
    body: Body,
) -> Response {
    let form = match Form::read(&headers, body).await {
        Ok(form) => form,
        Err(error) => return refused(&web, &peer, "", &error),
    };
    let next = same_site(form.text("next")).to_owned();
    let began = match (form.maybe("token"), form.maybe("user")) {
        (Some(token), _) => {
            let evidence = Evidence {
                address: peer.address,
                bearer: Some(Zeroizing::new(token.to_owned())),
                certificate: Certificate::Nothing,
            };
            web.api.accounts().begin_session(&evidence).await
        }
        (None, Some(user)) => {
            // Blanks may be part of a password.
            let password = form.raw("password");
            let accounts = web.api.accounts();
            accounts
                .begin_session_by_password(user, password, peer.address)
                .await
        }
        (None, None) => Err(AccessError::Refused),
    };
    finish(&web, &peer, &headers, &next, began.map_err(ApiError::from)).await
}

/// The certificate of the connection.
pub(super) async fn by_certificate(
    State(web): State<Web>,
    Extension(peer): Extension<Peer>,
    headers: HeaderMap,
    body: Body,
) -> Response {
    let form = match Form::read(&headers, body).await {
        Ok(form) => form,
        Err(error) => return refused(&web, &peer, "", &error),
    };
    let next = same_site(form.text("next")).to_owned();
    let evidence = Evidence {
        address: peer.address,
        bearer: None,
        certificate: peer.certificate.clone(),
    };
    let began = web.api.accounts().begin_session(&evidence).await;
    finish(&web, &peer, &headers, &next, began.map_err(ApiError::from)).await
}

#[derive(Deserialize)]
pub(super) struct IssuerQuery {
    issuer: String,
    #[serde(default)]
    next: String,
}

/// The way to an issuer. A link, since the policy of the page lets no form lead there.
pub(super) async fn to_issuer(
    State(web): State<Web>,
    Extension(peer): Extension<Peer>,
    headers: HeaderMap,
    PageQuery(asked): PageQuery<IssuerQuery>,
) -> Response {
    let next = same_site(&asked.next);
    // A picture of another site would have the browser begin logins.
    let site = headers.get("sec-fetch-site");
    if site.is_some_and(|site| site.as_bytes() == b"cross-site") {
        let detail = "a page of another site began this login: begin it here";
        return refused(&web, &peer, next, &ApiError::new(Kind::Forbidden, detail));
    }
    let began = async {
        let login = BrowserLogin::new(&asked.issuer, next)
            .map_err(|error| ApiError::new(Kind::Internal, error.to_string()))?;
        let accounts = web.api.accounts();
        let url = accounts.go_to_issuer(&login, peer.address).await?;
        Answer::Ok((login, url))
    };
    match began.await {
        Ok((login, url)) => {
            let mut answer = Redirect::to(&url).into_response();
            let cookie = Cookie::Login.set(&web, &login.to_cookie());
            answer.headers_mut().append(header::SET_COOKIE, cookie);
            answer
        }
        Err(error) => refused(&web, &peer, next, &error),
    }
}

#[derive(Deserialize)]
pub(super) struct ReturnQuery {
    #[serde(default)]
    state: String,
    #[serde(default)]
    code: String,
    error: Option<String>,
    /// RFC 9207.
    iss: Option<String>,
}

/// The way back from an issuer.
pub(super) async fn from_issuer(
    State(web): State<Web>,
    Extension(peer): Extension<Peer>,
    headers: HeaderMap,
    PageQuery(asked): PageQuery<ReturnQuery>,
) -> Response {
    let login = Cookie::Login.read(&web, &headers);
    let login = login.and_then(BrowserLogin::from_cookie);
    let login = login.filter(|login| login.has_state(&asked.state));
    let Some(login) = login else {
        let detail = "it did not begin in this browser, or took too long: begin again";
        let error = ApiError::new(Kind::Forbidden, detail);
        return refused(&web, &peer, "", &error);
    };
    let next = same_site(&login.next).to_owned();
    let began = async {
        if asked.iss.as_ref().is_some_and(|iss| *iss != login.issuer) {
            let detail = "another issuer sent the browser back";
            return Err(ApiError::new(Kind::Forbidden, detail));
        }
        if let Some(error) = &asked.error {
            let detail = format!("{} says: {error}", login.issuer);
            return Err(ApiError::new(Kind::Unauthenticated, detail));
        }
        let accounts = web.api.accounts();
        // A code must not go to another issuer than the one that gave it (RFC 9207).
        if asked.iss.is_none() && accounts.issuers().of_browsers().len() > 1 {
            let detail = format!(
                "{} does not say in its answer that it sent the browser back (iss, RFC 9207), \
                 which a service with several issuers needs: tell the operator of this service",
                login.issuer
            );
            return Err(ApiError::new(Kind::Forbidden, detail));
        }
        let began = accounts.begin_session_by_code(&login, &asked.code, peer.address);
        Ok(began.await?)
    };
    let began = began.await;
    let mut answer = finish(&web, &peer, &headers, &next, began).await;
    // It is good once.
    let cookie = Cookie::Login.clear(&web);
    answer.headers_mut().append(header::SET_COOKIE, cookie);
    answer
}

/// Ends the session, here and in the browser.
pub(super) async fn logout(State(web): State<Web>, posted: Posted) -> Response {
    let ended = web
        .api
        .accounts()
        .end_session(posted.visitor.secret())
        .await;
    if let Err(error) = ended {
        return PageError(error.into()).into_response();
    }
    let mut answer = Redirect::to("/login").into_response();
    let cookie = Cookie::Session.clear(&web);
    answer.headers_mut().append(header::SET_COOKIE, cookie);
    answer
}

/// A session that has begun, in place of the one that the browser had.
async fn finish(
    web: &Web,
    peer: &Peer,
    headers: &HeaderMap,
    next: &str,
    began: Answer<NewSession>,
) -> Response {
    let session = match began {
        Ok(session) => session,
        Err(error) => return refused(web, peer, next, &error),
    };
    if let Some(before) = Cookie::Session.read(web, headers)
        && let Err(error) = web.api.accounts().end_session(before).await
    {
        tracing::warn!(%error, user = session.user, "an earlier session ends by itself");
    }
    let mut answer = Redirect::to(next).into_response();
    let cookie: HeaderValue = Cookie::Session.set(web, &session.secret);
    answer.headers_mut().append(header::SET_COOKIE, cookie);
    answer
}

fn refused(web: &Web, peer: &Peer, next: &str, error: &ApiError) -> Response {
    let body = forms(web, peer, same_site(next), Some(error));
    with_status(error, bare(StatusCode::OK, "Log in", &body))
}

fn forms(web: &Web, peer: &Peer, next: &str, error: Option<&ApiError>) -> Markup {
    let issuers = web.api.accounts().issuers().of_browsers();
    let to_issuer = |issuer: &str| {
        let query = form_urlencoded::Serializer::new(String::new())
            .append_pair("issuer", issuer)
            .append_pair("next", next)
            .finish();
        format!("/login/issuer?{query}")
    };
    html! {
        div class="login" {
            h1 { "Log in" }
            p class="lede" { "Transfers of this service, and what they do." }
            @if let Some(error) = error { (notice(error)) }
            @for issuer in issuers {
                p { a class="button" href=(to_issuer(issuer)) { "Log in at " (visible(issuer)) } }
            }
            @match &peer.certificate {
                Certificate::Name { name, .. } => {
                    form class="sheet" method="post" action="/login/certificate" {
                        h2 { "By certificate" }
                        p class="url" { (visible(name)) }
                        input type="hidden" name="next" value=(next);
                        button type="submit" { "Log in with this certificate" }
                    }
                }
                Certificate::Refused(why) => {
                    p class="soft" {
                        "The certificate of your browser is of no use: " (visible(why))
                    }
                }
                Certificate::Nothing => {}
            }
            form class="sheet" method="post" action="/login" {
                h2 { "By token" }
                div class="field" {
                    label for="token" { "Token" }
                    input id="token" name="token" type="password" autocomplete="off" required
                        spellcheck="false" aria-describedby="token-hint";
                    span class="hint" id="token-hint" {
                        "The one that " code { "godwit-service serve" } " printed, or that your \
                        operator gave you."
                    }
                }
                input type="hidden" name="next" value=(next);
                button type="submit" { "Log in with the token" }
            }
            form class="sheet" method="post" action="/login" {
                h2 { "By password" }
                div class="field" {
                    label for="user" { "User" }
                    input id="user" name="user" autocomplete="username" required
                        autocapitalize="none" spellcheck="false";
                }
                div class="field" {
                    label for="password" { "Password" }
                    input id="password" name="password" type="password" required
                        autocomplete="current-password";
                }
                input type="hidden" name="next" value=(next);
                button type="submit" { "Log in with the password" }
            }
        }
    }
}
