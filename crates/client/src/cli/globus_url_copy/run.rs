//! Runs the jobs of a command line, one after the other.

use std::{
    collections::HashSet,
    ffi::OsStr,
    fs,
    io::{self, Read, Write},
    os::unix::{ffi::OsStrExt, fs::OpenOptionsExt},
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use godwit_proto::url::{Location, masked};
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use super::{
    file_list::{Aliases, PairGroup, UrlPair, group, pairs},
    options::Options,
    report::{Printer, Stream, UrlCopyReporter},
    translate,
    url_text::{encoded, is_pattern, split, url},
};
use crate::{
    cli::Environment,
    error::Exit,
    job,
    local::files,
    manage,
    plan::{DEPTH_MAX, Pattern, too_deep},
    report::events::{Event, Observer},
    spec::{Connections, Manage},
};

/// The exit status of the original for an empty dump file.
const NOTHING_TO_DO: Exit = Exit::Usage;

/// Does what the command line asks; its errors are said. The status: 0, 1 where something failed, 2
/// where there is nothing to do, 130 interrupted.
pub async fn run(
    options: Options,
    environment: &Environment,
    say: Printer,
    stop: CancellationToken,
) -> Exit {
    let reporter = Arc::new(UrlCopyReporter::new(&options, say));
    if let Some(text) = &options.list_url {
        let listed = list(&options, text, environment, &reporter, &stop).await;
        return exit(&reporter, &stop, listed.is_some());
    }
    let pairs = match load(&options) {
        Ok(Some(pairs)) => pairs,
        Ok(None) => {
            reporter.say(Stream::Out, "Dumpfile exists and is empty.  Nothing to do.");
            return NOTHING_TO_DO;
        }
        Err(why) => {
            reporter.say(Stream::Err, &format!("{why}\n"));
            return Exit::Partly;
        }
    };
    let mut run = Runner {
        left: pairs.clone(),
        options: &options,
        environment,
        reporter: Arc::clone(&reporter),
        stop: stop.clone(),
        made: HashSet::new(),
        dumped: Vec::new(),
    };
    let late = Arc::new(AtomicBool::new(false));
    let alarm = options.seconds.map(|limit| {
        let (stop, late) = (stop.clone(), Arc::clone(&late));
        tokio::spawn(async move {
            tokio::time::sleep(limit).await;
            late.store(true, Ordering::Relaxed);
            stop.cancel();
        })
    });
    run.all(pairs).await;
    if let Some(alarm) = alarm {
        alarm.abort();
    }
    run.write_dumps();
    if late.load(Ordering::Relaxed) {
        reporter.say(Stream::Err, "\nCancelling copy...\n");
        return match reporter.close() {
            0 => Exit::Done,
            _ => Exit::Partly,
        };
    }
    exit(&reporter, &stop, true)
}

fn exit(reporter: &UrlCopyReporter, stop: &CancellationToken, well: bool) -> Exit {
    let errors = reporter.close();
    if stop.is_cancelled() {
        Exit::Interrupted
    } else if errors == 0 && well {
        Exit::Done
    } else {
        Exit::Partly
    }
}

struct Runner<'a> {
    options: &'a Options,
    environment: &'a Environment,
    reporter: Arc<UrlCopyReporter>,
    stop: CancellationToken,
    /// Directories that were made.
    made: HashSet<Vec<u8>>,
    /// Pairs that are still to be copied.
    left: Vec<UrlPair>,
    /// Pairs that `-do` has found.
    dumped: Vec<u8>,
}

