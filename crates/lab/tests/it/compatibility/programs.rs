//! How each client is called, and how it prints its version.

use std::process::Command;

use godwit_lab::peers::{Tool, arc, gct, gfal, godwit, jglobus, plain_ftp};

use super::place::{Login, PASSWORD, Place};
use crate::support::PYTHON;

/// Says which version a package has.
const DPKG_QUERY: Tool = Tool::new("dpkg-query", "dpkg");

const FTPLIB: &str = include_str!("ftplib.py");

/// The version of a package, without what Debian adds.
pub(super) fn packaged(package: &str) -> String {
    let asked = DPKG_QUERY.run(["-W", "-f=${Version}", package]);
    let version = asked.expect("runs").stdout_text();
    let version = version.split_once(':').map_or(&*version, |(_, rest)| rest);
    version
        .split(['-', '+'])
        .next()
        .unwrap_or_default()
        .to_owned()
}

/// The first word with a dot among what a program says of itself.
pub(super) fn spoken(mut program: Command) -> String {
    let said = program.output().expect("runs");
    let said = [said.stdout, said.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    let numbers =
        |word: &&str| word.contains('.') && word.starts_with(|c: char| c.is_ascii_digit());
    let words = said.split_whitespace();
    let mut words = words.map(|word| word.trim_start_matches('v').trim_end_matches(','));
    words.find(numbers).unwrap_or_default().to_owned()
}

/// A program, with the environment of the user.
fn command(place: &Place<'_>, tool: Tool) -> Command {
    of_user(place, tool.command().expect("present"))
}

fn of_user(place: &Place<'_>, mut command: Command) -> Command {
    for (name, value) in &place.grounds.environment {
        command.env(name, value);
    }
    for name in ["X509_USER_CERT", "X509_USER_KEY"] {
        command.env_remove(name);
    }
    command.current_dir(place.here(""));
    command
}

/// A program of a family, whose name is the first word.
fn named(place: &Place<'_>, tools: &[(&str, Tool)], words: &str) -> Command {
    let (name, rest) = words.split_once(' ').expect("arguments");
    let tool = tools.iter().find(|tool| tool.0 == name).expect("known");
    let mut command = command(place, tool.1);
    command.args(rest.split(' '));
    command
}

pub(super) fn ours(place: &Place<'_>, words: &str) -> Command {
    let mut command = of_user(
        place,
        Command::new(godwit::binary("godwit").expect("present")),
    );
    if place.login == Login::Tls {
        command.arg(words.split(' ').next().expect("a verb"));
        command.arg("--ca").arg(place.filled("{authority}"));
        command.args(words.split(' ').skip(1));
    } else {
        command.args(words.split(' '));
    }
    command
        .env("GODWIT_PASSWORD", PASSWORD)
        .env_remove("GLOBUS_REMOTE_SSHFTP");
    if let Some(settings) = place.grounds.ssh_to(place.server) {
        command.env("GODWIT_SSH", format!("ssh {settings}"));
    }
    command
}

pub(super) fn url_copy(place: &Place<'_>, words: &str) -> Command {
    let mut command = command(place, gct::URL_COPY);
    if let (Login::Ssh, Some(ssh)) = (place.login, &place.grounds.ssh) {
        // Its words go behind the host, where ssh still takes options.
        let settings = place.grounds.ssh_to(place.server).expect("settings");
        let script = ssh.at("home/.globus/sshftp");
        command.env(
            "GLOBUS_REMOTE_SSHFTP",
            format!("{settings} {}", script.display()),
        );
        command.env("X509_CERT_DIR", ssh.at("home"));
    }
    command.args(words.split(' '));
    command
}

pub(super) fn gfal2(place: &Place<'_>, words: &str) -> Command {
    let tools = [
        ("ls", gfal::LS),
        ("copy", gfal::COPY),
        ("sum", gfal::SUM),
        ("mkdir", gfal::MKDIR),
        ("rm", gfal::RM),
        ("rename", gfal::RENAME),
        ("chmod", gfal::CHMOD),
    ];
    if let Some(urls) = words.strip_prefix("bulk ") {
        let mut command = command(place, gfal::PYTHON);
        // Under `ftp://` it names no user in bulk copies, not even the anonymous one.
        let urls = urls.replace("ftp://", "gsiftp://");
        command.args(["-c", gfal::BULK_COPY]).args(urls.split(' '));
        return command;
    }
    named(place, &tools, words)
}

pub(super) fn of_arc(place: &Place<'_>, words: &str) -> Command {
    let tools = [
        ("arcls", arc::LS),
        ("arccp", arc::COPY),
        ("arcmkdir", arc::MKDIR),
        ("arcrm", arc::RM),
        ("arcrename", arc::RENAME),
    ];
    named(place, &tools, words)
}

pub(super) fn java(place: &Place<'_>, words: &str) -> Command {
    let grounds = place.grounds;
    let classes = grounds.classes.as_ref().expect("compiled");
    let command = jglobus::compiled(classes, "Compatibility", grounds.authorities());
    let mut command = of_user(place, command.expect("present"));
    command.args(words.split(' '));
    command
}

/// The words are a script of its own language.
pub(super) fn lftp(place: &Place<'_>, words: &str) -> Command {
    let mut command = command(place, plain_ftp::LFTP);
    let user = match place.login {
        Login::Anonymous => String::new(),
        _ => format!("-u jo,{PASSWORD} "),
    };
    let tls = match place.login {
        Login::Tls => place.filled("set ftp:ssl-force yes; set ssl:ca-file {authority}; "),
        _ => "set ftp:ssl-allow no; ".to_owned(),
    };
    let script = place.filled(&format!(
        "set net:timeout 20; set net:max-retries 1; set cmd:fail-exit yes; {tls}open \
         {user}ftp://{{host}}; {words}"
    ));
    command.args(["--norc", "-c", &script]);
    command
}

pub(super) fn curl(place: &Place<'_>, words: &str) -> Command {
    let mut command = command(place, plain_ftp::CURL);
    command.args(["--disable", "--silent", "--show-error"]);
    if place.login == Login::Tls {
        let authority = place.filled("{authority}");
        command.args(["--ssl-reqd", "--cacert", &authority]);
        command.args(["--user", &format!("jo:{PASSWORD}")]);
    }
    // Commands of FTP have blanks in them.
    command.args(words.split(' ').map(|word| word.replace('+', " ")));
    command
}

/// The words are a line of Python, in which `f` is the session.
pub(super) fn ftplib(place: &Place<'_>, words: &str) -> Command {
    let mut command = command(place, PYTHON);
    let login = match place.login {
        Login::Anonymous => "anonymous",
        Login::Tls => "tls",
        _ => "password",
    };
    command.args(["-c", FTPLIB, login, PASSWORD]);
    command.args(place.filled("{address} {port} {authority}").split(' '));
    command.arg(words);
    command
}

pub(super) fn rclone(place: &Place<'_>, words: &str) -> Command {
    // What the program calls an obscured password, of what we have and of "guest".
    let (user, password) = match place.login {
        Login::Anonymous => ("anonymous", "guest"),
        _ => ("jo", PASSWORD),
    };
    let obscured = plain_ftp::RCLONE.run(["obscure", password]).expect("runs");
    let mut command = command(place, plain_ftp::RCLONE);
    command.args(["--config", "/dev/null", "--retries", "1"]);
    command.args(
        place
            .filled("--ftp-host {address} --ftp-port {port}")
            .split(' '),
    );
    command.args([
        "--ftp-user",
        user,
        "--ftp-pass",
        obscured.stdout_text().trim(),
    ]);
    if place.login == Login::Tls {
        command.arg("--ftp-explicit-tls");
        // Its option for authorities does not count for FTP.
        command.env("SSL_CERT_FILE", place.filled("{authority}"));
    }
    command.args(words.split(' '));
    command
}
