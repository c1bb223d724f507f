//! GSI: the server's certificate, the CAs that it trusts, and the accounts of identities.

use std::{
    fs::File,
    io::Read as _,
    path::{Path, PathBuf},
    sync::Arc,
    time::SystemTime,
};

use godwit_engine::data::{ChannelSecurity, GsiSecurity};
use godwit_gsi::{
    Channel, Context, ContextError, Expect, Settings, Versions,
    cert::{Credential, CredentialError, files},
    gridmap::{AllowList, FILE_BYTES_MAX, Gridmap, GridmapFault, MAPPED_USER, NotMapped},
    name::DistinguishedName,
    verify::{Anchors, Directory, Policy},
};
use godwit_proto::{
    error::StorageFailure,
    pi::server::DataChannelSpec,
    security::{Dcau, Protection},
};
use rustix::io::Errno;
use tracing::warn;

use crate::config::GsiSettings;

/// What all sessions share.
pub(crate) struct Gsi {
    /// `None` if another process handles unauthenticated connections.
    credential: Option<Credential>,
    anchors: Arc<dyn Anchors>,
    gridmap: Option<PathBuf>,
    allowed: AllowList,
}

/// The credential of a session's data channels.
#[derive(Clone)]
pub(crate) struct DataContext {
    pub(crate) credential: Credential,
    pub(crate) anchors: Arc<dyn Anchors>,
}

/// Why GSI cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum GsiError {
    /// The certificate or key of the server.
    #[error("the server's own certificate: {0}")]
    Credential(#[from] CredentialError),
    /// The gridmap file.
    #[error("cannot read gridmap file {path}: {error}")]
    Gridmap {
        /// Which.
        path: PathBuf,
        /// Why.
        error: std::io::Error,
    },
}

impl Gsi {
    pub(crate) fn load(settings: &GsiSettings) -> Result<Self, GsiError> {
        if let Some(path) = &settings.gridmap {
            let (map, faults) = read_gridmap(path).map_err(|error| GsiError::Gridmap {
                path: path.clone(),
                error,
            })?;
            for GridmapFault { line, fault } in faults {
                warn!(gridmap = ?path, line, fault, "a line of the gridmap file is left out");
            }
            if map.is_empty() {
                warn!(gridmap = ?path, "the gridmap file has no entries");
            }
        }
        Ok(Self {
            credential: Some(files::load_first_pair(
                &settings.host,
                None,
                SystemTime::now(),
            )?),
            anchors: Arc::new(Directory::new(settings.authorities.clone())),
            gridmap: settings.gridmap.clone(),
            allowed: settings.allowed.clone(),
        })
    }

    /// Of a pre-login process, which has no gridmap.
    pub(crate) fn of_pre_login(credential: Credential, anchors: Arc<dyn Anchors>) -> Self {
        Self {
            credential: Some(credential),
            ..Self::of_session(anchors)
        }
    }

    /// Of a process without a certificate.
    pub(crate) fn of_session(anchors: Arc<dyn Anchors>) -> Self {
        Self {
            credential: None,
            anchors,
            gridmap: None,
            allowed: AllowList::default(),
        }
    }

    pub(crate) fn anchors(&self) -> Arc<dyn Anchors> {
        Arc::clone(&self.anchors)
    }

    /// The server's side of a handshake in ADAT. It accepts any proxy certificate.
    pub(crate) fn acceptor(&self) -> Result<Context, ContextError> {
        Context::accept(Settings {
            credential: self
                .credential
                .clone()
                .ok_or(ContextError::Credential(CredentialError::NoCertificate))?,
            anchors: self.anchors(),
            policy: Policy::default(),
            expect: Expect::Anyone,
            channel: Channel::Control { delegate: None },
            versions: Versions::Any,
            server_name: None,
        })
    }

    /// The account of a client with this identity that logs in as `user`. Reads the gridmap file,
    /// so that changes count at once: it may block.
    pub(crate) fn account(
        &self,
        identity: &DistinguishedName,
        user: &str,
    ) -> Result<String, StorageFailure> {
        let mapped = match &self.gridmap {
            Some(path) => {
                let map = read_gridmap(path).map_err(|error| {
                    warn!(gridmap = ?path, %error, "no login succeeds: no gridmap file");
                    refusal("the server cannot read who is known")
                })?;
                map.0.account(identity, user).map(str::to_owned)
            }
            None => Err(NotMapped::Unknown {
                identity: identity.to_string(),
            }),
        };
        match mapped {
            Ok(account) => Ok(account),
            // Allowed without an account: the identity itself is the name.
            Err(NotMapped::Unknown { .. })
                if user == MAPPED_USER && self.allowed.allows(identity) =>
            {
                Ok(identity.to_string())
            }
            Err(why) => Err(refusal(&why.to_string())),
        }
    }
}

impl DataContext {
    /// The security of data channels under the session's DCAU and PROT. `None`: none, as requested.
    pub(crate) fn guard(
        context: Option<&Self>,
        spec: &DataChannelSpec,
    ) -> Result<Option<ChannelSecurity>, StorageFailure> {
        if spec.dcau == Dcau::None {
            // The interpreter sends nothing else here.
            return match spec.protection {
                Protection::Clear => Ok(None),
                _ => Err(refusal("there is no protection without DCAU A or S")),
            };
        }
        let Some(Self {
            credential,
            anchors,
        }) = context
        else {
            return Err(refusal(
                "no delegated credential for data channels: delegate, or send DCSC or DCAU N",
            ));
        };
        let mut security =
            GsiSecurity::own_identity(credential.clone(), Arc::clone(anchors), spec.protection);
        if let Dcau::Subject(subject) = &spec.dcau {
            security.peer = DistinguishedName::parse(subject)
                .ok_or_else(|| refusal("the subject of DCAU S is no distinguished name"))?;
        }
        Ok(Some(security.into()))
    }
}

/// A refusal with a reason for the user.
pub(crate) fn refusal(text: &str) -> StorageFailure {
    StorageFailure {
        errno: Errno::PERM.raw_os_error(),
        doing: "prove an identity".to_owned(),
        text: text.to_owned(),
    }
}

fn read_gridmap(path: &Path) -> std::io::Result<(Gridmap, Vec<GridmapFault>)> {
    let mut content = Vec::new();
    let limit = FILE_BYTES_MAX as u64;
    File::open(path)?
        .take(limit + 1)
        .read_to_end(&mut content)?;
    if content.len() as u64 > limit {
        return Err(std::io::Error::other(format!("larger than {limit} bytes")));
    }
    Ok(Gridmap::parse(&String::from_utf8_lossy(&content)))
}
