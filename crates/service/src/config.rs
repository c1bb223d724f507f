//! Settings: one definition for flag and file key, resolved in one step.

use std::{
    env, fs,
    net::{Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    time::Duration,
};

use clap::{Args, Parser, Subcommand};
use godwit_client::{
    auth::secrets::Secrets,
    spec::{Connections, Rates, Ssh, addresses::AddressScope, bits_per_second},
};
use godwit_gsi::{cert::files::Locations, ftps::Authorities};
use godwit_service_api::agent::LEASE_SECONDS;
use serde::Deserialize;
use zeroize::Zeroizing;

use crate::{
    ServiceError,
    accounts::oidc::IssuerSettings,
    agent::{self, Authentication},
    api::{ApiSettings, limits::RequestRate, policy::EndpointPolicy},
    credentials::sealing::SealingKey,
    reports::mail::MailSettings,
    store::policy::DIVIDE_ABOVE,
    traces::{Collector, Traces},
};

/// Port of the service.
pub const DEFAULT_PORT: u16 = 8447;

/// Name of the agent in the process of a service for one person.
pub(crate) const LOCAL_AGENT: &str = "local";

/// Time without an answer or a byte, of an agent's connections.
const STALL_LIMIT: Duration = Duration::from_secs(120);

const EXAMPLES: &str = "\
Examples:
  For one person: database, agent and token in a directory, on the loopback address:
      godwit-service serve --data ~/transfers
  For a site, as many processes as wanted behind one address:
      godwit-service migrate --database-file /etc/godwit/database --operator-token op.token
      godwit-service serve --database-file /etc/godwit/database --key-file /etc/godwit/key \\
          --listen 0.0.0.0:8447 --cert host.pem --key hostkey.pem
  On each data mover:
      godwit-service agent --service https://transfer.example.org:8447 --token-file agent.token

Exit status: 0 ended by a signal, or all is well; 1 doctor or probe found something; 2 wrong usage
or settings; 4 failed.";

/// The command line of `godwit-service`.
#[derive(Clone, Debug, Parser)]
#[command(
    name = "godwit-service",
    version,
    about = "Transfer service: queue, scheduler, agents",
    after_help = EXAMPLES,
    disable_help_subcommand = true
)]
pub struct Arguments {
    /// What to do.
    #[command(subcommand)]
    pub verb: Verb,
}

/// What to do.
#[derive(Clone, Debug, Subcommand)]
pub enum Verb {
    /// Serve users and agents
    Serve(Box<Settings>),
    /// Do transfers for a service
    Agent(Box<AgentOptions>),
    /// Check database, key, mail relay, clocks, agents and endpoints
    Doctor(Box<Settings>),
    /// Say whether `serve` or an agent on this host works, for health checks
    Probe(ProbeOptions),
    /// Create the tables of a database, or bring them up to this version
    Migrate {
        /// Settings of the service.
        #[command(flatten)]
        settings: Box<Settings>,
        /// Make a user `operator` and write a token for it to this new file
        #[arg(long, value_name = "FILE")]
        operator_token: Option<PathBuf>,
    },
    /// Let an agent in: write a token for it to a file
    Enroll {
        /// Name of the agent
        name: String,
        /// Where its token goes; a file that is there is replaced
        #[arg(long, value_name = "FILE")]
        to: PathBuf,
        /// Settings of the service.
        #[command(flatten)]
        settings: Box<Settings>,
    },
}

/// Which process is asked.
#[derive(Clone, Debug, Args)]
pub struct ProbeOptions {
    /// Loopback address of `serve`, which is asked by HTTPS, then by HTTP [default: 127.0.0.1:8447]
    #[arg(long, value_name = "ADDRESS")]
    pub address: Option<SocketAddr>,

    /// Directory of an agent, which is looked at in place of `serve`
    #[arg(long, value_name = "DIR", conflicts_with = "address")]
    pub state: Option<PathBuf>,

