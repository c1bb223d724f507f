//! Where redirects lead.

use hyper::StatusCode;

use crate::url::{BadUrl, Scheme, Url};

/// Redirects of one request that are followed.
const HOPS_MAX: usize = 10;

/// The way of one request from server to server.
#[derive(Clone, Debug)]
pub struct Redirects {
    /// Where it has been; the last is where it is.
    seen: Vec<Url>,
    carries_credentials: bool,
}

/// Why a redirect is not followed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadRedirect {
    /// It has no `Location`.
    #[error("the redirect says not where to")]
    Nowhere,
    /// Its `Location` is none.
    #[error("the redirect leads to no URL of HTTP: {0}")]
    Url(#[from] BadUrl),
    /// What was protected would not be any more.
    #[error("the redirect leads from https to http")]
    Clear,
    /// A URL comes again.
    #[error("the redirects lead in a circle")]
    Circle,
    /// Too many of them.
    #[error("there are more than {HOPS_MAX} redirects")]
    Long,
}

impl Redirects {
    /// The request begins here, with the user's credentials.
    #[must_use]
    pub fn new(url: Url) -> Self {
        Self {
            seen: vec![url],
            carries_credentials: true,
        }
    }

    /// Where the request goes now.
    #[must_use]
    pub fn url(&self) -> &Url {
        &self.seen[self.seen.len() - 1]
    }

    /// Credentials may go there: all servers on the way were the first one.
    #[must_use]
    pub fn carries_credentials(&self) -> bool {
        self.carries_credentials
    }

    /// This status sends a request elsewhere, with the same method and body. 303 is none of them:
    /// what it leads to is not the file.
    #[must_use]
    pub fn is_redirect(status: StatusCode) -> bool {
        matches!(status.as_u16(), 301 | 302 | 307 | 308)
    }

    /// Follows an answer's `Location`.
    ///
    /// # Errors
    /// See [`BadRedirect`].
    pub fn follow(&mut self, location: Option<&str>) -> Result<(), BadRedirect> {
        let from = self.url();
        let next = from.join(location.ok_or(BadRedirect::Nowhere)?)?;
        if (from.origin.scheme, next.origin.scheme) == (Scheme::Https, Scheme::Http) {
            return Err(BadRedirect::Clear);
        }
        if self.seen.contains(&next) {
            return Err(BadRedirect::Circle);
        }
        if self.seen.len() > HOPS_MAX {
            return Err(BadRedirect::Long);
        }
        self.carries_credentials &= from.origin == next.origin;
        self.seen.push(next);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(url: &str) -> Redirects {
        Redirects::new(Url::parse(url).unwrap())
    }

    #[test]
    fn credentials_stay_at_their_server() {
        let mut way = at("https://a/f");
        way.follow(Some("/g")).unwrap();
        assert!(way.carries_credentials());
        way.follow(Some("https://a:8443/g")).unwrap();
        assert!(!way.carries_credentials(), "another port is another server");
        way.follow(Some("https://a/h")).unwrap();
        assert!(!way.carries_credentials(), "they are gone for good");
        assert_eq!(way.url().to_string(), "https://a/h");
    }

    #[test]
    fn bad_redirects_are_not_followed() {
        let mut way = at("https://a/f");
        assert_eq!(way.follow(None), Err(BadRedirect::Nowhere));
        assert_eq!(way.follow(Some("http://a/f")), Err(BadRedirect::Clear));
        assert_eq!(way.follow(Some("/f")), Err(BadRedirect::Circle));
        let scheme = BadRedirect::Url(BadUrl::Scheme);
        assert_eq!(way.follow(Some("ftp://a/f")), Err(scheme));
        for hop in 0..10 {
            way.follow(Some(&format!("/{hop}"))).unwrap();
        }
        assert_eq!(way.follow(Some("/last")), Err(BadRedirect::Long));
    }
}
