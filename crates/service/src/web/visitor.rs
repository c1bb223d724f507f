//! Who asks, by the cookie of a session; and forms that were sent by the visitor's own page.

use std::collections::HashMap;

use axum::{
    body::Body,
    extract::{FromRequest, FromRequestParts, Query, Request},
    http::{HeaderMap, Method, StatusCode, header, request::Parts},
    response::{IntoResponse, Redirect, Response},
};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use serde::de::DeserializeOwned;
use sha2::{Digest as _, Sha256};
use zeroize::Zeroizing;

use super::{Web, cookies::Cookie, frame::PageError};
use crate::{
    accounts::{AccessError, is_of_another_site, oidc::is_same},
    api::{Caller, whole},
    problem::{Answer, ApiError, Kind},
};

/// Name of the field of forms that only pages of the session know.
pub(super) const CSRF: &str = "form";

/// Longest form.
const FORM_BYTES_MAX: usize = 64 << 10;

/// Longest path that a login leads to.
const NEXT_BYTES_MAX: usize = 500;

/// Of requests that the script makes by itself: they are no use of a session.
const PART_HEADER: &str = "x-godwit-part";

/// A user of a session, within the limits of requests.
pub(super) struct Visitor {
    pub(super) caller: Caller,
    secret: Zeroizing<String>,
}

impl Visitor {
    pub(super) fn is_operator(&self) -> bool {
        self.caller.is_operator()
    }

    /// Secret of the session.
    pub(super) fn secret(&self) -> &str {
        &self.secret
    }

    /// What forms of this session hold. The cookie cannot be told from it.
    pub(super) fn form_token(&self) -> String {
        let digest = Sha256::new()
            .chain_update("godwit form\0")
            .chain_update(self.secret.as_bytes())
            .finalize();
        URL_SAFE_NO_PAD.encode(digest)
    }

    async fn of(parts: &Parts, web: &Web) -> Result<Self, Response> {
        let is_part = parts.headers.contains_key(PART_HEADER);
        let Some(secret) = Cookie::Session.read(web, &parts.headers) else {
            return Err(to_login(parts, is_part));
        };
        let principal = match web.api.accounts().session(secret, !is_part).await {
            Ok(principal) => principal,
            Err(AccessError::Refused) => return Err(to_login(parts, is_part)),
            Err(error) => return Err(PageError(error.into()).into_response()),
        };
        let limited = web.api.limits().take_request(&principal.name);
        limited.map_err(|error| PageError(error).into_response())?;
        Ok(Self {
            caller: Caller(principal),
            secret: Zeroizing::new(secret.to_owned()),
        })
    }
}

impl FromRequestParts<Web> for Visitor {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, web: &Web) -> Result<Self, Response> {
        Visitor::of(parts, web).await
    }
}

/// A visitor who is an operator.
pub(super) struct OperatorVisitor(pub(super) Visitor);

impl FromRequestParts<Web> for OperatorVisitor {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, web: &Web) -> Result<Self, Response> {
        let visitor = Visitor::of(parts, web).await?;
        check_operator(&visitor).map_err(|error| PageError(error).into_response())?;
        Ok(Self(visitor))
    }
}

pub(super) fn check_operator(visitor: &Visitor) -> Answer<()> {
    match visitor.is_operator() {
        true => Ok(()),
        false => Err(ApiError::new(Kind::Forbidden, "this is for operators")),
    }
}

fn to_login(parts: &Parts, is_part: bool) -> Response {
    if is_part {
        return StatusCode::UNAUTHORIZED.into_response();
    }
    let path = parts.uri.path_and_query().map(|path| path.as_str());
    let next = path.filter(|_| parts.method == Method::GET);
    Redirect::to(&login_path(next.unwrap_or_default())).into_response()
}

/// The page of logins, which leads on to `next`.
pub(super) fn login_path(next: &str) -> String {
    match same_site(next) {
        "/" | "/jobs" => "/login".to_owned(),
        next => {
            let query = form_urlencoded::Serializer::new(String::new())
                .append_pair("next", next)
                .finish();
            format!("/login?{query}")
        }
    }
}

/// A path of this site, or that of the first page.
pub(super) fn same_site(next: &str) -> &str {
    // Browsers take `\` for `/`, `//` for the beginning of a host, and pass over controls.
    let is_path = next.starts_with('/') && !next.starts_with("//");
    let is_plain = next
        .bytes()
        .all(|byte| byte.is_ascii_graphic() && byte != b'\\');
    match is_path && is_plain && next.len() <= NEXT_BYTES_MAX {
        true => next,
        false => "/jobs",
    }
}

/// The query of the URL.
pub(super) struct PageQuery<T>(pub(super) T);

impl<T: DeserializeOwned> FromRequestParts<Web> for PageQuery<T> {
    type Rejection = PageError;

