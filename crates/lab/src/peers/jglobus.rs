//! jglobus, the GridFTP library of the grid's Java programs. It has no program of its own, so tests
//! bring one in source. Found with 2.1:
//!
//! - It speaks TLS 1.2 and no newer, says PASS after USER unconditionally, and waits 2 s at the end
//!   of each transfer.
//! - As the side that is connected to (MODE E towards the client) it ends handshakes at their first
//!   byte, whatever the server.
//! - CAs are found by the property `X509_CERT_DIR`; the variable of that name does not count.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use super::process;
use super::{Error, Missing, Tool};

/// Runs a program in source, for which the compiler is needed too.
const JAVA: Tool = Tool::new("java", "default-jdk-headless");

const COMPILER: Tool = Tool::new("javac", "default-jdk-headless");

/// It takes seconds, and minutes where many programs wait for a processor.
const COMPILER_TIMEOUT: Duration = Duration::from_secs(300);

/// Where Debian has the libraries of Java programs.
const FOLDER: &str = "/usr/share/java";

/// Libraries, and the packages that bring them with all that they need.
const JARS: &[(&str, &str)] = &[
    ("jglobus-gridftp.jar", "libjglobus-gridftp-java"),
    ("jglobus-gss.jar", "libjglobus-gss-java"),
    ("jglobus-jsse.jar", "libjglobus-jsse-java"),
    ("jglobus-ssl-proxies.jar", "libjglobus-ssl-proxies-java"),
    ("bcprov.jar", "libbcprov-java"),
    ("commons-codec.jar", "libcommons-codec-java"),
    ("commons-io.jar", "libcommons-io-java"),
    ("commons-logging.jar", "libcommons-logging-java"),
    ("log4j-1.2.jar", "liblog4j1.2-java"),
];

/// Whether Java and the libraries are there.
///
/// # Errors
/// [`Missing`], which names the package.
pub fn available() -> Result<(), Missing> {
    JAVA.available()?;
    let missing = JARS
        .iter()
        .find(|(jar, _)| !Path::new(FOLDER).join(jar).exists());
    match missing {
        None => Ok(()),
        Some((jar, package)) => Err(Missing {
            program: (*jar).to_owned(),
            package: format!("the package {package}"),
        }),
    }
}

/// Runs `program`, a file of Java's, with the libraries; arguments are left to add.
///
/// # Errors
/// [`Missing`], which names the package.
pub fn command(program: &Path, authorities: &Path) -> Result<Command, Missing> {
    let mut command = java(authorities, None)?;
    command.arg(program);
    Ok(command)
}

/// Compiles `program` into `folder`, for what runs it often.
///
/// # Errors
/// As [`Tool::run`], and [`Error::Failed`].
pub fn compile(program: &Path, folder: &Path) -> Result<(), Error> {
    let mut command = COMPILER.command()?;
    command.args(["-cp", &class_path(None), "-d"]);
    command.arg(folder).arg(program);
    process::run(command, COMPILER_TIMEOUT)?.success().map(drop)
}

/// Runs the class of that name in `folder`; arguments are left to add.
///
/// # Errors
/// [`Missing`], which names the package.
pub fn compiled(folder: &Path, class: &str, authorities: &Path) -> Result<Command, Missing> {
    let mut command = java(authorities, Some(folder))?;
    command.arg(class);
    Ok(command)
}

fn java(authorities: &Path, folder: Option<&Path>) -> Result<Command, Missing> {
    let mut command = JAVA.command()?;
    command
        .arg(format!("-DX509_CERT_DIR={}", authorities.display()))
        .args(["-cp", &class_path(folder)]);
    Ok(command)
}

fn class_path(folder: Option<&Path>) -> String {
    let jars = JARS.iter().map(|(jar, _)| format!("{FOLDER}/{jar}"));
    let folder = folder.map(|folder| folder.display().to_string());
    jars.chain(folder).collect::<Vec<_>>().join(":")
}
