//! POST of `application/macaroon-request`: a token for one path, which a user with an account hands
//! to another server, so that it fetches or stores a file in the user's place. As dCache and XRootD
//! have it, who call it a macaroon; clients hand it on as it is.

use std::time::{Duration, SystemTime};

use godwit_http::target::Target;
use hyper::{HeaderMap, StatusCode, body::Incoming, header};
use jiff::SignedDuration;
use serde::Deserialize;
use serde_json::json;
use tokio::task::spawn_blocking;
use tracing::info;

use super::{
    answer::{HttpAnswer, Rejected, header_text, set, text},
    received::whole,
    session::HttpSession,
};
use crate::access::rights::{Access, Grant, Operation, Rights};

/// What a client asks with.
const REQUEST: &str = "application/macaroon-request";

/// Bytes of a request.
const REQUEST_BYTES_MAX: usize = 4096;

/// A token is good for so long where the client does not say, and for no longer than the second.
const VALIDITY: Duration = Duration::from_secs(3600);
const VALIDITY_MAX: Duration = Duration::from_secs(12 * 3600);

/// The request is for a token.
pub(super) fn is_asked_for(headers: &HeaderMap) -> bool {
    let kind = header_text(headers, header::CONTENT_TYPE.as_str()).unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default();
    kind.trim().eq_ignore_ascii_case(REQUEST)
}

/// What the client wants.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Wish {
    caveats: Vec<String>,
    validity: Option<String>,
}

pub(super) async fn issue(
    session: &HttpSession,
    target: &Target,
    body: &mut Incoming,
) -> Result<HttpAnswer, Rejected> {
    let Some(issuer) = session.issuer() else {
        let text = "tokens are issued to users with an account, and not for a token";
        return Err(Rejected::new(StatusCode::FORBIDDEN, text));
    };
    let body = whole(body, REQUEST_BYTES_MAX, session.data_limit).await?;
    let bad = |text: String| Rejected::new(StatusCode::BAD_REQUEST, text);
    let wish: Wish = match body.is_empty() {
        true => Wish::default(),
        false => serde_json::from_slice(&body).map_err(|error| bad(error.to_string()))?,
    };
    let validity = validity(wish.validity.as_deref()).map_err(&bad)?;
    let wanted = accesses(&wish.caveats).map_err(&bad)?;
    let allowed = |access: &Access| {
        let deed = match access {
            Access::Read => Operation::Read,
            Access::Create => Operation::Create,
            Access::Modify => Operation::Modify,
        };
        session.may(deed, &target.path)
    };
    let path = &target.path;
    let grants: Vec<Grant> = wanted
        .into_iter()
        .filter(allowed)
        .map(|access| Grant {
            access,
            path: path.clone(),
        })
        .collect();
    if grants.is_empty() {
        let text = "this login has none of the rights that the token is to give";
        return Err(Rejected::new(StatusCode::FORBIDDEN, text));
    }
    let rights = Rights::new(grants, Some(SystemTime::now() + validity));
    let issues = issuer.clone();
    let sealed = spawn_blocking(move || issues.token(rights)).await;
    let sealed = sealed.map_err(|_| bad("internal error, see the server's log".to_owned()))?;
    let sealed = sealed.map_err(bad)?;
    info!(
        session = session.recorder.who.session,
        user = ?issuer.account(),
        ?path,
        seconds = validity.as_secs(),
        "HTTPS token issued"
    );
    let mut answer = text(StatusCode::OK, json!({ "macaroon": sealed }).to_string());
    set(&mut answer, header::CONTENT_TYPE, "application/json");
    set(&mut answer, header::CACHE_CONTROL, "no-store");
    Ok(answer)
}

fn validity(wished: Option<&str>) -> Result<Duration, String> {
    let Some(wished) = wished else {
        return Ok(VALIDITY);
    };
    let bad = || format!("validity: no duration of ISO 8601 in hours, minutes, seconds: {wished}");
    let wished: SignedDuration = wished.parse().map_err(|_| bad())?;
    let wished = Duration::try_from(wished).map_err(|_| bad())?;
    Ok(wished.min(VALIDITY_MAX))
}

/// What activities mean here; all, where none is named.
fn accesses(caveats: &[String]) -> Result<Vec<Access>, String> {
    if caveats.is_empty() {
        return Ok(vec![Access::Read, Access::Create, Access::Modify]);
    }
    let mut found = Vec::new();
    if caveats.len() > 1 {
        return Err("one caveat of activities is known here, and no second one".to_owned());
    }
    for caveat in caveats {
        let activities = caveat.strip_prefix("activity:");
        // Others would restrict what is given.
        let activities =
            activities.ok_or_else(|| format!("a caveat that is not known here: {caveat}"))?;
        for activity in activities.split(',') {
            let access = match activity.trim() {
                "DOWNLOAD" => Access::Read,
                "UPLOAD" => Access::Create,
                "DELETE" | "MANAGE" => Access::Modify,
                // Each right has properties with it. There is none to names alone.
                "LIST" | "READ_METADATA" | "UPDATE_METADATA" => continue,
                other => return Err(format!("an activity that is not known here: {other}")),
            };
            if !found.contains(&access) {
                found.push(access);
            }
        }
    }
    if found.contains(&Access::Modify) && !found.contains(&Access::Create) {
        // Who may change what is there may also create it here.
        return Err("DELETE and MANAGE are given with UPLOAD alone".to_owned());
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn activities_are_rights() {
        let read = |caveats: &[&str]| {
            let caveats: Vec<String> = caveats.iter().map(|text| (*text).to_owned()).collect();
            accesses(&caveats).ok()
        };
        assert_eq!(read(&["activity:DOWNLOAD,LIST"]), Some(vec![Access::Read]));
        let writing = Some(vec![Access::Create, Access::Modify]);
        assert_eq!(read(&["activity:UPLOAD,DELETE,LIST"]), writing);
        assert_eq!(read(&["activity:UPLOAD,MANAGE"]), writing);
        let two = ["activity:DOWNLOAD,UPLOAD", "activity:DOWNLOAD"];
        assert_eq!(read(&two), None, "each would restrict the others");
        assert_eq!(read(&["activity:DELETE"]), None);
        assert_eq!(read(&["activity:LIST"]), Some(vec![]));
        assert_eq!(read(&[]).unwrap().len(), 3);
        for caveats in [["path:/d"], ["activity:FLY"], ["activity:"], [""]] {
            assert_eq!(read(&caveats), None, "{caveats:?}");
        }
    }

    #[test]
    fn a_token_is_good_for_as_long_as_is_wished_within_limits() {
        let seconds = |wished| validity(wished).ok().map(|time| time.as_secs());
        assert_eq!(seconds(None), Some(3600));
        assert_eq!(seconds(Some("PT10M")), Some(600));
        assert_eq!(seconds(Some("PT1H30M1S")), Some(5401));
        assert_eq!(seconds(Some("PT720H")), Some(12 * 3600));
        for wished in ["", "10", "-PT1H", "P1Y"] {
            assert_eq!(seconds(Some(wished)), None, "{wished}");
        }
    }
}
