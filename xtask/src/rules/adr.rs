//! A decision is a page: context, decision, consequences, when to look again.

use super::{Fault, place_of};

const RULE: &str = "a decision is a page; runs and figures belong to docs/results";
/// Of 100 columns, tables and code included.
const LINES_MAX: usize = 60;

pub(super) fn check(path: &str, text: &str, faults: &mut Vec<Fault>) {
    let lines = text.lines().count();
    if path.starts_with("docs/adr/") && lines > LINES_MAX {
        faults.push(Fault {
            rule: RULE,
            place: place_of(path),
            text: format!("{path}: {lines} lines, {LINES_MAX} are a page"),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::check;

    #[test]
    fn a_decision_of_more_than_a_page_is_told() {
        let mut faults = Vec::new();
        check("docs/adr/0001-a.md", &"| row |\n".repeat(60), &mut faults);
        check("docs/operating.md", &"line\n".repeat(61), &mut faults);
        assert_eq!(faults, []);
        check("docs/adr/0001-a.md", &"| row |\n".repeat(61), &mut faults);
        assert_eq!(
            faults[0].text,
            "docs/adr/0001-a.md: 61 lines, 60 are a page"
        );
    }
}
