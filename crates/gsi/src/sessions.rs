//! TLS sessions that a server gives on the control channel and data channels resume.
//!
//! ```text
//!   control channel ── ticket or session id ──► Sessions (the newest)
//!                                           ──► ClientHello of each data channel
//! ```
//! Nothing else in FTP over TLS shows a server that a data connection comes from the client of the
//! control channel, and vsftpd, ProFTPD and FileZilla Server refuse connections that resume
//! nothing. A server that forgot the session, or never gave one, gets a whole handshake.
//!
//! The only unsafe code of the tree is here: OpenSSL's crate cannot see that a session belongs to
//! the context of the connection that resumes it. Here it does by construction: both are kept in
//! one value, and the connection is made from that.

use std::fmt;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use openssl::error::ErrorStack;
use openssl::ex_data::Index;
use openssl::ssl::{
    NameType, Ssl, SslContext, SslContextBuilder, SslOptions, SslRef, SslSession,
    SslSessionCacheMode,
};
use zeroize::Zeroizing;

/// The newest session that the server of one connection has given. Clones share it.
#[derive(Clone, Default)]
pub struct Sessions(Arc<Mutex<Option<Session>>>);

/// A session, and the context that it belongs to.
struct Session {
    context: SslContext,
    /// Serialized: each connection gets a session of its own. OpenSSL marks a session as bad for
    /// all its connections when one of them ends without close_notify, as those do whose records
    /// are made here (`records`).
    der: Zeroizing<Vec<u8>>,
    /// Servers compare it with the one that the session was given for (RFC 6066 §3).
    server_name: Option<String>,
}

/// Where connections have their [`Sessions`]: the same place in all.
static PLACE: OnceLock<Index<Ssl, Sessions>> = OnceLock::new();

fn place() -> Result<Index<Ssl, Sessions>, ErrorStack> {
    if let Some(place) = PLACE.get() {
        return Ok(*place);
    }
    // Another thread may be quicker: then all use its index, and this one stays unused.
    let place = Ssl::new_ex_index()?;
    Ok(*PLACE.get_or_init(|| place))
}

/// Makes connections of the context, of which ours is the client's side, keep sessions where
/// [`Sessions::of`] was called.
pub(crate) fn keep_sessions(builder: &mut SslContextBuilder) {
    // TLS 1.2: a server without a cache gives tickets alone.
    builder.clear_options(SslOptions::NO_TICKET);
    builder.set_session_cache_mode(SslSessionCacheMode::CLIENT | SslSessionCacheMode::NO_INTERNAL);
    builder.set_new_session_callback(|ssl, session| {
        if let Some(sessions) = PLACE.get().and_then(|place| ssl.ex_data(*place)) {
            sessions.keep(ssl, &session);
        }
    });
}

impl Sessions {
    /// Those that the server of `ssl` will give.
    pub(crate) fn of(ssl: &mut SslRef) -> Result<Self, ErrorStack> {
        let sessions = Self::default();
        ssl.set_ex_data(place()?, sessions.clone());
        Ok(sessions)
    }

    fn keep(&self, ssl: &SslRef, session: &SslSession) {
        let Ok(der) = session.to_der() else {
            return;
        };
        let session = Session {
            context: ssl.ssl_context().to_owned(),
            der: Zeroizing::new(der),
            server_name: ssl.servername(NameType::HOST_NAME).map(str::to_owned),
        };
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(session);
    }

    /// A connection that offers to resume the newest. `None` where there is none to offer.
    pub(crate) fn resume(&self) -> Option<Ssl> {
        let session = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        session.as_ref()?.resume().ok()
    }
}

impl Session {
    #[expect(unsafe_code, reason = "OpenSSL's crate has no other way to resume")]
    fn resume(&self) -> Result<Ssl, ErrorStack> {
        let mut ssl = Ssl::new(&self.context)?;
        if let Some(name) = &self.server_name {
            ssl.set_hostname(name)?;
        }
        let session = SslSession::from_der(&self.der)?;
        // SAFETY: `set_session` asks that the session belongs to the context of the connection.
        // `keep` takes the context of the very connection that was given the session, `ssl` is made
        // from that context, and nothing changes the pair. The session itself was just made: no
        // cache and no other connection knows it. OpenSSL counts its own reference to it.
        unsafe { ssl.set_session(&session)? };
        Ok(ssl)
    }
}

/// Without the session, which holds secrets.
impl fmt::Debug for Sessions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sessions").finish_non_exhaustive()
    }
}
