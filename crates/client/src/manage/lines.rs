//! Lines that `ls` and `stat` print.

use godwit_proto::{
    facts::{FactType, Facts},
    url::RemoteUrl,
};

use crate::error::Error;

pub(super) fn stat_lines(url: &RemoteUrl, kind: &str, facts: &Facts) -> Vec<String> {
    let kind = match &facts.kind {
        Some(FactType::Other(other)) => other,
        _ => kind,
    };
    let mut lines = vec![format!("{url}"), format!("  type: {kind}")];
    let mut add = |name: &str, value: Option<String>| {
        lines.extend(value.map(|v| format!("  {name}: {v}")));
    };
    add("size", facts.size.map(|n| n.to_string()));
    add("modified", facts.modify.map(|t| t.to_string()));
    add("mode", facts.unix_mode.map(|m| format!("{m:04o}")));
    let owner = facts.unix_owner.clone();
    add("owner", owner.or(facts.unix_uid.map(|n| n.to_string())));
    let group = facts.unix_group.clone();
    add("group", group.or(facts.unix_gid.map(|n| n.to_string())));
    let link = facts.unix_slink.as_deref().map(String::from_utf8_lossy);
    add("link to", link.map(|l| l.into_owned()));
    lines
}

/// What an entry of a listing is.
pub(super) fn word_of(facts: &Facts) -> &str {
    match &facts.kind {
        Some(FactType::Dir | FactType::Cdir | FactType::Pdir) => "directory",
        Some(FactType::File) => "file",
        Some(FactType::Other(other)) => other,
        None => "unknown",
    }
}

/// A file as `--json` shows it. Its URL names it exactly, also where its name is no UTF-8.
pub(super) fn json_line(url: &RemoteUrl, kind: &str, facts: &Facts) -> Vec<u8> {
    let name = url.path.file_name().unwrap_or_default();
    let link = facts.unix_slink.as_deref();
    let mut line = serde_json::json!({
        "url": url.to_string(),
        "name": String::from_utf8_lossy(name),
        "type": kind,
        "size": facts.size,
        "modified": facts.modify.and_then(|t| jiff::Timestamp::from_second(t.0).ok()),
        "mode": facts.unix_mode.map(|mode| format!("{mode:04o}")),
        "owner": facts.unix_owner,
        "group": facts.unix_group,
        "link_to": link.map(String::from_utf8_lossy),
    });
    if let Some(fields) = line.as_object_mut() {
        fields.retain(|_, value| !value.is_null());
    }
    line.to_string().into_bytes()
}

pub(super) fn json_error(url: &RemoteUrl, error: &Error) -> Vec<u8> {
    let error = serde_json::json!({ "code": error.code(), "message": error.to_string() });
    let line = serde_json::json!({ "url": url.to_string(), "error": error });
    line.to_string().into_bytes()
}
