//! The container file: rules of it, and images that are built by it and run.

use std::fs;

use tempfile::TempDir;

use crate::{
    package::{self, Unmade},
    support::{am_root, have, peer, said, skip, tree, within},
};

/// Seconds for building three images and running them, on a busy machine.
const LIMIT: u32 = 900;

fn container_file() -> String {
    fs::read_to_string(tree().join("packaging/container/Containerfile")).unwrap()
}

/// What stands behind `word` in the stage `name`, the last where there are several.
fn last_of<'a>(text: &'a str, name: &str, word: &str) -> Option<&'a str> {
    let stage = text.split("\nFROM ").find(|stage| {
        let first = stage.lines().next().unwrap_or_default();
        first.ends_with(&format!(" AS {name}"))
    })?;
    let own = stage.lines().rev().find_map(|line| line.strip_prefix(word));
    // A stage has what the one that it goes on from has.
    own.or_else(|| {
        let from = stage.split_whitespace().next()?;
        last_of(text, from, word)
    })
}

#[test]
fn images_name_the_release_of_their_base_and_run_as_a_user_whose_health_is_checked() {
    let text = container_file();
    let bases = text.lines().filter(|line| {
        line.starts_with("ARG ") && (line.contains("RUST") || line.contains("DEBIAN"))
    });
    for base in bases {
        let (_, tag) = base.rsplit_once(':').unwrap();
        assert!(tag.contains("bookworm"), "{base}");
    }
    for target in ["godwit-service", "godwit-agent", "godwitd"] {
        // A number: `runAsNonRoot` cannot look a name up.
        assert_eq!(
            last_of(&text, target, "USER "),
            Some("10001:10001"),
            "{target}"
        );
        assert!(last_of(&text, target, "HEALTHCHECK ").is_some(), "{target}");
        let entry = last_of(&text, target, "ENTRYPOINT ").unwrap();
        assert!(entry.starts_with("[\"/usr/bin/"), "{entry}");
    }
}

#[test]
fn images_are_built_run_and_told_to_be_healthy_once_they_are() {
    let tools = [
        ("buildah", "buildah"),
        ("python3", "python3"),
        ("mmdebstrap", "mmdebstrap"),
    ];
    if !package::can_pack() || !am_root() || !have(&[], &tools) {
        return;
    }
    let root = match package::clean_root() {
        Ok(root) => root,
        Err(Unmade::Outside(why)) => return skip(why),
        Err(Unmade::Failed(why)) => panic!("{why}"),
    };
    let folder = TempDir::new().unwrap();
    let mut script = within(LIMIT, "python3");
    script.arg(tree().join("xtask/tests/stage/images.py"));
    script.arg(tree()).arg(package::packed_folder()).arg(root);
    said(script.arg(folder.path()));
}

#[test]
fn a_linter_of_container_files_has_nothing_to_say() {
    let Some(hadolint) = peer("hadolint") else {
        return;
    };
    let file = tree().join("packaging/container/Containerfile");
    said(within(60, hadolint).arg(file));
}
