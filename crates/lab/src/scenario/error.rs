//! An error in a scenario file: file, line, field, reason.

use std::fmt;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// A scenario that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct ScenarioError {
    /// The file, or the name of an embedded scenario.
    pub file: String,
    /// Line in it, from 1; `None` when the file cannot be read at all.
    pub line: Option<usize>,
    /// The field: `sweep.channels[2]`; empty when the text is no TOML.
    pub field: String,
    /// What is wrong with it.
    pub reason: String,
}

impl fmt::Display for ScenarioError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.file)?;
        if let Some(line) = self.line {
            write!(f, ":{line}")?;
        }
        if !self.field.is_empty() {
            write!(f, ": {}", self.field)?;
        }
        write!(f, ": {}", self.reason)
    }
}

/// A wrong value that the parser could not see: the field, and what is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Invalid {
    pub(crate) field: String,
    pub(crate) reason: String,
}

impl Invalid {
    pub(crate) fn new(field: impl Into<String>, reason: impl Into<String>) -> Invalid {
        Invalid {
            field: field.into(),
            reason: reason.into(),
        }
    }

    /// The same with the line where the field stands.
    pub(crate) fn at(self, file: &str, text: &str) -> ScenarioError {
        ScenarioError {
            file: file.to_owned(),
            line: Some(line_of(text, locate(text, &self.field))),
            field: self.field,
            reason: self.reason,
        }
    }
}

/// What the TOML parser, or the types it filled, did not like.
pub(crate) fn from_parser(
    file: &str,
    text: &str,
    path: &str,
    error: &toml::de::Error,
) -> ScenarioError {
    let reason = error.message().trim().to_owned();
    let mut field = if path == "." { "" } else { path }.to_owned();
    // `unknown field x` is an error of the table that holds it; name the field itself.
    let named = ["unknown field `", "missing field `"]
        .iter()
        .find_map(|start| reason.strip_prefix(start)?.split('`').next());
    if let Some(name) = named
        && field.rsplit('.').next() != Some(name)
    {
        if !field.is_empty() {
            field.push('.');
        }
        field.push_str(name);
    }
    let offset = error
        .span()
        .map_or_else(|| locate(text, &field), |s| s.start);
    ScenarioError {
        file: file.to_owned(),
        line: Some(line_of(text, offset)),
        field,
        reason,
    }
}

/// Line of an offset in bytes, from 1.
fn line_of(text: &str, offset: usize) -> usize {
    let end = offset.min(text.len());
    text.as_bytes()[..end]
        .iter()
        .filter(|b| **b == b'\n')
        .count()
        + 1
}

/// Where the value of `path` (`method[0].client`) begins, or the deepest part of it that is there.
fn locate(text: &str, path: &str) -> usize {
    let Ok(document) = DeTable::parse(text) else {
        return 0;
    };
    let mut offset = 0;
    let mut table: Option<&DeTable<'_>> = Some(document.get_ref());
    for part in path.split('.') {
        let (name, indices) = match part.split_once('[') {
            Some((name, rest)) => (name, rest),
            None => (part, ""),
        };
        let Some((key, mut value)) =
            table.and_then(|table| table.iter().find(|(key, _)| key.get_ref() == name))
        else {
            return offset;
        };
        offset = key.span().start;
        for index in indices
            .split(['[', ']'])
            .filter_map(|i| i.parse::<usize>().ok())
        {
            let inner: Option<&Spanned<DeValue<'_>>> = value
                .get_ref()
                .as_array()
                .and_then(|array| array.get(index));
            let Some(inner) = inner else {
                return offset;
            };
            value = inner;
            offset = value.span().start;
        }
        table = value.get_ref().as_table();
    }
    offset
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "title = \"a\"\n\n[sweep]\nchannels = [\n  1,\n  2,\n]\n\n[[method]]\n\
                        name = \"x\"\n\n[[method]]\nname = \"y\"\n";

    #[test]
    fn fields_are_found() {
        let line = |path: &str| line_of(TEXT, locate(TEXT, path));
        assert_eq!(line("title"), 1);
        assert_eq!(line("sweep.channels"), 4);
        assert_eq!(line("sweep.channels[1]"), 6);
        assert_eq!(line("method[1].name"), 13);
        assert_eq!(line("method[1].absent"), 12, "the table it should be in");
    }

    #[test]
    fn errors_read_as_compilers_write_them() {
        let error = Invalid::new("sweep.channels", "must not be empty").at("a.toml", TEXT);
        assert_eq!(
            error.to_string(),
            "a.toml:4: sweep.channels: must not be empty"
        );
    }
}
