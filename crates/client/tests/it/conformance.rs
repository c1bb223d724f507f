//! One table of what the commands of the client do at an end, whatever kind of end it is: a path
//! here, a server of FTP, a server of HTTPS. What an end lacks is said by [`Lacks`], with the
//! reason.

use std::{fs, path::PathBuf};

use tempfile::TempDir;

use crate::{
    harness::{Ran, Served, bytes, godwit, run, text, tree},
    https::Door,
};

/// What an end does not have.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Lacks {
    /// `ls`, `stat`, `mkdir`, `mv` and `rm` take URLs: for paths there are the programs of the
    /// system.
    Commands,
    /// A part of a file there cannot be written: HTTP has no standard for that.
    PartialWrites,
    /// Files there have the time of their upload: HTTP sets no times.
    Times,
}

/// A path at an end, as arguments have it.
type ToUrl = Box<dyn Fn(&str) -> String>;

/// Runs the program as the end needs it.
type Run = Box<dyn Fn(&[&str]) -> Ran>;

/// A kind of end, with an empty directory.
struct End {
    name: &'static str,
    lacks: &'static [Lacks],
    /// Where the end's files lie on this machine.
    root: PathBuf,
    url: ToUrl,
    run: Run,
}

impl End {
    fn all() -> Vec<Self> {
        let here = tempfile::tempdir().unwrap();
        let server = Served::start();
        let door = Door::open();
        vec![
            Self::path(here),
            Self {
                name: "ftp",
                lacks: &[],
                root: server.root.path().to_owned(),
                url: Box::new(move |path| server.url(&escaped(path))),
                run: Box::new(run),
            },
            Self {
                name: "https",
                lacks: &[Lacks::PartialWrites, Lacks::Times],
                root: door.root("/"),
                run: {
                    let ca = door.ca();
                    Box::new(move |arguments| {
                        let (command, rest) = arguments.split_first().unwrap();
                        let mut program = godwit(&[command, "--ca", text(&ca)]);
                        program.env("GODWIT_PASSWORD", "s3cret").args(rest);
                        program.output().unwrap().into()
                    })
                },
                url: Box::new(move |path| door.url(&escaped(path))),
            },
        ]
    }

    fn path(here: TempDir) -> Self {
        Self {
            name: "path",
            lacks: &[Lacks::Commands],
            root: here.path().to_owned(),
            url: Box::new(move |path| format!("{}{path}", text(here.path()))),
            run: Box::new(run),
        }
    }

    fn has(&self, what: Lacks) -> bool {
        !self.lacks.contains(&what)
    }

    fn url(&self, path: &str) -> String {
        (self.url)(path)
    }

    /// Runs the program, which must end with `exit` and say `word`.
    #[track_caller]
    fn expect(&self, arguments: &[&str], exit: i32, word: &str) -> Vec<u8> {
        let ran = (self.run)(arguments);
        let name = self.name;
        assert_eq!(ran.code, exit, "{name}: {arguments:?}: {}", ran.err);
        assert!(ran.err.contains(word), "{name}: {arguments:?}: {}", ran.err);
        ran.out
    }

    /// The same, and what it prints.
    #[track_caller]
    fn prints(&self, arguments: &[&str]) -> String {
        String::from_utf8(self.expect(arguments, 0, "")).unwrap()
    }

    /// Another end for what is copied to and from this one: the client copies to or from a server.
    fn partner(&self, served: &Served, here: &TempDir) -> (ToUrl, PathBuf) {
        match self.has(Lacks::Commands) {
            true => {
                let root = here.path().to_owned();
                let files = root.clone();
                (
                    Box::new(move |path| format!("{}{path}", text(&files))),
                    root,
                )
            }
            false => {
                let address = served.address;
                let url = move |path: &str| format!("ftp://{address}{}", escaped(path));
                (Box::new(url), served.root.path().to_owned())
            }
        }
    }
}

/// A path as URLs hold it.
fn escaped(path: &str) -> String {
    path.bytes()
        .map(|byte| match byte {
            b'/' | b'.' | b'-' | b'_' | b'~' => char::from(byte).to_string(),
            byte if byte.is_ascii_alphanumeric() => char::from(byte).to_string(),
            byte => format!("%{byte:02X}"),
        })
        .collect()
}

/// Names that something on the way could change.
const NAMES: [&str; 10] = [
    "plain",
    "two  blanks",
    "ünï ☂",
    "100%41",
    "a#b?c",
    "quo\"te'&<>",
    "semi;type=a",
    "*[x]{y}",
    "~tilde+plus",
    "..dots",
];