    /// The agent only has to run: the service need not have answered it
    #[arg(long, requires = "state")]
    pub process_only: bool,
}

/// Settings of the service: a file, and flags that override it.
#[derive(Clone, Debug, Args)]
pub struct Settings {
    /// Settings file (TOML); flags override it
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,

    /// Everything that flag and file have in common.
    #[command(flatten)]
    pub options: Options,
}

/// Every setting that may stand on the command line or in the file. Unset is `None` or empty.
#[derive(Clone, Debug, Default, Args, Deserialize)]
#[serde(default, rename_all = "kebab-case", deny_unknown_fields)]
pub struct Options {
    /// Directory of a service for one person: SQLite database, key, token. Without --database the
    /// default is $XDG_STATE_HOME/godwit/service
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,

    /// Database: postgres://USER@HOST/NAME or sqlite:PATH. Other users of the host see flags: a
    /// password belongs into --database-file
    #[arg(long, value_name = "URL")]
    pub database: Option<String>,

    /// File that holds the URL of the database
    #[arg(long, value_name = "FILE", conflicts_with = "database")]
    pub database_file: Option<PathBuf>,

    /// File with the key that credentials are sealed with; made where there is none
    #[arg(long, value_name = "FILE")]
    pub key_file: Option<PathBuf>,

    /// Shell command that prints that key
    #[arg(long, value_name = "COMMAND", conflicts_with = "key_file")]
    pub key_command: Option<String>,

    /// Address to listen on; may be given several times [default: 127.0.0.1:8447]
    #[arg(long, value_name = "ADDRESS")]
    pub listen: Vec<SocketAddr>,

    /// Address for clients of FTS3 (Rucio, fts-rest-*), as 0.0.0.0:8446; may be given several times
    #[arg(long, value_name = "ADDRESS")]
    pub fts: Vec<SocketAddr>,

    /// Address that serves metrics over HTTP without a login, at /metrics in Prometheus format
    #[arg(long, value_name = "ADDRESS")]
    pub metrics: Option<SocketAddr>,

    /// Let --metrics name an address that other machines can reach
    #[arg(long)]
    pub allow_remote_metrics: bool,

    /// OpenTelemetry collector that traces of jobs go to, over HTTP, as http://127.0.0.1:4318
    /// [default: $OTEL_EXPORTER_OTLP_ENDPOINT, or none]
    #[arg(long, value_name = "URL")]
    pub traces: Option<String>,

    /// Certificate chain for TLS (PEM)
    #[arg(long, value_name = "FILE", requires = "key")]
    pub cert: Option<PathBuf>,

    /// Private key for TLS (PEM)
    #[arg(long, value_name = "FILE", requires = "cert")]
    pub key: Option<PathBuf>,

    /// CAs whose certificates and proxies users may log in with: a file (PEM), or a directory as
    /// /etc/grid-security/certificates
    #[arg(long, value_name = "FILE", requires = "cert")]
    pub client_ca: Option<PathBuf>,

    /// Listen without TLS on addresses that other hosts reach: for a balancer that ends TLS
    #[arg(long)]
    pub plain_http: bool,

    /// Endpoints that jobs may name, as patterns with * over scheme://host:port. Without any: all
    /// but this host and private networks; in the service for one person: all
    #[arg(long, value_name = "PATTERN")]
    pub allow_endpoint: Vec<String>,

    /// Directories of agents' hosts that file URLs may name
    #[arg(long, value_name = "DIR")]
    pub allow_local: Vec<PathBuf>,

    /// Webhooks may be told by plain HTTP and to private addresses
    #[arg(long)]
    pub allow_any_webhook: bool,

    /// Requests of each user in a second [default: 50]
    #[arg(long, value_name = "N")]
    pub requests_per_second: Option<u32>,

    /// Jobs of each user that have not ended
    #[arg(long, value_name = "N")]
    pub max_jobs: Option<u64>,

