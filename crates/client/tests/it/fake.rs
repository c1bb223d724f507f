//! A small FTP server with switches: it lacks, refuses and breaks what a test wants it to. MODE S
//! only, files in memory.

use std::{
    collections::BTreeMap,
    io::{BufRead, BufReader, Read, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

/// What becomes of a listing: it is changed, and may be answered otherwise than by 226.
pub(crate) type Spoil = Arc<dyn Fn(&mut Vec<u8>) -> Option<&'static str> + Send + Sync>;

/// What it does otherwise than a good server. The default is a good server with few features.
#[derive(Clone, Default)]
pub(crate) struct Quirks {
    /// Lines of FEAT; `None`: 500.
    pub(crate) features: Option<&'static [&'static str]>,
    /// Verb and the reply it always gets.
    pub(crate) replies: Vec<(&'static str, &'static str)>,
    /// Verb and reply, once each.
    pub(crate) once: Vec<(&'static str, &'static str)>,
    /// A verb that is never answered.
    pub(crate) mute: Option<&'static str>,
    /// Transfers begin and move their data, and their end is never answered.
    pub(crate) no_verdict: bool,
    /// The control connection closes in place of the answer to this verb.
    pub(crate) hang_up: Option<&'static str>,
    /// The control connection closes in place of the answer to the so manieth command of this verb,
    /// which was done.
    pub(crate) hang_up_after: Option<(&'static str, usize)>,
    /// What it makes of names.
    pub(crate) mangles: Option<fn(&str) -> String>,
    /// RNTO does not replace a file.
    pub(crate) no_replace: bool,
    /// Verb, which of its commands, and the reply to that.
    pub(crate) nth: Vec<(&'static str, usize, &'static str)>,
    /// The first so many data transfers are cut after so many bytes, and answered with 426.
    pub(crate) cuts: usize,
    pub(crate) cut_at: usize,
    /// A transfer counts as cut also where it had come to its end.
    pub(crate) whole_cuts: bool,
    /// REST is agreed to and passed over.
    pub(crate) passes_over_rest: bool,
    /// A cut transfer is answered with 226 all the same.
    pub(crate) lies: bool,
    /// Before each reply a line that is none.
    pub(crate) stray_lines: bool,
    /// 150 is sent before the data connection is taken (ARC).
    pub(crate) early_150: bool,
    /// What MLSD and NLST send, in place of the names there are.
    pub(crate) listing: Option<&'static [u8]>,
    pub(crate) spoil: Option<Spoil>,
    /// It has LIST, and PWD.
    pub(crate) long: bool,
    /// LIST and NLST take `-a`, and show names with a leading dot with it alone.
    pub(crate) options: bool,
    /// STOR of what begins with one of these, divided by `|`, is refused as Pure-FTPd refuses names
    /// with leading dots.
    pub(crate) refused_names: Option<&'static str>,
    /// What that refusal is, in place of Pure-FTPd's.
    pub(crate) name_refusal: Option<&'static str>,
    /// How it refuses names with a leading dot, whatever is to be done with them.
    pub(crate) dots: Option<&'static str>,
    /// The greeting, in place of 220.
    pub(crate) greeting: Option<&'static str>,
    /// What CKSM answers.
    pub(crate) checksum: Option<&'static str>,
    /// What PASV announces, with the port of its listener behind it where it ends in a comma.
    pub(crate) announces: Option<&'static str>,
    /// Sessions let in at a time; others get 421.
    pub(crate) sessions_max: Option<usize>,
}

impl Quirks {
    /// FEAT has these lines.
    pub(crate) fn features(mut self, lines: &'static [&'static str]) -> Self {
        self.features = Some(lines);
        self
    }

    /// Each verb always gets this reply.
    pub(crate) fn replies(mut self, replies: &[(&'static str, &'static str)]) -> Self {
        self.replies = replies.to_vec();
        self
    }

    /// This verb is never answered.
    pub(crate) fn mute(mut self, verb: &'static str) -> Self {
        self.mute = Some(verb);
        self
    }

    /// The control connection closes in place of the answer to this verb.
    pub(crate) fn hang_up(mut self, verb: &'static str) -> Self {
        self.hang_up = Some(verb);
        self
    }
}

pub(crate) struct Fake {
    pub(crate) address: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    quirks: Mutex<Quirks>,
    files: Mutex<BTreeMap<String, Vec<u8>>>,
    heard: Mutex<Vec<String>>,
    transfers: AtomicUsize,
    /// Bytes of payload, both ways.
    moved: AtomicUsize,
    sessions: AtomicUsize,
}

impl Fake {
    pub(crate) fn start(quirks: Quirks) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared {
            quirks: Mutex::new(quirks),
            files: Mutex::default(),
            heard: Mutex::default(),
            transfers: AtomicUsize::new(0),
            moved: AtomicUsize::new(0),
            sessions: AtomicUsize::new(0),
        });
        let served = Arc::clone(&shared);
        thread::spawn(move || {
            for stream in listener.incoming() {
                let shared = Arc::clone(&served);
                thread::spawn(move || {
                    shared.sessions.fetch_add(1, Ordering::SeqCst);
                    // The peer may go away at any time.
                    let _ = Session::serve(&shared, stream.unwrap());
                    shared.sessions.fetch_sub(1, Ordering::SeqCst);
                });
            }
        });
        Self { address, shared }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("ftp://{}{path}", self.address)
    }

    pub(crate) fn put(&self, path: &str, data: &[u8]) {
        self.shared
            .files
            .lock()
            .unwrap()
            .insert(path.into(), data.into());
    }

    pub(crate) fn get(&self, path: &str) -> Option<Vec<u8>> {
        self.shared.files.lock().unwrap().get(path).cloned()
    }

    pub(crate) fn names(&self) -> Vec<String> {
        self.shared.files.lock().unwrap().keys().cloned().collect()
    }

    /// All verbs, in the order in which they were heard.
    pub(crate) fn heard_all(&self) -> Vec<String> {
        self.shared.heard.lock().unwrap().clone()
    }

    /// What it does otherwise from the next session on.
    pub(crate) fn change(&self, change: impl FnOnce(&mut Quirks)) {
        change(&mut self.shared.quirks.lock().unwrap());
    }

    /// Bytes of payload that have gone either way.
    pub(crate) fn moved(&self) -> usize {
        self.shared.moved.load(Ordering::SeqCst)
    }

    /// How often a verb was heard.
    pub(crate) fn heard(&self, verb: &str) -> usize {
        let heard = self.shared.heard.lock().unwrap();
        heard.iter().filter(|v| *v == verb).count()
    }
}

