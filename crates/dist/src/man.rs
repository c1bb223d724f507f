//! Man pages: one for each command and each of its sub-commands.

use std::{io, path::Path};

use clap::Command;
use clap_mangen::{
    Man,
    roff::{Roff, roman},
};

use crate::{Error, Program, put};

/// The least indentation that is code in a closing text, whatever it begins with.
const CODE_INDENT: usize = 6;

pub(crate) fn write(program: &Program, folder: &Path) -> Result<(), Error> {
    let mut command = program.command.clone().disable_help_subcommand(true);
    // Sub-commands learn what they are called.
    command.build();
    let folder = folder.join(format!("man/man{}", program.section));
    write_tree(&command, program, &folder)
}

fn write_tree(command: &Command, program: &Program, folder: &Path) -> Result<(), Error> {
    let visible = command.get_subcommands().filter(|sub| !sub.is_hide_set());
    for sub in visible {
        write_tree(sub, program, folder)?;
    }
    let name = command.get_display_name().unwrap_or(command.get_name());
    let path = folder.join(format!("{name}.{}", program.section));
    match page(command, program) {
        Ok(text) => put(&path, &text),
        Err(error) => Err(Error::Write { path, error }),
    }
}

fn page(command: &Command, program: &Program) -> io::Result<Vec<u8>> {
    let source = format!("godwit {}", env!("CARGO_PKG_VERSION"));
    let man = Man::new(command.clone())
        .section(program.section)
        .source(source)
        .manual("godwit");
    let mut out = Vec::new();
    man.render_title(&mut out)?;
    man.render_name_section(&mut out)?;
    man.render_synopsis_section(&mut out)?;
    man.render_description_section(&mut out)?;
    if command
        .get_arguments()
        .any(|argument| !argument.is_hide_set())
    {
        man.render_options_section(&mut out)?;
    }
    if command.get_subcommands().any(|sub| !sub.is_hide_set()) {
        man.render_subcommands_section(&mut out)?;
    }
    if let Some(text) = command.get_after_help() {
        closing(&text.to_string(), program.command.get_name()).to_writer(&mut out)?;
    }
    let mut others = Roff::default();
    others.control("SH", ["SEE ALSO"]);
    others.text([roman(
        "godwit(1), godwitd(8), godwit-service(8), godwit-lab(1)",
    )]);
    others.to_writer(&mut out)?;
    Ok(out)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Blank,
    /// Lines stay as they are.
    Code,
    /// Lines are filled.
    Text,
}

/// The text that ends a help, in the sections that manuals have for it.
fn closing(text: &str, program: &str) -> Roff {
    let mut roff = Roff::default();
    let (mut section, mut before) = ("", Kind::Blank);
    for line in text.lines() {
        let bare = line.trim_start();
        let indent = line.len() - bare.len();
        let (title, bare) = match bare.strip_prefix("Exit status:") {
            Some(statuses) => ("EXIT STATUS", statuses.trim_start()),
            None if bare == "Examples:" => ("EXAMPLES", ""),
            None if indent == 0 && !bare.is_empty() => ("NOTES", bare),
            None => (section, bare),
        };
        let kind = if bare.is_empty() {
            Kind::Blank
        } else if indent >= CODE_INDENT || indent > 0 && bare.starts_with(program) {
            Kind::Code
        } else {
            Kind::Text
        };
        if before == Kind::Code && kind != Kind::Code {
            roff.control("fi", []);
        }
        if title != section {
            roff.control("SH", [title]);
            section = title;
        } else if kind == Kind::Text && before != Kind::Text {
            roff.control("PP", []);
        }
        if kind == Kind::Code && before != Kind::Code {
            roff.control("nf", []);
        }
        if kind != Kind::Blank {
            let indented = if kind == Kind::Code { "    " } else { "" };
            roff.text([roman(format!("{indented}{bare}"))]);
        }
        before = kind;
    }
    if before == Kind::Code {
        roff.control("fi", []);
    }
    roff
}

#[cfg(test)]
mod tests {
    use super::closing;

    #[test]
    fn a_closing_text_becomes_sections() {
        let text = "Examples:\n  Share:\n      godwitd --root /srv\n  godwitd --gsi\n\n\
                    The file:\n      root = 1\n.dots\n\
                    Exit status: 0 done";
        let expected = ".SH EXAMPLES\n.PP\nShare:\n.nf\n    godwitd \\-\\-root /srv\n    \
                        godwitd \\-\\-gsi\n.fi\n\
                        .SH NOTES\nThe file:\n.nf\n    root = 1\n.fi\n.PP\n\\&.dots\n\
                        .SH \"EXIT STATUS\"\n0 done\n";
        assert_eq!(closing(text, "godwitd").to_roff(), expected);
    }
}
