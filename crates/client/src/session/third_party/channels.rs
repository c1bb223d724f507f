//! Data channels between two servers, neither end of which is ours: which mode, who connects, and
//! what may be refused of it.
//!
//! MODE E wants the receiver to listen. Where the sender cannot come to it, or may not, MODE S lets
//! the sender listen instead, one channel a file.

use std::{cmp::Ordering, net::SocketAddr};

use godwit_engine::data::{ChannelSecurity, GsiSecurity};
use godwit_proto::{
    Command,
    command::{MarkerEvent, Mode},
    mode_e::layout::StripeLayout,
    opts::{Opts, RetrOptions},
    pi::transfer::Direction,
    security::Protection,
};

use super::state::Role;
use crate::{
    endpoint::capabilities::Lack,
    error::{Error, Result},
    session::{Session, transfer::channels::TURNS_MAX},
};

/// Seconds between two markers of one kind that receivers are asked for: what the tuner sees, and
/// what need not be sent again.
const MARKER_SECONDS: u32 = 1;

/// Data channels that are ready.
#[derive(Clone, Copy)]
pub(crate) struct ThirdPartyChannels {
    pub(crate) mode: Mode,
    /// Those of an earlier transfer.
    pub(crate) reused: bool,
    /// Who listens, where they are new.
    pub(crate) awaits_final_reply: Role,
}

impl Session {
    /// Makes data channels ready that lead from the server of `source` to that of this session;
    /// `striped`: to all stripes that it has.
    pub(crate) async fn make_channels_between(
        &mut self,
        source: &mut Session,
        stream: bool,
        striped: bool,
        doing: &str,
    ) -> Result<ThirdPartyChannels> {
        self.agree_on_protection(source).await?;
        self.request_markers();
        for _ in 0..TURNS_MAX {
            let receiver_listens = may_connect(source, self);
            if !receiver_listens && !may_connect(self, source) {
                break;
            }
            // What one of them lacks the other cannot use.
            let both_know = self.has_mode_e() && source.has_mode_e();
            let mode = match receiver_listens && both_know && !stream {
                true => Mode::ExtendedBlock,
                false => Mode::Stream,
            };
            source.server.wants_holes = self.sends_holes();
            let here = self.settings(mode, Direction::Put);
            let there = source.settings(mode, Direction::Get);
            let spreads = striped
                && mode == Mode::ExtendedBlock
                && self.may_have_stripes()
                && source.may_connect_to_stripes();
            let reused = self.has_channels_for(spreads)
                && self.server.can_reuse(Direction::Put)
                && source.server.can_reuse(Direction::Get);
            let made = if reused {
                let settled = tokio::join!(self.settle(&here, doing), source.settle(&there, doing));
                settled.0.and_then(|here| Ok(here && settled.1?))
            } else if receiver_listens {
                source.connect_to(there, self, here, spreads, doing).await
            } else {
                self.connect_to(here, source, there, false, doing).await
            };
            if !matches!(made, Ok(true)) {
                // Not all of the settings were asked for, or heard.
                self.server.forget();
                source.server.forget();
            }
            if made? {
                let awaits_final_reply = match receiver_listens {
                    true => Role::Receiver,
                    false => Role::Sender,
                };
                return Ok(ThirdPartyChannels {
                    mode,
                    reused,
                    awaits_final_reply,
                });
            }
        }
        Err(Error::MissingFeature {
            endpoint: self.endpoint.name(),
            feature: format!("data connection with {}", source.endpoint.name()),
            consequence: format!(
                "{doing}: {}, and {}",
                no_connection_reason(source, self),
                no_connection_reason(self, source)
            ),
        })
    }

    /// Brings the protection of both to the higher of their levels. What cannot be had at one of
    /// them is not given at the other.
    async fn agree_on_protection(&mut self, source: &mut Session) -> Result<()> {
        let levels = [&*self, source].map(|session| session.data_protection());
        let (here, there) = match levels {
            [Ok(None), Ok(None)] => return Ok(()),
            [Ok(Some(here)), Ok(Some(there))] => (here, there),
            [Err(error), _] | [_, Err(error)] => return Err(error),
            [Ok(here), Ok(_)] => {
                let (protected, open) = match here {
                    Some(_) => (&*self, &*source),
                    None => (&*source, &*self),
                };
                return Err(Error::Usage(format!(
                    "{} proves on its data channels who it is, {} cannot: use gsiftp:// for both, \
                     or --protect clear",
                    protected.endpoint.name(),
                    open.endpoint.name()
                )));
            }
        };
        let rank = |level| match level {
            Protection::Clear => 0,
            Protection::Safe => 1,
            Protection::Confidential => 2,
            Protection::Private => 3,
        };
        match rank(here).cmp(&rank(there)) {
            Ordering::Equal => {}
            Ordering::Less => self.raise_to(there, source).await?,
            Ordering::Greater => source.raise_to(here, self).await?,
        }
        self.share_credential(source).await
    }

