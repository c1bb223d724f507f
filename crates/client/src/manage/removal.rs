//! `rm`, and `uploads` of a bucket.

use std::time::SystemTime;

use godwit_http::s3;
use godwit_proto::{Command, FtpPath, site::Site, url::RemoteUrl};

use super::{DEPTH_MAX, Manager};
use crate::{
    error::{Error, Result},
    session::{Found, Session},
    spec::sought_at,
};

impl Manager {
    /// A file, or an upload to a bucket by what it is known as: there is nothing else that tells
    /// where it is.
    pub(super) async fn remove_known(
        &mut self,
        url: &RemoteUrl,
        upload: Option<&str>,
    ) -> Result<()> {
        let Some(known_as) = upload else {
            return self.remove(url, false).await;
        };
        let path = sought_at(url)?;
        let endpoint = self.context.endpoints.of(url);
        let odd = || Error::Usage(format!("{url}: no upload in parts is known by that"));
        endpoint.uploads.join(&path, known_as).ok_or_else(odd)?;
        // Who looks at it first finds the object of one that is complete, and that stays.
        self.command(url, "remove", Command::Dele(path)).await
    }

    pub(super) async fn remove(&mut self, url: &RemoteUrl, recursive: bool) -> Result<()> {
        let path = sought_at(url)?;
        if !matches!(self.find(url).await?, Found::Directory(_)) {
            return self.command(url, "remove", Command::Dele(path)).await;
        }
        if !recursive {
            return Err(Error::Usage(format!(
                "{url}: is a directory: add -r to remove it with all below it"
            )));
        }
        if path == FtpPath::root() {
            return Err(Error::Usage(format!("{url}: the root is not removed")));
        }
        let command = Command::Site(Site::RemoveTree(path.clone()));
        match self.command(url, "remove", command).await {
            Err(error) if error.is_unsupported() => self.remove_by_hand(url, path).await,
            other => other,
        }
    }

    /// Depth first, for servers without a command for it.
    async fn remove_by_hand(&mut self, url: &RemoteUrl, top: FtpPath) -> Result<()> {
        // A directory is visited twice: to list it, and to remove it when it is empty.
        let mut pending = vec![(top, false)];
        while let Some((path, emptied)) = pending.pop() {
            if emptied {
                self.command(url, "remove", Command::Rmd(path)).await?;
                continue;
            }
            if pending.iter().filter(|(_, emptied)| *emptied).count() > DEPTH_MAX {
                return Err(Error::Usage(format!(
                    "{path}: more than {DEPTH_MAX} directories deep"
                )));
            }
            pending.push((path.clone(), true));
            let (entries, incomplete) = self.entries(url, &path).await?;
            if let Some(error) = incomplete {
                return Err(error);
            }
            for entry in entries {
                let Ok(below) = path.join(&entry.name) else {
                    continue;
                };
                let is_link = entry.facts.unix_slink.is_some() || entry.is_link();
                let is_directory = match entry.is_directory() {
                    _ if is_link => false,
                    Some(is_directory) => is_directory,
                    // Where only names are listed, a directory with another path was a link.
                    None => {
                        let look = async |s: &mut Session| s.stat(&below).await;
                        let found = self.with(url, look).await?;
                        matches!(found, Found::Directory(facts) if facts.unix_slink.is_none())
                    }
                };
                // A link to a directory is removed, never followed.
                if is_directory {
                    pending.push((below, false));
                } else {
                    self.command(url, "remove", Command::Dele(below)).await?;
                }
            }
        }
        Ok(())
    }

    /// Prints the uploads to a bucket that are not complete, and removes them if they are to be.
    /// Those that the service keeps are reported, and the others removed.
    pub(super) async fn uploads(&mut self, url: &RemoteUrl, aborts: bool) -> Result<()> {
        let (mut after, mut removed, mut kept) = (None, 0, None::<(String, Error)>);
        loop {
            let look = async |s: &mut Session| s.open_uploads(&url.path, after.as_ref()).await;
            let page = self.with(url, look).await?;
            for upload in &page.uploads {
                let object = url_of_key(url, &upload.key);
                if aborts {
                    let abort = async |s: &mut Session| s.abort_upload(upload).await;
                    match self.with(url, abort).await {
                        Ok(()) => removed += 1,
                        Err(error) if error.refusal().is_some() && !error.may_pass() => {
                            if let Some((object, error)) = kept.replace((object, error)) {
                                self.record(&object, Err(error));
                            }
                            continue;
                        }
                        Err(error) => return Err(error),
                    }
                }
                let begun = upload.initiated.and_then(|time| {
                    let since = time.duration_since(SystemTime::UNIX_EPOCH).ok()?;
                    jiff::Timestamp::from_second(i64::try_from(since.as_secs()).ok()?).ok()
                });
                let begun = begun.map_or_else(|| "-".to_owned(), |time| time.to_string());
                let line = format!("{begun}  {object}  {}", upload.id.escape_debug());
                self.print(line.as_bytes());
            }
            match page.next {
                None => break,
                next if next == after => {
                    let doing = format!("list the uploads of {url}");
                    let why = "the service sends the same page again".to_owned();
                    return Err(Error::Listing { doing, why });
                }
                next => after = next,
            }
        }
        let Some((_, error)) = kept else {
            return Ok(());
        };
        self.done += removed;
        Err(error)
    }
}

/// The URL of an object with this key. A key that another program has made may be no path.
fn url_of_key(bucket: &RemoteUrl, key: &[u8]) -> String {
    let url = |path| RemoteUrl {
        path,
        ..bucket.clone()
    };
    match FtpPath::new([b"/", key].concat()) {
        Ok(path) => url(path).to_string(),
        Err(_) => format!("{}{}", url(FtpPath::root()), s3::encoded_path(key)),
    }
}
