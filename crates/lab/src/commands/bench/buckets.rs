//! Benchmark cells of buckets: one object from tmpfs to tmpfs between godwit, two services of S3
//! and the clients of others.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use super::{
    BenchError, RUN_LIMIT,
    files::{Files, check_and_remove, run_with_room},
    godwit_cp, io_error,
    record::RunResult,
    testbed::{Installable, Testbed, goodput_cell, of_transfer},
};
use crate::peers::{
    Error, Missing,
    plain_ftp::RCLONE,
    s3::{self, BUCKET, Kind, S3Server},
};

/// Connections of each program.
const CONNECTIONS: u32 = 4;

/// The object that is fetched, and the one that is stored.
const KEYS: [&str; 2] = ["source", "target"];

#[derive(Clone, Copy, PartialEq, Eq)]
enum BucketPair {
    /// In clear.
    Godwit,
    /// With TLS, which the service demands.
    GodwitDoor,
    Rclone,
    Boto3,
}

const GET: [BucketPair; 4] = [
    BucketPair::Godwit,
    BucketPair::GodwitDoor,
    BucketPair::Rclone,
    BucketPair::Boto3,
];

/// rclone 1.60 never ends an upload to versitygw.
const PUT: [BucketPair; 3] = [
    BucketPair::Godwit,
    BucketPair::GodwitDoor,
    BucketPair::Boto3,
];

impl Installable for BucketPair {
    fn name(self) -> &'static str {
        match self {
            Self::Godwit => "godwit, versitygw",
            Self::GodwitDoor => "godwit, godwitd (TLS)",
            Self::Rclone => "rclone, versitygw",
            Self::Boto3 => "boto3, versitygw",
        }
    }

    fn available(self) -> Result<(), Missing> {
        match self {
            Self::Godwit | Self::GodwitDoor => Ok(()),
            Self::Rclone => RCLONE.available().map(drop),
            Self::Boto3 => s3::python_with_boto3().map(drop),
        }
    }
}

struct BucketServers {
    versitygw: S3Server,
    godwitd: S3Server,
    /// Directories that hold the one file that is sent, and the one that has arrived.
    sent: PathBuf,
    arrived: PathBuf,
}

/// Measures both cells, for which another's service is needed. `folder` is on tmpfs, as the buckets
/// are.
pub(super) fn run(
    testbed: &mut Testbed<'_>,
    files: &mut Files,
    folder: &Path,
) -> Result<(), BenchError> {
    let is_there = [Kind::Versitygw, Kind::Godwitd].map(Kind::available);
    if let Some(why) = is_there.into_iter().find_map(Result::err) {
        return testbed.say(&format!("\ns3: left out: {why}"));
    }
    let bytes = files.bytes(testbed);
    let servers = BucketServers::start(files.source(testbed)?, folder)?;
    for (name, all) in [("s3/get", &GET[..]), ("s3/put", &PUT[..])] {
        if !testbed.is_asked_for(name) {
            continue;
        }
        let title = format!(
            "an object to or from a file, {:.1} GB, {CONNECTIONS} connections",
            bytes as f64 / 1e9
        );
        let cell = goodput_cell(name.into(), title, BucketPair::Godwit.name());
        testbed.compare_installed(cell, all, |who| {
            servers.measure(*who, name == "s3/put", bytes)
        })?;
    }
    Ok(())
}

impl BucketServers {
    fn start(source: &Path, folder: &Path) -> Result<Self, BenchError> {
        let servers = Self {
            versitygw: S3Server::start(Kind::Versitygw)?,
            godwitd: S3Server::start(Kind::Godwitd)?,
            sent: folder.join("sent"),
            arrived: folder.join("arrived"),
        };
        for directory in [&servers.sent, &servers.arrived] {
            fs::create_dir(directory).map_err(io_error(directory))?;
        }
        for copy in [
            servers.versitygw.directory(BUCKET).join(KEYS[0]),
            servers.godwitd.directory(BUCKET).join(KEYS[0]),
            servers.sent.join(KEYS[1]),
        ] {
            let linked = fs::hard_link(source, &copy);
            let made = linked.or_else(|_| fs::copy(source, &copy).map(drop));
            made.map_err(io_error(&copy))?;
        }
        Ok(servers)
    }

    fn measure(&self, who: BucketPair, is_put: bool, bytes: u64) -> Result<RunResult, BenchError> {
        let server = match who {
            BucketPair::GodwitDoor => &self.godwitd,
            _ => &self.versitygw,
        };
        let command = self.command(who, server, is_put)?;
        let before = server.usage();
        let client = run_with_room(command, bytes, RUN_LIMIT)?;
        let used = server.usage().since(&before);
        let target = match is_put {
            true => server.directory(BUCKET).join(KEYS[1]),
            false => self.arrived.join(KEYS[0]),
        };
        check_and_remove(&target, bytes)?;
        Ok(of_transfer(bytes, client.usage, used))
    }

    /// The client's command.
    fn command(&self, who: BucketPair, server: &S3Server, is_put: bool) -> Result<Command, Error> {
        let key = KEYS[usize::from(is_put)];
        let file = match is_put {
            true => self.sent.join(key),
            false => self.arrived.join(key),
        };
        let file = file.display().to_string();
        let channels = CONNECTIONS.to_string();
        Ok(match who {
            BucketPair::Godwit | BucketPair::GodwitDoor => {
                let mut command = godwit_cp()?;
                command.args(["-c", "1", "-p", &channels]);
                let there = format!("s3://{BUCKET}/{key}");
                command.args(match is_put {
                    true => [&file, &there],
                    false => [&there, &file],
                });
                command.envs(server.variables());
                command
            }
            BucketPair::Rclone => {
                let mut command = server.rclone()?;
                command
                    .args(["copyto", "--config", "/dev/null", "--ignore-times"])
                    .args(["--multi-thread-streams", &channels])
                    .args([server.rclone_path(BUCKET, key), file]);
                command
            }
            BucketPair::Boto3 => {
                let (direction, directory) = match is_put {
                    true => ("put", &self.sent),
                    false => ("get", &self.arrived),
                };
                s3::boto3(server, direction, BUCKET, directory, CONNECTIONS)?
            }
        })
    }
}