    /// Files of each user's jobs that have not ended
    #[arg(long, value_name = "N")]
    pub max_files: Option<u64>,

    /// Files of more bytes are copied by several agents, each a range, where the ends allow it
    /// [default: 4294967296]
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u64).range(1..))]
    pub divide_above: Option<u64>,

    /// Without the agent in the process of a service for one person
    #[arg(long)]
    pub no_agent: bool,

    /// Seconds that leases of agents last, so that a test need not wait a minute for each
    #[arg(long, value_name = "SECONDS", hide = true)]
    pub lease_seconds: Option<u64>,

    /// Issuers whose tokens users may log in with: tables `[[issuer]]` of the file.
    #[arg(skip)]
    pub issuer: Vec<IssuerSettings>,

    /// The relay for mail: table `[mail]` of the file.
    #[arg(skip)]
    pub mail: Option<MailSettings>,
}

impl Options {
    /// These, and what only `other` has.
    fn or(self, other: Self) -> Self {
        let list = |these: Vec<_>, those| if these.is_empty() { those } else { these };
        Self {
            data: self.data.or(other.data),
            database: self.database.or(other.database),
            database_file: self.database_file.or(other.database_file),
            key_file: self.key_file.or(other.key_file),
            key_command: self.key_command.or(other.key_command),
            listen: if self.listen.is_empty() {
                other.listen
            } else {
                self.listen
            },
            fts: match self.fts.is_empty() {
                true => other.fts,
                false => self.fts,
            },
            metrics: self.metrics.or(other.metrics),
            allow_remote_metrics: self.allow_remote_metrics || other.allow_remote_metrics,
            traces: self.traces.or(other.traces),
            cert: self.cert.or(other.cert),
            key: self.key.or(other.key),
            client_ca: self.client_ca.or(other.client_ca),
            plain_http: self.plain_http || other.plain_http,
            allow_endpoint: list(self.allow_endpoint, other.allow_endpoint),
            allow_local: match self.allow_local.is_empty() {
                true => other.allow_local,
                false => self.allow_local,
            },
            allow_any_webhook: self.allow_any_webhook || other.allow_any_webhook,
            requests_per_second: self.requests_per_second.or(other.requests_per_second),
            max_jobs: self.max_jobs.or(other.max_jobs),
            max_files: self.max_files.or(other.max_files),
            divide_above: self.divide_above.or(other.divide_above),
            no_agent: self.no_agent || other.no_agent,
            lease_seconds: self.lease_seconds.or(other.lease_seconds),
            issuer: other.issuer,
            mail: other.mail,
        }
    }
}

/// What a process that serves needs to know.
#[derive(Clone, Debug)]
pub struct ServeSettings {
    /// URL of the database; may hold a password.
    pub database: Zeroizing<String>,
    /// Where the key is that credentials are sealed with.
    pub key: KeySource,
    /// Addresses to listen on.
    pub listen: Vec<SocketAddr>,
    /// Addresses for clients of FTS3.
    pub fts: Vec<SocketAddr>,
    /// Where metrics are served; `None`: nowhere.
    pub metrics: Option<SocketAddr>,
    /// Where traces go.
    pub traces: Collector,
    /// TLS; `None`: plain HTTP.
    pub tls: Option<TlsFiles>,
    /// Browsers reach it by TLS: its own, or that of a balancer or of a proxy on this host.
    pub secure_cookies: bool,
    /// How long leases of agents last.
    pub lease: Duration,
    /// Files of more bytes are copied by several agents.
    pub divide_above: u64,
    /// Of the API.
    pub api: ApiSettings,
    /// Issuers whose tokens are accepted.
    pub issuers: Vec<IssuerSettings>,
    /// Where messages go; `None`: none are sent.
    pub mail: Option<MailSettings>,
    /// Of the service for one person.
    pub personal: Option<Personal>,
}

