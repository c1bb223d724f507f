//! `godwitd`: flags in, prints and exit status out; all else is the library.

use std::{
    io::{self, Write as _},
    net::TcpListener,
    path::Path,
    process::ExitCode,
    time::{Duration, SystemTime},
};

use clap::Parser as _;
use godwit_engine::host::{
    cpu_affinity::CpuAffinity,
    terminal::{self, Secret, SecretError},
};
use godwit_server::{
    Arguments, DataNode, ImportedConfig, NodeKeyArguments, NodeKeyVerb, NodeKeys, NodeSettings,
    PasswdArguments, Protection, Reloader, Role, S3KeyArguments, Server, ServerSettings, Status,
    Verb,
    access::{
        passwords::{self, Change},
        s3_keys,
    },
    activation,
    observe::log,
    run_child, serve_ssh,
};
use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    sync::oneshot,
};
use tracing::{Level, error, info, warn};

/// Wrong usage or settings, as `clap` has it, too.
const EXIT_USAGE: u8 = 2;
/// Settings were imported, and the administrator must decide on some.
const EXIT_UNDECIDED: u8 = 1;
/// The system refused.
const EXIT_FAILED: u8 = 4;

/// Of certificates.
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// Threads for storage calls: each may wait for a disk. More sessions than that take turns.
const BLOCKING_THREADS_MAX: usize = 256;

fn main() -> ExitCode {
    // A child process, before anything else runs.
    if let Some(role) = std::env::args().nth(1).and_then(|a| Role::of_argument(&a)) {
        return run_child(role);
    }
    let arguments = Arguments::parse();
    if let Some(Verb::Passwd(passwd)) = &arguments.verb {
        return change_password(passwd);
    }
    if let Some(Verb::NodeKey(node_key)) = &arguments.verb {
        return make_node_key(node_key);
    }
    if let Some(Verb::S3Key(key)) = &arguments.verb {
        return change_key(key);
    }
    if let Some(path) = &arguments.import_gct_config {
        return import(path);
    }
    if arguments.ssh {
        return serve_user(&arguments);
    }
    let settings = match arguments.resolve(environment) {
        Ok(settings) => settings,
        Err(error) => return fail(EXIT_USAGE, &error),
    };
    if let Some(Err(error)) = settings.processors.as_ref().map(CpuAffinity::apply) {
        return fail(EXIT_USAGE, &error);
    }
    log::init(settings.log_json, Level::INFO);
    let handed = match activation::sockets() {
        Ok(handed) => handed,
        Err(error) => return fail(EXIT_FAILED, &error),
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .max_blocking_threads(BLOCKING_THREADS_MAX)
        .thread_name("control")
        .build();
    match runtime {
        Ok(runtime) => {
            let status = match settings.node.clone() {
                Some(node) => runtime.block_on(serve_node(settings, &node)),
                None => runtime.block_on(serve(&arguments, settings, handed)),
            };
            // A thread that is stuck in a storage call must not keep the process.
            runtime.shutdown_background();
            log::flush();
            status
        }
        Err(error) => fail(EXIT_FAILED, &format!("cannot start threads: {error}")),
    }
}

/// Prints settings that are equivalent to another server's.
fn import(path: &Path) -> ExitCode {
    match ImportedConfig::read(path) {
        Ok(imported) => match write!(io::stdout(), "{imported}") {
            Ok(()) if imported.is_undecided() => ExitCode::from(EXIT_UNDECIDED),
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => fail(
                EXIT_FAILED,
                &format!("cannot write to standard output: {error}"),
            ),
        },
        Err(error) => fail(EXIT_USAGE, &error),
    }
}

/// Standard error is the user's terminal: errors only.
fn serve_user(arguments: &Arguments) -> ExitCode {
    let settings = match arguments.resolve_ssh(environment) {
        Ok(settings) => settings,
        Err(error) => return fail(EXIT_USAGE, &error),
    };
    if let Some(Err(error)) = settings.server.processors.as_ref().map(CpuAffinity::apply) {
        return fail(EXIT_USAGE, &error);
    }
    log::init(settings.server.log_json, Level::ERROR);
    godwit_engine::host::net::raise_fd_limit();
    match serve_ssh(settings) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(EXIT_FAILED, &error),
    }
}

