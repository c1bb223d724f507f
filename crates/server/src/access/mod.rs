//! Who may connect and log in, what logins may do, and how they share what there is of the server.

pub(crate) mod admission;
pub(crate) mod attempts;
pub(crate) mod channel_quota;
pub(crate) mod gsi;
pub(crate) mod limits;
pub(crate) mod login;
pub mod passwords;
pub(crate) mod rights;
pub(crate) mod tokens;
pub(crate) mod turns;
