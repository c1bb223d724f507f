//! Lines end at 100 columns, in code, comments and prose.

use super::{Fault, Text, is_generated};

const RULE: &str = "lines end at 100 columns";
const COLUMNS: usize = 100;

/// Excused are:
/// - rows of tables, in Markdown and in documents of code, which begin with `|`;
/// - what cannot be broken: no blank stands before the last column, behind the indentation, the
///   mark of a comment or a list, or the `"` of a literal (an address, a long word);
/// - what a program prints, in a block of a console;
/// - pages that programs write.
pub(super) fn check(text: &Text, faults: &mut Vec<Fault>) {
    if is_generated(&text.path) {
        return;
    }
    let is_page = text.path.ends_with(".md");
    let mut in_console = false;
    for (number, line) in text.text.lines().enumerate() {
        if is_page && line.starts_with("```") {
            in_console = line.starts_with("```console");
        }
        let columns = line.chars().count();
        if columns > COLUMNS && !is_excused(line, is_page, in_console) {
            faults.push(text.fault(RULE, number + 1, &format!("{columns} columns")));
        }
    }
}

fn is_excused(line: &str, is_page: bool, in_console: bool) -> bool {
    let line_start = line.trim_start();
    let comment = ["///", "//!", "//"]
        .into_iter()
        .find_map(|mark| line_start.strip_prefix(mark));
    let text = match comment {
        Some(comment) if !is_page => comment.trim_start(),
        _ => line_start,
    };
    if text.starts_with('|') && (is_page || comment.is_some()) {
        return true;
    }
    let is_printed = !["$ ", "# ", "> "]
        .iter()
        .any(|prompt| line.starts_with(prompt));
    if in_console && is_printed {
        return true;
    }
    let text = text.strip_prefix("- ").unwrap_or(text);
    let begin = line.chars().count() - text.chars().count();
    let room = COLUMNS.saturating_sub(begin);
    let word = text.trim_start_matches(['"', 'r', 'b', '#']);
    !word.chars().take(room).any(char::is_whitespace)
}

#[cfg(test)]
mod tests {
    use super::{super::tests, check};

    fn faults(path: &str, text: &str) -> usize {
        tests::faults(check, path, text).len()
    }

    #[test]
    fn long_lines_are_faults_and_what_cannot_be_broken_is_excused() {
        let words = "word ".repeat(21);
        let address = format!("https://example.org/{}", "x".repeat(100));
        for long in [
            &words,
            &format!("    // {words}"),
            &format!("let x = \"{words}\";"),
        ] {
            assert_eq!(faults("crates/a/src/lib.rs", long), 1, "{long}");
            assert_eq!(faults("docs/a.md", long), 1, "{long}");
        }
        assert_eq!(
            faults("docs/a.md", &"é".repeat(100)),
            0,
            "columns are no bytes"
        );
        for bare in [
            &address,
            &format!("- {address}"),
            &format!("    /// {address} a b"),
        ] {
            assert_eq!(faults("crates/a/src/lib.rs", bare), 0, "{bare}");
        }
        assert_eq!(faults("docs/a.md", &format!("see {address}")), 1);
    }

    #[test]
    fn tables_and_what_programs_print_are_excused() {
        let row = format!("| {} |", "word ".repeat(21));
        assert_eq!(faults("docs/a.md", &row), 0);
        assert_eq!(faults("crates/a/src/lib.rs", &format!("//! {row}")), 0);
        assert_eq!(faults("crates/a/src/lib.rs", &row), 1);
        let console = format!(
            "```console\n$ {}\n{}\n```\n{0}\n",
            "w ".repeat(60),
            "w ".repeat(60)
        );
        assert_eq!(faults("docs/a.md", &console), 2);
        assert_eq!(faults("docs/results/soak.md", &console), 0);
    }
}
