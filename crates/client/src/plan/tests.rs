use std::{
    env,
    ffi::OsString,
    fs,
    io::{BufRead, BufReader, BufWriter, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    process::Command,
    sync::atomic::AtomicU64,
    thread,
};

use godwit_engine::{data::ChannelParams, storage::PosixStorage};
use godwit_proto::FtpPath;
use tokio::{runtime, task::LocalSet};
use tokio_util::sync::CancellationToken;

use super::*;
use crate::{
    cli::{Environment, parse},
    report::events::Observer,
    spec::Request,
    transfer::source_file::is_device,
};

/// What a process may keep resident for ten million files, in KiB.
const RESIDENT_KIB_MAX: u64 = 300 << 10;

#[test]
fn devices_lie_right_in_dev() {
    for (path, device) in [
        ("/dev/null", true),
        ("/dev/shm", false),
        ("/dev/shm/file", false),
        ("/data/dev/null", false),
        ("/dev/", false),
    ] {
        assert_eq!(is_device(&FtpPath::new(path).unwrap()), device, "{path}");
    }
}

/// A server with one directory of `files` files, generated during the listing. Counts the bytes of
/// listings.
struct FakeLister {
    address: SocketAddr,
    listed: Arc<AtomicU64>,
    /// Names that it may send.
    allowed: Arc<AtomicU64>,
}

impl FakeLister {
    fn start(names: u64) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let listed = Arc::new(AtomicU64::new(0));
        let allowed = Arc::new(AtomicU64::new(names));
        let (count, leave) = (Arc::clone(&listed), Arc::clone(&allowed));
        thread::spawn(move || {
            for control in listener.incoming() {
                let (count, leave) = (Arc::clone(&count), Arc::clone(&leave));
                // The planner may disconnect at any time.
                thread::spawn(move || drop(serve(control.unwrap(), names, &count, &leave)));
            }
        });
        Self {
            address,
            listed,
            allowed,
        }
    }

    fn listed(&self) -> u64 {
        self.listed.load(Ordering::Relaxed)
    }
}

fn serve(
    mut control: TcpStream,
    names: u64,
    listed: &AtomicU64,
    allowed: &AtomicU64,
) -> std::io::Result<()> {
    let commands = BufReader::new(control.try_clone()?).lines();
    let mut data = None;
    control.write_all(b"220 at your service\r\n")?;
    for command in commands {
        let command = command?;
        let answer = match command.split(' ').next().unwrap_or_default() {
            "USER" => "331 who?".to_owned(),
            "PASS" => "230 in".to_owned(),
            "FEAT" => "211-Features\r\n MLST Type*;Size*;Modify*;\r\n211 End".to_owned(),
            "TYPE" => "200 ok".to_owned(),
            "MKD" => "257 made".to_owned(),
            "MLST" => "250-facts\r\n Type=dir; /d\r\n250 End".to_owned(),
            "PASV" => {
                let listener = TcpListener::bind("127.0.0.1:0")?;
                let port = listener.local_addr()?.port();
                data = Some(listener);
                format!("227 here (127,0,0,1,{},{})", port >> 8, port & 255)
            }
            "MLSD" => {
                let Some(listener) = data.take() else {
                    return Ok(());
                };
                let (stream, _) = listener.accept()?;
                control.write_all(b"150 now\r\n")?;
                let mut stream = BufWriter::new(stream);
                for i in 0..names {
                    if i >= allowed.load(Ordering::Relaxed) {
                        stream.flush()?;
                        while i >= allowed.load(Ordering::Relaxed) {
                            thread::yield_now();
                        }
                    }
                    let line = format!(
                        "Type=file;Size=10240;Modify=20261121060854; run42-event{i:08}.dat\r\n"
                    );
                    stream.write_all(line.as_bytes())?;
                    listed.fetch_add(line.len() as u64, Ordering::Relaxed);
                }
                stream.flush()?;
                "226 done".to_owned()
            }
            _ => "500 unknown command".to_owned(),
        };
        control.write_all(format!("{answer}\r\n").as_bytes())?;
    }
    Ok(())
}

struct Silent;

impl Observer for Silent {
    fn on_event(&self, _: &Event) {}
}

