//! One pair of URLs as arguments of `godwit cp` or `godwit sync`, and the settings beyond those.
//! Pure.

use std::{ffi::OsString, os::unix::ffi::OsStringExt};

use godwit_proto::url::{Location, masked};

use super::{
    file_list::{PairGroup, UrlPair},
    options::Options,
    url_text::{encoded, is_pattern, split},
};
use crate::{
    cli::{self, EarlyExit, Environment},
    spec::{Connections, FilesFrom, Invocation, JobSpec, Level, Manage, Request},
    transfer::pipeline::depth::DEPTH_MAX_PATIENT,
};

/// A year stands for no limit.
const FOREVER_SECONDS: u64 = 365 * 86_400;

/// Channels in all that `godwit cp` allows a copy by default.
const CHANNELS_MAX: u64 = 128;

/// What is wrong with it, as users see it.
pub(crate) type Translated<T> = Result<T, String>;

/// A job of `godwit cp`, or of `godwit sync`.
pub(crate) fn job(
    options: &Options,
    group: &PairGroup,
    environment: &Environment,
) -> Translated<(JobSpec, Connections)> {
    let pair = &group.pairs[0];
    let words = words(options, pair)?;
    let invocation = read(&words, environment)?;
    let Request::Copy(mut spec) = invocation.request else {
        return Err("no copy".to_owned());
    };
    let mut connections = invocation.connections;
    connections.stripe_block = (options.stripe_block > 0).then_some(options.stripe_block);
    spec.shallow = spec.recursive && !options.recursive;
    spec.dotted = true;
    if let Some(part) = &mut spec.part {
        part.stays = true;
    }
    if let Some(sync) = &mut spec.sync {
        sync.attributes = false;
        sync.level = match options.level {
            _ if !options.sync => Level::Never,
            0 => Level::Exists,
            1 => Level::Size,
            2 => Level::NotOlder,
            3 => Level::Checksum,
            _ => Level::Never,
        };
        sync.dry_run = options.dump_only.is_some();
    }
    if let Some(listed) = &group.listed {
        spec.sources = vec![listed.source.clone()];
        spec.destination = listed.destination.clone();
        spec.files_from = Some(FilesFrom::Pairs(listed.names.as_slice().into()));
    }
    if spec.is_between_servers() && options.no_third_party {
        return Err(crate::cli::globus_url_copy::table::refusal("-notpt"));
    }
    let ends = [spec.sources.first(), Some(&spec.destination)];
    by_end(options, ends, &mut connections)?;
    Ok((*spec, connections))
}

/// What lists a directory.
pub(crate) fn listing(
    options: &Options,
    url: &[u8],
    environment: &Environment,
) -> Translated<(Manage, Connections)> {
    let mut words = Arguments(vec!["godwit".into(), "ls".into(), "-F".into()]);
    of_connections(options, &mut words);
    words.0.push("--".into());
    words.0.push(OsString::from_vec(url.to_vec()));
    let invocation = read(&words.0, environment)?;
    let Request::Manage(what) = invocation.request else {
        return Err("no listing".to_owned());
    };
    let mut connections = invocation.connections;
    let place = Location::parse(url).map_err(|e| e.to_string())?;
    by_end(options, [Some(&place), None], &mut connections)?;
    Ok((what, connections))
}

fn read(words: &[OsString], environment: &Environment) -> Translated<Invocation> {
    let told = |early_exit: EarlyExit| {
        let text = early_exit.text.trim();
        text.strip_prefix("godwit: ").unwrap_or(text).to_owned()
    };
    cli::parse(words, environment).map_err(told)
}

/// Options of all copies.
fn words(options: &Options, pair: &UrlPair) -> Translated<Vec<OsString>> {
    let syncs = options.sync || options.dump_only.is_some();
    let mut words = Arguments(vec![
        "godwit".into(),
        if syncs { "sync" } else { "cp" }.into(),
    ]);
    of_connections(options, &mut words);
    words.with(
        "--retries",
        match (options.restarts, options.retries) {
            (false, _) => 1,
            (true, 0) => u32::MAX,
            (true, n) => n.saturating_add(1),
        },
    );
    words.maybe(
        "--retry-pause",
        (options.interval > 0).then_some(options.interval),
    );
    words.with("--tcp-buffer", options.tcp_buffer);
    words.maybe("--block-size", (options.block > 0).then_some(options.block));
    let depth = options.depth.min(DEPTH_MAX_PATIENT);
    words.maybe("--pipelining", (depth > 0).then_some(depth));
    tuning(options, &mut words);
    let algorithm = options.algorithm.as_deref();
    match (options.verifies, options.sync && options.level == 3) {
        (true, _) => words.with("--verify", algorithm.unwrap_or("md5")),
        (false, true) => {
            words.maybe("--verify", algorithm);
        }
        (false, false) => {}
    }
    let (folder, name) = split(&pair.source);
    let is_directory = name.is_empty();
    if is_directory && !pair.destination.ends_with(b"/") {
        return Err(format!(
            "Multiple source urls must be transferred to a directory destination url:\n{}",
            masked(&String::from_utf8_lossy(&pair.destination))
        ));
    }
    let mut source = &pair.source[..];
    if !syncs {
        words.maybe("--offset", pair.offset);
        words.maybe("--length", pair.length);
        if is_directory || is_pattern(name) {
            words.0.push("-r".into());
        }
    } else {
        if pair.offset.is_some() || pair.length.is_some() {
            return Err("-off and -len are for whole copies: leave -sync and -do out".to_owned());
        }
        if !options.recursive {
            words.with("--exclude", "*/");
        }
        if is_pattern(name) {
            let name = decoded(&pair.source)?;
            let name = String::from_utf8_lossy(split(&name).1).into_owned();
            words.with("--include", format!("/{name}"));
            words.with("--include", format!("/{name}/***"));
            words.with("--exclude", "*");
            source = folder;
        }
    }
    words.0.push("--".into());
    for place in [source, &pair.destination] {
        words.0.push(OsString::from_vec(place.to_vec()));
    }
    Ok(words.0)
}

