//! What the headers of a COPY say.

use godwit_http::{
    dav::overwrite,
    target::{BadTarget, Target},
};
use godwit_http_client::{BadUrl, Scheme, Url};
use hyper::{
    HeaderMap, StatusCode,
    header::{HOST, HeaderName, HeaderValue},
};

use crate::https::answer::{Rejected, header_text};

/// Most connections that a client may ask for.
const STREAMS_MAX: u32 = 100;

/// Headers whose prefix is left out on their way to the other server.
const PREFIX: &str = "transferheader";

/// What a header would change that this server decides on: where a request ends and what it is for.
const OURS: [&str; 17] = [
    "accept-encoding",
    "connection",
    "content-length",
    "content-range",
    "expect",
    "host",
    "if-match",
    "if-none-match",
    "if-unmodified-since",
    "keep-alive",
    "proxy-connection",
    "range",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "want-digest",
];

/// Which way the bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CopyDirection {
    /// From the other server.
    Pull,
    /// To the other server.
    Push,
}

/// What a client wants.
#[derive(Debug)]
pub(super) struct Order {
    pub(super) direction: CopyDirection,
    pub(super) remote: Url,
    /// For the other server. They are secrets.
    pub(super) headers: HeaderMap,
    pub(super) streams: u32,
    /// What has the name at the destination may be replaced.
    pub(super) replaces: bool,
    /// Without a checksum of the other server the copy fails.
    pub(super) must_verify: bool,
    /// What the client says about itself.
    pub(super) client_info: String,
}

/// The COPY is not one within this server.
pub(in crate::https) fn is_third_party(headers: &HeaderMap) -> bool {
    let is_elsewhere = |destination| {
        let target = Target::of_destination(destination, header_text(headers, HOST));
        matches!(target, Err(BadTarget::Elsewhere | BadTarget::Scheme))
    };
    headers.contains_key("source") || header_text(headers, "destination").is_some_and(is_elsewhere)
}

impl Order {
    pub(super) fn read(headers: &HeaderMap) -> Result<Self, Rejected> {
        let (direction, url) = match (only(headers, "source")?, only(headers, "destination")?) {
            (Some(source), None) => (CopyDirection::Pull, source),
            (None, Some(destination)) => (CopyDirection::Push, destination),
            _ => return bad("a COPY has either a Source or a Destination"),
        };
        let remote = Url::parse(url).map_err(of_url)?;
        if remote.origin.scheme == Scheme::Http {
            return Err(of_url(BadUrl::Scheme));
        }
        match only(headers, "credential")?.map(str::trim) {
            None => {}
            Some(kind) if kind.eq_ignore_ascii_case("none") => {}
            Some(_) => return bad("Credential is none: there is no proxy or exchanged token here"),
        }
        let streams = match only(headers, "x-number-of-streams")? {
            None => 1,
            // gfal2 leaves it to the server by 0.
            Some(text) => match text.trim().parse::<u32>() {
                Ok(streams) if streams <= STREAMS_MAX => streams.max(1),
                _ => return bad("X-Number-Of-Streams is a number up to 100"),
            },
        };
        let must_verify = match only(headers, "requirechecksumverification")?.map(str::trim) {
            None => false,
            Some(text) if text.eq_ignore_ascii_case("true") => true,
            Some(text) if text.eq_ignore_ascii_case("false") => false,
            Some(_) => return bad("RequireChecksumVerification is true or false"),
        };
        let Some(replaces) = overwrite(only(headers, "overwrite")?) else {
            return bad("Overwrite is T or F");
        };
        Ok(Self {
            direction,
            remote,
            headers: for_remote(headers)?,
            streams,
            replaces,
            must_verify,
            client_info: header_text(headers, "clientinfo")
                .unwrap_or_default()
                .to_owned(),
        })
    }
}

fn bad<T>(text: &str) -> Result<T, Rejected> {
    Err(Rejected::new(StatusCode::BAD_REQUEST, text))
}

fn of_url(why: BadUrl) -> Rejected {
    match why {
        BadUrl::Scheme => {
            let text = "copies are with servers of https alone";
            Rejected::new(StatusCode::NOT_IMPLEMENTED, text)
        }
        _ => Rejected::new(StatusCode::BAD_REQUEST, why.to_string()),
    }
}

/// A header that may come once.
fn only<'a>(headers: &'a HeaderMap, name: &str) -> Result<Option<&'a str>, Rejected> {
    let mut values = headers.get_all(name).iter();
    match (values.next().map(HeaderValue::to_str), values.next()) {
        (None, _) => Ok(None),
        (Some(Ok(text)), None) => Ok(Some(text)),
        _ => bad(&format!("{name}: more than one, or no text")),
    }
}

