//! Values of a submission, each with its bound.

use serde::Serialize;
use serde_json::{Map, Value};

use crate::{
    api::FTS_METADATA,
    fts::refusal::{FtsResult, invalid},
};

/// Most bytes of metadata for tapes, as JSON.
pub(super) const TAPE_METADATA_MAX: usize = 1024;

/// Scientific tags of a network flow.
const SCITAGS: std::ops::RangeInclusive<i64> = 65..=65_535;

/// The part of stored metadata that is FTS3's, as it is stored.
pub(in crate::fts) fn stored_extra(metadata: Option<&Value>) -> Option<&Value> {
    metadata?.get(FTS_METADATA)
}

/// The part of stored metadata that is FTS3's.
pub(in crate::fts) fn extra<T: serde::de::DeserializeOwned>(metadata: Option<&Value>) -> Option<T> {
    T::deserialize(stored_extra(metadata)?).ok()
}

pub(super) fn stored(extra: &impl Serialize) -> Option<Value> {
    let value = serde_json::to_value(extra).unwrap_or_default();
    Some(Value::Object(Map::from_iter([(
        FTS_METADATA.to_owned(),
        value,
    )])))
}

pub(super) fn text(values: &Map<String, Value>, name: &str) -> Option<String> {
    let text = values.get(name)?.as_str()?;
    (!text.is_empty()).then(|| text.to_owned())
}

#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "casts saturate"
)]
pub(super) fn file_size(value: Option<&Value>) -> FtsResult<u64> {
    let wrong = |text: &str| invalid(format!("could not convert string to float: '{text}'"));
    match value {
        None | Some(Value::Null) => Ok(0),
        Some(Value::Number(number)) => Ok(number
            .as_u64()
            .unwrap_or_else(|| number.as_f64().unwrap_or(0.0) as u64)),
        Some(Value::String(text)) => match text.trim().parse::<f64>() {
            Ok(number) if number.is_finite() => Ok(number as u64),
            _ => Err(wrong(text)),
        },
        Some(other) => Err(wrong(&other.to_string())),
    }
}

/// An object, or a text as its label.
pub(super) fn labeled(value: Option<&Value>, limit: usize) -> FtsResult<Value> {
    let value = match value {
        None | Some(Value::Null) => return Ok(Value::Null),
        Some(Value::String(text)) => match serde_json::from_str::<Value>(text) {
            Ok(object @ Value::Object(_)) => object,
            _ => serde_json::json!({"label": text}),
        },
        Some(object @ Value::Object(_)) => object.clone(),
        Some(_) => return Err(invalid("Metadata neither JSON nor String")),
    };
    limited(value, limit)
}

pub(super) fn tape(value: Option<&Value>) -> FtsResult<Value> {
    match value {
        None | Some(Value::Null) => Ok(Value::Null),
        Some(object @ Value::Object(_)) => limited(object.clone(), TAPE_METADATA_MAX),
        Some(_) => Err(invalid("Metadata neither JSON nor String")),
    }
}

pub(super) fn limited(value: Value, limit: usize) -> FtsResult<Value> {
    match value.to_string().len() <= limit {
        true => Ok(value),
        false => Err(invalid(format!(
            "Job Submission Refused, metadata exceeds size limit of {limit}"
        ))),
    }
}

pub(super) fn scitag(value: Option<&Value>) -> FtsResult<Option<i64>> {
    let Some(value) = value.filter(|value| !value.is_null()) else {
        return Ok(None);
    };
    match value.as_i64().filter(|tag| SCITAGS.contains(tag)) {
        Some(tag) => Ok(Some(tag)),
        None => Err(invalid(format!(
            "Invalid SciTag value: {value} (not in [65, 65535] range)"
        ))),
    }
}