impl Runner<'_> {
    async fn all(&mut self, pairs: Vec<UrlPair>) {
        let groups = match self.options.sync || self.options.dump_only.is_some() {
            true => pairs.into_iter().map(PairGroup::alone).collect(),
            false => group(pairs, self.options.continues),
        };
        for group in groups {
            if self.stop.is_cancelled() {
                return;
            }
            let before = self.reporter.errors();
            if let Err(why) = self.one(&group).await {
                self.reporter.error(why);
            }
            let failed = self.reporter.errors() > before;
            if !self.stop.is_cancelled() {
                let is_left =
                    |pair: &UrlPair| failed && !self.reporter.is_done(&shown(&pair.source));
                let over = group.pairs.into_iter().filter(|pair| !is_left(pair));
                let over: HashSet<UrlPair> = over.collect();
                self.left.retain(|pair| !over.contains(pair));
            }
            if failed && !self.options.continues {
                return;
            }
        }
    }

    async fn one(&mut self, group: &PairGroup) -> Result<(), String> {
        let pair = &group.pairs[0];
        let (spec, connections) = translate::job(self.options, group, self.environment)?;
        let dry_run = spec.sync.as_ref().is_some_and(|sync| sync.dry_run);
        if self.options.creates && !dry_run {
            for pair in &group.pairs {
                self.make(pair, &connections).await;
            }
        }
        let (_, name) = split(&pair.source);
        let several = spec.recursive || is_pattern(name) || group.listed.is_some();
        let destination = match pair.destination.ends_with(b"/") {
            true => [&pair.destination[..], name].concat(),
            false => pair.destination.clone(),
        };
        let one = (text(&pair.source), text(&destination));
        let streams = pair.source == b"-" || pair.destination == b"-";
        // The original reports nothing of files that a sync omits.
        let is_told = !several && !streams && spec.sync.is_none();
        let one = is_told.then_some((&one.0[..], &one.1[..]));
        self.reporter.begins(&spec, one);
        let must_find = several && spec.sync.is_none() && group.listed.is_none();
        let observer = Arc::clone(&self.reporter) as Arc<dyn Observer>;
        let summary = job::run(spec, connections, observer, self.stop.clone()).await;
        let summary = summary.map_err(|error| error.explained())?;
        self.reporter.ends(summary.bytes);
        for path in self.reporter.wanted() {
            self.dumped.extend(translate::below(pair, &path).line());
        }
        let found = summary.files_done + summary.files_failed > 0 || summary.exit != 0;
        match found || !must_find || self.options.recursive {
            true => Ok(()),
            false => Err("No files matched the source url.\n".to_owned()),
        }
    }

    /// Makes the directories above a destination. What cannot be made is told by the copy that
    /// finds no place.
    async fn make(&mut self, pair: &UrlPair, connections: &Connections) {
        let (folder, _) = split(&pair.destination);
        if folder.is_empty() || !self.made.insert(folder.to_vec()) {
            return;
        }
        match Location::parse(folder) {
            Ok(Location::Local(path)) => {
                let _ = fs::create_dir_all(files::path_of(&path));
            }
            Ok(Location::Remote(url)) => {
                let make = Manage::MakeDirectory {
                    urls: vec![url],
                    parents: true,
                };
                let silent = Arc::new(LineCollector::default());
                manage::run(make, connections.clone(), silent, self.stop.clone()).await;
            }
            Ok(Location::Standard) | Err(_) => {}
        }
    }

    fn write_dumps(&self) {
        let left: Vec<u8> = self.left.iter().flat_map(UrlPair::line).collect();
        for (file, lines) in [
            (&self.options.dump, &left),
            (&self.options.dump_only, &self.dumped),
        ] {
            let Some(file) = file else { continue };
            let written = match file.as_os_str() == "-" {
                true => self.reporter.hand_out(lines),
                false => write_private(file, lines),
            };
            if let Err(error) = written {
                self.reporter
                    .error(format_args!("write {}: {error}", file.display()));
            }
        }
    }
}

/// As in the original, readable by its owner only.
fn write_private(file: &Path, lines: &[u8]) -> io::Result<()> {
    let mut options = fs::OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    options.open(file)?.write_all(lines)
}

/// The pairs of the command line; `None`: a dump says that there are none.
fn load(options: &Options) -> Result<Option<Vec<UrlPair>>, String> {
    let mut loaded = match (&options.dump, &options.list, &options.places[..]) {
        (Some(dump), ..) if dump.exists() => {
            let pairs = read_pairs(dump)?;
            if pairs.is_empty() {
                return Ok(None);
            }
            pairs
        }
        (_, Some(list), _) => read_pairs(list)?,
        (_, _, [source, destination]) => {
            vec![UrlPair::new(source.as_bytes(), destination.as_bytes())]
        }
        _ => return Err("\nERROR: source and dest url strings are required\n".to_owned()),
    };
    let aliases = match &options.aliases {
        None => Aliases::default(),
        Some(file) => {
            let shown = file.display();
            let text = fs::read_to_string(file).map_err(|e| format!("read {shown}: {e}"))?;
            let bad = |line| format!("Problem parsing alias file {shown}: line {line}");
            Aliases::parse(&text).map_err(bad)?
        }
    };
    let turns = options.concurrency.unwrap_or(1) as usize;
    for (number, pair) in loaded.iter_mut().enumerate() {
        if pair.offset.is_none() && pair.length.is_none() {
            (pair.offset, pair.length) = (options.offset, options.length);
        }
        pair.source = options.url(&pair.source);
        pair.destination = options.url(&pair.destination);
        aliases.apply(pair, number, turns);
    }
    Ok(Some(loaded))
}