/// The headers for the other server: `TransferHeaderName: value`, and `Copy-Header: Name: value` as
/// old XRootD has it.
fn for_remote(headers: &HeaderMap) -> Result<HeaderMap, Rejected> {
    let mut found = HeaderMap::new();
    for (name, value) in headers {
        let (name, value) = match name.as_str() {
            "copy-header" => {
                let pair = value.to_str().ok().and_then(|text| text.split_once(':'));
                let Some((name, value)) = pair else {
                    return bad("Copy-Header has no name and value");
                };
                let value = HeaderValue::from_str(value.trim()).ok();
                (name.trim().to_ascii_lowercase(), value)
            }
            name => match name.strip_prefix(PREFIX) {
                Some(name) => (name.to_owned(), Some(value.clone())),
                None => continue,
            },
        };
        let is_ours = OURS.contains(&name.as_str());
        let name = HeaderName::try_from(name).ok().filter(|_| !is_ours);
        let (Some(name), Some(mut value)) = (name, value) else {
            return bad("a TransferHeader has a name or a value that is not passed on");
        };
        value.set_sensitive(true);
        found.append(name, value);
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: (&str, &str) = ("source", "https://a.example/f");

    fn read(pairs: &[(&str, &str)]) -> Result<Order, u16> {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            let name: HeaderName = name.parse().unwrap();
            headers.append(name, value.parse().unwrap());
        }
        Order::read(&headers).map_err(|refused| refused.status.as_u16())
    }

    #[test]
    fn an_order_has_one_other_end() {
        let pull = read(&[SOURCE]).unwrap();
        assert_eq!(pull.direction, CopyDirection::Pull);
        assert_eq!(
            (pull.streams, pull.replaces, pull.must_verify),
            (1, true, false)
        );
        let push = read(&[("destination", "davs://a/f")]).unwrap();
        assert_eq!(push.direction, CopyDirection::Push);
        assert_eq!(read(&[]).unwrap_err(), 400);
        assert_eq!(
            read(&[SOURCE, ("destination", "https://b/")]).unwrap_err(),
            400
        );
        assert_eq!(read(&[SOURCE, SOURCE]).unwrap_err(), 400);
        for (url, status) in [
            ("ftp://a/f", 501),
            ("http://a/f", 501),
            ("gsiftp://a/f", 501),
            ("file:///etc/passwd", 501),
            ("/f", 400),
            ("https://u:p@a/f", 400),
            ("https:///f", 400),
        ] {
            assert_eq!(read(&[("source", url)]).unwrap_err(), status, "{url}");
        }
    }

    #[test]
    fn values_that_are_not_understood_are_refused() {
        for (name, value) in [
            ("x-number-of-streams", "-1"),
            ("x-number-of-streams", "101"),
            ("x-number-of-streams", "many"),
            ("credential", "gridsite"),
            ("credential", "oidc"),
            ("overwrite", "maybe"),
            ("requirechecksumverification", "perhaps"),
        ] {
            assert_eq!(
                read(&[SOURCE, (name, value)]).unwrap_err(),
                400,
                "{name}: {value}"
            );
        }
        let by_default = read(&[SOURCE, ("x-number-of-streams", "0")]).unwrap();
        assert_eq!(by_default.streams, 1);
        let order = read(&[
            SOURCE,
            ("X-Number-Of-Streams", "100"),
            ("Credential", "none"),
            ("Overwrite", "F"),
            ("RequireChecksumVerification", "true"),
        ])
        .unwrap();
        assert_eq!(
            (order.streams, order.replaces, order.must_verify),
            (100, false, true)
        );
    }

    #[test]
    fn headers_for_the_other_server_change_no_request() {
        let order = read(&[
            SOURCE,
            ("TransferHeaderAuthorization", "Bearer t"),
            ("TRANSFERHEADERX-a", "1"),
            ("TransferHeaderX-A", "2"),
            ("Copy-Header", "X-B: 3"),
            ("Authorization", "Bearer mine"),
        ])
        .unwrap();
        let all = |name: &str| -> Vec<_> { order.headers.get_all(name).iter().collect() };
        assert_eq!(all("authorization"), ["Bearer t"]);
        assert_eq!(all("x-a"), ["1", "2"]);
        assert_eq!(all("x-b"), ["3"]);
        assert_eq!(order.headers.len(), 4);
        assert!(!format!("{order:?}").contains("Bearer"));
        for name in [
            "Host",
            "content-length",
            "Transfer-Encoding",
            "Range",
            "Expect",
            "",
        ] {
            let header = format!("TransferHeader{name}");
            assert_eq!(read(&[SOURCE, (&header, "1")]).unwrap_err(), 400, "{name}");
            let header = format!("{name}: 1");
            assert_eq!(
                read(&[SOURCE, ("Copy-Header", &header)]).unwrap_err(),
                400,
                "{name}"
            );
        }
        assert_eq!(
            read(&[SOURCE, ("Copy-Header", "no colon")]).unwrap_err(),
            400
        );
    }
}
