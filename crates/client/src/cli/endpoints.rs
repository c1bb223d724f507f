//! Combinations of sources and destination.

use std::{ffi::OsString, os::unix::ffi::OsStrExt};

use godwit_proto::url::{Location, Scheme, masked, names_directory};

use super::{Resolved, transfer_args::TransferArgs};
use crate::spec::Part;

pub(super) fn check_ends(sources: &[Location], destination: &Location) -> Resolved<()> {
    let is_remote = |l: &Location| matches!(l, Location::Remote(_));
    let any = sources.iter().any(is_remote);
    if any && !sources.iter().all(is_remote) {
        return Err("sources must all be local or all be on servers".to_owned());
    }
    if !any && !is_remote(destination) {
        return Err(
            "one end must be a server (gsiftp://, sshftp://, ftpes://, https://, s3:// or ftp://)"
                .to_owned(),
        );
    }
    Ok(())
}

/// Bytes between two servers do not pass this machine and cannot be limited here.
pub(super) fn check_between(
    sources: &[Location],
    destination: &Location,
    args: &TransferArgs,
) -> Resolved<()> {
    // What goes to or from a bucket passes here.
    let is_http = |l: &Location| match l {
        Location::Remote(url) if url.scheme != Scheme::S3 => Some(url.scheme.is_http()),
        _ => None,
    };
    // A server of HTTP and another one send nothing to each other.
    let is_like = |l: &Location| is_http(l).is_some() && is_http(l) == is_http(destination);
    let between = sources.iter().any(is_like);
    for (option, value) in [
        ("--max-rate", args.max_rate),
        ("--host-rate", args.host_rate),
    ] {
        if between && value.is_some() {
            return Err(format!(
                "{option}: the bytes of a copy between two servers do not pass here: ask for fewer \
                 channels with --max-channels"
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

pub(super) fn location(text: &OsString) -> Resolved<Location> {
    let place = Location::parse(text.as_bytes())
        .map_err(|e| format!("{}: {e}", masked(&text.to_string_lossy())))?;
    match &place {
        Location::Local(path) if path.is_empty() => Err("empty path".to_owned()),
        _ => Ok(place),
    }
}