    async fn from_request_parts(parts: &mut Parts, _: &Web) -> Result<Self, PageError> {
        match Query::try_from_uri(&parts.uri) {
            Ok(Query(asked)) => Ok(PageQuery(asked)),
            Err(error) => Err(ApiError::new(Kind::Query, error.body_text()).into()),
        }
    }
}

/// What a form holds.
#[derive(Default)]
pub(super) struct Form(HashMap<String, Zeroizing<String>>);

impl Form {
    /// Sets a field.
    pub(super) fn set(&mut self, name: &str, text: String) {
        self.0.insert(name.to_owned(), Zeroizing::new(text));
    }

    /// Text of a field without blanks around it; empty where there is none.
    pub(super) fn text(&self, name: &str) -> &str {
        self.0.get(name).map_or("", |text| text.trim())
    }

    /// The same; `None` where it is empty.
    pub(super) fn maybe(&self, name: &str) -> Option<&str> {
        Some(self.text(name)).filter(|text| !text.is_empty())
    }

    /// A secret, as it was typed.
    pub(super) fn raw(&self, name: &str) -> Zeroizing<String> {
        self.0.get(name).cloned().unwrap_or_default()
    }

    /// A box is checked.
    pub(super) fn is_checked(&self, name: &str) -> bool {
        !self.text(name).is_empty()
    }

    /// A number, where there is one.
    pub(super) fn number<T: std::str::FromStr>(&self, name: &str) -> Answer<Option<T>> {
        let parsed = self.maybe(name).map(str::parse);
        let wrong = |_| ApiError::new(Kind::Invalid, "a number").at(format!("/{name}"));
        parsed.transpose().map_err(wrong)
    }

    /// One of the names that JSON has for a value.
    pub(super) fn choice<T: DeserializeOwned>(&self, name: &str) -> Answer<Option<T>> {
        let Some(text) = self.maybe(name) else {
            return Ok(None);
        };
        let value = serde_json::from_value(text.into());
        let wrong = |_| ApiError::new(Kind::Invalid, "one of the list").at(format!("/{name}"));
        value.map(Some).map_err(wrong)
    }

    /// Reads a form that a page of this site sent.
    pub(super) async fn read(headers: &HeaderMap, body: Body) -> Answer<Self> {
        let says = headers.contains_key("sec-fetch-site") || headers.contains_key(header::ORIGIN);
        if !says || is_of_another_site(headers) {
            let detail = "forms are taken from pages of this site only";
            return Err(ApiError::new(Kind::Forbidden, detail));
        }
        let media = headers.get(header::CONTENT_TYPE);
        let media = media.and_then(|media| media.to_str().ok()).unwrap_or("");
        if !media.starts_with("application/x-www-form-urlencoded") {
            return Err(ApiError::new(Kind::MediaType, "this takes a form"));
        }
        let body = Zeroizing::new(whole(body, FORM_BYTES_MAX).await?);
        let fields = form_urlencoded::parse(&body);
        let fields = fields.map(|(name, text)| (name.into_owned(), Zeroizing::new(text.into())));
        Ok(Self(fields.collect()))
    }
}

/// A form that a page of the visitor's session sent.
pub(super) struct Posted {
    pub(super) visitor: Visitor,
    pub(super) form: Form,
}

impl FromRequest<Web> for Posted {
    type Rejection = Response;

    async fn from_request(request: Request, web: &Web) -> Result<Self, Response> {
        let (parts, body) = request.into_parts();
        let visitor = Visitor::of(&parts, web).await?;
        let failed = |error| PageError(error).into_response();
        let form = Form::read(&parts.headers, body).await.map_err(failed)?;
        if !is_same(form.text(CSRF), &visitor.form_token()) {
            let detail = "the form is of another session: load the page again";
            return Err(failed(ApiError::new(Kind::Forbidden, detail)));
        }
        Ok(Self { visitor, form })
    }
}

#[cfg(test)]
mod tests {
    use super::{login_path, same_site};

    #[test]
    fn a_login_leads_to_paths_of_this_site_only() {
        for path in ["/", "/jobs", "/jobs/x?files=failed&cursor=a%2Fb", "/a//b"] {
            assert_eq!(same_site(path), path);
        }
        for url in [
            "",
            "jobs",
            "//evil.example.org",
            "/\\evil.example.org",
            "\\\\evil.example.org",
            "https://evil.example.org",
            "javascript:alert(1)",
            " /jobs",
            "/\t/evil.example.org",
            "/jobs\r\nset-cookie: a=b",
            "/\u{e9}",
            &format!("/{}", "a".repeat(600)),
        ] {
            assert_eq!(same_site(url), "/jobs", "{url:?}");
        }
    }

    #[test]
    fn the_page_of_logins_leads_back() {
        assert_eq!(login_path("/jobs"), "/login");
        let path = login_path("/jobs/7?files=failed");
        assert_eq!(path, "/login?next=%2Fjobs%2F7%3Ffiles%3Dfailed");
        assert_eq!(login_path("//evil.example.org"), "/login");
    }
}