struct Session<'a> {
    shared: &'a Shared,
    control: TcpStream,
    listener: Option<TcpListener>,
    rest: usize,
    from: Option<String>,
    cwd: String,
    /// Answers are not sent.
    silent: bool,
}

type Served = std::io::Result<bool>;

impl<'a> Session<'a> {
    fn serve(shared: &'a Shared, control: TcpStream) -> std::io::Result<()> {
        let reader = BufReader::new(control.try_clone()?);
        let mut session = Self {
            shared,
            control,
            listener: None,
            rest: 0,
            from: None,
            cwd: "/".to_owned(),
            silent: false,
        };
        let quirks = shared.quirks.lock().unwrap().clone();
        let full = quirks
            .sessions_max
            .is_some_and(|max| shared.sessions.load(Ordering::SeqCst) > max);
        if full {
            return session.say("421 Too many connections").map(|_| ());
        }
        let greeting = quirks.greeting.unwrap_or("220 fake");
        session.say(greeting)?;
        if greeting.starts_with('4') {
            return Ok(());
        }
        for line in reader.split(b'\n') {
            let line = String::from_utf8_lossy(&line?).trim_end().to_owned();
            let (verb, argument) = line.split_once(' ').unwrap_or((&line, ""));
            let nth = {
                let mut heard = shared.heard.lock().unwrap();
                heard.push(verb.to_owned());
                heard.iter().filter(|v| *v == verb).count()
            };
            session.silent = quirks.hang_up_after == Some((verb, nth));
            if session.silent {
                session.answer(&quirks, verb, argument)?;
                break;
            }
            if !session.answer(&quirks, verb, argument)? {
                break;
            }
        }
        session.control.shutdown(Shutdown::Both)
    }