/// Options of all that is done at servers.
fn of_connections(options: &Options, words: &mut Arguments) {
    let stall = match options.stall {
        0 => FOREVER_SECONDS,
        seconds => seconds.min(FOREVER_SECONDS),
    };
    words.with("--stall-timeout", stall);
    words.maybe("--protect", options.protect);
    let proxy = options.credential.as_ref();
    words.maybe("--proxy", proxy.map(|file| file.display()));
}

/// How many channels, and who decides it.
fn tuning(options: &Options, words: &mut Arguments) {
    let movers = options.concurrency;
    if options.tunes_by_apt() {
        let tuning = &options.tuning;
        let mut keys = format!("apt:movers={}", movers.unwrap_or(1));
        for (key, value) in [("n0", &tuning.n0), ("alpha", &tuning.alpha)] {
            if let Some(value) = value {
                keys += &format!(",{key}={value}");
            }
        }
        words.with("--tuner", keys);
        words.maybe("--epoch", tuning.delta.as_ref());
        return;
    }
    let fixed = options.parallelism.or(options.tuning.off.then_some(1));
    let Some(channels) = fixed else {
        words.maybe("--concurrency", movers);
        return;
    };
    let movers = movers.unwrap_or(1);
    words.with("--parallelism", channels);
    words.with("--concurrency", movers);
    let all = u64::from(channels) * u64::from(movers);
    words.maybe("--max-channels", (all > CHANNELS_MAX).then_some(all));
}

/// The original has an identity for each end, godwit for each host.
fn by_end(
    options: &Options,
    ends: [Option<&Location>; 2],
    connections: &mut Connections,
) -> Translated<()> {
    let hosts = ends.map(|place| match place {
        Some(Location::Remote(url)) => Some(url.host.clone()),
        _ => None,
    });
    let [from, to] = &hosts;
    let same = from.is_some() && from == to;
    let clash = |what: &str| format!("{what} differ, and source and destination are one host");
    if same && options.credentials[0] != options.credentials[1] {
        return Err(clash("-src-cred and -dst-cred"));
    }
    if same && options.subjects[0] != options.subjects[1] {
        return Err(clash("-source-subject and -dest-subject"));
    }
    for (end, host) in hosts.iter().enumerate() {
        let Some(host) = host else { continue };
        if let Some(file) = &options.credentials[end] {
            connections.proxies.push((Some(host.clone()), file.clone()));
        }
        if let Some(subject) = &options.subjects[end] {
            let name = godwit_gsi::name::DistinguishedName::parse(subject);
            let name = name.ok_or_else(|| format!("{subject}: is no name of a certificate"))?;
            connections.subjects.push((Some(host.clone()), name));
        }
    }
    Ok(())
}

fn decoded(url: &[u8]) -> Translated<Vec<u8>> {
    match Location::parse(url).map_err(|e| e.to_string())? {
        Location::Remote(url) => Ok(url.path.as_bytes().to_vec()),
        Location::Local(path) => Ok(path),
        Location::Standard => Err("- is no file".to_owned()),
    }
}

/// The pair of a file that is below the sources of `pair`, by its path there.
pub(crate) fn below(pair: &UrlPair, path: &str) -> UrlPair {
    let (folder, name) = split(&pair.source);
    let source = match name.is_empty() || is_pattern(name) {
        true => [folder, &encoded(path)].concat(),
        false => pair.source.clone(),
    };
    let destination = match pair.destination.ends_with(b"/") {
        true => [&pair.destination[..], &encoded(path)].concat(),
        false => pair.destination.clone(),
    };
    UrlPair::new(&source, &destination)
}

struct Arguments(Vec<OsString>);

impl Arguments {
    fn with(&mut self, option: &str, value: impl ToString) {
        // One word: a value may begin with a dash.
        self.0
            .push(format!("{option}={}", value.to_string()).into());
    }

    fn maybe(&mut self, option: &str, value: Option<impl ToString>) {
        if let Some(value) = value {
            self.with(option, value);
        }
    }
}
