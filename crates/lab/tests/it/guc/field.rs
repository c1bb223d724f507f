//! Commands whose effects are the same with both programs.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use crate::support::{Site, noise};

/// One directory of this machine and one at a server, both with the same in them at the beginning.
pub(super) struct Field {
    pub(super) here: PathBuf,
    pub(super) there: PathBuf,
    name: String,
    here_url: String,
    there_url: String,
}

impl Field {
    pub(super) fn new(site: &Site, name: &str) -> Self {
        let field = Self {
            here: site.local(name),
            there: site.at(name),
            name: name.to_owned(),
            here_url: site.local_url(&format!("{name}/")),
            there_url: site.url(&format!("{name}/")),
        };
        for root in [&field.here, &field.there] {
            for folder in ["tree/below", "dots"] {
                fs::create_dir_all(root.join(folder)).expect("a directory");
            }
            for (seed, name) in (1..).zip([
                "f",
                "g h",
                "tree/a.dat",
                "tree/b.dat",
                "tree/below/c",
                "dots/.a.dat",
                "dots/b.dat",
            ]) {
                fs::write(root.join(name), noise(70_000 + seed, seed as u64)).expect("writes");
            }
        }
        // An older copy of one, of another size of the other, and one of the same size with other
        // bytes.
        fs::create_dir_all(field.there.join("old/below")).expect("a directory");
        fs::write(field.there.join("old/a.dat"), noise(70_003, 9)).expect("writes");
        fs::write(field.there.join("old/b.dat"), "short").expect("writes");
        let past = std::time::SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(10_000_000);
        let old = fs::File::options()
            .write(true)
            .open(field.there.join("old/a.dat"));
        old.expect("opens").set_modified(past).expect("a time");
        let lists = [
            (
                "list",
                "{here}f {there}one\n# no\n\n\"{here}g%20h\"  {there}two\n",
            ),
            ("bad", "{here}none {there}one\n{here}f {there}two\n"),
            ("parts", "{there}f {here}part 100,50\n"),
            (
                "alike",
                "{here}f {there}far/f\n{here}tree/a.dat {there}far/tree/a.dat\n",
            ),
            ("hosts", "@source\n{host}\n"),
            ("empty", ""),
        ];
        for (name, text) in lists {
            fs::write(field.here.join(name), field.filled(text)).expect("writes");
        }
        field
    }

    fn filled(&self, text: &str) -> String {
        let mut parts = self.there_url.splitn(4, '/').skip(2);
        let host = parts.next().expect("a host");
        let path = parts.next().expect("a path");
        text.replace("{here}", &self.here_url)
            .replace("{HERE}", &format!("{}/", self.here.display()))
            .replace("{there}", &self.there_url)
            .replace(
                "{alias}",
                &self.there_url.replacen(host, "nobody.invalid", 1),
            )
            .replace("{host}", host)
            // Home is the directory that is served, the root what the server shows.
            .replace("{home}", &format!("{}/", self.name))
            .replace("{root}", path)
    }

    pub(super) fn words(&self, line: &str) -> Vec<String> {
        line.split(' ').map(|word| self.filled(word)).collect()
    }

    /// Files of both ends, with their bytes and permissions; lists and dumps without the name of
    /// the field.
    pub(super) fn contents(&self) -> BTreeMap<String, (Vec<u8>, u32)> {
        let mut found = BTreeMap::new();
        for (end, root) in [("here", &self.here), ("there", &self.there)] {
            gather(root, end, &mut found);
        }
        for (bytes, _) in found.values_mut() {
            if let Ok(text) = std::str::from_utf8(bytes) {
                *bytes = text.replace(&self.name, "FIELD").into_bytes();
            }
        }
        found
    }
}

fn gather(folder: &Path, name: &str, found: &mut BTreeMap<String, (Vec<u8>, u32)>) {
    for entry in fs::read_dir(folder).expect("a directory") {
        let path = entry.expect("an entry").path();
        let name = format!(
            "{name}/{}",
            path.file_name().expect("a name").to_string_lossy()
        );
        let mode = path.metadata().expect("exists").permissions().mode() & 0o777;
        if path.is_dir() {
            gather(&path, &name, found);
            found.insert(name, (Vec::new(), 0));
        } else {
            found.insert(name, (fs::read(&path).expect("reads"), mode));
        }
    }
}