/// `handed`: sockets of the service manager; empty: the server makes its own.
async fn serve(
    arguments: &Arguments,
    settings: ServerSettings,
    handed: Vec<TcpListener>,
) -> ExitCode {
    let descriptors = godwit_engine::host::net::raise_fd_limit();
    let (root, access) = (settings.root.clone(), settings.anonymous);
    let separated = settings.separation.is_some();
    let server = match handed.is_empty() {
        true => Server::bind(settings).await,
        false => Server::on_sockets(handed, settings).await,
    };
    let server = match server {
        Ok(server) => server,
        Err(error) => return fail(EXIT_FAILED, &format_args!("{error} ({})", error.who())),
    };
    let signals = [
        SignalKind::terminate(),
        SignalKind::interrupt(),
        SignalKind::hangup(),
        SignalKind::user_defined1(),
    ];
    let [terminate, interrupt, hangup, asked] = match signals.map(signal) {
        [Ok(terminate), Ok(interrupt), Ok(hangup), Ok(asked)] => {
            [terminate, interrupt, hangup, asked]
        }
        _ => return fail(EXIT_FAILED, &"cannot handle signals"),
    };
    if let Err(error) = announce(&server) {
        return fail(
            EXIT_FAILED,
            &format!("cannot write to standard output: {error}"),
        );
    }
    if separated {
        info!(protection = %Protection::of_this_kernel(), "sessions run as their users");
    } else if rustix::process::geteuid().is_root() {
        warn!("running as root: what clients may do under the root directory, they do as root");
    }
    let (listening, https) = (server.local_addrs(), server.https_addrs());
    let s3 = server.s3_addrs();
    info!(?root, descriptors, anonymous = ?access, ?listening, ?https, ?s3, "godwitd serves");
    log::gather();
    activation::tell_ready();
    let reporting = report_on(asked, server.status());
    let reloading = reload_on(hangup, arguments, server.reloader());
    let (first_came, first) = oneshot::channel();
    let shutdown = async {
        let signals = either(terminate, interrupt).await;
        activation::tell_stopping();
        // `run` may have ended already.
        drop(first_came.send(signals));
    };
    tokio::select! {
        () = server.run(shutdown) => {}
        () = second_signal(first) => warn!("second signal: cutting what still runs"),
        () = reloading => {}
        () = reporting => {}
    }
    info!("godwitd ends");
    ExitCode::SUCCESS
}

/// A data node: it has no control port, and what its settings are it remains until it ends.
async fn serve_node(settings: ServerSettings, node: &NodeSettings) -> ExitCode {
    let descriptors = godwit_engine::host::net::raise_fd_limit();
    let root = settings.root.clone();
    let server = match DataNode::bind(settings, node) {
        Ok(server) => server,
        Err(error) => return fail(EXIT_FAILED, &format_args!("{error} ({})", error.who())),
    };
    let signals = [SignalKind::terminate(), SignalKind::interrupt()];
    let [terminate, interrupt] = match signals.map(signal) {
        [Ok(terminate), Ok(interrupt)] => [terminate, interrupt],
        _ => return fail(EXIT_FAILED, &"cannot handle signals"),
    };
    let address = server.local_addr();
    let mut out = io::stdout().lock();
    let announced = writeln!(out, "data node on {address}").and_then(|()| out.flush());
    drop(out);
    if let Err(error) = announced {
        return fail(
            EXIT_FAILED,
            &format!("cannot write to standard output: {error}"),
        );
    }
    info!(?root, descriptors, %address, front_ends = ?node.front_ends, "data node serves");
    log::gather();
    activation::tell_ready();
    let (first_came, first) = oneshot::channel();
    let shutdown = async {
        let signals = either(terminate, interrupt).await;
        activation::tell_stopping();
        // `run` may have ended already.
        drop(first_came.send(signals));
    };
    tokio::select! {
        () = server.run(shutdown) => {}
        () = second_signal(first) => warn!("second signal: cutting what still runs"),
    }
    info!("data node ends");
    ExitCode::SUCCESS
}

fn change_password(arguments: &PasswdArguments) -> ExitCode {
    let PasswdArguments {
        file,
        user,
        home,
        read_only,
        account,
        remove,
        stdin,
    } = arguments;
    let secret = match (remove, stdin) {
        (true, _) => Ok(None),
        (false, true) => terminal::from_reader(io::stdin().lock()).map(Some),
        (false, false) => ask_twice(user).map(Some),
    };
    let secret = match secret {
        Ok(secret) => secret,
        Err(why @ SecretError::NoTerminal) => {
            return fail(EXIT_FAILED, &format!("{why}: use --stdin"));
        }
        Err(why) => return fail(EXIT_FAILED, &why),
    };
    let change = match &secret {
        None => Change::Remove,
        Some(password) => Change::Set {
            password: password.reveal(),
            home: home.as_deref(),
            reads_only: *read_only,
            account: account.as_deref(),
        },
    };
    match passwords::edit(file, user, change) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(EXIT_FAILED, &error),
    }
}

