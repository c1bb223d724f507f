//! Options of `cp` and `sync` for the transfer of files.

use std::{ffi::OsString, path::PathBuf, time::Duration};

use clap::{Args, builder::RangedI64ValueParser};
use godwit_engine::host::cpu_affinity::CpuAffinity;
use godwit_proto::{
    ChecksumAlgorithm,
    url::{Location, masked},
};
use godwit_tune::{Bounds, Method, Setting};

use super::{Resolved, algorithm};
use crate::{
    spec::{
        CongestionChoice, Durability, EpochMode, ExistingFiles, JobSpec, JournalSpec, Preserve,
        Rates, SettingLimit, TunerSpec, Verify,
    },
    transfer::pipeline::depth::DEPTH_MAX_PATIENT,
    units,
};

#[derive(Debug, Args)]
pub(crate) struct TransferArgs {
    /// Data channels per control channel
    #[arg(short, long, value_name = "N", value_parser = count(65536))]
    pub(crate) parallelism: Option<u32>,
    /// Control channels, each with its own thread; large files are shared between them
    #[arg(short, long, value_name = "N", value_parser = count(4096))]
    pub(crate) concurrency: Option<u32>,
    /// Small files in flight on a control channel; 1 copies one after the other, the default
    /// depends on the path
    #[arg(long, value_name = "N", value_parser = count(DEPTH_MAX_PATIENT))]
    pub(crate) pipelining: Option<u32>,
    /// Most data channels in all
    #[arg(long, value_name = "N", default_value_t = 128, value_parser = count(u32::MAX))]
    pub(crate) max_channels: u32,
    /// How settings are chosen while data flows: godwit, apt, cd, cs, nm, balman, yildirim, mi,
    /// aimd, falcon, globus (2 x 8), static[:concurrency=N,parallelism=N] (1 x 4)
    #[arg(long, value_name = "NAME[:key=value,...]", default_value = "godwit")]
    pub(crate) tuner: String,
    /// Seconds that a setting is measured, if the tuner does not decide; the default is that of the
    /// method, at most 3
    #[arg(long, value_name = "SECONDS", value_parser = units::seconds)]
    pub(crate) epoch: Option<Duration>,
    /// live: channels and sessions open and close while data flows; restart: as published, each
    /// epoch starts everything again, for comparison
    #[arg(long, value_name = "MODE", default_value = "live", value_parser = epoch_mode)]
    pub(crate) epoch_mode: EpochMode,
    /// Weight in the sharing of channels and rate with your other transfers: 2 gets twice as much
    /// as 1
    #[arg(long, value_name = "W", default_value = "1", value_parser = weight)]
    pub(crate) weight: f64,
    /// Do not coordinate with your other transfers
    #[arg(long)]
    pub(crate) alone: bool,
    /// Do not start with the setting of the last transfer over this path, and do not save this
    /// one's
    #[arg(long)]
    pub(crate) no_path_memory: bool,

    /// Socket buffers of data channels at both ends; 0 leaves them to the kernels
    #[arg(long, value_name = "BYTES", default_value = "0", value_parser = units::bytes)]
    pub(crate) tcp_buffer: u64,
    /// Longest block of the extended block mode; small files use shorter ones
    #[arg(long, value_name = "BYTES", default_value = "1M", value_parser = units::some_bytes)]
    pub(crate) block_size: u64,
    /// Send holes of files as zeros. Without this option holes are not sent to and from servers
    /// that support them (godwitd), which keep them
    #[arg(long)]
    pub(crate) no_sparse: bool,
    /// Move all data of a file over one data node of a server. Without this option large files go
    /// to all data nodes of a striped server, each with as many data channels as --parallelism says
    #[arg(long)]
    pub(crate) no_striping: bool,
    /// Read and write local files without the page cache (O_DIRECT), where their file system can.
    /// Takes 1 MiB of memory per data channel. godwitd has the same option
    #[arg(long)]
    pub(crate) direct_io: bool,
    /// Processors to use, as 0-3,8, or near:INTERFACE for those of the network card's NUMA node
    #[arg(long, value_name = "LIST|near:INTERFACE")]
    pub(crate) processors: Option<CpuAffinity>,
    /// TCP congestion control of sending sockets. auto: the system's, or bbr if packets are lost at
    /// random and it moves more without harm to other traffic
    #[arg(long, value_name = "NAME")]
    pub(crate) congestion: Option<String>,
    /// Rate limit of the whole transfer in bits per second, as 200M: all channels of this command
    /// share it
    #[arg(long, value_name = "BITS", value_parser = units::bits_per_second)]
    pub(crate) max_rate: Option<u64>,
    /// Rate limit of all your transfers on this host together, to any server; they share it by
    /// weight, and idle ones leave their share to the others. If several set one, the smallest
    /// holds
    #[arg(long, value_name = "BITS", conflicts_with = "alone",
          value_parser = units::bits_per_second)]
    pub(crate) host_rate: Option<u64>,

    /// Require checksums: crc32c, adler32, crc64nvme, crc32, md5, sha1, sha256 or sha512. Without
    /// this option whole files are compared where the server can
    #[arg(long, value_name = "ALG", num_args = 0..=1, require_equals = true,
          conflicts_with = "no_verify", default_missing_value = "",
          value_parser = maybe_algorithm)]
    pub(crate) verify: Option<MaybeAlgorithm>,
    /// Compare no checksums
    #[arg(long)]
    pub(crate) no_verify: bool,
    /// Attempts per range before a file fails
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = count(u32::MAX))]
    pub(crate) retries: u32,
    /// Time between attempts; the default is short, and twice as long after each attempt
    #[arg(long, value_name = "SECONDS", value_parser = units::seconds)]
    pub(crate) retry_pause: Option<Duration>,

    /// Record complete and partial files in FILE; the same command copies only what is missing. By
    /// default each command has a file of its own
    #[arg(long, value_name = "FILE", conflicts_with = "no_journal")]
    pub(crate) journal: Option<PathBuf>,
    /// Neither read nor write a journal
    #[arg(long)]
    pub(crate) no_journal: bool,
    /// Durability of local files. none: left to the kernel; file: each file and its name are synced
    /// before the next; batch: all are synced before the command ends
    #[arg(long, value_name = "HOW", default_value = "none")]
    pub(crate) durability: Durability,

    /// Write an event log, JSON lines
    #[arg(long, value_name = "FILE")]
    pub(crate) events: Option<PathBuf>,
    /// Write metrics for Prometheus' node_exporter to FILE (textfile collector, which wants a name
    /// in .prom): replaced every 5 seconds and at the end. The file's name without .prom identifies
    /// the run
    #[arg(long, value_name = "FILE")]
    pub(crate) metrics_file: Option<PathBuf>,
    /// Print one JSON object with the summary at the end
    #[arg(long)]
    pub(crate) json: bool,
    /// Show goodput over time, the setting and its reason, what limits it, and files on the whole
    /// terminal
    #[arg(long, conflicts_with_all = ["quiet", "verbose"])]
    pub(crate) tui: bool,
}

