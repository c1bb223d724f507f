//! `key=value,...` of one method.

use std::ops::RangeInclusive;

/// Why a text names no tuner. The user must act.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ParseError {
    /// No method is called that.
    #[error("tuner {name}: unknown, use one of {allowed}")]
    Name {
        /// What was given.
        name: String,
        /// The names there are.
        allowed: String,
    },
    /// The method has no such key.
    #[error("tuner {method}: unknown key {key}, {allowed}")]
    Key {
        /// The method.
        method: String,
        /// What was given.
        key: String,
        /// The keys there are.
        allowed: String,
    },
    /// A key stands more than once.
    #[error("tuner {method}: key {key} given twice")]
    Twice {
        /// The method.
        method: String,
        /// The key.
        key: String,
    },
    /// A value is out of range or no number.
    #[error("tuner {method}: {given}: wants {wanted}")]
    Value {
        /// The method.
        method: String,
        /// The key and what was given for it.
        given: String,
        /// What is allowed.
        wanted: String,
    },
}

/// Hands out the values of the keys that a method asks for; [`Keys::finish`] refuses the rest.
pub(super) struct Keys<'a> {
    method: &'a str,
    given: Vec<(&'a str, &'a str)>,
    asked: Vec<&'static str>,
}

impl<'a> Keys<'a> {
    pub(super) fn read(method: &'a str, text: &'a str) -> Result<Self, ParseError> {
        let mut given: Vec<(&str, &str)> = Vec::new();
        for key_value in text.split(',').filter(|k| !k.is_empty()) {
            let (key, value) = key_value.split_once('=').unwrap_or((key_value, ""));
            if given.iter().any(|(k, _)| *k == key) {
                return Err(ParseError::Twice {
                    method: method.to_owned(),
                    key: key.to_owned(),
                });
            }
            given.push((key, value));
        }
        Ok(Self {
            method,
            given,
            asked: Vec::new(),
        })
    }

    /// A whole number of at least 1, or `default`.
    pub(super) fn count(&mut self, key: &'static str, default: u32) -> Result<u32, ParseError> {
        Ok(self.optional_count(key)?.unwrap_or(default))
    }

    /// A whole number of at least 1, where it is given.
    pub(super) fn optional_count(&mut self, key: &'static str) -> Result<Option<u32>, ParseError> {
        self.value(key, "a whole number of at least 1", |text| {
            text.parse().ok().filter(|n| *n >= 1)
        })
    }

    /// A number of `range`, or `default`.
    pub(super) fn number(
        &mut self,
        key: &'static str,
        range: RangeInclusive<f64>,
        default: f64,
    ) -> Result<f64, ParseError> {
        let wanted = format!("a number from {} to {}", range.start(), range.end());
        let value = self.value(key, &wanted, |text| {
            text.parse().ok().filter(|n| range.contains(n))
        })?;
        Ok(value.unwrap_or(default))
    }

    /// One of `words`, of which the first is the default.
    pub(super) fn word(
        &mut self,
        key: &'static str,
        words: &[&'static str],
    ) -> Result<&'static str, ParseError> {
        let wanted = words.join(" or ");
        let value = self.value(key, &wanted, |text| {
            words.iter().find(|w| **w == text).copied()
        })?;
        Ok(value.unwrap_or(words[0]))
    }

    fn value<T>(
        &mut self,
        key: &'static str,
        wanted: &str,
        parse: impl Fn(&str) -> Option<T>,
    ) -> Result<Option<T>, ParseError> {
        self.asked.push(key);
        let Some(at) = self.given.iter().position(|(k, _)| *k == key) else {
            return Ok(None);
        };
        let (_, text) = self.given.remove(at);
        parse(text).map(Some).ok_or_else(|| ParseError::Value {
            method: self.method.to_owned(),
            given: if text.is_empty() {
                key.to_owned()
            } else {
                format!("{key}={text}")
            },
            wanted: wanted.to_owned(),
        })
    }

    /// # Errors
    /// An unknown key.
    pub(super) fn finish(self) -> Result<(), ParseError> {
        match self.given.first() {
            None => Ok(()),
            Some((key, _)) => Err(ParseError::Key {
                method: self.method.to_owned(),
                key: (*key).to_owned(),
                allowed: if self.asked.is_empty() {
                    "it has none".to_owned()
                } else {
                    format!("use {}", self.asked.join(", "))
                },
            }),
        }
    }
}
