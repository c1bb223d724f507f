//! The gfal2 command line tools, the client of the grid's file catalogues and transfer services.
//!
//! Its `gridftp` plugin takes `ftp://` and `gsiftp://` URLs. It logs in to `ftp://` servers
//! anonymously without any credential; `gsiftp://` demands one. Found with 2.21:
//!
//! - It disables data channel authentication at login and asks for delayed passive mode
//!   (`OPTS PASV AllowDelayed=1;`) unless set otherwise in `/etc/gfal2.d/gsiftp_plugin.conf`.
//! - `file://` needs a plugin of its own, which Debian does not install with the tools.
//! - The scripts run under the first Python of the search path and do not look further when that
//!   one lacks the bindings, which Debian installs for its own Python only. `GFAL_PYTHONBIN` says
//!   which.
//! - The exit status is the errno that the reply was understood as: 2 for a missing file.

use std::ffi::OsStr;
use std::fs;
use std::path::Path;

use super::process::Finished;
use super::{Error, Missing, Tool};

const PACKAGE: &str = "gfal2-util-scripts";
const ENVIRONMENT: &[(&str, &str)] = &[("GFAL_PYTHONBIN", "/usr/bin/python3")];

/// `gfal-ls`.
pub const LS: Tool = tool("gfal-ls");
/// `gfal-stat`.
pub const STAT: Tool = tool("gfal-stat");
/// `gfal-copy`, also third party; `-n N` sets parallelism, `-f` overwrites.
pub const COPY: Tool = tool("gfal-copy");
/// `gfal-cat`.
pub const CAT: Tool = tool("gfal-cat");
/// `gfal-sum URL ADLER32|MD5|...`.
pub const SUM: Tool = tool("gfal-sum");
/// `gfal-mkdir`, `-p` with parents.
pub const MKDIR: Tool = tool("gfal-mkdir");
/// `gfal-rm`, `-r` recursively.
pub const RM: Tool = tool("gfal-rm");
/// `gfal-rename`.
pub const RENAME: Tool = tool("gfal-rename");
/// `gfal-chmod MODE URL`.
pub const CHMOD: Tool = tool("gfal-chmod");

/// Python with gfal2's bindings, for what the tools have no option for.
pub const PYTHON: Tool = Tool::new("/usr/bin/python3", "python3-gfal2");

/// For [`PYTHON`] behind `-c`: the bulk copy of gfal2's library, which transfer services use.
/// Arguments: the sources, then as many targets.
pub const BULK_COPY: &str = "
import sys, gfal2
urls = sys.argv[1:]
half = len(urls) // 2
context = gfal2.creat_context()
parameters = context.transfer_parameters()
parameters.overwrite = True
failures = context.filecopy(parameters, urls[:half], urls[half:])
sys.exit('; '.join(str(f) for f in failures or [] if f is not None) or 0)
";

const fn tool(program: &'static str) -> Tool {
    Tool::new(program, PACKAGE).with_environment(ENVIRONMENT)
}

/// Whether the tools and the two plugins that tests use are there.
///
/// # Errors
/// [`Missing`], which names the first package that is not.
pub fn available() -> Result<(), Missing> {
    COPY.available()?;
    plugin("libgfal_plugin_gridftp.so", "gfal2-plugin-gridftp")?;
    plugin("libgfal_plugin_file.so", "gfal2-plugin-file")
}

/// The same for HTTP and WebDAV.
///
/// # Errors
/// As [`available`].
pub fn http_available() -> Result<(), Missing> {
    COPY.available()?;
    plugin("libgfal_plugin_http.so", "gfal2-plugin-http")?;
    plugin("libgfal_plugin_file.so", "gfal2-plugin-file")
}

fn plugin(name: &str, package: &str) -> Result<(), Missing> {
    match plugin_exists(name) {
        true => Ok(()),
        false => Err(Missing {
            program: name.to_owned(),
            package: format!("the package {package}"),
        }),
    }
}

/// Copies `source` to `target`, both URLs, replacing the target, with `parallelism` data channels
/// (0 leaves it to gfal2).
///
/// # Errors
/// As [`Tool::run`], and [`Error::Failed`].
pub fn copy(source: &str, target: &str, parallelism: u16) -> Result<Finished, Error> {
    let channels = parallelism.to_string();
    let mut arguments = vec!["-f"];
    if parallelism > 0 {
        arguments.extend(["-n", &channels]);
    }
    arguments.extend([source, target]);
    COPY.run(arguments)?.success()
}

// Plugins live in a directory named after the architecture.
fn plugin_exists(plugin: &str) -> bool {
    let below = |directory: &Path| directory.join("gfal2-plugins").join(plugin).exists();
    ["/usr/lib64", "/usr/lib", "/usr/local/lib"]
        .iter()
        .map(Path::new)
        .any(|library| {
            below(library)
                || fs::read_dir(library)
                    .into_iter()
                    .flatten()
                    .filter_map(Result::ok)
                    .filter(|entry| entry.file_name() != OsStr::new("gfal2-plugins"))
                    .any(|entry| below(&entry.path()))
        })
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;
    use crate::peers::gct::{self, GctServer};
    use crate::peers::present;

    #[test]
    fn works_anonymously_against_the_reference_server() {
        let test = "works_anonymously_against_the_reference_server";
        if present(test, available().and_then(|()| gct::available())).is_none() {
            return;
        }
        let root = TempDir::new().expect("a directory");
        fs::write(root.path().join("a"), "hello").expect("a file");
        let server = GctServer::serving(root.path()).start().expect("starts");

        let local = format!("file://{}", root.path().join("a").display());
        copy(&local, &server.url("b"), 2).expect("puts");
        assert_eq!(fs::read(root.path().join("b")).expect("b"), b"hello");
        let sum = SUM.run([&server.url("b"), "ADLER32"]).expect("runs");
        assert!(sum.stdout_text().contains("062c0215"), "{}", sum.log());

        let absent = STAT.run([server.url("absent")]).expect("runs");
        assert_eq!(absent.status.code(), Some(2), "{}", absent.log());
    }
}
