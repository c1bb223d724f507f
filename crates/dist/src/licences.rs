//! The licences of the libraries in the programs.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    fs,
    path::Path,
    process::Command,
};

use serde_json::Value;

use crate::{Error, put};

/// The crates whose programs are handed out.
const OURS: [&str; 4] = [
    "godwit-client",
    "godwit-server",
    "godwit-service",
    "godwit-lab",
];

/// What is done about a tree that is not ours.
const ELSEWHERE: &str = "run it in the tree that the programs were built from";

/// How names of files begin that tell of a licence.
const NAMES: [&str; 6] = [
    "LICENSE",
    "LICENCE",
    "COPYING",
    "COPYRIGHT",
    "NOTICE",
    "UNLICENSE",
];

/// Writes the list of libraries, and each text that comes with them once.
pub(crate) fn write(folder: &Path) -> Result<(), Error> {
    let text = metadata().and_then(|metadata| told(&metadata));
    let text = text.map_err(Error::Licences)?;
    put(&folder.join("doc/godwit/THIRD-PARTY.txt"), text.as_bytes())
}

/// What cargo says of all packages of the tree that we are run in. It asks nobody: what was built
/// from is here.
fn metadata() -> Result<Value, String> {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(["metadata", "--format-version=1", "--locked", "--offline"]);
    command.args(["--filter-platform", &target()?]);
    let output = command
        .output()
        .map_err(|error| format!("cargo: {error}"))?;
    if !output.status.success() {
        let why = String::from_utf8_lossy(&output.stderr);
        return Err(format!("{ELSEWHERE}: {}", why.trim()));
    }
    serde_json::from_slice(&output.stdout).map_err(|error| error.to_string())
}

/// What the compiler compiles for; packages of other systems need not be here.
fn target() -> Result<String, String> {
    let output = Command::new("rustc").arg("-vV").output();
    let output = output.map_err(|error| format!("rustc: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let host = text.lines().find_map(|line| line.strip_prefix("host: "));
    host.map(str::to_owned)
        .ok_or_else(|| "rustc does not say what it compiles for".to_owned())
}

fn told(metadata: &Value) -> Result<String, String> {
    let packages: BTreeMap<&str, &Value> = array(&metadata["packages"])
        .map(|package| (text(&package["id"]), package))
        .collect();
    let mut list = String::new();
    // Which packages have each text.
    let mut texts: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for id in linked(metadata, &packages)? {
        let package = packages.get(id).ok_or_else(|| format!("{id}: unknown"))?;
        // Ours have no source.
        if package["source"].is_null() {
            continue;
        }
        let (name, version) = (text(&package["name"]), text(&package["version"]));
        let licence = package["license"].as_str().unwrap_or("see its file");
        let _ = writeln!(list, "{name} {version}: {licence}");
        let manifest = Path::new(text(&package["manifest_path"]));
        for text in texts_in(manifest.parent().unwrap_or(manifest))? {
            let with_it = texts.entry(text).or_default();
            with_it.push(format!("{name} {version}"));
        }
    }
    let mut all = format!("The programs hold these libraries:\n\n{list}");
    for (text, packages) in texts {
        let _ = write!(
            all,
            "\n{}\n{}:\n\n{text}\n",
            "=".repeat(72),
            packages.join(", ")
        );
    }
    Ok(all)
}

/// What ends up in our programs, by the name of the package.
///
/// # Errors
/// Our programs are not among the packages.
fn linked<'a>(
    metadata: &'a Value,
    packages: &BTreeMap<&'a str, &'a Value>,
) -> Result<BTreeSet<&'a str>, String> {
    let nodes: BTreeMap<&str, &Value> = array(&metadata["resolve"]["nodes"])
        .map(|node| (text(&node["id"]), node))
        .collect();
    let ours = |package: &&&Value| OURS.contains(&text(&package["name"]));
    let mut open: Vec<&str> = (packages.values().filter(ours))
        .map(|package| text(&package["id"]))
        .collect();
    if open.len() < OURS.len() {
        return Err(format!("{ELSEWHERE}: here is another one"));
    }
    let mut found = BTreeSet::new();
    while let Some(id) = open.pop() {
        if !found.insert(id) {
            continue;
        }
        let dependencies = nodes
            .get(id)
            .into_iter()
            .flat_map(|node| array(&node["deps"]));
        // Those of tests and of building are of another kind.
        let kept = dependencies.filter(|dependency| {
            array(&dependency["dep_kinds"]).any(|kind| kind["kind"].is_null())
        });
        open.extend(kept.map(|dependency| text(&dependency["pkg"])));
    }
    Ok(found)
}

fn texts_in(folder: &Path) -> Result<Vec<String>, String> {
    let failed = |error| format!("{}: {error}", folder.display());
    let mut texts = Vec::new();
    for entry in fs::read_dir(folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let name = name.to_uppercase();
        if path.is_file() && NAMES.iter().any(|begin| name.starts_with(begin)) {
            let bytes = fs::read(&path).map_err(failed)?;
            texts.push(String::from_utf8_lossy(&bytes).trim_end().to_owned());
        }
    }
    texts.sort();
    Ok(texts)
}

fn array(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}
