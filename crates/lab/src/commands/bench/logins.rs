//! Benchmark cells of logins: users with grid certificates who log in, fetch a file of a few bytes
//! and log out, one after the other.
//!
//! One cell has the login alone; the other also what a copy does by default: the client delegates a
//! proxy, and both ends authenticate the data channel with it. On paper a login costs each end a
//! signature and two or three verifications, and a delegation one more of each; RSA of 2048 bits
//! signs in about 0.6 ms of a processor and P-256 in 0.03. The rest goes to processes, files and
//! text.

use std::{
    net::{IpAddr, Ipv4Addr},
    process::Command,
    time::Duration,
};

use super::{
    BenchError, RUN_LIMIT,
    record::{BenchCell, RunResult, Unit},
    testbed::Testbed,
};
use crate::peers::{
    Error, Usage,
    gct::{self, GctServer},
    godwit::{self, Godwitd},
    grid::{self, Grid, Keys},
    process,
};

/// A small file that every machine has and every user may read.
const FILE: &str = "/etc/passwd";

/// Logins of a contender in a round.
const LOGINS: u64 = 40;

/// The contender that all are held against.
const OURS: &str = "godwit <- godwitd";

/// Whose client, and whose server.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Contender {
    GctBoth,
    GodwitFromGct,
    GctFromGodwit,
    GodwitBoth,
    /// With privileges apart: two processes for each login, as the server of the Toolkit has one.
    GodwitApart,
}

/// What follows the login.
#[derive(Clone, Copy)]
struct LoginKind {
    name: &'static str,
    title: &'static str,
    gct: Option<&'static str>,
    godwit: &'static str,
}

/// The client of the Toolkit delegates in both.
const LEVELS: [LoginKind; 2] = [
    LoginKind {
        name: "alone",
        title: "data in clear",
        gct: Some("-nodcau"),
        godwit: "clear",
    },
    LoginKind {
        name: "delegated",
        title: "delegation, and data channels proven by it",
        gct: None,
        godwit: "identity",
    },
];

/// Servers of the cells.
struct Logins {
    grid: Grid,
    godwitd: Godwitd,
    apart: Option<Godwitd>,
    gct: Option<GctServer>,
}

/// Runs the cells that are asked for.
pub(super) fn run(testbed: &mut Testbed<'_>) -> Result<(), BenchError> {
    for keys in [Keys::Rsa2048, Keys::P256] {
        let name = |level: &LoginKind| format!("logins/{}/{}", keys.name(), level.name);
        if !LEVELS
            .iter()
            .any(|level| testbed.is_asked_for(&name(level)))
        {
            continue;
        }
        let logins = Logins::start(keys, !testbed.options.no_peers)?;
        let count = LOGINS / testbed.scale();
        for level in LEVELS {
            let cell = BenchCell {
                name: name(&level),
                title: format!(
                    "{count} logins one after the other, {} keys, {}",
                    keys.name(),
                    level.title
                ),
                unit: Unit::Logins,
                ours: OURS.to_owned(),
                bounds: Vec::new(),
            };
            let contenders = logins.contenders();
            testbed.compare(cell, &contenders, |contender| {
                Ok(logins.measure(*contender, level, count)?)
            })?;
        }
    }
    Ok(())
}

impl Logins {
    /// Makes a grid with such keys and starts its servers.
    fn start(keys: Keys, with_peers: bool) -> Result<Self, BenchError> {
        let ip = IpAddr::V4(Ipv4Addr::LOCALHOST);
        grid::available().map_err(Error::from)?;
        let grid = Grid::with_keys(&[ip], keys)?;
        let server = || Godwitd::serving("/").ip(ip);
        let apart = rustix::process::geteuid()
            .is_root()
            .then(|| grid.of_godwitd_apart(server()).start());
        let gct = (with_peers && gct::available().is_ok())
            .then(|| grid.of_gct(GctServer::serving("/").ip(ip)).start());
        Ok(Self {
            godwitd: grid.of_godwitd(server()).start()?,
            apart: apart.transpose()?,
            gct: gct.transpose()?,
            grid,
        })
    }

    /// Those that are here. What two different programs cannot do together is no failure of ours.
    fn contenders(&self) -> Vec<(Contender, String)> {
        let mut all = vec![(Contender::GodwitBoth, OURS.to_owned())];
        if self.apart.is_some() {
            let name = "godwit <- godwitd, privileges apart";
            all.push((Contender::GodwitApart, name.to_owned()));
        }
        if self.gct.is_some() {
            all.extend([
                (Contender::GctBoth, "GCT <- GCT".to_owned()),
                (Contender::GodwitFromGct, "GCT's server, godwit".to_owned()),
                (Contender::GctFromGodwit, "GCT <- godwitd".to_owned()),
            ]);
        }
        all
    }

    fn measure(
        &self,
        contender: Contender,
        level: LoginKind,
        count: u64,
    ) -> Result<RunResult, Error> {
        let (url, before) = self.server(contender);
        let (mut cpu, mut wall) = (Duration::ZERO, Duration::ZERO);
        for _ in 0..count {
            let mut command;
            if matches!(contender, Contender::GctBoth | Contender::GctFromGodwit) {
                command = gct::URL_COPY.command()?;
                command.args(["-s", grid::HOST_SUBJECT]);
                command.args(level.gct).arg(&url).arg("file:///dev/null");
            } else {
                command = Command::new(godwit::binary("godwit")?);
                command.args(["cp", "--quiet", "--no-verify", "-p", "1", "-c", "1"]);
                command.args(["--protect", level.godwit, &url, "/dev/null"]);
            }
            command.envs(self.grid.of_user());
            let usage = process::run(command, RUN_LIMIT)?.success()?.usage;
            cpu += usage.cpu();
            wall += usage.wall;
        }
        let (_, now) = self.server(contender);
        let each = |cpu: Duration| cpu.as_secs_f64() * 1e3 / count as f64;
        Ok(RunResult {
            value: count as f64 / wall.as_secs_f64(),
            client_cpu: each(cpu),
            server_cpu: each(now.since(&before).cpu()),
        })
    }

    /// Where the contender's server has the file, and what it has cost so far.
    fn server(&self, contender: Contender) -> (String, Usage) {
        let ours = match contender {
            Contender::GodwitApart => self.apart.as_ref().unwrap_or(&self.godwitd),
            _ => &self.godwitd,
        };
        let (url, usage) = match (contender, &self.gct) {
            (Contender::GctBoth | Contender::GodwitFromGct, Some(server)) => {
                (server.machine_url(FILE), server.usage())
            }
            _ => (ours.url(FILE), ours.usage()),
        };
        (url.replacen("ftp://", "gsiftp://", 1), usage)
    }
}