/// What a service for one person has beside.
#[derive(Clone, Debug)]
pub struct Personal {
    /// Where all of it is.
    pub data: PathBuf,
    /// An agent runs in the process.
    pub agent: bool,
    /// Directories that `file` URLs may name.
    pub local: Vec<PathBuf>,
}

/// Where the key of the installation is.
#[derive(Clone, Debug)]
pub enum KeySource {
    /// A file, which is made where there is none.
    File(PathBuf),
    /// A shell command that prints it.
    Command(String),
}

impl KeySource {
    /// Reads it.
    ///
    /// # Errors
    /// It cannot be read, is open to others, or is no key.
    pub fn read(&self) -> Result<SealingKey, ServiceError> {
        Ok(match self {
            KeySource::File(path) => SealingKey::from_file(path)?,
            KeySource::Command(command) => SealingKey::from_command(command)?,
        })
    }
}

/// Files of TLS, PEM.
#[derive(Clone, Debug)]
pub struct TlsFiles {
    /// Certificate chain.
    pub certificate: PathBuf,
    /// Private key.
    pub key: PathBuf,
    /// CAs of users' certificates.
    pub client_authorities: Option<PathBuf>,
}

impl Settings {
    /// Flags and file together, checked.
    ///
    /// # Errors
    /// The file cannot be read, or a value makes no sense.
    pub fn resolve(&self) -> Result<ServeSettings, ServiceError> {
        self.merged()?.resolve()
    }

    /// URL of the database, for what needs no key.
    ///
    /// # Errors
    /// A file cannot be read, or nothing says where the database is.
    pub fn database(&self) -> Result<Zeroizing<String>, ServiceError> {
        let options = self.merged()?;
        match options.database_url()? {
            Some(url) => Ok(url),
            None => Ok(database_of(&options.personal_data()?)),
        }
    }

    fn merged(&self) -> Result<Options, ServiceError> {
        Ok(match &self.config {
            Some(path) => self.options.clone().or(read_options(path)?),
            None => self.options.clone(),
        })
    }
}

/// Of a service for one person.
fn database_of(data: &Path) -> Zeroizing<String> {
    let path = data.join("service.db");
    Zeroizing::new(format!("sqlite:{}?mode=rwc", path.display()))
}

fn read_options(path: &Path) -> Result<Options, ServiceError> {
    let text = fs::read_to_string(path).map_err(ServiceError::file(path))?;
    toml::from_str(&text)
        .map_err(|error| ServiceError::Usage(format!("{}: {error}", path.display())))
}

impl Options {
    /// `None`: the service is of one person.
    fn database_url(&self) -> Result<Option<Zeroizing<String>>, ServiceError> {
        Ok(match (&self.database, &self.database_file) {
            (Some(url), _) => Some(Zeroizing::new(url.clone())),
            (None, Some(path)) => {
                let text = fs::read_to_string(path).map_err(ServiceError::file(path))?;
                Some(Zeroizing::new(text.trim().to_owned()))
            }
            (None, None) => None,
        })
    }

    fn personal_data(&self) -> Result<PathBuf, ServiceError> {
        let data = self.data.clone().or_else(default_data);
        data.ok_or_else(|| ServiceError::Usage("--data or --database?".to_owned()))
    }