/// `--verify` alone, or with a name. A newtype, since clap reads an `Option` field as "may be
/// absent".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MaybeAlgorithm(pub(crate) Option<ChecksumAlgorithm>);

/// A number from 1 to `most`.
fn count(most: u32) -> RangedI64ValueParser<u32> {
    clap::value_parser!(u32).range(1..=most.into())
}

fn maybe_algorithm(text: &str) -> Result<MaybeAlgorithm, String> {
    Ok(MaybeAlgorithm(match text {
        "" => None,
        name => Some(algorithm(name)?),
    }))
}

fn weight(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(weight) if (0.01..=100.0).contains(&weight) => Ok(weight),
        _ => Err("wanted a number from 0.01 to 100".to_owned()),
    }
}

fn epoch_mode(text: &str) -> Result<EpochMode, String> {
    match text {
        "live" => Ok(EpochMode::Live),
        "restart" => Ok(EpochMode::Restart),
        _ => Err("wanted live or restart".to_owned()),
    }
}

/// A copy of files, whole and without directories.
pub(super) fn job_of(
    args: TransferArgs,
    sources: Vec<Location>,
    destination: Location,
    arguments: &[OsString],
) -> Resolved<JobSpec> {
    Ok(JobSpec {
        sources,
        destination,
        recursive: false,
        shallow: false,
        dotted: false,
        files_from: None,
        existing: ExistingFiles::default(),
        part: None,
        divide_above: None,
        sync: None,
        preserve: Preserve::default(),
        tuner: tuner(&args)?,
        limit: SettingLimit::default(),
        pipelining: args.pipelining,
        socket_buffer_bytes: Some(args.tcp_buffer).filter(|n| *n > 0),
        block_bytes: args.block_size,
        sparse: !args.no_sparse,
        striping: !args.no_striping,
        direct_io: args.direct_io,
        processors: args.processors,
        congestion: match args.congestion {
            None => CongestionChoice::System,
            Some(name) if name == "auto" => CongestionChoice::Auto,
            Some(name) => CongestionChoice::Fixed(name),
        },
        verify: match (args.no_verify, args.verify) {
            (true, _) => Verify::Never,
            (false, Some(MaybeAlgorithm(algorithm))) => Verify::Always(algorithm),
            (false, None) => Verify::WherePossible,
        },
        journal: match args.journal {
            _ if args.no_journal => JournalSpec::Never,
            Some(file) => JournalSpec::File(file),
            None => JournalSpec::OfUser,
        },
        durability: args.durability,
        attempts: args.retries,
        retry_pause: args.retry_pause,
        events: args.events,
        metrics_file: args.metrics_file,
        json: args.json,
        tui: args.tui,
        command: shown(arguments),
    })
}

fn tuner(args: &TransferArgs) -> Resolved<TunerSpec> {
    let method = Method::parse(&args.tuner).map_err(|e| format!("--{e}"))?;
    let fixed = Setting::new(args.concurrency.unwrap_or(1), args.parallelism.unwrap_or(1));
    if fixed.channels() > args.max_channels {
        return Err(format!(
            "{} control channels with {} data channels each are more than --max-channels {}",
            fixed.concurrency, fixed.parallelism, args.max_channels
        ));
    }
    Ok(TunerSpec {
        method,
        bounds: Bounds {
            concurrency: args.concurrency,
            parallelism: args.parallelism,
            ..Bounds::up_to(args.max_channels)
        },
        epoch: args.epoch.map(|e| e.as_secs_f64()),
        mode: args.epoch_mode,
        remembers: !args.no_path_memory,
        weight: Some(args.weight).filter(|_| !args.alone),
        rates: Rates {
            own_bps: args.max_rate,
            host_bps: args.host_rate,
        },
    })
}

/// The command line for logs, secrets masked.
fn shown(arguments: &[OsString]) -> String {
    arguments
        .iter()
        .map(|a| masked(&a.to_string_lossy()))
        .collect::<Vec<_>>()
        .join(" ")
}
