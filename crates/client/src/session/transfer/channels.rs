//! Data channels before a transfer: which mode, who connects, and what to do when a server refuses
//! some of it.
//!
//! MODE E wants the receiver to listen: PORT (SPOR, where several nodes shall connect) for a get,
//! PASV (SPAS) for a put. Where a server or the path between refuses that, or never heard of MODE
//! E, MODE S with whatever address command works is what is left.

use std::{
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use godwit_engine::{
    data::{ChannelParams, ChannelSecurity, ChannelSet},
    host::net,
};
use godwit_proto::{
    Command, Reply,
    command::{EpsvArgument, Mode},
    error::TransferFailure,
    hostport,
    pi::transfer::Direction,
};

use super::data_address::{DataProof, accepted_from, data_address, is_of_another_host};
use crate::{
    endpoint::capabilities::{Lack, Observed},
    error::{Error, Result},
    session::Session,
};

/// Time for the first data connection to a server that listens: three attempts of TCP. A firewall
/// often says nothing, and there may be another way.
const FIRST_CONNECT_LIMIT: Duration = Duration::from_secs(10);

/// Address and mode commands tried before we give up; each turn of the loop has learned something
/// new.
pub(crate) const TURNS_MAX: usize = 6;

impl Session {
    /// Makes data channels ready for a transfer in `direction`, in the best mode that works here.
    /// `stream` insists on MODE S; `striped`: data goes over all stripes that the server has.
    /// Returns the mode.
    pub(crate) async fn make_channels(
        &mut self,
        direction: Direction,
        stream: bool,
        striped: bool,
        doing: &str,
    ) -> Result<Mode> {
        for _ in 0..TURNS_MAX {
            let mode = self.best_mode(direction, stream);
            let settings = self.settings(mode, direction);
            let cached = self.data.set.as_ref().is_some_and(|set| set.cached() > 0);
            let spreads = striped
                && mode == Mode::ExtendedBlock
                && self.may_have_stripes()
                && (direction == Direction::Put || self.sends_all_to_one());
            let suits = self.has_channels_for(spreads);
            if cached && suits && self.server.can_reuse(direction) {
                if self.settle(&settings, doing).await? {
                    return Ok(mode);
                }
                continue;
            }
            self.forget_channels();
            let made = if self.server_listens(direction, mode) {
                self.let_server_listen(mode, settings, spreads, doing)
                    .await?
            } else {
                self.listen(mode, settings, spreads, doing).await?
            };
            if let Some(set) = made {
                self.data.set = Some(set);
                return Ok(mode);
            }
        }
        Err(Error::MissingFeature {
            endpoint: self.endpoint.name(),
            feature: "way to open a data connection that it accepts".to_owned(),
            consequence: doing.to_owned(),
        })
    }

    fn best_mode(&self, direction: Direction, stream: bool) -> Mode {
        let capabilities = &self.endpoint.capabilities;
        let no_address = match direction {
            Direction::Get => capabilities.lacks(Lack::Port),
            Direction::Put => capabilities.lacks(Lack::Pasv),
        };
        if stream || no_address || !self.has_mode_e() {
            Mode::Stream
        } else {
            Mode::ExtendedBlock
        }
    }

    /// It does MODE E, as far as is known.
    pub(crate) fn has_mode_e(&self) -> bool {
        let capabilities = &self.endpoint.capabilities;
        if !self.server.features.parallel && !capabilities.lacks(Lack::ModeE) {
            capabilities.learn(
                Lack::ModeE,
                &self.context.reporter,
                format!(
                    "{}: no PARALLEL in FEAT: a new data channel for each file",
                    self.endpoint.name()
                ),
            );
        }
        !capabilities.lacks(Lack::ModeE)
    }

    /// TYPE, MODE, buffers and OPTS, as far as the server has not heard them.
    pub(crate) fn settings(&mut self, mode: Mode, direction: Direction) -> Vec<Command> {
        let capabilities = &self.endpoint.capabilities;
        let buffers = self
            .data
            .params
            .socket_buffer_bytes
            .filter(|_| !capabilities.lacks(Lack::Buffers));
        let parallelism = self.data.params.parallelism;
        (self.server).prepare(mode, direction, parallelism, buffers)
    }

    /// Asks for the settings. False where MODE E was refused.
    pub(crate) async fn settle(&mut self, settings: &[Command], doing: &str) -> Result<bool> {
        let replies = self.ask_all(settings.iter().cloned(), doing).await?;
        self.settled(settings, replies, doing)
    }

    /// What the server said of its settings. False where MODE E was refused.
    fn settled(&mut self, settings: &[Command], replies: Vec<Reply>, doing: &str) -> Result<bool> {
        for (command, reply) in settings.iter().zip(replies) {
            if reply.code.is_success() {
                continue;
            }
            if !self.is_usable() {
                return Err(Error::refused(doing, reply));
            }
            match command {
                Command::Mode(Mode::ExtendedBlock) => {
                    self.server.forget();
                    self.lesson(Lack::ModeE, &reply, "MODE E", "one data channel per file");
                    return Ok(false);
                }
                Command::Mode(Mode::Stream) | Command::Type(_) => {
                    self.server.forget();
                    return Err(Error::refused(doing, reply));
                }
                // The server keeps what it has: slower, not wrong.
                Command::Opts(options) => self.context.reporter.note(format!(
                    "{}: refused OPTS {options} and goes on as before: {reply}",
                    self.endpoint.name()
                )),
                _ => self.lesson(
                    Lack::Buffers,
                    &reply,
                    "SBUF",
                    "its TCP buffers stay as they are",
                ),
            }
        }
        Ok(true)
    }

    /// Asks for the settings and for one command more, which depends on none of them: one round
    /// trip for all. `None` where MODE E was refused.
    pub(crate) async fn ask_with(
        &mut self,
        settings: &[Command],
        last: &Command,
        doing: &str,
    ) -> Result<Option<Reply>> {
        let together = settings.iter().chain([last]).cloned();
        let mut replies = self.ask_all(together, doing).await?;
        let reply = replies.pop();
        let settled = self.settled(settings, replies, doing)?;
        Ok(reply.filter(|_| settled))
    }

    /// PORT or EPRT, or SPOR where all stripes shall connect. `None` where the server refuses: the
    /// lesson is learned, try without.
    async fn listen(
        &mut self,
        mode: Mode,
        mut settings: Vec<Command>,
        spreads: bool,
        doing: &str,
    ) -> Result<Option<ChannelSet>> {
        let mut stripes = 1;
        if spreads {
            // How many there are, and whether their hosts may connect.
            let Some(addresses) = self.ask_for_stripes(&settings, doing).await? else {
                return Ok(None);
            };
            settings.clear();
            if self.context.target.has_room_for(addresses.len()) {
                stripes = addresses.len();
                self.on_stripes(stripes);
                // The limit of all channels may leave fewer to each.
                let fewer = self.channels_wanted().min(self.data.params.parallelism);
                self.data.params.parallelism = fewer;
                settings = self.settings(mode, Direction::Get);
            }
        }
        let (set, address) = self.open_listener(mode)?;
        let command = match stripes {
            1 => Self::connect_command(address),
            _ => Command::Spor(vec![address]),
        };
        let Some(reply) = self.ask_with(&settings, &command, doing).await? else {
            return Ok(None);
        };
        if reply.code.is_success() {
            return Ok(Some(set));
        }
        if !self.is_usable() || self.endpoint.capabilities.lacks(Lack::Port) {
            return Err(Error::refused(doing, reply));
        }
        if stripes > 1 {
            self.lesson(Lack::StripedPort, &reply, "SPOR", "one stripe sends all");
            return Ok(None);
        }
        self.lesson(
            Lack::Port,
            &reply,
            command.verb(),
            "it will not connect to us, so gets use one data channel (MODE S)",
        );
        Ok(None)
    }

    /// Asks for the data channels of gets in MODE E as the target wants them and waits for no
    /// answer: what follows is refused where one of them was.
    pub(crate) fn listen_ahead(&mut self) -> Result<()> {
        self.data.params.parallelism = self.channels_wanted();
        self.forget_channels();
        let (set, address) = self.open_listener(Mode::ExtendedBlock)?;
        let command = Self::connect_command(address);
        let settings = self.settings(Mode::ExtendedBlock, Direction::Get);
        for command in settings.iter().chain([&command]) {
            self.control.submit(command);
        }
        self.data.set = Some(set);
        Ok(())
    }

    /// A listener, and where it is.
    fn open_listener(&mut self, mode: Mode) -> Result<(ChannelSet, SocketAddr)> {
        let [here, peer] = self.data.addresses;
        let range = self.context.connections.port_range.as_ref();
        let no_listener = |error: std::io::Error| Error::System {
            doing: format!("listen for data connections on {here}"),
            error: error.into(),
        };
        let listener =
            net::listen(here, range, self.data.params.socket_buffer_bytes).map_err(no_listener)?;
        let address = listener.local_addr().map_err(no_listener)?;
        let movers = [self.data.mover()?];
        let mut hosts = self.endpoint.capabilities.addresses.hosts();
        hosts.extend(&self.context.connections.data_hosts);
        let params = ChannelParams {
            only_from: accepted_from(peer, hosts, self.proof()),
            ..self.params_for(mode)
        };
        let set = ChannelSet::passive(&movers, listener, params).map_err(no_listener)?;
        Ok((set, address))
    }

    /// Tells a server where to connect to.
    pub(crate) fn connect_command(address: SocketAddr) -> Command {
        match address.ip() {
            IpAddr::V4(_) => Command::Port(address),
            IpAddr::V6(_) => Command::Eprt(address),
        }
    }

    /// PASV or EPSV, or SPAS where it `spreads`. `None` where the server refuses them.
    async fn let_server_listen(
        &mut self,
        mode: Mode,
        settings: Vec<Command>,
        spreads: bool,
        doing: &str,
    ) -> Result<Option<ChannelSet>> {
        let addresses = match spreads {
            true => self.ask_for_stripes(&settings, doing).await?,
            false => (self.ask_to_listen(settings, doing).await?).map(|address| vec![address]),
        };
        let Some(addresses) = addresses else {
            return Ok(None);
        };
        self.on_stripes(addresses.len());
        let movers = [self.data.mover()?];
        let mut params = self.params_for(mode);
        if !self.endpoint.capabilities.has(Observed::DataReached) {
            params.connect_limit = params.connect_limit.min(FIRST_CONNECT_LIMIT);
        }
        Ok(Some(ChannelSet::active(&movers, addresses, None, params)))
    }

    /// Asks for the settings, and for PASV or EPSV. `None` where the server refuses MODE E, or
    /// both.
    pub(crate) async fn ask_to_listen(
        &mut self,
        mut settings: Vec<Command>,
        doing: &str,
    ) -> Result<Option<SocketAddr>> {
        let [_, peer] = self.data.addresses;
        let epsv = Command::Epsv(EpsvArgument::Any);
        // RFC 2428 §3: PASV cannot carry an IPv6 address.
        let commands = match peer {
            IpAddr::V4(_) => vec![Command::Pasv, epsv],
            IpAddr::V6(_) => vec![epsv],
        };
        let mut last = None;
        for command in commands {
            let settings = std::mem::take(&mut settings);
            let Some(reply) = self.ask_with(&settings, &command, doing).await? else {
                return Ok(None);
            };
            if reply.code.is_success() {
                return self.announced(&command, &reply, peer, doing).map(Some);
            }
            if !self.is_usable() || reply.code.is_transient() {
                return Err(Error::refused(doing, reply));
            }
            last = Some(reply);
        }
        if let Some(reply) = last {
            if self.endpoint.capabilities.lacks(Lack::Pasv) {
                return Err(Error::refused(doing, reply));
            }
            self.lesson(
                Lack::Pasv,
                &reply,
                "PASV",
                "it must connect to us, with one data channel (MODE S)",
            );
        }
        Ok(None)
    }

    /// The address in a 227 or 229, where a connection may lead there ([`data_address`]).
    fn announced(
        &self,
        command: &Command,
        reply: &Reply,
        peer: IpAddr,
        doing: &str,
    ) -> Result<SocketAddr> {
        let text = reply.text();
        let parsed = match command {
            Command::Pasv => hostport::parse_227(&text),
            _ => hostport::parse_229(&text, peer),
        };
        let announced = parsed.ok_or_else(|| Error::refused(doing, reply.clone()))?;
        self.followed(announced, peer)
    }

    /// Where a connection leads that the server has announced to be there ([`data_address`]).
    pub(super) fn followed(&self, announced: SocketAddr, peer: IpAddr) -> Result<SocketAddr> {
        let known = &self.context.connections;
        let (scope, named) = (known.addresses, &known.data_hosts);
        let address =
            data_address(announced, peer, self.proof(), scope, named).ok_or_else(|| {
                Error::LowPort {
                    endpoint: self.endpoint.name(),
                    announced,
                }
            })?;
        if address != announced {
            if is_of_another_host(announced, peer) {
                // Known already, or not: one is enough to name.
                let _ = self.endpoint.capabilities.elsewhere.set(announced);
            }
            self.context.reporter.note(format!(
                "{}: announced {announced} for data: using {address}, the host of the control \
                 connection",
                self.endpoint.name()
            ));
        }
        Ok(address)
    }

    /// What the data connections of this session show before data flows.
    pub(super) fn proof(&self) -> DataProof {
        match self.data.params.security {
            Some(ChannelSecurity::Gsi(_)) => DataProof::Identities,
            _ => DataProof::None,
        }
    }

    /// Which end waits for data connections, as far as the client knows: the server, or itself.
    pub(crate) fn server_listens(&self, direction: Direction, mode: Mode) -> bool {
        match mode {
            Mode::ExtendedBlock => direction == Direction::Put,
            Mode::Stream => !self.endpoint.capabilities.lacks(Lack::Pasv),
        }
    }

    /// What a transfer over connections that the server listened for says of its data ports.
    pub(crate) fn learn_of_ports(&self, result: &std::result::Result<(), TransferFailure>) {
        let capabilities = &self.endpoint.capabilities;
        match result {
            Ok(()) => {
                capabilities.record(Observed::DataReached);
            }
            // It cannot come to us either: the next attempt may do better.
            Err(TransferFailure::NoConnection(_)) if capabilities.lacks(Lack::Port) => {}
            Err(TransferFailure::NoConnection(why)) if !capabilities.has(Observed::DataReached) => {
                let name = self.endpoint.name();
                let text = format!(
                    "{name}: its data ports are closed to us: it must connect to us, with one data \
                     channel (MODE S) ({why})"
                );
                capabilities.learn(Lack::Pasv, &self.context.reporter, text);
            }
            Err(_) => {}
        }
    }

    /// A failure to connect tells what helps where the server has announced another host.
    pub(crate) fn with_remedy(&self, failure: TransferFailure) -> TransferFailure {
        match (failure, self.endpoint.capabilities.elsewhere.get()) {
            (TransferFailure::NoConnection(why), Some(announced)) => {
                let host = announced.ip();
                TransferFailure::NoConnection(format!(
                    "{why}; the server has announced {announced} for data, which is another host: \
                     if that is its own, name it with --data-host {host}, or log in by GSI, where \
                     it proves who it is (DCAU)"
                ))
            }
            (failure, _) => failure,
        }
    }

    /// Holes of what is put do not travel.
    pub(crate) fn sends_holes(&self) -> bool {
        self.data.params.holes && self.server.features.holes
    }

    fn params_for(&self, mode: Mode) -> ChannelParams {
        let mut params = self.data.params.clone();
        params.holes = self.sends_holes();
        if mode == Mode::Stream {
            params.parallelism = 1;
        }
        params
    }
}