/// Plans `command`, and gives each file to `take` until that returns false, which interrupts the
/// run.
fn plan(command: &str, mut take: impl AsyncFnMut(PlanEntry) -> bool) {
    let words: Vec<OsString> = command.split(' ').map(OsString::from).collect();
    let invocation = parse(&words, &Environment::default()).unwrap();
    let Request::Copy(spec) = invocation.request else {
        panic!("no copy: {command}");
    };
    let stop = CancellationToken::default();
    let storage = PosixStorage::unconfined();
    let context = RunContext::new(
        invocation.connections,
        Arc::new(Silent),
        None,
        stop.clone(),
        storage,
    );
    let pool = SessionPool::new(context, ChannelParams::default(), 1, None);
    let (sender, mut planned) = mpsc::channel(AHEAD_MAX);
    let planner = Planner::new(Arc::new(*spec), pool, sender);
    let runtime = runtime::Builder::new_current_thread().enable_all().build();
    LocalSet::new().block_on(&runtime.unwrap(), async {
        let planning = tokio::task::spawn_local(planner.run());
        while let Some(planned) = planned.recv().await {
            if !take(planned).await {
                stop.cancel();
                break;
            }
        }
        planning.await.unwrap();
    });
}

/// Peak resident size of this process, in KiB.
fn resident_most() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:"));
    let number = line.and_then(|l| l.split_whitespace().next()).unwrap();
    number.parse().unwrap()
}

/// The resident size is that of a process, so this test has its own process.
#[test]
fn ten_million_files_are_planned_in_little_memory() {
    let run = Command::new(env::current_exe().unwrap())
        .args(["--ignored", "--exact", "plan::tests::ten_million_files"])
        .output()
        .unwrap();
    let stdout = String::from_utf8_lossy(&run.stdout);
    assert!(
        run.status.success() && stdout.contains("1 passed"),
        "{stdout}{}",
        String::from_utf8_lossy(&run.stderr)
    );
}

#[test]
#[ignore = "run by ten_million_files_are_planned_in_little_memory"]
fn ten_million_files() {
    let names = 10_000_000;
    let server = FakeLister::start(names);
    let here = tempfile::tempdir().unwrap();
    let url = format!("ftp://{}/d", server.address);
    let mut files = 0;
    plan(
        &format!(
            "godwit cp -r --no-journal {url} {}/to",
            here.path().display()
        ),
        async |planned| {
            assert!(matches!(planned, PlanEntry::File(_)), "{planned:?}");
            files += 1;
            true
        },
    );
    assert_eq!(files, names);
    let resident = resident_most();
    eprintln!("{names} files: {} MiB resident at most", resident >> 10);
    assert!(resident < RESIDENT_KIB_MAX, "{resident} KiB");
}

/// Files arrive during the listing, and the listing does not wait for them.
#[test]
fn listing_and_files_go_each_at_its_own_pace() {
    let names = 600_000;
    let all = names * 69;
    let server = FakeLister::start(names);
    let here = tempfile::tempdir().unwrap();
    let url = format!("ftp://{}/d", server.address);
    server.allowed.store(names / 2, Ordering::Relaxed);
    let mut files = 0;
    plan(
        &format!(
            "godwit cp -r --no-journal {url} {}/to",
            here.path().display()
        ),
        async |planned| {
            assert!(matches!(planned, PlanEntry::File(_)), "{planned:?}");
            files += 1;
            server.allowed.store(names, Ordering::Relaxed);
            // Copying the first file takes this long.
            while server.listed() < all {
                tokio::task::yield_now().await;
            }
            true
        },
    );
    assert_eq!(files, names);
    assert!(resident_most() < RESIDENT_KIB_MAX);
}

/// A tree of a thousand directories that are one directory, through links.
#[test]
fn a_large_tree_here_is_planned_in_little_memory() {
    let here = tempfile::tempdir().unwrap();
    let (top, one) = (here.path().join("top"), here.path().join("one"));
    fs::create_dir(&one).unwrap();
    fs::create_dir(&top).unwrap();
    for i in 0..100 {
        fs::write(one.join(format!("f{i}")), "").unwrap();
    }
    for i in 0..1000 {
        std::os::unix::fs::symlink(&one, top.join(format!("d{i}"))).unwrap();
    }
    let server = FakeLister::start(0);
    let url = format!("ftp://{}/d", server.address);
    let mut files = 0;
    plan(
        &format!("godwit cp -r --no-journal {} {url}", top.display()),
        async |planned| {
            assert!(matches!(planned, PlanEntry::File(_)), "{planned:?}");
            files += 1;
            true
        },
    );
    assert_eq!(files, 100_000);
    assert!(resident_most() < RESIDENT_KIB_MAX);
}
