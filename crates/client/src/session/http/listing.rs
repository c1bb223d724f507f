//! A directory as PROPFIND lists it, in the lines of MLSD: what reads those trusts no name.

use godwit_http::multistatus::{self, Hrefs, Resource};
use godwit_http_client::StatusCode;
use godwit_proto::{
    FtpPath, Reply,
    facts::{FactSelection, FactType, Facts, write_line},
};

use super::{
    HttpControl,
    commands::{LISTING_BYTES_MAX, decoded, facts, senseless, without_slash},
    error::HttpError,
    replies::{Failed, reply},
    server::Dav,
};

impl HttpControl {
    /// The lines of a directory, or the refusal to list it.
    pub(super) async fn list(
        &mut self,
        directory: &FtpPath,
    ) -> Result<Result<Vec<u8>, Reply>, HttpError> {
        if self.server().dav() == Dav::No {
            return Ok(Err(no_listings()));
        }
        let mut exchange = self.propfind(directory, true, "1").await?;
        let status = exchange.answer.status;
        if status != StatusCode::MULTI_STATUS {
            let lacks = matches!(status.as_u16(), 405 | 501);
            let refused = self.refused(exchange, Failed::Status).await;
            return Ok(Err(match lacks {
                true => no_listings(),
                false => refused,
            }));
        }
        self.server().set_dav(Dav::Yes);
        let base = decoded(exchange.url.target());
        let Some(body) = exchange.body(LISTING_BYTES_MAX).await? else {
            let most = LISTING_BYTES_MAX >> 20;
            return Err(senseless(
                "PROPFIND",
                &format!("it is longer than {most} MiB"),
            ));
        };
        self.wire.done(exchange).await;
        let base = without_slash(&base).to_vec();
        let hrefs = self.server().hrefs();
        // A large one takes a while.
        let lines = tokio::task::spawn_blocking(move || lines(&base, &body, hrefs)).await;
        match lines {
            Ok(lines) => lines.map(|lines| lines.ok_or_else(|| reply(550, "not a directory"))),
            Err(_) => Err(senseless("PROPFIND", "it cannot be read")),
        }
    }
}

fn no_listings() -> Reply {
    reply(550, "the server has no listings: it speaks no WebDAV")
}

/// `None`: it is a file.
fn lines(base: &[u8], body: &[u8], hrefs: Hrefs) -> Result<Option<Vec<u8>>, HttpError> {
    let resources = multistatus::read(body, hrefs)
        .map_err(|error| senseless("PROPFIND", &error.to_string()))?;
    let is_own = |resource: &Resource| without_slash(&resource.path) == base;
    let Some(own) = resources.iter().find(|resource| is_own(resource)) else {
        return Err(senseless("PROPFIND", "the directory itself is not in it"));
    };
    if !own.is_collection {
        return Ok(None);
    }
    let mut lines = Vec::new();
    let mut add = |facts: &Facts, name: &[u8]| {
        write_line(facts, FactSelection::DEFAULT, name, &mut lines);
        lines.extend_from_slice(b"\r\n");
    };
    let itself = Facts {
        kind: Some(FactType::Cdir),
        ..facts(own)
    };
    add(&itself, b".");
    for resource in resources.iter().filter(|resource| !is_own(resource)) {
        let path = without_slash(&resource.path);
        let below = path
            .strip_prefix(base)
            .and_then(|rest| rest.strip_prefix(b"/"));
        let has_line_end = path.iter().any(|b| matches!(b, b'\r' | b'\n' | 0));
        match below.filter(|_| !has_line_end) {
            Some(name) => add(&facts(resource), name),
            // Whole, so that it is refused where names are read.
            None => add(&facts(resource), &[b"/", path].concat()),
        }
    }
    Ok(Some(lines))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(hrefs: &[(&str, bool)]) -> String {
        let mut body = multistatus::HEAD.to_owned();
        for (href, is_collection) in hrefs {
            let kind = match is_collection {
                true => "<D:collection/>",
                false => "",
            };
            body += &format!(
                "<D:response><D:href>{href}</D:href><D:propstat><D:prop><D:resourcetype>{kind}\
                 </D:resourcetype></D:prop><D:status>HTTP/1.1 200 OK</D:status></D:propstat>\
                 </D:response>"
            );
        }
        body += multistatus::TAIL;
        let lines = lines(b"/d e", body.as_bytes(), Hrefs::Encoded)
            .unwrap()
            .unwrap();
        String::from_utf8(lines).unwrap()
    }

    #[test]
    fn names_are_listed_and_those_outside_keep_a_slash() {
        let listed = listed(&[
            ("/d%20e/", true),
            ("https://h/d%20e/a%20b", false),
            ("/d%20e/sub/", true),
            ("/other", false),
            ("/d%20e/x%2Fy", false),
            ("/d%20e/x%0Ay", false),
            ("/d%20e/../z", false),
        ]);
        let names: Vec<_> = listed
            .lines()
            .map(|line| line.split_once("; ").unwrap().1)
            .collect();
        let expected = [".", "a b", "sub", "//other", "x/y", "//d e/x?y", "../z"];
        assert_eq!(names, expected);
    }
}
