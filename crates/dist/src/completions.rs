//! Shell completions for the command lines, each where its shell looks for it.

use std::path::Path;

use clap_complete::{Shell, generate};

use crate::{Error, Program, put};

pub(crate) fn write(program: &Program, folder: &Path) -> Result<(), Error> {
    let name = program.command.get_name();
    for (shell, path) in [
        (Shell::Bash, format!("bash-completion/completions/{name}")),
        (Shell::Zsh, format!("zsh/site-functions/_{name}")),
        (
            Shell::Fish,
            format!("fish/vendor_completions.d/{name}.fish"),
        ),
    ] {
        let mut text = Vec::new();
        generate(shell, &mut program.command.clone(), name, &mut text);
        put(&folder.join(path), &text)?;
    }
    Ok(())
}
