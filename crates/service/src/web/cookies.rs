//! The two cookies: that of a session, and that of a login that is under way at an issuer.

use axum::http::{HeaderMap, HeaderValue, header};

use super::Web;

/// Seconds that a login at an issuer may take.
const LOGIN_SECONDS: u32 = 600;

/// Which cookie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cookie {
    /// Ends with the browser; the service ends it earlier.
    Session,
    /// From the way to an issuer until the way back.
    Login,
}

impl Cookie {
    /// With TLS no other host of the site, and nobody on the path, can set such a cookie.
    fn name(self, web: &Web) -> &'static str {
        match (self, web.secure) {
            (Cookie::Session, true) => "__Host-godwit-session",
            (Cookie::Session, false) => "godwit-session",
            (Cookie::Login, true) => "__Host-godwit-login",
            (Cookie::Login, false) => "godwit-login",
        }
    }

    /// What the browser has.
    pub(super) fn read<'a>(self, web: &Web, headers: &'a HeaderMap) -> Option<&'a str> {
        let name = self.name(web);
        let lines = headers.get_all(header::COOKIE).iter();
        let lines = lines.filter_map(|line| line.to_str().ok());
        let mut pairs = lines.flat_map(|line| line.split(';'));
        pairs.find_map(|pair| pair.trim().strip_prefix(name)?.strip_prefix('='))
    }

    /// For the browser to keep.
    pub(super) fn set(self, web: &Web, value: &str) -> HeaderValue {
        let age = (self == Cookie::Login).then_some(LOGIN_SECONDS);
        self.header(web, value, age)
    }

    /// For the browser to forget.
    pub(super) fn clear(self, web: &Web) -> HeaderValue {
        self.header(web, "", Some(0))
    }

    fn header(self, web: &Web, value: &str, age: Option<u32>) -> HeaderValue {
        // Lax: a link in a mail opens the page, and an issuer sends the browser back.
        let mut text = format!("{}={value}; Path=/; HttpOnly; SameSite=Lax", self.name(web));
        if web.secure {
            text += "; Secure";
        }
        if let Some(age) = age {
            text += &format!("; Max-Age={age}");
        }
        // Values are base64 and dots.
        HeaderValue::from_str(&text).unwrap_or(HeaderValue::from_static(""))
    }
}
