//! Answers as a service writes them.

use std::{fmt::Write as _, time::SystemTime};

use percent_encoding::percent_encode;

use super::{PATH, answers::Part};
use crate::xml::escape;

const HEAD: &str = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n";
const NAMESPACE: &str = "http://s3.amazonaws.com/doc/2006-03-01/";

/// An element of XML that is written.
#[derive(Debug)]
pub struct Answer {
    text: String,
    root: &'static str,
    /// Keys are percent-encoded.
    is_encoded: bool,
}

/// Text that XML cannot have, where the client wants it as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a key is no text that XML can have: ask with encoding-type=url")]
pub struct BadText;

impl Answer {
    /// With the namespace of S3.
    pub fn new(root: &'static str) -> Self {
        Self {
            text: format!("{HEAD}<{root} xmlns=\"{NAMESPACE}\">"),
            root,
            is_encoded: false,
        }
    }

    /// Why a request is refused.
    pub fn refusal(code: &str, message: &str, resource: &str) -> String {
        let mut answer = Self {
            text: format!("{HEAD}<Error>"),
            root: "Error",
            is_encoded: false,
        };
        let fields = [("Code", code), ("Message", message), ("Resource", resource)];
        for (name, value) in fields {
            answer.field(name, value);
        }
        answer.finish()
    }

    /// Percent-encodes keys from here on.
    pub fn encode_keys(&mut self) {
        self.is_encoded = true;
        self.field("EncodingType", "url");
    }

    /// An element with a text.
    pub fn field(&mut self, name: &str, value: &str) {
        let _ = write!(self.text, "<{name}>");
        escape(value, &mut self.text);
        let _ = write!(self.text, "</{name}>");
    }

    /// An element with a key.
    ///
    /// # Errors
    /// It cannot be written so.
    pub fn key(&mut self, name: &str, key: &[u8]) -> Result<(), BadText> {
        if self.is_encoded {
            let _ = write!(self.text, "<{name}>{}</{name}>", percent_encode(key, PATH));
            return Ok(());
        }
        let text = std::str::from_utf8(key).map_err(|_| BadText)?;
        let is_lost = |c: char| c.is_control() && !matches!(c, '\t' | '\n' | '\r');
        if text
            .chars()
            .any(|c| is_lost(c) || matches!(c, '\u{fffe}' | '\u{ffff}'))
        {
            return Err(BadText);
        }
        self.field(name, text);
        Ok(())
    }

    /// An element with others.
    ///
    /// # Errors
    /// Those of `inner`.
    pub fn within(
        &mut self,
        name: &str,
        inner: impl FnOnce(&mut Self) -> Result<(), BadText>,
    ) -> Result<(), BadText> {
        let _ = write!(self.text, "<{name}>");
        inner(self)?;
        let _ = write!(self.text, "</{name}>");
        Ok(())
    }

    /// A part of an upload.
    pub fn part(&mut self, part: &Part, modified: SystemTime) {
        self.text.push_str("<Part>");
        self.field("PartNumber", &part.number.to_string());
        self.field("LastModified", &time(modified));
        self.field("ETag", &part.tag);
        self.field("Size", &part.size.to_string());
        if let Some(crc32c) = &part.crc32c {
            self.field("ChecksumCRC32C", crc32c);
        }
        self.text.push_str("</Part>");
    }

    /// The whole of it.
    pub fn finish(mut self) -> String {
        let _ = write!(self.text, "</{}>", self.root);
        self.text
    }
}

/// As `2009-10-12T17:50:30.000Z`.
pub fn time(time: SystemTime) -> String {
    let seconds = match time.duration_since(SystemTime::UNIX_EPOCH) {
        Ok(since) => i64::try_from(since.as_secs()).unwrap_or_default(),
        Err(_) => 0,
    };
    let time = jiff::Timestamp::from_second(seconds).unwrap_or_default();
    time.strftime("%Y-%m-%dT%H:%M:%S.000Z").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::s3::answers::{Page, PartsPage, Refusal};

    #[test]
    fn what_is_written_is_what_clients_read() {
        for is_encoded in [true, false] {
            let mut answer = Answer::new("ListBucketResult");
            if is_encoded {
                answer.encode_keys();
            }
            answer.field("IsTruncated", "false");
            let keys = ["a b+%2B&<", "ü\n"];
            for key in keys {
                let contents = |answer: &mut Answer| {
                    answer.key("Key", key.as_bytes())?;
                    answer.field("Size", "7");
                    Ok(())
                };
                answer.within("Contents", contents).unwrap();
            }
            let page = Page::read(answer.finish().as_bytes()).unwrap();
            for (object, key) in page.objects.iter().zip(keys) {
                assert_eq!(object.key, key.as_bytes());
            }
        }
        let mut answer = Answer::new("a");
        assert_eq!(answer.key("Key", b"\xff"), Err(BadText));
        assert_eq!(answer.key("Key", b"\x01"), Err(BadText));
        answer.encode_keys();
        assert_eq!(answer.key("Key", b"\xff\x01"), Ok(()));
    }

    #[test]
    fn parts_and_refusals_are_read_again() {
        let part = Part {
            number: 3,
            size: 5,
            tag: "\"x\"".to_owned(),
            crc32c: Some("AAAAAA==".to_owned()),
        };
        let mut answer = Answer::new("ListPartsResult");
        answer.field("IsTruncated", "false");
        answer.part(&part, SystemTime::UNIX_EPOCH);
        let page = PartsPage::read(answer.finish().as_bytes()).unwrap();
        assert_eq!(page.parts, [part]);
        let refused = Answer::refusal("NoSuchKey", "a <b>", "/b/k");
        let refused = Refusal::read(refused.as_bytes()).unwrap();
        assert_eq!((&*refused.code, &*refused.message), ("NoSuchKey", "a <b>"));
        assert_eq!(time(SystemTime::UNIX_EPOCH), "1970-01-01T00:00:00.000Z");
    }
}
