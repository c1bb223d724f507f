//! `godwit-service`: flags in, prints and exit status out; all else is the library.

use std::{
    env,
    fmt::Display,
    io::{self, IsTerminal as _, Write as _},
    path::Path,
    process::ExitCode,
};

use clap::Parser as _;
use godwit_engine::host::net;
use godwit_service::{
    ServiceError, agent,
    config::{Arguments, ServeSettings, Verb},
    doctor::{self, Verdict},
    probe,
    serve::{self, Server},
    store::Store,
};
use tokio::signal::unix::{SignalKind, signal};
use tracing::info;
use tracing_subscriber::EnvFilter;

/// The doctor or a probe found something.
const EXIT_FOUND: u8 = 1;
/// Wrong usage or settings, as `clap` has it, too.
const EXIT_USAGE: u8 = 2;
/// The system said no.
const EXIT_FAILED: u8 = 4;

/// Environment variable with a filter such as `debug`.
const FILTER_VARIABLE: &str = "GODWIT_SERVICE_LOG";

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    // PostgreSQL notes each table that is there already.
    let filter = env::var(FILTER_VARIABLE).unwrap_or_else(|_| "info,sqlx=warn".to_owned());
    let filter = EnvFilter::builder()
        .with_default_directive(tracing::Level::INFO.into())
        .parse_lossy(filter);
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(io::stderr)
        .with_target(false);
    match io::stderr().is_terminal() {
        true => log.init(),
        // Files have no colours.
        false => log.with_ansi(false).init(),
    }
    let runtime = match tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
    {
        Ok(runtime) => runtime,
        Err(error) => return fail(EXIT_FAILED, &error),
    };
    let result = runtime.block_on(run(arguments.verb));
    match result {
        Ok(status) => status,
        Err(error @ ServiceError::Usage(_)) => fail(EXIT_USAGE, &error),
        Err(error) => fail(EXIT_FAILED, &error),
    }
}

fn fail(status: u8, why: &dyn Display) -> ExitCode {
    // The reader may have closed the stream.
    let _ = writeln!(io::stderr(), "godwit-service: {why}");
    ExitCode::from(status)
}

async fn run(verb: Verb) -> Result<ExitCode, ServiceError> {
    match verb {
        Verb::Serve(settings) => {
            hide_memory();
            serve_until_signal(settings.resolve()?).await
        }
        Verb::Agent(options) => {
            hide_memory();
            let config = options.resolve()?;
            info!(
                name = config.name,
                service = config.service,
                "the agent starts"
            );
            let traces = config.traces.clone();
            let ended = agent::run(config, signalled()?).await;
            traces.end().await;
            ended?;
            Ok(ExitCode::SUCCESS)
        }
        Verb::Doctor(settings) => Ok(examine(&settings.resolve()?).await),
        Verb::Probe(options) => Ok(report(probe::ask(&options).await?)),
        Verb::Migrate {
            settings,
            operator_token,
        } => migrate(&settings.database()?, operator_token.as_deref()).await,
        Verb::Enroll { name, to, settings } => {
            let store = Store::open(&settings.database()?).await?;
            serve::enroll_agent(&store, &name, &to).await?;
            store.close().await;
            Ok(ExitCode::SUCCESS)
        }
    }
}

/// Keys, tokens and credentials are in it.
fn hide_memory() {
    if let Err(error) = net::forbid_core_dumps() {
        tracing::warn!(%error, "a crash may write secrets to a core file");
    }
}

async fn serve_until_signal(settings: ServeSettings) -> Result<ExitCode, ServiceError> {
    let server = Server::bind(settings).await?;
    let stop = signalled()?;
    let mut out = io::stdout().lock();
    // The reader may have closed the stream.
    let _ = writeln!(out, "{}", server.url());
    if let Some(token) = server.new_token() {
        let _ = writeln!(out, "token: {token}");
    }
    let _ = out.flush();
    drop(out);
    info!(listening = ?server.addresses(), "godwit-service serves");
    let scheme = match server.url().starts_with("https") {
        true => "https",
        false => "http",
    };
    for address in server.fts_addresses() {
        info!("for clients of FTS3: {scheme}://{address}");
    }
    if let Some(address) = server.metrics_address() {
        info!("metrics on http://{address}/metrics");
    }
    server.run(stop).await?;
    info!("godwit-service ends");
    Ok(ExitCode::SUCCESS)
}

/// Until SIGTERM or SIGINT.
fn signalled() -> Result<impl Future<Output = ()>, ServiceError> {
    let listen = |kind| signal(kind).map_err(|error| ServiceError::Usage(error.to_string()));
    let mut terminate = listen(SignalKind::terminate())?;
    let mut interrupt = listen(SignalKind::interrupt())?;
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    })
}

async fn examine(settings: &ServeSettings) -> ExitCode {
    let findings = doctor::examine(settings).await;
    let mut out = io::stdout().lock();
    for finding in &findings {
        // The reader may have closed the stream.
        let _ = writeln!(
            out,
            "{:6} {:9} {}",
            finding.verdict, finding.part, finding.text
        );
    }
    match findings
        .iter()
        .any(|finding| finding.verdict == Verdict::Bad)
    {
        true => ExitCode::from(EXIT_FOUND),
        false => ExitCode::SUCCESS,
    }
}

fn report(found: Result<String, String>) -> ExitCode {
    let status = match found {
        Ok(_) => ExitCode::SUCCESS,
        Err(_) => ExitCode::from(EXIT_FOUND),
    };
    let (Ok(line) | Err(line)) = found;
    // The reader may have closed the stream.
    let _ = writeln!(io::stdout(), "{line}");
    status
}

async fn migrate(database: &str, operator_token: Option<&Path>) -> Result<ExitCode, ServiceError> {
    let store = Store::migrate(database).await?;
    info!(
        version = store.schema_version().await?,
        "the tables are up to date"
    );
    if let Some(path) = operator_token {
        serve::make_operator(&store, path).await?;
    }
    store.close().await;
    Ok(ExitCode::SUCCESS)
}
