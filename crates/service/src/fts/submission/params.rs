//! Parameters of a submission.

use jiff::{SignedDuration, Timestamp};
use serde_json::{Map, Value};

use super::{
    files::Row,
    values::{labeled, text},
};
use crate::fts::refusal::{FtsResult, Refusal, invalid};

/// Most bytes of metadata of a job, as JSON.
const JOB_METADATA_MAX: usize = 2048;

/// How files of a job belong together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum JobType {
    /// Each is for itself.
    Files,
    /// One pair of storages, over the sessions that are there.
    Reuse,
    /// Ways to one file.
    Replicas,
    /// Each goes on from the one before.
    Hops,
}

impl JobType {
    pub(super) fn letter(self) -> &'static str {
        match self {
            JobType::Files => "N",
            JobType::Reuse => "Y",
            JobType::Replicas => "R",
            JobType::Hops => "H",
        }
    }
}

/// `params` of a submission. Null is as if it were not there.
pub(super) struct Params<'a>(pub(super) &'a Map<String, Value>);

impl Params<'_> {
    pub(super) fn check(&self) -> FtsResult<()> {
        let refuse = |text: &str| Err(Refusal::bad_request(text));
        let flags = [
            "overwrite",
            "overwrite_on_retry",
            "overwrite_when_only_on_disk",
            "overwrite_hop",
        ];
        let mut set = Vec::new();
        for flag in flags {
            if self.truth(flag)? {
                set.push(flag);
            }
        }
        let archives = self.number("archive_timeout")?.unwrap_or(-1) > 0;
        match set.as_slice() {
            [] | [_] | ["overwrite_when_only_on_disk", "overwrite_hop"] => {}
            _ => return refuse("Incompatible overwrite flags used at the same time"),
        }
        if set.contains(&"overwrite_hop") && !self.truth("multihop")? {
            return refuse("'overwrite-hop' requires multihop job submission");
        }
        if set.contains(&"overwrite_when_only_on_disk") && !archives {
            return refuse("'overwrite-when-only-on-disk' requires 'archive-timeout' to be set");
        }
        if set.contains(&"overwrite_hop") {
            return Err(invalid(
                "overwrite_hop: overwrite is for all hops or for none",
            ));
        }
        for name in ["bring_online", "copy_pin_lifetime", "archive_timeout"] {
            if self.number(name)?.unwrap_or(-1) > 0 {
                return Err(invalid(format!("{name}: no storage served here has tapes")));
            }
        }
        match self.0.get("target_qos").is_some_and(|qos| !qos.is_null()) {
            true => Err(invalid("target_qos is not served")),
            false => Ok(()),
        }
    }

    fn get(&self, name: &str) -> Option<&Value> {
        self.0.get(name).filter(|value| !value.is_null())
    }

    pub(super) fn text(&self, name: &str) -> Option<String> {
        text(self.0, name)
    }

    pub(super) fn number(&self, name: &str) -> FtsResult<Option<i64>> {
        let Some(value) = self.get(name) else {
            return Ok(None);
        };
        let number = match value {
            Value::String(text) => text.trim().parse().ok(),
            value => value.as_i64(),
        };
        let wrong = || invalid(format!("{name} is expected to be an integer"));
        number.map(Some).ok_or_else(wrong)
    }

    pub(super) fn truth(&self, name: &str) -> FtsResult<bool> {
        match self.get(name) {
            None => Ok(false),
            Some(Value::Bool(value)) => Ok(*value),
            Some(Value::Number(number)) => Ok(number.as_i64() != Some(0)),
            Some(Value::String(text)) => Ok(matches!(
                text.to_ascii_lowercase().as_str(),
                "y" | "yes" | "true" | "t" | "1"
            )),
            Some(_) => Err(invalid(format!("{name} is expected to be a boolean"))),
        }
    }

    pub(super) fn job_type(&self, rows: &[Row]) -> FtsResult<JobType> {
        let (reuse, hops) = (self.truth("reuse")?, self.truth("multihop")?);
        let files = rows.last().map_or(0, |row| row.extra.file_index + 1);
        let has_replicas = rows.len() as u64 > files;
        match (has_replicas, hops, reuse) {
            (true, false, false) if files == 1 => Ok(JobType::Replicas),
            (true, false, false) => Err(invalid(
                "Multiple replica jobs must only have one unique file",
            )),
            (true, ..) => Err(Refusal::bad_request(
                "Can not request multiple replica job together with multihop or session reuse at \
                the same time",
            )),
            (false, true, _) => Ok(JobType::Hops),
            (false, false, true) => Ok(JobType::Reuse),
            (false, false, false) => Ok(JobType::Files),
        }
    }

    /// 1 to 5: what is outside is brought inside.
    pub(super) fn priority(&self) -> FtsResult<u8> {
        let priority = self.number("priority")?.unwrap_or(3).clamp(1, 5);
        Ok(u8::try_from(priority).unwrap_or(3))
    }

    pub(super) fn overwrite_flag(&self) -> FtsResult<Option<String>> {
        if self.truth("overwrite")? {
            return Ok(Some("Y".to_owned()));
        }
        let on_retry = self.truth("overwrite_on_retry")?;
        Ok(on_retry.then(|| "R".to_owned()))
    }

    pub(super) fn verification(&self, rows: &[Row]) -> FtsResult<String> {
        let mode = match self.get("verify_checksum") {
            Some(Value::String(text)) if !text.is_empty() => text.to_ascii_lowercase(),
            Some(Value::Bool(true)) => "both".to_owned(),
            _ if rows.iter().any(|row| row.extra.checksum.contains(':')) => "target".to_owned(),
            _ => "none".to_owned(),
        };
        match mode.chars().next() {
            Some(letter @ ('n' | 't' | 's' | 'b')) => Ok(letter.to_string()),
            _ => Err(invalid(format!("verify_checksum: {mode}"))),
        }
    }

    /// Hours as a number, or a number with its unit.
    pub(super) fn deadline(&self, now: Timestamp) -> FtsResult<Option<Timestamp>> {
        let Some(value) = self.get("max_time_in_queue") else {
            return Ok(None);
        };
        let wrong = || invalid(format!("max_time_in_queue: {value}"));
        let seconds = match value {
            Value::Number(hours) => hours.as_i64().and_then(|hours| hours.checked_mul(3600)),
            Value::String(text) => seconds_of(text.trim()),
            _ => None,
        };
        match seconds.ok_or_else(wrong)? {
            0 => Ok(None),
            seconds if seconds < 0 => Err(wrong()),
            seconds => now
                .checked_add(SignedDuration::from_secs(seconds))
                .map(Some)
                .map_err(|_| wrong()),
        }
    }

    /// What FTS3 keeps as one text.
    pub(super) fn internal(&self) -> FtsResult<Option<String>> {
        let mut parts = Vec::new();
        let numbers = [
            ("nostreams", "nostreams"),
            ("timeout", "timeout"),
            ("buffer_size", "buffersize"),
        ];
        for (name, shown) in numbers {
            if let Some(number) = self.number(name)?.filter(|number| *number != 0) {
                parts.push(format!("{shown}:{number}"));
            }
        }
        for (name, shown) in [
            ("strict_copy", "strict"),
            ("disable_cleanup", "disable-cleanup"),
            ("ipv4", "ipv4"),
            ("ipv6", "ipv6"),
            ("s3alternate", "s3alternate"),
        ] {
            if self.truth(name)? {
                parts.push(shown.to_owned());
            }
        }
        Ok((!parts.is_empty()).then(|| parts.join(",")))
    }

    /// The user's, and how the user was known.
    pub(super) fn metadata(&self, method: &str) -> FtsResult<Value> {
        let mut metadata = match labeled(self.0.get("job_metadata"), JOB_METADATA_MAX)? {
            Value::Object(metadata) => metadata,
            _ => Map::new(),
        };
        metadata.insert("auth_method".to_owned(), method.into());
        Ok(Value::Object(metadata))
    }
}

fn seconds_of(text: &str) -> Option<i64> {
    let unit = match text.chars().last()? {
        's' => 1,
        'm' => 60,
        'h' => 3600,
        'd' => 86_400,
        _ => return text.parse::<i64>().ok()?.checked_mul(3600),
    };
    text[..text.len() - 1]
        .parse::<i64>()
        .ok()?
        .checked_mul(unit)
}