    fn say(&mut self, text: &str) -> Served {
        if self.silent {
            return Ok(true);
        }
        let stray = self.shared.quirks.lock().unwrap().stray_lines;
        let stray = if stray { "' unrecognized\r\n" } else { "" };
        self.control
            .write_all(format!("{stray}{text}\r\n").as_bytes())?;
        Ok(true)
    }

    fn answer(&mut self, quirks: &Quirks, verb: &str, argument: &str) -> Served {
        let argument = &quirks.mangles.map_or(argument.to_owned(), |m| m(argument));
        if quirks.mute == Some(verb) {
            return Ok(true);
        }
        if quirks.hang_up == Some(verb) {
            return Ok(false);
        }
        let once = {
            let mut quirks = self.shared.quirks.lock().unwrap();
            let at = quirks.once.iter().position(|(v, _)| *v == verb);
            at.map(|at| quirks.once.remove(at).1)
        };
        let always = quirks.replies.iter().find(|(v, _)| *v == verb).map(|r| r.1);
        let heard = self
            .shared
            .heard
            .lock()
            .unwrap()
            .iter()
            .filter(|v| *v == verb)
            .count();
        let nth = quirks
            .nth
            .iter()
            .find(|(v, nth, _)| *v == verb && *nth == heard);
        if let Some(reply) = once.or(always).or(nth.map(|(_, _, reply)| *reply)) {
            self.from.take_if(|_| verb == "RNTO");
            self.say(reply)?;
            return Ok(!reply.starts_with("421"));
        }
        if self.from.is_some() && !matches!(verb, "RNTO" | "QUIT") {
            // As ProFTPD has it.
            return self.say("501 Bad sequence of commands");
        }
        let makes = matches!(verb, "STOR" | "APPE" | "RNFR" | "RNTO" | "MKD" | "DELE");
        if let Some(refusal) = quirks.dots.filter(|_| makes && argument.contains("/.")) {
            self.from.take_if(|_| verb == "RNTO");
            return self.say(refusal);
        }
        match verb {
            "USER" => self.say("331 password"),
            "PASS" => self.say("230 in"),
            "FEAT" => match quirks.features {
                Some(lines) => {
                    let lines: String = lines.iter().map(|l| format!(" {l}\r\n")).collect();
                    self.say(&format!("211-Features\r\n{lines}211 End"))
                }
                None => self.say("500 what?"),
            },
            "MFMT" => self.say("213 set"),
            "TYPE" | "MODE" | "OPTS" | "ALLO" => self.say("200 ok"),
            "QUIT" => self.say("221 bye").map(|_| false),
            "PASV" => self.passive(quirks.announces.unwrap_or("127,0,0,1,")),
            "REST" => {
                let at = argument.parse().unwrap_or(0);
                self.rest = if quirks.passes_over_rest { 0 } else { at };
                self.say("350 go on")
            }
            "SIZE" => match self.file(argument) {
                Some(data) => self.say(&format!("213 {}", data.len())),
                None => self.say("550 No such file"),
            },
            "MDTM" if self.file(argument).is_some() => self.say("213 20200229123456"),
            "CWD" if self.is_directory(argument) => {
                self.cwd = argument.to_owned();
                self.say("250 there")
            }
            "PWD" if quirks.long => self.say(&format!("257 \"{}\"", self.cwd)),
            "CWD" => self.say("550 Not a directory"),
            "MLST" => self.describe(argument),
            "LIST" if !quirks.long => self.say("500 Command not supported"),
            // Without options it is a name.
            "LIST" | "NLST"
                if argument == "-a"
                    && !quirks.options
                    && self
                        .file(&format!("{}/-a", self.cwd.trim_end_matches('/')))
                        .is_none() =>
            {
                self.say("550 No such file")
            }
            "MLSD" | "NLST" | "LIST" => {
                let mut listing = self.listing(quirks, verb, argument);
                let said = quirks.spoil.as_ref().and_then(|spoil| spoil(&mut listing));
                let Some(said) = said else {
                    return self.send(quirks, &listing);
                };
                if let Some(mut out) = self.connection(quirks)? {
                    out.write_all(&listing)?;
                }
                self.say(said)
            }
            "RETR" => match self.file(argument) {
                Some(data) => {
                    let rest = std::mem::take(&mut self.rest);
                    self.send(quirks, &data[rest.min(data.len())..])
                }
                None => self.say("550 No such file"),
            },
            "STOR"
                if (quirks.refused_names)
                    .is_some_and(|names| names.split('|').any(|n| argument.starts_with(n))) =>
            {
                self.say(quirks.name_refusal.unwrap_or("553 Prohibited file name"))
            }
            "STOR" => {
                let rest = std::mem::take(&mut self.rest);
                self.receive(quirks, argument, rest)
            }
            "APPE" => {
                let there = self.file(argument).map_or(0, |data| data.len());
                self.receive(quirks, argument, there)
            }
            "MKD" => self.say("257 made"),
            "DELE" => {
                let removed = self.shared.files.lock().unwrap().remove(argument);
                match removed {
                    Some(_) => self.say("250 gone"),
                    None => self.say("550 No such file"),
                }
            }
            "RNFR" if self.file(argument).is_some() => {
                self.from = Some(argument.to_owned());
                self.say("350 to?")
            }
            "RNFR" => self.say("550 No such file"),
            "RNTO" if quirks.no_replace && self.file(argument).is_some() => {
                self.from = None;
                self.say("550 File already exists")
            }
            "RNTO" => {
                let mut files = self.shared.files.lock().unwrap();
                let moved = self.from.take().and_then(|from| files.remove(&from));
                let found = moved.map(|data| files.insert(argument.to_owned(), data));
                drop(files);
                match found {
                    Some(_) => self.say("250 renamed"),
                    None => self.say("550 No such file"),
                }
            }
            "CKSM" if quirks.checksum.is_some() => {
                self.say(&format!("213 {}", quirks.checksum.unwrap_or_default()))
            }
            _ => self.say("500 Command not supported"),
        }
    }

