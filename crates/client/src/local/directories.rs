//! The user's directories by the XDG base directory specification. By hand: three variables, which
//! `etcetera` would not make shorter.

use std::{env, path::PathBuf};

/// `$XDG_STATE_HOME/godwit`, `~/.local/state/godwit` if that is unset; `None` without a home.
pub(crate) fn state() -> Option<PathBuf> {
    let state = set("XDG_STATE_HOME").or_else(|| Some(set("HOME")?.join(".local/state")))?;
    Some(state.join("godwit"))
}

/// `$XDG_CONFIG_HOME/godwit`, `~/.config/godwit` if that is unset; `None` without a home.
pub(crate) fn config() -> Option<PathBuf> {
    let config = set("XDG_CONFIG_HOME").or_else(|| Some(set("HOME")?.join(".config")))?;
    Some(config.join("godwit"))
}

/// `$XDG_RUNTIME_DIR/godwit`, a directory of the user below that for temporary files if it is
/// unset. Another user may have created it.
pub(super) fn runtime() -> PathBuf {
    set("XDG_RUNTIME_DIR").map_or_else(
        || {
            let user = rustix::process::geteuid().as_raw();
            env::temp_dir().join(format!("godwit-{user}"))
        },
        |runtime| runtime.join("godwit"),
    )
}

fn set(variable: &str) -> Option<PathBuf> {
    env::var_os(variable)
        .filter(|value| !value.is_empty())
        .map(PathBuf::from)
}
