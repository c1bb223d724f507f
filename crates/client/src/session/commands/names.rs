//! Whether a server gave a file the name that it was told.

use std::{
    io::{self, Write},
    sync::{Arc, atomic::Ordering},
};

use godwit_engine::data::{Sink, TransferJob};
use godwit_proto::{
    Command, FtpPath,
    error::{FailureKind, failure_kind},
    facts,
    odd_bytes::OddBytes,
};
use parking_lot::Mutex;

use crate::{
    endpoint::capabilities::Lack,
    error::{Error, Result},
    local::files::is_temporary,
    session::{Session, TransferPlan},
};

impl Session {
    /// There is no doubt that the server understands `path`.
    pub(crate) fn trusts_name(&self, path: &FtpPath) -> bool {
        self.endpoint.capabilities.passes(path)
    }

    fn learn_names(&self, odd: OddBytes) {
        let capabilities = &self.endpoint.capabilities.names_pass;
        capabilities.fetch_or(odd.bits(), Ordering::Relaxed);
    }

    /// Makes sure that the server understands `path`, which exists, as it was sent, where it has
    /// MLST to tell. Else it would answer for another file.
    pub(crate) async fn check_name(&mut self, path: &FtpPath) -> Result<()> {
        if self.trusts_name(path) {
            return Ok(());
        }
        let odd = OddBytes::of(path.as_bytes());
        match self.name_by_mlst(path).await? {
            Some(seen) if !is_the_same(&seen, path) => Err(self.mangled(path, &seen)),
            Some(_) => {
                self.learn_names(odd.without(OddBytes::TELNET));
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// The same of what was just written or made. Where MLST does not tell, the directory is
    /// listed: once for each kind of bytes, if all is well.
    pub(crate) async fn check_arrived(&mut self, path: &FtpPath) -> Result<()> {
        if self.trusts_name(path) {
            return Ok(());
        }
        let odd = OddBytes::of(path.as_bytes());
        // Hidden names may not be listed; of these MLST tells enough.
        if OddBytes::FOREIGN.has(odd) {
            return self.check_name(path).await;
        }
        let seen = self.name_by_mlst(path).await?;
        let as_told = seen.as_ref().map(|seen| is_the_same(seen, path));
        // On the way back 0xff may be doubled as on the way there.
        if as_told == Some(true) && !odd.has(OddBytes::TELNET) {
            self.learn_names(odd);
            return Ok(());
        }
        match (self.lists(path).await?, as_told) {
            (Some(true), _) => {
                self.learn_names(odd);
                Ok(())
            }
            (Some(false), _) => {
                // It cannot be found by the name that it was given.
                if let Some(blank) = path.as_bytes().strip_suffix(b" ")
                    && let Ok(stored) = FtpPath::new([blank, b"_"].concat())
                    && path.file_name().is_some_and(is_temporary)
                {
                    self.remove_files(&[stored]).await?;
                }
                Err(self.mangled(path, &seen.unwrap_or_default()))
            }
            (None, Some(false)) => Err(self.mangled(path, &seen.unwrap_or_default())),
            // There is no way to tell.
            (None, _) => Ok(()),
        }
    }

    fn mangled(&self, path: &FtpPath, seen: &[u8]) -> Error {
        let differs = !seen.is_empty() && !is_the_same(seen, path);
        Error::Mangled {
            url: self.endpoint.url(path),
            seen: match differs {
                true => String::from_utf8_lossy(seen).into_owned(),
                false => "another name".to_owned(),
            },
        }
    }

    /// What the server calls `path`: the whole path or its last name.
    async fn name_by_mlst(&mut self, path: &FtpPath) -> Result<Option<Vec<u8>>> {
        if self.endpoint.capabilities.lacks(Lack::Mlst) {
            return Ok(None);
        }
        let doing = format!("look at {}", self.endpoint.url(path));
        let reply = self.ask(&Command::Mlst(Some(path.clone())), &doing).await?;
        let mut lines = reply.body().iter();
        Ok(lines
            .find_map(|line| facts::parse_line(line))
            .map(|(_, name)| name.to_vec()))
    }

    /// Whether the directory of `path` lists it; `None` where it cannot be listed.
    async fn lists(&mut self, path: &FtpPath) -> Result<Option<bool>> {
        let (Some(directory), Some(name)) = (path.parent(), path.file_name()) else {
            return Ok(None);
        };
        let doing = format!("list {}", self.endpoint.url(&directory));
        for (command, lacks) in [
            (
                Command::Mlsd(Some(directory.clone())),
                self.endpoint.capabilities.lacks(Lack::Mlsd),
            ),
            (Command::Nlst(Some(directory.clone())), false),
        ] {
            if lacks {
                continue;
            }
            let finder = NameFinder::new(name);
            let sink = finder.clone();
            let plan = TransferPlan::listing(command, &doing);
            let listed =
                self.transfer(plan, |_| TransferJob::Receive(Sink::Stream(Box::new(sink))));
            match listed.await.result {
                Ok(()) => return Ok(Some(finder.has_found())),
                Err(Error::Refused { reply, .. })
                    if failure_kind(&reply) == Some(FailureKind::NotSupported) => {}
                Err(Error::Refused { .. }) => return Ok(None),
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }
}

/// Whether what a server calls a file, the whole path or its last name, is what it was told.
fn is_the_same(seen: &[u8], told: &FtpPath) -> bool {
    let last = |path: &[u8]| {
        path.rsplit(|b| *b == b'/')
            .next()
            .unwrap_or_default()
            .to_vec()
    };
    let (seen_last, told_last) = (last(seen), last(told.as_bytes()));
    let odd = OddBytes::of(told.as_bytes());
    // Foreign bytes alone may come back in another form of Unicode; what matters is that none is
    // dropped.
    if OddBytes::FOREIGN.has(odd) {
        let foreign = |bytes: &[u8]| bytes.iter().filter(|b| !b.is_ascii()).count();
        return match seen.contains(&b'/') {
            true => foreign(seen) >= foreign(told.as_bytes()),
            false => foreign(seen) >= foreign(&told_last),
        };
    }
    seen_last == told_last
}

/// Looks for a name at the ends of the lines of a listing, whichever its form is.
#[derive(Clone)]
struct NameFinder(Arc<Mutex<NameSearch>>);

struct NameSearch {
    name: Vec<u8>,
    /// Of the line that is being read, as many of its last bytes as matter.
    line: Vec<u8>,
    found: bool,
}

impl NameFinder {
    fn new(name: &[u8]) -> Self {
        Self(Arc::new(Mutex::new(NameSearch {
            name: name.to_vec(),
            line: Vec::new(),
            found: false,
        })))
    }

    fn has_found(&self) -> bool {
        let mut finding = self.0.lock();
        finding.end_line();
        finding.found
    }
}

impl NameSearch {
    fn end_line(&mut self) {
        let line = self.line.strip_suffix(b"\r").unwrap_or(&self.line);
        let before = line.strip_suffix(&self.name[..]);
        self.found |= before.is_some_and(|before| matches!(before, [] | [.., b'/' | b' ']));
        self.line.clear();
    }
}

impl Write for NameFinder {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut finding = self.0.lock();
        let most = finding.name.len() + 2;
        for byte in bytes {
            match byte {
                b'\n' => finding.end_line(),
                byte => {
                    if finding.line.len() > most {
                        finding.line.remove(0);
                    }
                    finding.line.push(*byte);
                }
            }
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_found_in_any_form_of_listing_and_no_other_for_it() {
        let finds = |listing: &[u8], name: &[u8]| {
            let mut finder = NameFinder::new(name);
            for part in listing.chunks(3) {
                finder.write_all(part).unwrap();
            }
            finder.has_found()
        };
        for listing in [
            &b"a\tb\r\n"[..],
            b"x\r\n/d/a\tb\r\ny\r\n",
            b"Type=file;Size=1; a\tb\r\n",
            b"-rw-r--r-- 1 0 0 1 Nov 25 17:12 a\tb",
        ] {
            assert!(finds(listing, b"a\tb"));
        }
        for listing in [&b"a_b\r\n"[..], b"xa\tb\r\n", b"a\tbx\r\n", b""] {
            assert!(!finds(listing, b"a\tb"));
        }
        assert!(finds(b"e \r\n", b"e ") && !finds(b"e\r\n", b"e "));
        assert!(!finds(b"e\xff\xfff\r\n", b"e\xfff"));
    }

    #[test]
    fn another_name_is_seen_and_another_form_of_unicode_is_none() {
        let told = |path: &[u8]| FtpPath::new(path).unwrap();
        assert!(is_the_same(b"/d/a\tb", &told(b"/d/a\tb")));
        assert!(is_the_same(b"a\tb", &told(b"/d/a\tb")));
        assert!(!is_the_same(b"/d/a_b", &told(b"/d/a\tb")));
        assert!(is_the_same(
            "u\u{308}".as_bytes(),
            &told("/\u{fc}".as_bytes())
        ));
        assert!(!is_the_same(b"/gr", &told("/gr\u{fc}".as_bytes())));
    }
}