/// Runs `check` for every end, with a partner for copies.
fn for_each_end(check: impl Fn(&End, &dyn Fn(&str) -> String, &PathBuf)) {
    for end in End::all() {
        let (served, here) = (Served::start(), tempfile::tempdir().unwrap());
        let (url, root) = end.partner(&served, &here);
        check(&end, &*url, &root);
    }
}

#[test]
fn files_go_to_and_from_every_end() {
    for_each_end(|end, other, root| {
        for (at, length) in [0, 1, 70_000, 3 << 20].into_iter().enumerate() {
            let name = format!("/f{at}");
            let content = bytes(length, at as u64 + 1);
            fs::write(root.join(&name[1..]), &content).unwrap();
            end.expect(&["cp", &other(&name), &end.url(&name)], 0, "1 file");
            assert!(fs::read(end.root.join(&name[1..])).unwrap() == content);
            let back = format!("/back{at}");
            end.expect(&["cp", &end.url(&name), &other(&back)], 0, "1 file");
            assert!(fs::read(root.join(&back[1..])).unwrap() == content);
        }
        assert_eq!(tree(&end.root), ["f0", "f1", "f2", "f3"], "{}", end.name);
    });
}

#[test]
fn names_stay_what_they_are_at_every_end() {
    for_each_end(|end, other, root| {
        fs::create_dir(root.join("top")).unwrap();
        for (at, name) in NAMES.iter().enumerate() {
            fs::write(root.join("top").join(name), bytes(at, 1)).unwrap();
            let directory = root.join("top/in").join(format!("{name} dir"));
            fs::create_dir_all(&directory).unwrap();
            fs::write(directory.join(name), name).unwrap();
        }
        let ends = [other("/top"), end.url("/top"), other("/back")];
        end.expect(&["cp", "-r", &ends[0], &ends[1]], 0, "20 files");
        assert_eq!(tree(&root.join("top")), tree(&end.root.join("top")));
        end.expect(&["cp", "-r", &ends[1], &ends[2]], 0, "20 files");
        assert_eq!(tree(&root.join("top")), tree(&root.join("back")));
        for name in NAMES {
            let one = end.url(&format!("/top/{name}"));
            end.expect(&["cp", &one, &other("/one")], 0, "1 file");
            let got = fs::read(root.join("one")).unwrap();
            assert!(got == fs::read(root.join("top").join(name)).unwrap());
            if end.has(Lacks::Commands) {
                end.expect(&["stat", &one], 0, "");
                end.expect(&["rm", &one], 0, "");
                assert!(!end.root.join("top").join(name).exists(), "{name}");
            }
        }
    });
}

#[test]
fn a_file_replaces_another_at_every_end() {
    for_each_end(|end, other, root| {
        for content in ["first and longer", "second"] {
            fs::write(root.join("f"), content).unwrap();
            end.expect(&["cp", &other("/f"), &end.url("/f")], 0, "1 file");
            assert_eq!(fs::read(end.root.join("f")).unwrap(), content.as_bytes());
        }
        // A file is not written where a directory is.
        fs::create_dir(end.root.join("d")).unwrap();
        end.expect(&["cp", &other("/f"), &end.url("/d/")], 0, "1 file");
        assert_eq!(tree(&end.root), ["d/", "d/f", "f"], "{}", end.name);
    });
}

#[test]
fn what_is_missing_is_missing_at_every_end() {
    for_each_end(|end, other, root| {
        let none = end.url("/none");
        end.expect(&["cp", &none, &other("/x")], 4, "o such file");
        end.expect(&["cp", "-r", &none, &other("/x")], 4, "o such file");
        end.expect(&["cksum", &none], 4, "o such file");
        assert!(tree(root).is_empty(), "{}", end.name);
        if end.has(Lacks::Commands) {
            for command in ["ls", "stat", "rm"] {
                end.expect(&[command, &none], 4, "no such file or directory");
            }
            end.expect(&["rm", "-r", &none], 4, "no such file or directory");
            end.expect(
                &["mv", &none, &end.url("/x")],
                4,
                "no such file or directory",
            );
            end.expect(
                &["mkdir", &end.url("/none/x")],
                4,
                "no such file or directory",
            );
            let printed = (end.run)(&["stat", "--json", &none]);
            let out = String::from_utf8(printed.out).unwrap();
            assert!(out.contains("\"not_found\""), "{}: {out}", end.name);
        }
    });
}