    fn resolve(self) -> Result<ServeSettings, ServiceError> {
        let usage = |text: &str| ServiceError::Usage(text.to_owned());
        let database = self.database_url()?;
        let personal = match database {
            Some(_) => None,
            None => Some(Personal {
                data: self.personal_data()?,
                agent: !self.no_agent,
                local: self.allow_local.clone(),
            }),
        };
        let key = match (&self.key_file, &self.key_command, &personal) {
            (Some(path), ..) => KeySource::File(path.clone()),
            (None, Some(command), _) => KeySource::Command(command.clone()),
            (None, None, Some(personal)) => KeySource::File(personal.data.join("key")),
            (None, None, None) => return Err(usage("--database needs --key-file, too")),
        };
        let tls = self.cert.zip(self.key).map(|(certificate, key)| TlsFiles {
            certificate,
            key,
            client_authorities: self.client_ca,
        });
        let listen = match self.listen.is_empty() {
            true => vec![SocketAddr::from((Ipv4Addr::LOCALHOST, DEFAULT_PORT))],
            false => self.listen,
        };
        let is_open = listen
            .iter()
            .chain(&self.fts)
            .any(|address| !address.ip().is_loopback());
        if is_open && tls.is_none() && !self.plain_http {
            return Err(usage(
                "tokens would cross the network in clear: give --cert and --key, or --plain-http \
                 where a balancer ends TLS",
            ));
        }
        let remote = self
            .metrics
            .filter(|address| !address.ip().to_canonical().is_loopback());
        if let Some(address) = remote.filter(|_| !self.allow_remote_metrics) {
            return Err(ServiceError::Usage(format!(
                "metrics: other machines reach {address}, and metrics need no login: name a \
                 loopback address, or add --allow-remote-metrics"
            )));
        }
        for issuer in &self.issuer {
            issuer.check().map_err(ServiceError::Usage)?;
        }
        let per_second = f64::from(self.requests_per_second.unwrap_or(50).max(1));
        let endpoints = match (&personal, self.allow_endpoint.is_empty()) {
            // The agent reaches what its user could reach without it.
            (Some(_), true) => vec!["*".to_owned()],
            _ => self.allow_endpoint,
        };
        Ok(ServeSettings {
            database: match (database, &personal) {
                (None, Some(personal)) => database_of(&personal.data),
                (database, _) => database.unwrap_or_default(),
            },
            key,
            listen,
            fts: self.fts,
            metrics: self.metrics,
            traces: Collector::of(self.traces.as_deref()).map_err(ServiceError::Usage)?,
            secure_cookies: tls.is_some()
                || self.plain_http
                || self.issuer.iter().any(IssuerSettings::returns_by_tls),
            tls,
            lease: Duration::from_secs(self.lease_seconds.unwrap_or(LEASE_SECONDS)),
            divide_above: self.divide_above.unwrap_or(DIVIDE_ABOVE).max(1),
            api: ApiSettings {
                policy: EndpointPolicy {
                    endpoints,
                    local: self.allow_local,
                    personal: personal.is_some(),
                    any_webhook: self.allow_any_webhook || personal.is_some(),
                    mail_to: self.mail.as_ref().map(MailSettings::patterns),
                },
                rate: RequestRate {
                    per_second,
                    burst: 4.0 * per_second,
                },
                max_jobs: self.max_jobs,
                max_files: self.max_files,
            },
            issuers: self.issuer,
            mail: self.mail,
            personal,
        })
    }
}

/// `$XDG_STATE_HOME/godwit/service`, where the client looks for it, too.
fn default_data() -> Option<PathBuf> {
    let set = |name| {
        env::var_os(name)
            .filter(|value| !value.is_empty())
            .map(PathBuf::from)
    };
    let state = set("XDG_STATE_HOME").or_else(|| Some(set("HOME")?.join(".local/state")))?;
    Some(state.join("godwit/service"))
}

/// Settings of an agent.
#[derive(Clone, Debug, Args)]
pub struct AgentOptions {
    /// URL of the service
    #[arg(long, value_name = "URL")]
    pub service: String,

    /// File with the agent's token
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,

    /// Name of the agent: that of its token [default: name of the host]
    #[arg(long)]
    pub name: Option<String>,

    /// Directory for identity, results and journals [default: $XDG_STATE_HOME/godwit/agent]
    #[arg(long, value_name = "DIR")]
    pub state: Option<PathBuf>,

    /// Label that jobs can ask for; may be given several times
    #[arg(long)]
    pub label: Vec<String>,

