//! A name of a type means one thing in a crate.

use std::{collections::BTreeMap, path::Path};

use super::Fault;
use crate::modules::tree::Tree;

const RULE: &str = "a name of a type has several meanings in a crate";

/// Names that mean "the one of this module", and why that is understood.
const OF_THEIR_MODULES: &[(&str, &str)] = &[
    (
        "Command",
        "a message to a thread is a command, as is one of a command line",
    ),
    ("Entry", "what a table or a directory of the module holds"),
    (
        "Error",
        "what fails in the module; others write it with the module's name",
    ),
    ("Inner", "what stands behind the lock of the module's type"),
    ("Input", "what a state machine takes"),
    ("Kind", "the kinds of what the module is about"),
    ("Line", "of the text that the module reads or writes"),
    ("Options", "the flags of a command"),
    ("Output", "what a state machine gives"),
    ("Params", "the parameters of a published method"),
    ("Phase", "of the method or the state machine of the module"),
    ("Row", "of the table that the module prints"),
    ("State", "of the state machine of the module"),
    ("Step", "of the state machine of the module"),
];

pub(super) fn check(root: &Path, tree: &Tree, faults: &mut Vec<Fault>) {
    let mut places: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for module in &tree.modules {
        let file = module.file.strip_prefix(root).unwrap_or(&module.file);
        for (found, line) in &module.types {
            let of_its_module = OF_THEIR_MODULES.iter().any(|(known, _)| known == found);
            if !of_its_module {
                let place = format!("{}:{line}", file.display());
                places.entry(found).or_default().push(place);
            }
        }
    }
    for (found, places) in places.into_iter().filter(|(_, places)| places.len() > 1) {
        faults.push(Fault {
            rule: RULE,
            text: format!("{found} in {}", places.join(", ")),
        });
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::check;
    use crate::modules::tree::read_crate;

    #[test]
    fn one_name_of_two_types_is_a_fault() {
        let folder = tempfile::tempdir().unwrap();
        let src = folder.path().join("src");
        fs::create_dir(&src).unwrap();
        let lib = "mod a;\npub enum Error {}\n#[cfg(test)]\nmod tests {\n    struct Way;\n}\n";
        fs::write(src.join("lib.rs"), lib).unwrap();
        fs::write(
            src.join("a.rs"),
            "struct Way;\nmod b {\n    enum Error {}\n}\n",
        )
        .unwrap();
        let faults = || {
            let mut faults = Vec::new();
            let tree = read_crate(folder.path()).unwrap();
            check(folder.path(), &tree, &mut faults);
            faults
                .into_iter()
                .map(|fault| fault.text)
                .collect::<Vec<_>>()
        };
        assert_eq!(faults(), [""; 0]);
        fs::write(src.join("lib.rs"), "mod a;\n\ntrait Way {}\n").unwrap();
        assert_eq!(faults(), ["Way in src/lib.rs:3, src/a.rs:1"]);
    }
}