fn read_pairs(file: &Path) -> Result<Vec<UrlPair>, String> {
    let mut text = Vec::new();
    let read = match file.as_os_str() == "-" {
        true => io::stdin().read_to_end(&mut text),
        false => fs::File::open(file).and_then(|mut file| file.read_to_end(&mut text)),
    };
    read.map_err(|e| format!("read {}: {e}", file.display()))?;
    pairs(&text).map_err(|line| format!("Problem parsing url list: line {line}"))
}

/// `-list`: names in the form of the original. `None` where one could not be listed.
async fn list(
    options: &Options,
    text: &OsStr,
    environment: &Environment,
    reporter: &Arc<UrlCopyReporter>,
    stop: &CancellationToken,
) -> Option<()> {
    let first = options.url(text.as_bytes());
    let (folder, name) = split(&first);
    let pattern = match is_pattern(name) {
        true => Some(
            Pattern::new(name, &shown(&first), true)
                .map_err(|e| reporter.error(e))
                .ok()?,
        ),
        false => None,
    };
    let start = match pattern {
        Some(_) => folder.to_vec(),
        None => first.clone(),
    };
    // Shown as it was typed, wherever paths begin.
    let mut waiting = vec![(url(text.as_bytes()), start, 0)];
    while let Some((shown, place, depth)) = waiting.pop() {
        if depth > DEPTH_MAX {
            let place = masked(&String::from_utf8_lossy(&place));
            reporter.error(too_deep(&place).explained());
            return None;
        }
        reporter.say(
            Stream::Out,
            &format!("{}\n", masked(&String::from_utf8_lossy(&shown))),
        );
        let names = names_of(options, &place, environment, reporter, stop).await;
        let mut told = String::new();
        for name in names.iter().flatten() {
            let plain = name.trim_end_matches('/');
            if (pattern.as_ref()).is_some_and(|p| !p.matches(plain.as_bytes())) {
                continue;
            }
            match name.ends_with('/') {
                true => told += &format!("    {name}\n"),
                false => told += &format!("    {name} \n"),
            }
            if name.ends_with('/') && options.recursive {
                let name = encoded(name);
                let below = |above: &[u8]| [above, &name[..]].concat();
                let above = match depth == 0 && pattern.is_some() {
                    true => split(&shown).0,
                    false => &shown,
                };
                waiting.push((below(above), below(&place), depth + 1));
            }
        }
        reporter.say(Stream::Out, &format!("{told}\n"));
        names?;
    }
    Some(())
}

async fn names_of(
    options: &Options,
    place: &[u8],
    environment: &Environment,
    reporter: &Arc<UrlCopyReporter>,
    stop: &CancellationToken,
) -> Option<Vec<String>> {
    let translated = translate::listing(options, place, environment);
    let (what, connections) = translated.map_err(|why| reporter.error(why)).ok()?;
    let lines = Arc::new(LineCollector {
        reporter: Some(Arc::clone(reporter)),
        ..LineCollector::default()
    });
    let observer = Arc::clone(&lines) as Arc<dyn Observer>;
    let exit = manage::run(what, connections, observer, stop.clone()).await;
    let names = std::mem::take(&mut *lines.lines.lock());
    (exit == Exit::Done).then_some(names)
}

/// Keeps lines; what else there is goes to the teller, if there is one.
#[derive(Default)]
struct LineCollector {
    lines: Mutex<Vec<String>>,
    reporter: Option<Arc<UrlCopyReporter>>,
}

impl Observer for LineCollector {
    fn on_event(&self, event: &Event) {
        if let Some(reporter) = &self.reporter {
            reporter.on_event(event);
        }
    }

    fn hears_dialogue(&self) -> bool {
        (self.reporter.as_ref()).is_some_and(|reporter| reporter.hears_dialogue())
    }

    fn on_output(&self, line: &[u8]) {
        let mut lines = self.lines.lock();
        lines.push(String::from_utf8_lossy(line).into_owned());
    }
}

/// A URL as users see it, without a password.
fn text(url: &[u8]) -> String {
    masked(&String::from_utf8_lossy(url))
}

/// A source as events name it.
fn shown(url: &[u8]) -> String {
    match Location::parse(url) {
        Ok(Location::Local(path)) => files::path_of(&path).display().to_string(),
        Ok(place) => place.to_string(),
        Err(_) => text(url),
    }
}