#[test]
fn commands_do_the_same_at_every_server() {
    for end in End::all().iter().filter(|end| end.has(Lacks::Commands)) {
        let at = |path: &str| end.url(path);
        end.expect(&["mkdir", &at("/d")], 0, "");
        end.expect(&["mkdir", &at("/d")], 4, "exists already");
        end.expect(&["mkdir", "-p", &at("/d/e/f")], 0, "");
        end.expect(&["mkdir", "-p", &at("/d/e/f")], 0, "");
        fs::write(end.root.join("d/file"), "hello").unwrap();
        assert_eq!(end.prints(&["ls", &at("/d")]), "e\nfile\n", "{}", end.name);
        assert_eq!(end.prints(&["ls", &at("/d/e/f")]), "", "{}", end.name);
        assert_eq!(
            end.prints(&["ls", &at("/d/file")]),
            "file\n",
            "{}",
            end.name
        );
        let described = end.prints(&["stat", "--json", &at("/d/file")]);
        for word in ["\"type\":\"file\"", "\"size\":5", "\"modified\""] {
            assert!(described.contains(word), "{}: {described}", end.name);
        }
        let described = end.prints(&["stat", "--json", &at("/d")]);
        assert!(described.contains("\"type\":\"directory\""), "{described}");
        end.expect(&["mv", &at("/d/file"), &at("/d/e")], 0, "");
        end.expect(&["mv", &at("/d/e"), &at("/moved")], 0, "");
        assert_eq!(tree(&end.root), ["d/", "moved/", "moved/f/", "moved/file"]);
        // A file replaces a file, and a directory nothing.
        fs::write(end.root.join("other"), "other").unwrap();
        end.expect(&["mv", &at("/other"), &at("/moved/file")], 0, "");
        assert_eq!(fs::read(end.root.join("moved/file")).unwrap(), b"other");
        end.expect(&["rm", &at("/moved")], 2, "add -r");
        end.expect(&["rm", &at("/moved/file")], 0, "");
        end.expect(&["rm", "-r", &at("/moved")], 0, "");
        end.expect(&["rm", "-r", &at("/d")], 0, "");
        assert!(tree(&end.root).is_empty(), "{}", end.name);
    }
}

#[test]
fn parts_and_checksums_are_the_same_at_every_end() {
    for_each_end(|end, other, root| {
        let part = |from: &str, to: &str| (end.run)(&["cp", "--offset=3", "--length=4", from, to]);
        // At a server a part goes to its place in a file; here it becomes the file.
        let at_server = !end.has(Lacks::Commands);
        fs::write(end.root.join("f"), "0123456789").unwrap();
        fs::write(root.join("g"), "abcdefghij").unwrap();
        fs::write(root.join("part"), "abcdefghij").unwrap();
        part(&end.url("/f"), &other("/part")).expect(0, &["1 file"]);
        let expected = if at_server { "abc3456hij" } else { "3456" };
        assert_eq!(fs::read(root.join("part")).unwrap(), expected.as_bytes());
        let written = part(&other("/g"), &end.url("/f"));
        match end.has(Lacks::PartialWrites) {
            true => {
                written.expect(0, &["1 file"]);
                let expected = if at_server { "defg" } else { "012defg789" };
                assert_eq!(fs::read(end.root.join("f")).unwrap(), expected.as_bytes());
            }
            false => drop(written.expect(4, &["a part of"])),
        }
        fs::write(end.root.join("f"), "123456789").unwrap();
        for (algorithm, value) in [
            ("adler32", "091e01de"),
            ("md5", "25f9e794323b453885f5181f1b624d0b"),
        ] {
            let printed = end.prints(&["cksum", "--algorithm", algorithm, &end.url("/f")]);
            assert!(printed.contains(value), "{}: {printed}", end.name);
        }
    });
}

#[test]
fn a_second_sync_copies_nothing_at_every_end() {
    for_each_end(|end, other, root| {
        fs::create_dir_all(root.join("top/deep")).unwrap();
        for name in ["a", "deep/b", "deep/c"] {
            fs::write(root.join("top").join(name), name).unwrap();
        }
        let ends = [other("/top/"), end.url("/top/")];
        let sync = |files| {
            let flags: &[&str] = match end.has(Lacks::Times) {
                true => &["sync", "--delete"],
                // Sizes are compared.
                false => &["sync", "--delete", "--checksum"],
            };
            end.expect(&[flags, &[&ends[0], &ends[1]]].concat(), 0, files);
        };
        sync("3 files");
        sync("0 files");
        fs::write(root.join("top/a"), "longer").unwrap();
        fs::remove_file(root.join("top/deep/b")).unwrap();
        sync("1 file");
        assert_eq!(tree(&root.join("top")), tree(&end.root.join("top")));
        assert_eq!(fs::read(end.root.join("top/a")).unwrap(), b"longer");
    });
}
