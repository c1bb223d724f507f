//! Which tuner, as `--tuner NAME[:key=value,...]` spells it.

mod keys;

use std::{fmt, str::FromStr};

use keys::Keys;
pub use keys::ParseError;

use crate::{Bounds, Fixed, Setting, Tuner};

/// A tuner and its parameters, not yet running.
///
/// | Name | Keys and their defaults | Module |
/// |---|---|---|
/// | `static` | `concurrency=1`, `parallelism=4` | [`crate::fixed`] |
/// | `globus` | none | [`crate::fixed`] |
#[derive(Clone, Debug, PartialEq)]
pub enum Method {
    /// One setting for the whole transfer.
    Static(Setting),
    /// nc 2, np 8.
    Globus,
}

/// What `static` runs without keys.
const STATIC: Setting = Setting::new(1, 4);

impl Method {
    /// Every name that [`Method::parse`] knows.
    pub const NAMES: &[&str] = &["static", "globus"];

    /// Reads `NAME[:key=value,...]`.
    ///
    /// # Errors
    /// An unknown name or key, a value out of its range, a key given twice; the error names it and what is allowed.
    pub fn parse(text: &str) -> Result<Self, ParseError> {
        let (name, rest) = text.split_once(':').unwrap_or((text, ""));
        let mut keys = Keys::read(name, rest)?;
        let method = match name {
            "static" => Self::Static(Setting::new(
                keys.count("concurrency", STATIC.concurrency)?,
                keys.count("parallelism", STATIC.parallelism)?,
            )),
            "globus" => Self::Globus,
            other => {
                return Err(ParseError::Name {
                    name: other.to_owned(),
                    allowed: Self::NAMES.join(", "),
                });
            }
        };
        keys.finish()?;
        Ok(method)
    }

    /// As `--tuner` spells it, without keys.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Static(_) => "static",
            Self::Globus => "globus",
        }
    }

    /// Puts the method to work inside `bounds`.
    ///
    /// `start` is a setting that served well before between the same ends; methods begin there unless a key says where, and
    /// those that never move ignore it. Equal arguments give tuners that decide equally.
    pub fn build(&self, _start: Option<Setting>, bounds: Bounds, _seed: u64) -> Box<dyn Tuner> {
        match self {
            Self::Static(setting) => Box::new(Fixed::new(*setting, bounds)),
            Self::Globus => Box::new(Fixed::globus(bounds)),
        }
    }
}

impl FromStr for Method {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        Self::parse(text)
    }
}

impl fmt::Display for Method {
    /// The name; keys are not repeated.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_parses_to_itself_and_builds_a_tuner_of_that_name() {
        for name in Method::NAMES {
            let method = Method::parse(name).expect(name);
            assert_eq!(method.name(), *name);
            let tuner = method.build(None, Bounds::up_to(128), 1);
            assert_eq!(tuner.name(), *name);
        }
    }

    #[test]
    fn keys_of_static() {
        assert_eq!(
            Method::parse("static:concurrency=3,parallelism=2"),
            Ok(Method::Static(Setting::new(3, 2)))
        );
        assert_eq!(Method::parse("static"), Ok(Method::Static(STATIC)));
    }

    #[test]
    fn errors_name_the_fault_and_what_is_allowed() {
        for (text, part) in [
            ("magic", "tuner magic: unknown, use one of "),
            ("", "tuner : unknown, use one of "),
            (
                "static:depth=1",
                "tuner static: unknown key depth, use concurrency, parallelism",
            ),
            (
                "static:parallelism=0",
                "tuner static: parallelism=0: wants a whole number of at least 1",
            ),
            (
                "static:parallelism",
                "tuner static: parallelism: wants a whole number of at least 1",
            ),
            (
                "static:parallelism=1,parallelism=2",
                "tuner static: key parallelism given twice",
            ),
            ("globus:a=1", "tuner globus: unknown key a, it has none"),
        ] {
            let error = Method::parse(text).expect_err(text).to_string();
            assert!(error.starts_with(part), "{error:?} is not {part:?}");
        }
    }
}
