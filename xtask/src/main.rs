//! The one check, and its siblings.
fn main() {}
