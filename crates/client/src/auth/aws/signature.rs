//! Headers of a request that show who asks (AWS SigV4).

use std::time::SystemTime;

use godwit_http::s3::signing::{ALGORITHM, S3, Scope, Signable, SigningKey, UNSIGNED_PAYLOAD, hex};
use godwit_http_client::{Body, HeaderName, HeaderValue, Origin, Request, header};
use openssl::sha::sha256;

use super::Keys;

/// When, for which region and service, a request is signed.
///
/// # Errors
/// No request can have that time: a message.
pub(crate) fn scope(now: SystemTime, region: &str, service: &'static str) -> Result<Scope, String> {
    let since = now
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    let scope = Scope::new(since.as_secs(), region).map(|scope| scope.for_service(service));
    scope.ok_or_else(|| unsigned(&"the clock is far off"))
}

/// Adds the headers ("Signature Calculations for the Authorization Header" of the reference of S3).
/// Bodies that are made while they are sent are not signed: what protects them is TLS, and their
/// own checksum.
///
/// # Errors
/// The request cannot be signed: a message.
pub(crate) fn sign(
    request: &mut Request,
    origin: &Origin,
    keys: &Keys,
    scope: &Scope,
) -> Result<(), String> {
    let is_of_s3 = scope.service() == S3;
    let payload = match &request.body {
        Body::Empty => hex(&sha256(b"")),
        Body::Bytes(bytes) => hex(&sha256(bytes)),
        Body::Chunks(_) => UNSIGNED_PAYLOAD.to_owned(),
    };
    let token = keys.token.as_ref().map(|token| token.reveal());
    let added = [
        ("x-amz-date", Some(scope.time())),
        ("x-amz-content-sha256", is_of_s3.then_some(&*payload)),
        ("x-amz-security-token", token),
    ];
    for (name, value) in added {
        let Some(value) = value else { continue };
        let value = HeaderValue::try_from(value).map_err(|error| unsigned(&error))?;
        request.headers.insert(HeaderName::from_static(name), value);
    }
    let headers = signed_headers(request, origin, is_of_s3);
    let (path, query) = request
        .target
        .split_once('?')
        .unwrap_or((&request.target, ""));
    let mut pairs: Vec<_> = query.split('&').collect();
    pairs.sort_unstable();
    let query = pairs.join("&");
    let signable = Signable {
        method: request.method.as_str(),
        path,
        query: &query,
        headers: &headers,
        payload: &payload,
    };
    let key = SigningKey::new(keys.secret.reveal(), scope);
    let signature = key.sign(&signable.text(scope));
    let value = format!(
        "{ALGORITHM} Credential={}/{},SignedHeaders={},Signature={signature}",
        keys.access,
        scope.text(),
        signable.names()
    );
    let mut value = HeaderValue::try_from(value).map_err(|error| unsigned(&error))?;
    value.set_sensitive(true);
    request.headers.insert(header::AUTHORIZATION, value);
    Ok(())
}

fn unsigned(why: &dyn std::fmt::Display) -> String {
    format!("cannot sign the request: {why}")
}

/// The headers that are signed, in their order. Services other than S3 want the type of the body
/// among them.
fn signed_headers<'a>(
    request: &'a Request,
    origin: &Origin,
    is_of_s3: bool,
) -> Vec<(&'a str, String)> {
    let is_signed = |name: &str| {
        name.starts_with("x-amz-") || !is_of_s3 && name == header::CONTENT_TYPE.as_str()
    };
    let own = request.headers.iter().filter_map(|(name, value)| {
        let name = name.as_str();
        let value = value.to_str().ok().filter(|_| is_signed(name))?;
        Some((name, value.trim().to_owned()))
    });
    let mut headers: Vec<_> = own.chain([("host", origin.authority())]).collect();
    headers.sort_unstable();
    headers
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use godwit_http_client::{Method, Scheme};
    use godwit_proto::command::Password;

    use super::*;

    /// As botocore 1.43.11 signs it.
    #[test]
    fn requests_to_sts_are_signed_as_the_tools_of_aws_sign_them() {
        let kind = HeaderValue::from_static("application/x-www-form-urlencoded; charset=utf-8");
        let body = Body::Bytes("Version=2011-06-15&Action=AssumeRole".into());
        let request = Request::new(Method::POST, "/").with(header::CONTENT_TYPE, kind);
        let mut request = request.with_body(body);
        let origin = Origin {
            scheme: Scheme::Https,
            host: "sts.us-east-1.amazonaws.com".to_owned(),
            port: 443,
        };
        let keys = Keys {
            access: "AKIDEXAMPLE".to_owned(),
            secret: Password::new("wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"),
            token: Some(Password::new("t0ken")),
        };
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_440_938_160);
        let scope = scope(now, "us-east-1", "sts").unwrap();
        sign(&mut request, &origin, &keys, &scope).unwrap();
        let header = request.headers[header::AUTHORIZATION].to_str().unwrap();
        let expected = "AWS4-HMAC-SHA256 \
            Credential=AKIDEXAMPLE/20150830/us-east-1/sts/aws4_request,\
            SignedHeaders=content-type;host;x-amz-date;x-amz-security-token,\
            Signature=d3237156f6c8a4feaf2d0d51a3705ec9c2911bada9ffb9aef1781e1a2ea28b43";
        assert_eq!(header, expected);
    }
}
