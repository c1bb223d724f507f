//! A decision is a page: context, decision, consequences, when to look again.

use super::{Fault, Text};

const RULE: &str = "a decision is a page; runs and figures belong to docs/results";
/// Of 100 columns, tables and code included.
const LINES_MAX: usize = 60;

pub(super) fn check(text: &Text, faults: &mut Vec<Fault>) {
    let (path, lines) = (&text.path, text.text.lines().count());
    if path.starts_with("docs/adr/") && lines > LINES_MAX {
        faults.push(Fault {
            rule: RULE,
            text: format!("{path}: {lines} lines, {LINES_MAX} are a page"),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::{super::tests::faults, check};

    #[test]
    fn a_decision_of_more_than_a_page_is_a_fault() {
        let page = |path, lines| faults(check, path, &"| row |\n".repeat(lines));
        assert_eq!(page("docs/adr/0001-a.md", 60), [""; 0]);
        assert_eq!(page("docs/operating.md", 61), [""; 0]);
        assert_eq!(
            page("docs/adr/0001-a.md", 61),
            ["docs/adr/0001-a.md: 61 lines, 60 are a page"]
        );
    }
}
