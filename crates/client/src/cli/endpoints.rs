//! Which ends go together.

use godwit_proto::{
    FtpPath,
    url::{Location, RemoteUrl, names_directory},
};

use super::{resolve::Resolved, transfer_args::TransferArgs};
use crate::spec::Part;

pub(super) fn check_ends(sources: &[Location], destination: &Location) -> Resolved<()> {
    let is_remote = |l: &Location| matches!(l, Location::Remote(_));
    let any = sources.iter().any(is_remote);
    if any && !sources.iter().all(is_remote) {
        return Err("sources must all be local or all be on servers".to_owned());
    }
    if !any && !is_remote(destination) {
        return Err(
            "one end must be a server (gsiftp://, sshftp://, ftpes:// or ftp://)".to_owned(),
        );
    }
    Ok(())
}

/// Bytes that do not pass here cannot be held back here.
pub(super) fn check_between(
    sources: &[Location],
    destination: &Location,
    args: &TransferArgs,
) -> Resolved<()> {
    let is_remote = |l: &Location| matches!(l, Location::Remote(_));
    let between = is_remote(destination) && sources.iter().all(is_remote);
    for (option, value) in [
        ("--max-rate", args.max_rate),
        ("--host-rate", args.host_rate),
    ] {
        if between && value.is_some() {
            return Err(format!(
                "{option}: the bytes of a copy between two servers do not pass here: ask for fewer channels with --max-channels"
            ));
        }
    }
    Ok(())
}

/// A directory that is copied into itself has no end. Where a path begins at a home is not known
/// yet: of such a path and another it is asked again when it is.
pub(crate) fn check_nesting(sources: &[Location], destination: &Location) -> Resolved<()> {
    let Location::Remote(to) = destination else {
        return Ok(());
    };
    let parts = |url: &RemoteUrl| {
        let path = url.path.resolve(&FtpPath::root(), &FtpPath::root());
        let parts = path.as_bytes().split(|b| *b == b'/').map(<[u8]>::to_vec);
        let parts = parts.filter(|part| !part.is_empty());
        let home = url.home().unwrap_or_default().to_vec();
        std::iter::once(home).chain(parts).collect::<Vec<_>>()
    };
    for source in sources {
        if let Location::Remote(from) = source
            && (&from.host, from.port, &from.user) == (&to.host, to.port, &to.user)
            && parts(to).starts_with(&parts(from))
        {
            return Err(format!(
                "{destination} is {source} or below it: a directory cannot be copied into itself"
            ));
        }
    }
    Ok(())
}

pub(super) fn check_standard(
    sources: &[Location],
    destination: &Location,
    recursive: bool,
    part: Option<Part>,
) -> Resolved<()> {
    let from = sources.contains(&Location::Standard);
    if !from && *destination != Location::Standard {
        return Ok(());
    }
    if sources.len() > 1 || recursive {
        return Err("- stands for one file: leave -r and other sources out".to_owned());
    }
    if from && part.is_some() {
        return Err("--offset and --length need a file, standard input is none".to_owned());
    }
    if let (true, Location::Remote(url)) = (from, destination)
        && names_directory(url.path.as_bytes())
    {
        return Err(format!("{destination}: standard input needs a file name"));
    }
    Ok(())
}
