//! LIST lines, in the shape of `ls -l`.

use crate::facts::Facts;

/// `-rw-r--r--   1 owner group  size Mon dd hh:mm name` without line end. Missing facts become `0` or `?`.
/// Files older than six months before `now` show the year instead of the time, as `ls` does.
pub fn format_line(
    facts: &Facts,
    links: u64,
    name: &[u8],
    now: crate::timestamp::Timestamp,
) -> Vec<u8> {
    let _ = (facts, links, name, now);
    todo!()
}
