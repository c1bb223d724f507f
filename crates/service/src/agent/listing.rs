//! One level of a directory.

use std::{fs, path::PathBuf, sync::Arc};

use godwit_client::{
    CancellationToken,
    auth::granted::Granted,
    error::Error,
    kept_sessions::KeptSessions,
    manage::{self, ListedName, ListedNames},
    report::events::{Event, Observer},
    spec::Connections,
};
use godwit_proto::{
    FtpPath,
    url::{Location, in_url, without_last_slashes},
};
use godwit_service_api::{
    agent::{FoundFile, Grant},
    job::{FileError, MAX_URL_BYTES},
};

use super::{
    file_error::file_error,
    plan::{self, UnitSettings, unfit},
};

/// Sees nothing.
pub(super) struct Silent;

impl Observer for Silent {
    fn on_event(&self, _: &Event) {}
}

/// What lies in the directory `source`, and where it goes below `destination`.
pub(super) async fn list(
    (source, destination): (&str, &str),
    (grant, granted, kept): (&Grant, &Granted, &KeptSessions),
    settings: &UnitSettings,
    stop: CancellationToken,
) -> Result<Vec<FoundFile>, FileError> {
    let mut from = plan::place(source, settings)?;
    let mut to = plan::place(destination, settings)?;
    let handed = (grant.addresses, grant.credentials.as_slice());
    let ends = [&mut from, &mut to];
    let connections = Connections {
        kept: Some(kept.clone()),
        ..plan::connections_for(handed, granted, settings, ends)?
    };
    let names = match from {
        Location::Remote(url) => {
            let listed = manage::list(url, connections, Arc::new(Silent), stop).await;
            listed.map_err(|error| file_error(&error))?
        }
        Location::Local(path) => {
            let listed = list_here(&path, usize::MAX, &stop);
            listed.map_err(|error| file_error(&error))?.names
        }
        Location::Standard => return Err(unfit("not a directory")),
    };
    names
        .into_iter()
        .map(|found| {
            Ok(FoundFile {
                source: below(source, &found.name)?,
                destination: below(destination, &found.name)?,
                directory: found.is_directory,
                bytes: found.size.filter(|_| !found.is_directory),
            })
        })
        .collect()
}

/// The first names of a directory of this machine, `most` at most. Links to directories are left
/// out: they may lead back.
pub(super) fn list_here(
    path: &[u8],
    most: usize,
    stop: &CancellationToken,
) -> Result<ListedNames, Error> {
    use std::os::unix::ffi::{OsStrExt, OsStringExt};
    let folder = PathBuf::from(std::ffi::OsStr::from_bytes(path));
    let failed = |e: std::io::Error| Error::local(format!("list {}", folder.display()), &e);
    let mut names = Vec::new();
    for entry in fs::read_dir(&folder).map_err(failed)? {
        if stop.is_cancelled() {
            return Err(Error::Interrupted);
        }
        if names.len() == most {
            let has_more = true;
            return Ok(ListedNames { names, has_more });
        }
        let entry = entry.map_err(failed)?;
        let kind = entry.file_type().map_err(failed)?;
        // A link that leads nowhere is reported by the copy.
        let metadata = fs::metadata(entry.path()).ok();
        let (is_file, size) = match &metadata {
            Some(found) => (found.is_file(), Some(found.len())),
            None => (true, None),
        };
        if kind.is_dir() || is_file {
            names.push(ListedName {
                name: entry.file_name().into_vec(),
                is_directory: kind.is_dir(),
                size: size.filter(|_| is_file),
            });
        }
    }
    let has_more = false;
    Ok(ListedNames { names, has_more })
}

/// The URL of `name` in the directory `url`.
pub(super) fn below(url: &str, name: &[u8]) -> Result<String, FileError> {
    let path = [b"/", name].concat();
    let path = FtpPath::new(path).map_err(unfit)?;
    let mut below = without_last_slashes(url).to_owned();
    below.extend(in_url(&path));
    match below.len() {
        0..=MAX_URL_BYTES => Ok(below),
        _ => Err(unfit("a name below is too long for a URL")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_of_a_local_directory_is_read_than_asked_for() {
        let folder = tempfile::tempdir().unwrap();
        for n in 0..4 {
            fs::write(folder.path().join(n.to_string()), "x").unwrap();
        }
        let path = folder.path().to_str().unwrap().as_bytes();
        let stop = CancellationToken::default();
        for (most, read, has_more) in [(3, 3, true), (4, 4, false), (9, 4, false)] {
            let listed = list_here(path, most, &stop).unwrap();
            assert_eq!((listed.names.len(), listed.has_more), (read, has_more));
        }
        stop.cancel();
        assert!(matches!(list_here(path, 9, &stop), Err(Error::Interrupted)));
    }

    #[test]
    fn names_are_encoded_below_their_directory() {
        let of = |url, name: &str| below(url, name.as_bytes()).unwrap();
        assert_eq!(of("ftp://h/d", "a b"), "ftp://h/d/a%20b");
        assert_eq!(of("ftp://h/d/", "%"), "ftp://h/d/%25");
        assert_eq!(of("ftp://h", "x"), "ftp://h/x");
        assert_eq!(of("file:///", "x"), "file:///x");
        let long = "x".repeat(MAX_URL_BYTES);
        assert_eq!(
            below("ftp://h/d", long.as_bytes()).unwrap_err().code,
            "invalid"
        );
    }
}
