//! Small crates, written for each test.

use std::{fs, path::Path};

use super::{Lines, graph, tree};

/// A crate of these files below `src/`.
fn krate(files: &[(&str, &str)]) -> (tempfile::TempDir, tree::Tree) {
    let folder = tempfile::tempdir().unwrap();
    let write = |path: &Path, text: &str| {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    write(
        &folder.path().join("Cargo.toml"),
        "[package]\nname = \"a-crate\"\n",
    );
    for (path, text) in files {
        write(&folder.path().join("src").join(path), text);
    }
    let tree = tree::read_crate(folder.path()).unwrap();
    (folder, tree)
}

fn name(tree: &tree::Tree, module: usize) -> &str {
    &tree.modules[module].name
}

fn arrows(tree: &tree::Tree) -> Vec<String> {
    let shown = |(from, to): &(usize, usize)| format!("{} {}", name(tree, *from), name(tree, *to));
    let mut all: Vec<String> = tree.arrows.keys().map(shown).collect();
    all.sort();
    all
}

/// The circles of a crate, each as its shortest way.
fn ways(tree: &tree::Tree) -> Vec<String> {
    let circles = graph::circles(tree).into_iter();
    let names = circles.map(|circle| {
        let names: Vec<&str> = circle
            .path
            .iter()
            .map(|module| name(tree, *module))
            .collect();
        names.join(" ")
    });
    names.collect()
}

#[test]
fn arrows_lead_to_the_module_that_defines() {
    let (_folder, tree) = krate(&[
        (
            "lib.rs",
            "mod a; mod b; mod c; mod d; pub use b::inner::Deep; pub use b::*;",
        ),
        (
            "a.rs",
            "use crate::Deep; fn f() { crate::c::g(); println!(\"{}\", crate::d::H); }",
        ),
        ("b/mod.rs", "pub mod inner; pub struct B;"),
        (
            "b/inner.rs",
            "pub struct Deep; mod inline { use super::super::B; }",
        ),
        (
            "c.rs",
            "pub fn g() {} impl crate::B { fn x() { std::mem::drop(1) } }",
        ),
        ("d.rs", "pub const H: u8 = 1; pub(super) fn visible() {}"),
        ("main.rs", "use a_crate::{b::B as Other, Deep};"),
    ]);
    let expected = [
        "a b::inner",
        "a c",
        "a d",
        "b::inner b",
        "c b",
        "main b",
        "main b::inner",
    ];
    assert_eq!(arrows(&tree), expected);
    assert_eq!(ways(&tree), [""; 0]);
}

#[test]
fn tests_are_left_out() {
    let (folder, tree) = krate(&[
        ("lib.rs", "mod a;\nmod b;\n// not code\n"),
        (
            "a.rs",
            "\n#[cfg(test)]\nmod tests {\n    use crate::b::B;\n}\nfn f() {}\n",
        ),
        ("b.rs", "pub struct B;\n#[cfg(test)]\nmod tests;\n"),
        ("b/tests.rs", "use crate::a;\n\nfn g() {}\n"),
    ]);
    assert_eq!(arrows(&tree), [""; 0]);
    let lines = Lines::of(folder.path(), &tree).unwrap();
    assert_eq!((lines.sources, lines.tests), (4, 8));
}

#[test]
fn circles_are_found_and_shown_by_their_shortest_way() {
    let (_folder, tree) = krate(&[
        ("lib.rs", "mod a; mod b; mod c; mod d;"),
        ("a.rs", "pub struct A; use crate::b::B;"),
        ("b.rs", "pub struct B; use crate::c::C; use crate::a::A;"),
        ("c.rs", "pub struct C; use crate::a::A; use crate::d::D;"),
        ("d.rs", "pub struct D;"),
    ]);
    assert_eq!(ways(&tree), ["a b a"]);
    assert_eq!(graph::circles(&tree)[0].members.len(), 3);
}

#[test]
fn parents_are_free_inside_their_folders_and_not_outside() {
    let inside = [
        ("lib.rs", "mod a; mod b; pub struct Root; use a::A;"),
        (
            "a/mod.rs",
            "mod x; mod y; pub struct A { x: x::X, y: y::Y }",
        ),
        (
            "a/x.rs",
            "pub struct X; impl super::A { fn f(r: crate::Root) {} }",
        ),
        ("a/y.rs", "pub struct Y; use super::{A, x::X};"),
        ("b.rs", "pub struct B;"),
    ];
    assert_eq!(ways(&krate(&inside).1), [""; 0]);

    // x and y know one another.
    let mut siblings = inside;
    siblings[2].1 = "pub struct X; use super::y::Y;";
    assert_eq!(ways(&krate(&siblings).1), ["a::x a::y a::x"]);

    // The way from the child to its parent leads through another module.
    let mut outside = inside;
    outside[3].1 = "pub struct Y; use crate::b::B;";
    outside[4].1 = "pub struct B; use crate::a::A;";
    assert_eq!(ways(&krate(&outside).1), ["a a::y b a"]);
}

#[test]
fn upward_arrows_run_against_the_order_with_the_fewest() {
    let (_folder, tree) = krate(&[
        ("lib.rs", "mod low; mod top; pub struct Root;"),
        (
            "low.rs",
            "pub struct Low; use crate::top::x::X; use crate::Root;",
        ),
        ("top/mod.rs", "pub mod x; pub mod y; use crate::low::Low;"),
        ("top/x.rs", "pub struct X; use crate::low::Low;"),
        ("top/y.rs", "use crate::low::Low; use super::x::X;"),
    ]);
    let upward = graph::upward(&tree);
    let names: Vec<_> = upward
        .iter()
        .map(|(a, b)| (name(&tree, *a), name(&tree, *b)))
        .collect();
    assert_eq!(names, [("low", "top::x")]);
}

#[test]
fn aliases_that_lead_in_circles_end() {
    let (_folder, tree) = krate(&[
        ("lib.rs", "mod a; mod b;"),
        (
            "a.rs",
            "pub use crate::b::*; pub use crate::b::T as U; fn f() { crate::a::U::g() }",
        ),
        (
            "b.rs",
            "pub use crate::a::*; pub use crate::a::U as T; fn f() { crate::b::nothing() }",
        ),
    ]);
    assert_eq!(arrows(&tree), [""; 0]);
}
