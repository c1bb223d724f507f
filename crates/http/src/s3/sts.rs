//! What the security token service (STS) of AWS answers, which issues keys that end.
//!
//! Source: AWS Security Token Service API Reference, version 2011-06-15.

use std::time::SystemTime;

use godwit_proto::command::Password;

use super::answers::{Refusal, child, fields, rooted, time};
use crate::dav::BadXml;

/// The version of the service that requests name.
pub const VERSION: &str = "2011-06-15";

/// Keys that end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TemporaryKeys {
    /// Of requests.
    pub access: String,
    /// Of signatures.
    pub secret: Password,
    /// It goes with each request.
    pub token: Password,
    /// `None`: the service does not say when they end.
    pub expires: Option<SystemTime>,
}

impl TemporaryKeys {
    /// The answer to `action`, which is `AssumeRole` or one like it.
    ///
    /// # Errors
    /// It has no keys, or several.
    pub fn read(body: &[u8], action: &str) -> Result<Self, BadXml> {
        let mut document = rooted(body, &[&format!("{action}Response")])?;
        let result = format!("{action}Result");
        let mut found = None;
        while let Some(name) = child(&mut document)? {
            if name != result {
                document.skip()?;
                continue;
            }
            while let Some(name) = child(&mut document)? {
                if name != "Credentials" {
                    document.skip()?;
                    continue;
                }
                let names = [
                    "AccessKeyId",
                    "SecretAccessKey",
                    "SessionToken",
                    "Expiration",
                ];
                if found.replace(fields(&mut document, names)?).is_some() {
                    return Err(BadXml::Unexpected);
                }
            }
        }
        let [access, secret, token, expires] = found.ok_or(BadXml::Undescribed)?;
        let expires = expires.map(|text| time(&text).ok_or(BadXml::Unexpected));
        Ok(Self {
            access: access.ok_or(BadXml::Undescribed)?,
            secret: Password::new(secret.ok_or(BadXml::Undescribed)?),
            token: Password::new(token.ok_or(BadXml::Undescribed)?),
            expires: expires.transpose()?,
        })
    }
}

/// Why the service refuses a request; `None`: the body does not say.
pub fn read_refusal(body: &[u8]) -> Option<Refusal> {
    let mut document = rooted(body, &["ErrorResponse"]).ok()?;
    while let Some(name) = child(&mut document).ok()? {
        if name == "Error" {
            let [code, message] = fields(&mut document, ["Code", "Message"]).ok()?;
            return Some(Refusal {
                code: code?,
                message: message.unwrap_or_default(),
            });
        }
        document.skip().ok()?;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEYS: &str = "<Credentials><SessionToken>t+/=</SessionToken>\
        <SecretAccessKey>s</SecretAccessKey><Expiration>2037-01-01T00:00:00Z</Expiration>\
        <AccessKeyId>ASIA</AccessKeyId></Credentials>";

    fn answer(keys: &str) -> String {
        format!(
            "<AssumeRoleResponse xmlns=\"https://sts.amazonaws.com/doc/2011-06-15/\">\
             <AssumeRoleResult><AssumedRoleUser><Arn>arn:x</Arn></AssumedRoleUser>{keys}\
             </AssumeRoleResult><ResponseMetadata><RequestId>1</RequestId></ResponseMetadata>\
             </AssumeRoleResponse>"
        )
    }

    #[test]
    fn keys_are_read_with_the_time_at_which_they_end() {
        let keys = TemporaryKeys::read(answer(KEYS).as_bytes(), "AssumeRole").unwrap();
        assert_eq!((&*keys.access, keys.secret.reveal()), ("ASIA", "s"));
        assert_eq!(keys.token.reveal(), "t+/=");
        assert!(keys.expires.unwrap() > SystemTime::UNIX_EPOCH);
    }

    #[test]
    fn answers_without_keys_are_refused() {
        for body in [
            answer(""),
            answer(&format!("{KEYS}{KEYS}")),
            answer(&KEYS.replace("AccessKeyId", "Other")),
            answer(&KEYS.replace("2037-", "soon")),
            answer(KEYS).replace("AssumeRole", "GetSessionToken"),
            answer(KEYS).replace("</AssumeRoleResponse>", ""),
            String::new(),
        ] {
            let read = TemporaryKeys::read(body.as_bytes(), "AssumeRole");
            assert!(read.is_err(), "{body}");
        }
    }

    #[test]
    fn refusals_have_a_code_and_a_message() {
        let body = b"<ErrorResponse xmlns=\"x\"><Error><Type>Sender</Type>\
            <Code>AccessDenied</Code><Message>no &lt;role&gt;</Message></Error>\
            <RequestId>1</RequestId></ErrorResponse>";
        let refusal = read_refusal(body).unwrap();
        let read = (&*refusal.code, &*refusal.message);
        assert_eq!(read, ("AccessDenied", "no <role>"));
        assert_eq!(read_refusal(b"<Error><Code>x</Code></Error>"), None);
    }
}
