//! A directory as a page for people: no script, every name escaped, and of any length.

use godwit_engine::storage::{Entries, FileKind};
use godwit_http::{conditions::date, multistatus::escaped, target::encoded};
use godwit_proto::{FtpPath, error::StorageFailure};
use hyper::body::Bytes;

use super::body::{CHUNK_BYTES, Chunks};

const STYLE: &str = "body{font:1rem/1.5 system-ui,sans-serif;margin:2rem;color:#1a1a1a;\
    background:#fff}table{border-collapse:collapse}th,td{text-align:left;padding:.2rem 1.5rem \
    .2rem 0}td.size{text-align:right;font-variant-numeric:tabular-nums}caption{text-align:left;\
    font-size:1.3rem;padding-bottom:.5rem}a{color:#0b57d0}@media(prefers-color-scheme:dark){body\
    {color:#e8e8e8;background:#161616}a{color:#8ab4f8}}";

pub(super) struct Listing {
    path: FtpPath,
    entries: Entries,
    state: State,
}

enum State {
    Head,
    Rows,
    Over,
}

impl Listing {
    pub(super) fn new(path: &FtpPath, entries: Entries) -> Self {
        Self {
            path: path.clone(),
            entries,
            state: State::Head,
        }
    }

    fn head(&self) -> String {
        let title = escaped(&self.path.to_string());
        let mut page = format!(
            "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta \
             name=\"viewport\" content=\"width=device-width\"><title>{title}</title><style>{STYLE}\
             </style></head>\n<body><main><table><caption>{title}</caption>\n<thead><tr><th \
             scope=\"col\">Name</th><th scope=\"col\">Bytes</th><th scope=\"col\">Modified</th>\
             </tr></thead>\n<tbody>\n"
        );
        if let Some(parent) = self.path.parent() {
            let link = link(&parent, true);
            page += &format!(
                "<tr><td><a href=\"{link}\">parent directory</a></td><td></td><td></td></tr>\n"
            );
        }
        page
    }

    fn row(&mut self) -> Result<Option<String>, StorageFailure> {
        let Some(entry) = self.entries.next() else {
            return Ok(None);
        };
        let (name, metadata) = entry?;
        // A name that no request can have.
        let Ok(path) = self.path.join(&name) else {
            return Ok(Some(String::new()));
        };
        let is_directory = metadata.kind == FileKind::Directory;
        let (slash, size) = match is_directory {
            true => ("/", String::new()),
            false => ("", metadata.size.to_string()),
        };
        Ok(Some(format!(
            "<tr><td><a href=\"{}\">{}{slash}</a></td><td class=\"size\">{size}</td><td>{}</td>\
             </tr>\n",
            link(&path, is_directory),
            escaped(&String::from_utf8_lossy(&name)),
            date(metadata.modified),
        )))
    }
}

fn link(path: &FtpPath, is_directory: bool) -> String {
    let slash = if is_directory && path.as_bytes() != b"/" {
        "/"
    } else {
        ""
    };
    encoded(path.as_bytes()) + slash
}

impl Chunks for Listing {
    fn next(&mut self) -> Result<Option<Bytes>, StorageFailure> {
        let mut page = match self.state {
            State::Head => self.head(),
            State::Rows => String::new(),
            State::Over => return Ok(None),
        };
        self.state = State::Rows;
        while page.len() < CHUNK_BYTES {
            match self.row()? {
                Some(row) => page += &row,
                None => {
                    page += "</tbody></table></main></body></html>\n";
                    self.state = State::Over;
                    break;
                }
            }
        }
        Ok(Some(page.into()))
    }
}

#[cfg(test)]
mod tests {
    use godwit_engine::storage::{MemoryStorage, Storage as _, WriteMode};

    use super::*;

    #[test]
    fn names_are_text_and_never_markup() {
        let storage = MemoryStorage::new();
        let at = |text: &str| FtpPath::new(text).unwrap();
        storage.create_dir(&at("/<d>")).unwrap();
        storage.create_dir(&at("/<d>/\"x'")).unwrap();
        let file = at("/<d>/<script>alert(1)</script>&\" onclick=a");
        // The name is one component.
        let file = at(&file.to_string().replace("</script>", "<script>"));
        storage.open_write(&file, WriteMode::New).unwrap();
        let entries = storage.list(&at("/<d>")).unwrap();
        let mut listing = Listing::new(&at("/<d>"), entries);
        let mut page = String::new();
        while let Some(chunk) = listing.next().unwrap() {
            page += std::str::from_utf8(&chunk).unwrap();
        }
        assert!(page.contains("<caption>/&lt;d&gt;</caption>"), "{page}");
        assert!(
            page.contains("href=\"/%3Cd%3E/%22x%27/\">&quot;x&#39;/</a>"),
            "{page}"
        );
        assert!(
            !page.contains("<script") && !page.contains("\" onclick"),
            "{page}"
        );
        assert!(page.ends_with("</html>\n"));
    }
}
