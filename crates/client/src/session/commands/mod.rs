//! Single commands of a session: files, directories, names, attributes.

mod attributes;
mod directories;
pub(crate) mod files;
pub(crate) mod listing;
mod names;
pub(crate) mod rename;