    /// Endpoints that it reaches, as patterns with * over scheme://host:port [default: *]
    #[arg(long, value_name = "PATTERN")]
    pub endpoint: Vec<String>,

    /// Units of work at a time
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub slots: u32,

    /// Directories that file URLs may name
    #[arg(long, value_name = "DIR")]
    pub allow_local: Vec<PathBuf>,

    /// CAs of the service, in place of the system's (PEM). Those of endpoints with grid
    /// certificates are in X509_CERT_DIR, or in /etc/grid-security/certificates
    #[arg(long, value_name = "FILE")]
    pub ca: Option<PathBuf>,

    /// Rate limit of each unit in bits per second, as 200M. Bytes that go from server to server do
    /// not pass the agent, and are not limited
    #[arg(long, value_name = "BITS", value_parser = bits_per_second)]
    pub max_rate: Option<u64>,

    /// OpenTelemetry collector that traces of units go to, over HTTP, as http://127.0.0.1:4318
    /// [default: $OTEL_EXPORTER_OTLP_ENDPOINT, or none]
    #[arg(long, value_name = "URL")]
    pub traces: Option<String>,

    /// Seconds for running units to end after a signal
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    pub drain: u64,
}

impl AgentOptions {
    /// What an agent is told.
    ///
    /// # Errors
    /// The token cannot be read, or there is no place for its state.
    pub fn resolve(&self) -> Result<agent::Config, ServiceError> {
        let token = match &self.token_file {
            Some(path) => {
                let text = fs::read_to_string(path).map_err(ServiceError::file(path))?;
                Some(Zeroizing::new(text.trim().to_owned()))
            }
            None => None,
        };
        let state = self
            .state
            .clone()
            .or_else(|| Some(default_data()?.with_file_name("agent")));
        let state = state.ok_or_else(|| ServiceError::Usage("--state?".to_owned()))?;
        let name = self.name.clone().unwrap_or_else(host_name);
        let collector = Collector::of(self.traces.as_deref()).map_err(ServiceError::Usage)?;
        let traces = Traces::new(&collector, "godwit-agent", name.clone());
        Ok(agent::Config {
            traces: traces.map_err(ServiceError::Usage)?,
            service: self.service.clone(),
            authentication: Authentication {
                token,
                certificate: None,
                authority: self.ca.clone(),
            },
            name,
            state,
            labels: self.label.clone(),
            endpoints: match self.endpoint.is_empty() {
                true => vec!["*".to_owned()],
                false => self.endpoint.clone(),
            },
            slots: self.slots,
            connections: connections(),
            own_credentials: false,
            local: self.allow_local.clone(),
            rates: Rates {
                own_bps: self.max_rate,
                host_bps: None,
            },
            drain: Duration::from_secs(self.drain),
        })
    }
}

/// The agent in the process of a service for one person, whose own credentials it uses.
pub(crate) fn local_agent(
    personal: &Personal,
    service: String,
    (authentication, traces): (Authentication, Traces),
) -> agent::Config {
    agent::Config {
        traces,
        service,
        authentication,
        name: LOCAL_AGENT.to_owned(),
        state: personal.data.join("agent"),
        labels: Vec::new(),
        endpoints: vec!["*".to_owned()],
        slots: 4,
        connections: connections(),
        own_credentials: true,
        local: personal.local.clone(),
        rates: Rates::default(),
        drain: Duration::from_secs(5),
    }
}

pub(crate) fn host_name() -> String {
    rustix::system::uname()
        .nodename()
        .to_string_lossy()
        .into_owned()
}