    /// Level of the data channels; `None`: nothing guards them.
    fn data_protection(&self) -> Result<Option<Protection>> {
        match &self.data.params.security {
            None => Ok(None),
            Some(ChannelSecurity::Gsi(security)) => Ok(Some(security.protection)),
            Some(_) => Err(Error::Usage(format!(
                "{}: FTP over TLS protects data between a server and its client, not between two \
                 servers: use gsiftp://, or --protect clear",
                self.endpoint.name()
            ))),
        }
    }

    async fn raise_to(&mut self, level: Protection, other: &Session) -> Result<()> {
        let doing = format!("PROT {level} at {}", self.endpoint.name());
        let command = Command::Security {
            verb: "PROT".to_owned(),
            argument: level.to_string(),
        };
        let reply = self.ask(&command, &doing).await?;
        if !reply.code.is_success() {
            return Err(Error::MissingFeature {
                endpoint: self.endpoint.name(),
                feature: format!("PROT {level}"),
                consequence: format!(
                    "{} has no lower level, so that nothing can travel between the two (server \
                     said: {reply})",
                    other.endpoint.name()
                ),
            });
        }
        if let Some(ChannelSecurity::Gsi(security)) = &self.data.params.security {
            let security = GsiSecurity {
                protection: level,
                ..(**security).clone()
            };
            self.data.params.security = Some(security.into());
        }
        // PROT drops what was kept (GFD.020).
        self.server.cached = None;
        Ok(())
    }

    /// Which stripe is to get which bytes, where the user has said so.
    fn layout(&self) -> Option<Command> {
        let block_bytes = self.context.connections.stripe_block?;
        Some(Command::Opts(Opts::Retr(RetrOptions {
            layout: Some(StripeLayout::Blocked { block_bytes }),
            ..RetrOptions::default()
        })))
    }

    /// Once: receivers tell how far they are seldom, unless asked. What they answer changes
    /// nothing.
    fn request_markers(&mut self) {
        if std::mem::replace(&mut self.data.markers_requested, true) {
            return;
        }
        for event in [MarkerEvent::Performance, MarkerEvent::Restart] {
            let seconds = MARKER_SECONDS;
            self.control.submit(&Command::Trev { event, seconds });
        }
    }

    /// `to` listens, and this server gets the address. False where one of them refuses: the
    /// lesson is learned.
    async fn connect_to(
        &mut self,
        mut settings: Vec<Command>,
        to: &mut Session,
        settings_there: Vec<Command>,
        spreads: bool,
        doing: &str,
    ) -> Result<bool> {
        self.forget_channels();
        to.forget_channels();
        let addresses = match spreads {
            true => to.ask_for_stripes(&settings_there, doing).await?,
            false => (to.ask_to_listen(settings_there, doing).await?).map(|address| vec![address]),
        };
        let Some(addresses) = addresses else {
            return Ok(false);
        };
        let [_, peer] = self.data.addresses;
        let unreachable = |address: &&SocketAddr| address.ip().is_loopback() && !peer.is_loopback();
        if let Some(address) = addresses.iter().find(unreachable) {
            return Err(Error::Usage(format!(
                "{}: listens on {address}, where {} cannot reach it: name it by an address that \
                 all can reach",
                to.endpoint.name(),
                self.endpoint.name(),
            )));
        }
        let command = match addresses[..] {
            [address] => Self::connect_command(address),
            _ => {
                settings.extend(self.layout());
                Command::Spor(addresses.clone())
            }
        };
        let Some(reply) = self.ask_with(&settings, &command, doing).await? else {
            return Ok(false);
        };
        if reply.code.is_success() {
            self.on_stripes(addresses.len());
            to.on_stripes(addresses.len());
            return Ok(true);
        }
        if !self.is_usable() || reply.code.is_transient() {
            return Err(Error::refused(doing, reply));
        }
        if addresses.len() > 1 {
            self.lesson(Lack::StripedPort, &reply, "SPOR", "one stripe takes all");
            return Ok(false);
        }
        self.endpoint.capabilities.learn(
            Lack::ForeignConnections,
            &self.context.reporter,
            format!(
                "{}: connects to no host but ours: the other server must connect to it, with one \
                 data channel (MODE S) (server said: \
                 {reply})",
                self.endpoint.name()
            ),
        );
        Ok(false)
    }
}

/// `from` may connect to `to`, as far as is known.
fn may_connect(from: &Session, to: &Session) -> bool {
    let (from, to) = (&from.endpoint.capabilities, &to.endpoint.capabilities);
    !from.lacks(Lack::ForeignConnections) && !to.lacks(Lack::Pasv) && to.unreached.get().is_none()
}

/// Why no connection leads from `from` to `to`, and what either could change.
fn no_connection_reason(from: &Session, to: &Session) -> String {
    let (from, to) = (&from.endpoint, &to.endpoint);
    if to.capabilities.lacks(Lack::Pasv) {
        format!("{} does not listen (PASV)", to.name())
    } else if from.capabilities.lacks(Lack::ForeignConnections) {
        format!(
            "{} connects to no host but ours (PORT; godwitd does for users who are logged in, or \
             with --allow-foreign-data-hosts)",
            from.name()
        )
    } else {
        let why = to.capabilities.unreached.get().map_or("", String::as_str);
        format!(
            "{} cannot connect to {}, whose data ports may be closed to it ({why})",
            from.name(),
            to.name()
        )
    }
}