    fn file(&self, path: &str) -> Option<Vec<u8>> {
        self.shared.files.lock().unwrap().get(path).cloned()
    }

    fn is_directory(&self, path: &str) -> bool {
        let prefix = format!("{}/", path.trim_end_matches('/'));
        let files = self.shared.files.lock().unwrap();
        path == "/" || files.keys().any(|k| k.starts_with(&prefix))
    }

    fn describe(&mut self, path: &str) -> Served {
        let facts = match self.file(path) {
            Some(data) => format!("Type=file;Size={};", data.len()),
            None if self.is_directory(path) => "Type=dir;".to_owned(),
            None => return self.say("550 No such file or directory"),
        };
        self.say(&format!("250-status\r\n {facts} {path}\r\n250 End."))
    }

    fn listing(&self, quirks: &Quirks, verb: &str, argument: &str) -> Vec<u8> {
        if let Some(listing) = quirks.listing {
            return listing.to_vec();
        }
        let path = match argument {
            "" | "-a" => &self.cwd,
            path => path,
        };
        let prefix = format!("{}/", path.trim_end_matches('/'));
        let mut names: Vec<(String, Option<usize>)> = Vec::new();
        for (key, data) in &*self.shared.files.lock().unwrap() {
            let Some(rest) = key.strip_prefix(&prefix) else {
                continue;
            };
            let entry = match rest.split_once('/') {
                Some((directory, _)) => (directory.to_owned(), None),
                None => (rest.to_owned(), Some(data.len())),
            };
            if !names.contains(&entry) {
                names.push(entry);
            }
        }
        if quirks.options && verb != "MLSD" {
            names.retain(|(name, _)| argument == "-a" || !name.starts_with('.'));
            names.extend((argument == "-a").then(|| (".".to_owned(), None)));
        }
        if argument == "-a" && !quirks.options {
            names.retain(|(name, _)| name == "-a");
        }
        let line = |(name, size): (String, Option<usize>)| match (verb, size) {
            ("LIST", Some(size)) => format!("-rw-r--r--  1 a b {size:>8} Nov 25 16:43 {name}\r\n"),
            ("LIST", None) => format!("drwxr-xr-x  2 a b     4096 Nov 25  2020 {name}\r\n"),
            ("MLSD", Some(size)) => format!("Type=file;Size={size}; {name}\r\n"),
            ("MLSD", None) => format!("Type=dir; {name}\r\n"),
            _ => format!("{name}\r\n"),
        };
        names.into_iter().map(line).collect::<String>().into_bytes()
    }

