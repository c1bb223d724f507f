//! `sync`: makes a tree the same as another one.

use std::{
    ffi::OsString,
    fs::File,
    io::Read,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

use clap::{ArgMatches, Args};
use godwit_proto::url::Location;

use super::{
    Common, Resolved,
    endpoints::{check_between, check_ends, location},
    transfer_args::{TransferArgs, job_of},
};
use crate::spec::{
    DeleteOptions, JobSpec, Level, SyncSpec, filter::Filter, nesting::check_nesting,
};

/// Bytes of a file of patterns.
const PATTERNS_BYTES_MAX: u64 = 16 << 20;

pub(super) const AFTER_HELP: &str = "\
Examples:
  godwit sync -n ./run7/ gsiftp://host/data/run7       what would be copied, and why; nothing is \
changed
  godwit sync ./run7 gsiftp://host/data                the same tree: /data/run7
  godwit sync gsiftp://host/data/run7/ ./run7          down
  godwit sync --delete gsiftp://a/run7/ gsiftp://b/run7    from server to server, and what is not \
at a goes from b

SRC/ means what is in the directory; SRC the directory itself, which becomes DST/SRC. This does \
not depend on what is at DST, so \
that a command means the same when it is repeated. A file is a source too: it goes to DST, or into \
it where DST is a directory or ends \
in /. Where both are URLs the files go from server to server and do not pass here.

A file is copied where the destination lacks it, or has one of another size or time of change (in \
whole seconds). It gets the time \
and the permission bits of its source, so that a repeated command moves nothing; where a server \
cannot set times (MFMT), sizes alone are \
compared, and that is said. With --checksum files of the same size are read at both ends, whatever \
their times. Directories get the times of those of the source when all else is done, and the \
permissions that the destination gives them.

Symbolic links are followed in the source, since the protocol cannot copy them, and a link in the \
destination stays one: what it \
points to is replaced. Names that --delete removes are never followed, nor is anything removed \
behind a link. Temporary files of godwit \
(.godwit-*.part) belong to no tree.

--delete removes what the source does not have, after all copies are done and only if all went \
well: where a \
directory of either end could not be listed to its end, a line of a listing was not understood, a \
name could not be looked at, \
or a file failed, nothing is removed. Devices, pipes and sockets are left out with a warning. \
Where a server does not show names with a \
leading dot, such names are not removed.

Patterns are those of rsync, and the first that matches decides: / at the beginning means the top \
of the tree, / at the end directories only; \
* and ? match no slash, ** does, [a-z] one byte; DIR/*** is DIR with all below it; a pattern with \
no other slash is compared with the last \
component. What is left out is neither copied nor removed. \"+ PATTERN\" and \"- PATTERN\" say \
which is meant in a file with both, ! alone forgets those before it.

With -n, -v and in the event log each difference is told as ACTION REASON PATH: make (a \
directory), copy, set (time, permissions) or delete; missing, \
size, mtime, checksum, unknown (of what size), mode or extra; the path below DST.

Exit status: 0 both are the same now, 1 some files failed or were not removed, 2 wrong usage, 3 \
refused, 4 failed, 130 interrupted.";

#[derive(Debug, Args)]
pub(crate) struct SyncArgs {
    /// The source: a directory, or a file
    #[arg(value_name = "SRC")]
    source: OsString,
    /// Where
    #[arg(value_name = "DST")]
    destination: OsString,

    /// Report what would be done, and change nothing
    #[arg(short = 'n', long)]
    dry_run: bool,
    /// Skip files that exist, whatever their contents
    #[arg(long, group = "level")]
    ignore_existing: bool,
    /// Skip files of the same size
    #[arg(long, group = "level")]
    size_only: bool,
    /// Skip files of the same size and checksum, computed at both ends
    #[arg(long, group = "level")]
    checksum: bool,

    /// Exclude names that match, as rsync does: at both ends, with everything below them
    #[arg(long, value_name = "PATTERN", allow_hyphen_values = true)]
    exclude: Vec<OsString>,
    /// Include names that match, unless an earlier --exclude matches them
    #[arg(long, value_name = "PATTERN", allow_hyphen_values = true)]
    include: Vec<OsString>,
    /// Patterns of --exclude, one a line; empty lines and those that begin with # or ; are ignored
    #[arg(long, value_name = "FILE")]
    exclude_from: Vec<PathBuf>,
    /// Patterns of --include, likewise
    #[arg(long, value_name = "FILE")]
    include_from: Vec<PathBuf>,

    /// Remove what the source does not have, after all copies
    #[arg(long)]
    delete: bool,
    /// Remove nothing if more than N names would be removed
    #[arg(long, value_name = "N", requires = "delete")]
    max_delete: Option<u64>,

    #[command(flatten)]
    transfer: TransferArgs,
    #[command(flatten)]
    pub(super) common: Common,
}

/// `matches` has the order of the options.
pub(super) fn job(
    args: SyncArgs,
    matches: Option<&ArgMatches>,
    arguments: &[OsString],
) -> Resolved<JobSpec> {
    let (source, destination) = (location(&args.source)?, location(&args.destination)?);
    if [&source, &destination].contains(&&Location::Standard) {
        return Err("sync compares files, - is none".to_owned());
    }
    let sources = vec![source];
    check_ends(&sources, &destination)?;
    check_between(&sources, &destination, &args.transfer)?;
    check_nesting(&sources, &destination)?;
    let sync = SyncSpec {
        level: match (args.ignore_existing, args.size_only, args.checksum) {
            (true, ..) => Level::Exists,
            (_, true, _) => Level::Size,
            (.., true) => Level::Checksum,
            _ => Level::Modified,
        },
        filter: filter(&args, matches)?,
        attributes: true,
        dry_run: args.dry_run,
        delete: args.delete.then_some(DeleteOptions {
            most: args.max_delete,
        }),
    };
    Ok(JobSpec {
        recursive: true,
        sync: Some(sync),
        ..job_of(args.transfer, sources, destination, arguments)?
    })
}

/// The rules in the order of their options.
fn filter(args: &SyncArgs, matches: Option<&ArgMatches>) -> Resolved<Filter> {
    let places = |id: &str| -> Vec<usize> {
        let places = matches.and_then(|matches| matches.indices_of(id));
        places.map(Iterator::collect).unwrap_or_default()
    };
    let mut rules = Vec::new();
    for (id, includes, patterns) in [
        ("exclude", false, &args.exclude),
        ("include", true, &args.include),
    ] {
        for (place, pattern) in places(id).into_iter().zip(patterns) {
            rules.push((place, includes, pattern.as_bytes().to_vec()));
        }
    }
    for (id, includes, files) in [
        ("exclude_from", false, &args.exclude_from),
        ("include_from", true, &args.include_from),
    ] {
        for (place, file) in places(id).into_iter().zip(files) {
            for line in patterns_in(file)? {
                rules.push((place, includes, line));
            }
        }
    }
    rules.sort_by_key(|(place, ..)| *place);
    Filter::new(
        rules
            .iter()
            .map(|(_, includes, text)| (*includes, &text[..])),
    )
}

fn patterns_in(file: &Path) -> Resolved<Vec<Vec<u8>>> {
    let failed = |why: &dyn std::fmt::Display| format!("{}: {why}", file.display());
    let opened = File::open(file).map_err(|e| failed(&e))?;
    let mut text = Vec::new();
    let read = opened.take(PATTERNS_BYTES_MAX).read_to_end(&mut text);
    if read.map_err(|e| failed(&e))? as u64 == PATTERNS_BYTES_MAX {
        return Err(failed(&"too long for a list of patterns"));
    }
    let lines = text.split(|b| matches!(b, b'\n' | b'\r'));
    let kept = lines.filter(|line| !matches!(line.first(), None | Some(b'#' | b';')));
    Ok(kept.map(<[u8]>::to_vec).collect())
}
