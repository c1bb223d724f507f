//! Data of one transfer over several addresses of a server, one a stripe (SPAS), or from several
//! nodes of it to one address of ours (SPOR).
//!
//! Small files have one stripe. What SPAS costs beyond PASV, the front end's questions to its nodes
//! and a new connection to each, is paid again for each change between the two, and small files
//! follow each other in a pipeline, which has one stripe (docs/adr/0163).

use std::net::{IpAddr, SocketAddr};

use godwit_proto::{
    Command, Reply,
    command::{Mode, NetworkProtocol},
    hostport,
    pi::transfer::Direction,
};

use super::data_address::data_address;
use crate::{
    endpoint::capabilities::{Lack, Observed},
    error::{Error, Result},
    session::{Session, SessionPair},
};

/// Stripes of one transfer; of servers with more one takes all. Each has a connection of its own
/// at least. Chosen arbitrarily; real clusters have tens.
const STRIPES_MAX: usize = 256;

impl Session {
    /// The server may have several addresses for the data of one transfer, as far as is known.
    pub(crate) fn may_have_stripes(&self) -> bool {
        self.context.target.allows_stripes()
            && self.server.features.spas
            && !self.endpoint.capabilities.lacks(Lack::Stripes)
    }

    /// It may connect to several, as far as is known.
    pub(crate) fn may_connect_to_stripes(&self) -> bool {
        self.server.features.spor && !self.endpoint.capabilities.lacks(Lack::StripedPort)
    }

    /// It sends any part of a file to several addresses. The reference server sends all of a file:
    /// of a part that does not begin at the start it leaves out bytes and says 226
    /// (docs/spec/striping.md).
    pub(crate) fn sends_striped(&self, retrieve: &Command, restart: bool) -> bool {
        let is_whole = matches!(retrieve, Command::Retr(_)) && !restart;
        self.may_connect_to_stripes() && (is_whole || self.is_ours())
    }

    /// Told one address (SPOR), all its nodes connect there and send one file together. Of the
    /// reference server one node does, and parts of files are wrong (docs/spec/striping.md).
    pub(crate) fn sends_all_to_one(&self) -> bool {
        self.is_ours() && self.may_connect_to_stripes()
    }

    /// A server with this extension of ours has the others too.
    fn is_ours(&self) -> bool {
        self.server.features.live_channels
    }

    /// The channels that are there suit a transfer that is to have stripes, or none.
    pub(crate) fn has_channels_for(&self, stripes: bool) -> bool {
        (self.server.stripes > 1) == stripes
    }

    /// Asks for the settings, and for SPAS. `None` where the server refuses MODE E, or where no
    /// stripes are to be had: the lesson is learned, try without.
    pub(crate) async fn ask_for_stripes(
        &mut self,
        settings: &[Command],
        doing: &str,
    ) -> Result<Option<Vec<SocketAddr>>> {
        let [_, peer] = self.data.addresses;
        let command = Command::Spas(match peer {
            IpAddr::V4(_) => None,
            IpAddr::V6(_) => Some(NetworkProtocol::Ipv6),
        });
        let Some(reply) = self.ask_with(settings, &command, doing).await? else {
            return Ok(None);
        };
        if !reply.code.is_success() {
            if !self.is_usable() || reply.code.is_transient() {
                return Err(Error::refused(doing, reply));
            }
            self.lesson(Lack::Stripes, &reply, "SPAS", "one stripe takes all");
            return Ok(None);
        }
        self.stripes_in(&reply, peer)
    }

    /// The addresses of a reply to SPAS, where connections may lead to all of them.
    fn stripes_in(&self, reply: &Reply, peer: IpAddr) -> Result<Option<Vec<SocketAddr>>> {
        let refused = |why: &str| {
            let name = self.endpoint.name();
            let text = format!("{name}: {why}: one stripe takes all");
            (self.endpoint.capabilities).learn(Lack::Stripes, &self.context.reporter, text);
            Ok(None)
        };
        let Some(announced) = hostport::parse_striped(reply) else {
            return refused("the addresses in its answer to SPAS cannot be read");
        };
        if announced.len() > STRIPES_MAX {
            return refused(&format!(
                "it has {} addresses for one transfer, more than {STRIPES_MAX}",
                announced.len()
            ));
        }
        if let [address] = announced[..] {
            // PASV says the same from now on.
            self.endpoint.capabilities.record_lack(Lack::Stripes);
            return self.followed(address, peer).map(|to| Some(vec![to]));
        }
        for address in &announced {
            let known = &self.context.connections;
            let (scope, named) = (known.addresses, &known.data_hosts);
            if data_address(*address, peer, self.proof(), scope, named) != Some(*address) {
                return refused(&format!(
                    "it has its stripes on other hosts ({address}), and nothing proves that they \
                     are its own (DCAU, or --data-host)"
                ));
            }
        }
        self.endpoint.capabilities.record(Observed::HasStripes);
        Ok(Some(announced))
    }

    /// Connections lead to so many addresses from now on.
    pub(crate) fn on_stripes(&mut self, stripes: usize) {
        let stripes = u32::try_from(stripes).unwrap_or(u32::MAX);
        self.server.stripes = stripes;
        self.context.target.on_stripes(&self.endpoint, stripes);
    }

    /// Channels of a transfer that has `parallelism` of them a stripe.
    pub(crate) fn channels_of(&self, mode: Mode, parallelism: u32) -> u32 {
        match mode {
            Mode::ExtendedBlock => parallelism.saturating_mul(self.server.stripes),
            Mode::Stream => 1,
        }
    }
}

impl SessionPair {
    /// The sender sends whole files to all stripes of the receiver, and parts of them to one.
    pub(crate) fn stripes_whole_files(&self) -> bool {
        self.receiver
            .endpoint
            .capabilities
            .has(Observed::HasStripes)
            && self.may_stripe_whole_files()
    }

    fn may_stripe_whole_files(&self) -> bool {
        self.receiver.may_have_stripes()
            && (self.sender.as_ref())
                .is_some_and(|sender| sender.may_connect_to_stripes() && !sender.is_ours())
    }

    /// Asks the receiver for its stripes, where that was not known and decides whether a large file
    /// is moved in parts.
    pub(crate) async fn learn_stripes(&mut self, doing: &str) -> Result<()> {
        let capabilities = &self.receiver.endpoint.capabilities;
        let both_know = |pair: &Self| {
            pair.receiver.has_mode_e() && pair.sender.as_ref().is_some_and(Session::has_mode_e)
        };
        if capabilities.has(Observed::HasStripes)
            || !self.may_stripe_whole_files()
            || !both_know(self)
        {
            return Ok(());
        }
        let receiver = &mut self.receiver;
        receiver.forget_channels();
        let settings = receiver.settings(Mode::ExtendedBlock, Direction::Put);
        let asked = receiver.ask_for_stripes(&settings, doing).await;
        if !matches!(asked, Ok(Some(_))) {
            // Not all of the settings were asked for, or heard.
            receiver.server.forget();
        }
        asked.map(drop)
    }
}
