//! What all sessions share that started under the same settings.

use std::sync::Arc;

use godwit_engine::storage::{PosixStorage, Storage};
use godwit_gsi::{
    cert::{Credential, files},
    ftps,
    seal::SealKey,
};
use tokio::sync::Semaphore;
use tracing::warn;

use crate::{
    access::{
        accounts::Accounts,
        copies::Copies,
        gsi::{Gsi, GsiError},
        identity::Monitor,
        long_calls::LongCalls,
        owner::Owner,
        passwords, s3_keys,
        scoped::CreatedFiles,
        tokens,
        turns::Turns,
    },
    config::{Anonymous, ServerSettings, TlsSettings},
    error::ServerError,
    nodes::front::{Unfenced, monitored::NodePool, pool::Nodes},
    observe::audit::Audit,
    storage::durability::Committer,
};

/// Threads that work on logins at a time. Each reads files or asks a monitor, and soon ends.
const LOGIN_THREADS_MAX: usize = 64;

/// What all sessions share that started under the same settings.
pub(crate) struct Service {
    pub(crate) settings: ServerSettings,
    /// With the storage.
    pub(crate) committer: Arc<Committer>,
    /// Files of logins that may create files and not change them.
    pub(crate) made: CreatedFiles,
    /// Authentication by grid certificates.
    pub(crate) gsi: Option<Arc<Gsi>>,
    pub(crate) audit: Arc<Audit>,
    /// AUTH TLS.
    pub(crate) tls: Option<ftps::Server>,
    /// TLS of HTTPS.
    pub(crate) https: Option<ftps::Server>,
    /// TLS of S3, without certificates of clients.
    pub(crate) s3: Option<ftps::Server>,
    pub(crate) s3_keys: s3_keys::KeyCache,
    /// Copies over HTTPS with other servers.
    pub(crate) copies: Option<Arc<Copies>>,
    /// For tokens that users hand to other servers; `None`: none is issued.
    pub(crate) issuer: Option<Arc<SealKey>>,
    pub(crate) passwords: passwords::Cache,
    /// One turn for each core, since a checksum keeps a core busy.
    pub(crate) turns: Turns,
    /// Threads for copies and listings over HTTPS.
    pub(crate) long_calls: LongCalls,
    /// One permit for each thread that works on a login.
    pub(crate) logins: Arc<Semaphore>,
    /// In a pre-login process, the monitor that decides on logins.
    pub(crate) monitor: Option<Arc<dyn Monitor>>,
    /// In a privileged monitor, the accounts of its processes.
    pub(crate) accounts: Option<Arc<Accounts>>,
    /// The data nodes that move the data of sessions.
    pub(crate) nodes: Option<NodePool>,
    /// Files into which data nodes that were cut off may still write: also where other settings
    /// name other nodes.
    pub(crate) unfenced: Arc<Unfenced>,
    /// The only user, if sshd started the server.
    pub(crate) owner: Option<Owner>,
}

impl Service {
    pub(crate) fn new(
        mut settings: ServerSettings,
        audit: Arc<Audit>,
        unfenced: Arc<Unfenced>,
    ) -> Result<Self, ServerError> {
        let storage = PosixStorage::rooted(&settings.root).map_err(|error| ServerError::Root {
            path: settings.root.clone(),
            error,
        })?;
        let storage = storage.with_direct_io(settings.direct_io);
        let gsi = settings.gsi.as_ref().map(Gsi::load).transpose()?;
        let separated = |error: &dyn std::fmt::Display| ServerError::Separation(error.to_string());
        let accounts = match &settings.separation {
            Some(separation) => {
                // Sessions have another working directory.
                let root = settings.root.canonicalize();
                settings.root = root.map_err(|error| separated(&error))?;
                let anonymous = settings.anonymous != Anonymous::Off;
                let accounts =
                    Accounts::find(separation, anonymous).map_err(|error| separated(&error))?;
                Some(Arc::new(accounts))
            }
            None => None,
        };
        if let Some(passwords) = &settings.passwords {
            passwords::check(&passwords.file).map_err(|error| ServerError::Passwords {
                path: passwords.file.clone(),
                error,
            })?;
        }
        for issuer in settings.tokens.iter().flat_map(|tokens| &tokens.issuers) {
            tokens::keys_of(issuer).map_err(|error| ServerError::Keys {
                path: issuer.keys.clone(),
                error,
            })?;
        }
        if let Some(keys) = &settings.s3_keys {
            s3_keys::check(keys).map_err(|error| ServerError::S3Keys {
                path: keys.clone(),
                error,
            })?;
        }
        let storage: Arc<dyn Storage> = Arc::new(storage);
        let nodes = settings.data_nodes.as_ref();
        let nodes = nodes.map(|nodes| {
            let unfenced = Arc::clone(&unfenced);
            Nodes::new(nodes, Arc::clone(&storage), unfenced)
        });
        let nodes = nodes.transpose().map_err(ServerError::NodeTls)?;
        if let Some(nodes) = &nodes {
            nodes.watch();
        }
        let service = Self {
            accounts,
            nodes: nodes.map(NodePool::Own),
            unfenced,
            ..Self::on(storage, settings, audit, gsi)
        };
        service.with_tls()
    }

    /// The same with AUTH TLS, HTTPS and S3, as far as the settings name them.
    pub(crate) fn with_tls(mut self) -> Result<Self, ServerError> {
        let settings = &self.settings;
        let Some(settings_of_tls) = &settings.tls else {
            return Ok(self);
        };
        let credential = credential_of(settings_of_tls)?;
        let clients = || self.gsi.as_deref().map(Gsi::anchors);
        let tls = ftps::Server::new(&credential, clients()).map_err(GsiError::Credential)?;
        if !settings.s3.is_empty() {
            let server = ftps::Server::https(&credential, None);
            self.s3 = Some(server.map_err(GsiError::Credential)?);
        }
        if !settings.https.is_empty() {
            let server = ftps::Server::https(&credential, clients());
            self.https = Some(server.map_err(GsiError::Credential)?);
            let made = settings
                .copies
                .as_ref()
                .map(|of| Copies::new(of, settings, &credential));
            let made = made.transpose().map_err(GsiError::Credential)?;
            self.copies = made.map(Arc::new);
            if settings.issue_tokens {
                let key = SealKey::random();
                let key = key.inspect_err(|error| warn!(%error, "no token is issued"));
                self.issuer = key.ok().map(Arc::new);
            }
        }
        self.tls = Some(tls);
        Ok(self)
    }

    pub(crate) fn on(
        storage: Arc<dyn Storage>,
        settings: ServerSettings,
        audit: Arc<Audit>,
        gsi: Option<Gsi>,
    ) -> Self {
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        Self {
            committer: Committer::new(settings.durability, storage),
            made: CreatedFiles::default(),
            gsi: gsi.map(Arc::new),
            tls: None,
            https: None,
            s3: None,
            s3_keys: s3_keys::KeyCache::default(),
            copies: None,
            issuer: None,
            settings,
            audit,
            passwords: passwords::Cache::default(),
            turns: Turns::new(cores),
            long_calls: LongCalls::default(),
            logins: Arc::new(Semaphore::new(LOGIN_THREADS_MAX)),
            monitor: None,
            accounts: None,
            nodes: None,
            unfenced: Arc::default(),
            owner: None,
        }
    }
}

fn credential_of(settings: &TlsSettings) -> Result<Credential, GsiError> {
    let now = std::time::SystemTime::now();
    Ok(files::load_first_pair(&settings.host, None, now)?)
}
