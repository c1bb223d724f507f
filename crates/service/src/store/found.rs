//! What a listing may add to its job. Agents are not trusted: an entry lies right below the
//! directory that was listed, under the same name at both ends, so it leads to no other endpoint or
//! path.

use godwit_proto::{
    FtpPath,
    url::{in_url, without_last_slashes},
};
use godwit_service_api::{
    agent::FoundFile,
    job::{FileError, FileRequest, MAX_FILE_BYTES, MAX_URL_BYTES, WhoActs},
};

use super::submission::endpoint_of;

/// A file with its endpoints.
pub(crate) type FoundBelow = (String, String, FileRequest);

/// Entries that were found in `directory`, with their endpoints.
///
/// # Errors
/// One of them lies elsewhere: then no entry of this listing is used.
pub(crate) fn placed(
    directory: &FileRequest,
    found: &[FoundFile],
) -> Result<Vec<FoundBelow>, FileError> {
    let placed = found.iter().map(|found| {
        let name = name_below(&directory.source, &found.source)?;
        if name_below(&directory.destination, &found.destination)? != name {
            return None;
        }
        let file = FileRequest {
            source: found.source.clone(),
            destination: found.destination.clone(),
            recursive: found.directory,
            bytes: found.bytes.map(|bytes| bytes.min(MAX_FILE_BYTES)),
            ..FileRequest::default()
        };
        Some((
            endpoint_of(&found.source)?,
            endpoint_of(&found.destination)?,
            file,
        ))
    });
    placed.collect::<Option<_>>().ok_or_else(|| FileError {
        code: "listing".to_owned(),
        message: "the agent listed what does not lie in this directory".to_owned(),
        who: WhoActs::Operator,
        may_pass: true,
    })
}

/// The one name that `url` adds to `directory`, encoded as agents encode it.
fn name_below<'a>(directory: &str, url: &'a str) -> Option<&'a str> {
    let name = url.strip_prefix(without_last_slashes(directory))?;
    let name = name.strip_prefix('/')?;
    let decoded = decoded(name)?;
    let is_name = !matches!(decoded.as_slice(), b"" | b"." | b"..") && !decoded.contains(&b'/');
    let path = FtpPath::new([b"/", decoded.as_slice()].concat()).ok()?;
    let is_canonical = in_url(&path).collect::<String>().get(1..) == Some(name);
    (is_name && is_canonical && url.len() <= MAX_URL_BYTES).then_some(name)
}

fn decoded(text: &str) -> Option<Vec<u8>> {
    let (mut bytes, mut decoded) = (text.bytes(), Vec::with_capacity(text.len()));
    while let Some(byte) = bytes.next() {
        let digit = |digit: Option<u8>| char::from(digit?).to_digit(16);
        decoded.push(match byte {
            b'%' => u8::try_from(digit(bytes.next())? * 16 + digit(bytes.next())?).ok()?,
            byte => byte,
        });
    }
    Some(decoded)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn takes(source: &str, destination: &str) -> bool {
        let directory = FileRequest {
            source: "ftp://a.example.org/tree/".to_owned(),
            destination: "file:///data/copy".to_owned(),
            ..FileRequest::default()
        };
        let found = FoundFile {
            source: source.to_owned(),
            destination: destination.to_owned(),
            directory: false,
            bytes: Some(u64::MAX),
        };
        let placed = placed(&directory, &[found]);
        placed.is_ok_and(|files| files[0].2.bytes == Some(MAX_FILE_BYTES))
    }

    #[test]
    fn entries_lie_right_below_their_directory_at_both_ends() {
        for name in ["x", "...", "a%20b", "%25", ".x", "%C3%A4"] {
            let (from, to) = (
                format!("ftp://a.example.org/tree/{name}"),
                format!("file:///data/copy/{name}"),
            );
            assert!(takes(&from, &to), "{name}");
            assert!(!takes(&from, "file:///data/copy/other"), "{name}");
        }
        for name in [
            "", ".", "..", "%2e%2e", "%2E.", "a/b", "a%2Fb", "../x", "..%2fx", "/x", "a%0Ab",
            "a%00", "%", "%4", "%zz", "a b", "x?y", "x#y", "a\nb", "\u{e4}", "%78",
        ] {
            let (from, to) = (
                format!("ftp://a.example.org/tree/{name}"),
                format!("file:///data/copy/{name}"),
            );
            assert!(!takes(&from, &to), "{name:?}");
        }
        let good = "ftp://a.example.org/tree/x";
        for to in [
            "file:///etc/x",
            "file:///data/copyx",
            "file:///data/copy",
            "ftp://evil.example.org/x",
            "x",
        ] {
            assert!(!takes(good, to), "{to}");
        }
        assert!(!takes(
            "ftp://evil.example.org/tree/x",
            "file:///data/copy/x"
        ));
        let long = "x".repeat(MAX_URL_BYTES);
        assert!(!takes(
            &format!("ftp://a.example.org/tree/{long}"),
            &format!("file:///data/copy/{long}")
        ));
    }
}