    fn passive(&mut self, announces: &str) -> Served {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let port = listener.local_addr()?.port();
        self.listener = Some(listener);
        let port = match announces.ends_with(',') {
            true => format!("{},{}", port >> 8, port & 255),
            false => String::new(),
        };
        self.say(&format!("227 here ({announces}{port})"))
    }

    fn connection(&mut self, quirks: &Quirks) -> std::io::Result<Option<TcpStream>> {
        let Some(listener) = self.listener.take() else {
            self.say("425 no data connection")?;
            return Ok(None);
        };
        if quirks.early_150 {
            self.say("150 soon")?;
        }
        let (data, _) = listener.accept()?;
        if !quirks.early_150 {
            self.say("150 now")?;
        }
        Ok(Some(data))
    }

    /// How many bytes this transfer may move before it is cut.
    fn cut(&self, quirks: &Quirks) -> Option<usize> {
        let nth = self.shared.transfers.fetch_add(1, Ordering::SeqCst);
        (nth < quirks.cuts).then_some(quirks.cut_at)
    }

    fn verdict(&mut self, quirks: &Quirks, cut: bool) -> Served {
        if quirks.no_verdict {
            return Ok(true);
        }
        match (cut && !quirks.lies, quirks.early_150) {
            (false, _) => self.say("226 done"),
            // ARC answers twice.
            (true, true) => self.say("426 broken\r\n226 Abort finished"),
            (true, false) => self.say("426 broken"),
        }
    }

    fn send(&mut self, quirks: &Quirks, data: &[u8]) -> Served {
        let Some(mut out) = self.connection(quirks)? else {
            return Ok(true);
        };
        let whole = quirks.whole_cuts;
        let cut = self.cut(quirks).filter(|at| whole || *at < data.len());
        let data = &data[..cut.map_or(data.len(), |at| at.min(data.len()))];
        let sent = out.write_all(data);
        self.shared.moved.fetch_add(data.len(), Ordering::SeqCst);
        drop(out);
        self.verdict(quirks, cut.is_some() || sent.is_err())
    }

    fn receive(&mut self, quirks: &Quirks, path: &str, from: usize) -> Served {
        let Some(data) = self.connection(quirks)? else {
            return Ok(true);
        };
        let limit = self.cut(quirks);
        let mut got = self.file(path).unwrap_or_default();
        got.resize(from, 0);
        data.take(limit.unwrap_or(usize::MAX) as u64)
            .read_to_end(&mut got)?;
        (self.shared.moved).fetch_add(got.len() - from, Ordering::SeqCst);
        self.shared
            .files
            .lock()
            .unwrap()
            .insert(path.to_owned(), got);
        self.verdict(quirks, limit.is_some())
    }
}