/// What the environment says of credentials and CAs.
fn connections() -> Connections {
    let uid = rustix::process::geteuid().as_raw();
    Connections {
        stall_limit: STALL_LIMIT,
        secrets: Secrets::of_environment(|name| env::var_os(name), uid),
        authorities: Authorities::System,
        addresses: AddressScope::default(),
        data_hosts: Vec::new(),
        stripe_block: None,
        port_range: None,
        protect: None,
        locations: Locations::new(|name| env::var_os(name), uid),
        proxies: Vec::new(),
        subjects: Vec::new(),
        granted: Default::default(),
        ssh: Ssh::default(),
        buckets: Default::default(),
        kept: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolve(arguments: &[&str]) -> Result<ServeSettings, ServiceError> {
        let program = ["godwit-service", "serve"];
        let arguments = Arguments::try_parse_from(program.iter().chain(arguments)).unwrap();
        match arguments.verb {
            Verb::Serve(settings) => settings.resolve(),
            _ => unreachable!("serve"),
        }
    }

    #[test]
    fn a_directory_is_enough_for_one_person() {
        let settings = resolve(&["--data", "/d"]).unwrap();
        assert_eq!(settings.database.as_str(), "sqlite:/d/service.db?mode=rwc");
        assert_eq!(settings.listen, ["127.0.0.1:8447".parse().unwrap()]);
        assert_eq!(settings.api.policy.endpoints, ["*"]);
        assert!(settings.personal.unwrap().agent);
    }

    #[test]
    fn a_site_has_no_defaults_that_open_it() {
        let settings = resolve(&["--database", "postgres://h/d", "--key-file", "/k"]).unwrap();
        assert!(settings.api.policy.endpoints.is_empty() && settings.personal.is_none());
        assert!(resolve(&["--database", "postgres://h/d"]).is_err());
        let program = ["godwit-service", "migrate", "--database", "postgres://h/d"];
        match Arguments::try_parse_from(program).unwrap().verb {
            Verb::Migrate { settings, .. } => {
                assert_eq!(settings.database().unwrap().as_str(), "postgres://h/d");
            }
            _ => unreachable!("migrate"),
        }
        assert!(resolve(&["--data", "/d", "--listen", "0.0.0.0:1"]).is_err());
        assert!(resolve(&["--data", "/d", "--listen", "0.0.0.0:1", "--plain-http"]).is_ok());
        let metrics = ["--data", "/d", "--metrics", "0.0.0.0:1"];
        assert!(resolve(&metrics).is_err());
        assert!(resolve(&[&metrics[..], &["--allow-remote-metrics"]].concat()).is_ok());
    }

    #[test]
    fn flags_override_the_file_and_the_file_names_issuers() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("service.toml");
        let text = "data = \"/file\"\nmax-jobs = 7\n[[issuer]]\nissuer = \"https://i\"\n\
            audiences = [\"a\"]\n";
        fs::write(&path, text).unwrap();
        let settings = resolve(&["--config", path.to_str().unwrap(), "--data", "/flag"]).unwrap();
        assert_eq!(settings.personal.unwrap().data, Path::new("/flag"));
        assert_eq!(settings.api.max_jobs, Some(7));
        assert_eq!(settings.issuers[0].issuer, "https://i");
        assert!(!settings.secure_cookies);
        // Issuers send browsers to a proxy that ends TLS before the loopback address, or to it.
        for (scheme, is_secure) in [("https", true), ("http", false)] {
            let redirect = format!("redirect-url = \"{scheme}://h/login/return\"\n");
            fs::write(&path, format!("{text}client-id = \"c\"\n{redirect}")).unwrap();
            let settings = resolve(&["--config", path.to_str().unwrap()]).unwrap();
            assert_eq!(settings.secure_cookies, is_secure);
        }
        for wrong in [
            "max-job = 7\n".to_owned(),
            format!("{text}redirect-url = \"https://h/login/return\"\n"),
            format!("{text}client-id = \"c\"\nredirect-url = \"https://h/back\"\n"),
        ] {
            fs::write(&path, wrong).unwrap();
            assert!(resolve(&["--config", path.to_str().unwrap()]).is_err());
        }
    }
}