fn make_node_key(NodeKeyArguments { verb }: &NodeKeyArguments) -> ExitCode {
    let (NodeKeyVerb::Ca { to, .. } | NodeKeyVerb::Issue { to, .. }) = verb;
    let keys = NodeKeys {
        directory: to.directory.clone(),
        lifetime: DAY * to.days,
        force: to.force,
    };
    let now = SystemTime::now();
    let made = match verb {
        NodeKeyVerb::Ca { organization, .. } => keys.authority(organization, now),
        NodeKeyVerb::Issue { name, hosts, .. } => keys.issue(name, hosts, now),
    };
    match made {
        Ok(made) => match write!(io::stdout(), "{made}") {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => fail(
                EXIT_FAILED,
                &format!("cannot write to standard output: {error}"),
            ),
        },
        Err(error) => fail(EXIT_FAILED, &error),
    }
}

/// Prints the secret of a new key, which is nowhere shown again.
fn change_key(arguments: &S3KeyArguments) -> ExitCode {
    let S3KeyArguments {
        file,
        user,
        home,
        read_only,
        remove,
    } = arguments;
    let made = match (user, remove) {
        (_, Some(access)) => s3_keys::remove(file, access).map(|()| None),
        (Some(user), None) => s3_keys::add(file, user, home, *read_only).map(Some),
        (None, None) => return fail(EXIT_USAGE, &"name a user, or a key to --remove"),
    };
    let told = match made {
        Ok(None) => Ok(()),
        Ok(Some(key)) => {
            let secret = key.secret.reveal();
            writeln!(
                io::stdout(),
                "access key: {}\nsecret key: {secret}",
                key.access
            )
        }
        Err(error) => return fail(EXIT_FAILED, &error),
    };
    match told {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(
            EXIT_FAILED,
            &format!("cannot write to standard output: {error}"),
        ),
    }
}

/// The password is not echoed, so it is typed twice.
fn ask_twice(user: &str) -> Result<Secret, SecretError> {
    loop {
        let first = terminal::from_terminal(&format!("Password of {user}: "))?;
        let second = terminal::from_terminal("The same again: ")?;
        if first.reveal() == second.reveal() {
            return Ok(first);
        }
        drop(writeln!(io::stderr(), "godwitd: the two differ"));
    }
}

/// Scripts read these lines to learn the port.
fn announce(server: &Server) -> io::Result<()> {
    let mut out = io::stdout().lock();
    for address in server.local_addrs() {
        writeln!(out, "listening on {address}")?;
    }
    for address in server.https_addrs() {
        writeln!(out, "https on https://{address}/")?;
    }
    for address in server.s3_addrs() {
        writeln!(out, "s3 on https://{address}/")?;
    }
    if let Some(address) = server.metrics_addr() {
        writeln!(out, "metrics on http://{address}/metrics")?;
    }
    out.flush()
}

/// Waits for one of two signals and gives them back to be waited for again.
async fn either(mut one: Signal, mut other: Signal) -> (Signal, Signal) {
    tokio::select! {
        _ = one.recv() => {}
        _ = other.recv() => {}
    }
    (one, other)
}

/// A second Ctrl-C ends the drain time.
async fn second_signal(first: oneshot::Receiver<(Signal, Signal)>) {
    match first.await {
        Ok((terminate, interrupt)) => drop(either(terminate, interrupt).await),
        Err(_) => std::future::pending().await,
    }
}

/// Invalid settings change nothing; never ends.
async fn reload_on(mut hangup: Signal, arguments: &Arguments, reloader: Reloader) {
    while hangup.recv().await.is_some() {
        match arguments.resolve(environment) {
            Ok(settings) => match reloader.reload(settings) {
                Ok(()) => info!("settings read again, for new sessions"),
                Err(error) => error!(%error, "settings stay as they were"),
            },
            Err(error) => error!(%error, "settings stay as they were"),
        }
    }
    std::future::pending().await
}

/// Never ends.
async fn report_on(mut asked: Signal, status: Status) {
    while asked.recv().await.is_some() {
        status.log();
    }
    std::future::pending().await
}

fn environment(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

fn fail(status: u8, error: &dyn std::fmt::Display) -> ExitCode {
    // Without standard error the exit status must do.
    drop(writeln!(io::stderr(), "godwitd: {error}"));
    ExitCode::from(status)
}
