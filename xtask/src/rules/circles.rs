//! Modules import one another in one direction, see ADR 0110.

use super::Fault;
use crate::modules::{graph, tree::Tree};

const RULE: &str = "these modules import one another in a circle";

/// Circles that have to stay: the crate, all members, and why.
const STAY: &[(&str, &[&str], &str)] = &[];

pub(super) fn check(name: &str, tree: &Tree, faults: &mut Vec<Fault>) {
    check_but(name, tree, STAY, faults);
}

fn check_but(name: &str, tree: &Tree, stay: &[(&str, &[&str], &str)], faults: &mut Vec<Fault>) {
    let names = |modules: &[usize]| -> Vec<&str> {
        modules
            .iter()
            .map(|module| &*tree.modules[*module].name)
            .collect()
    };
    for circle in graph::circles(tree) {
        let mut members = names(&circle.members);
        members.sort_unstable();
        let stays = stay
            .iter()
            .any(|(krate, allowed, _)| *krate == name && members == *allowed);
        if !stays {
            faults.push(Fault {
                rule: RULE,
                text: format!("{name}: {}", names(&circle.path).join(" -> ")),
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::check_but;
    use crate::modules::tree::read_crate;

    #[test]
    fn a_circle_is_named_unless_it_has_to_stay() {
        let folder = tempfile::tempdir().unwrap();
        let src = folder.path().join("src");
        fs::create_dir(&src).unwrap();
        fs::write(src.join("lib.rs"), "mod a;\nmod b;\n").unwrap();
        fs::write(src.join("a.rs"), "pub struct A(crate::b::B);\n").unwrap();
        fs::write(src.join("b.rs"), "pub struct B;\nfn f(_: crate::a::A) {}\n").unwrap();
        let tree = read_crate(folder.path()).unwrap();
        let mut faults = Vec::new();
        check_but("one", &tree, &[("two", &["a", "b"], "")], &mut faults);
        assert_eq!(faults[0].text, "one: a -> b -> a");
        faults.clear();
        check_but("one", &tree, &[("one", &["a", "b"], "")], &mut faults);
        assert_eq!(faults, []);
    }
}
