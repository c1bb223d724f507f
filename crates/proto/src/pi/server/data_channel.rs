//! The data channel object: PASV, EPSV, SPAS, PORT, EPRT, SPOR, and its end.
//!
//! Made by an address command, with a copy of parallelism, layout and buffers that is never read
//! again (the only way both ends can agree on what cached channels are). Gone with the next address
//! command, PROT, DCAU, ABOR, a failed transfer, and after every transfer in MODE S. The
//! connections of a receipt that was refused go a moment later, see
//! [`ServerPi::part_with_data_channel`].

use std::{
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use crate::{
    command::{EpsvArgument, NetworkProtocol},
    error::{StorageFailure, errno},
    hostport::{format_comma, format_extended},
    reply::{BodyStyle, Reply, ReplyCode},
};

use super::{
    DataChannelSpec, Outcome, Output, Request, ServerPi,
    purpose::{PassiveForm, Purpose},
};

/// Ports below are other services' (RFC 2577 §3).
const PORT_MIN: u16 = 1024;

/// Time for the reply that refuses a receipt to be read, before the sender's connections break.
/// Short: there are senders that end only then.
const PARTING_LIMIT: Duration = Duration::from_secs(1);

/// What the session has to move data on.
#[derive(Debug, Default)]
pub(super) enum DataChannel {
    #[default]
    None,
    /// An address is announced when a transfer begins (OPTS PASV AllowDelayed).
    Delayed {
        form: PassiveForm,
        spec: DataChannelSpec,
    },
    /// The shell listens, or remembers where to connect.
    Made {
        end: End,
        /// Connections have survived a transfer. In MODE E their direction follows from `end`.
        cached: bool,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Passive,
    Active,
}

impl DataChannel {
    pub(super) fn is_cached(&self) -> bool {
        matches!(self, Self::Made { cached: true, .. })
    }
}

impl ServerPi {
    pub(super) fn drop_data_channel(&mut self) {
        let parted = self.parting_until.take().is_some();
        if self.forget_data_channel() || parted {
            self.outputs.push_back(Output::DropDataChannels);
        }
    }

    /// A receipt has failed for reasons of its file: nothing can be done with the data channel any
    /// more, but its connections stay open for a moment. A sender that is another server complains
    /// as soon as they break, and its client would take that for the reason if it came before our
    /// reply.
    pub(super) fn part_with_data_channel(&mut self) {
        if self.forget_data_channel() {
            self.parting_until = self.active_at.checked_add(PARTING_LIMIT);
        }
    }

    /// Whether there was one that the shell knows of.
    fn forget_data_channel(&mut self) -> bool {
        self.drop_speculative();
        let former = std::mem::take(&mut self.session.data_channel);
        matches!(former, DataChannel::Made { .. })
    }

    pub(super) fn run_epsv(&mut self, argument: EpsvArgument) {
        match argument {
            EpsvArgument::All => {
                self.session.epsv_only = true;
                self.answer(229, "EPSV ALL Successful.");
            }
            EpsvArgument::Any => self.run_passive(PassiveForm::Epsv(None)),
            EpsvArgument::Protocol(protocol) => {
                self.run_passive(PassiveForm::Epsv(Some(protocol)));
            }
        }
    }

    pub(super) fn run_passive(&mut self, form: PassiveForm) {
        self.drop_data_channel();
        if self.session.epsv_only && !matches!(form, PassiveForm::Epsv(_)) {
            return self.answer(501, "Only EPSV is allowed after EPSV ALL.");
        }
        let family = self.control_family();
        if form == PassiveForm::Pasv && family == NetworkProtocol::Ipv6 {
            return self.answer(522, "Network protocol not supported, use EPSV (2).");
        }
        // The server could not check there that a connection is from the client's host.
        if form.protocol(family) != family && !self.session.account.foreign_data_hosts {
            let refusal = self.other_family();
            return self.reply(&refusal);
        }
        if let Some(why) = self.why_unprotected() {
            return self.answer(534, why);
        }
        let mut spec = self.session.data_channel_spec();
        spec.striped = matches!(form, PassiveForm::Spas(_));
        if self.session.delayed_passive {
            self.session.data_channel = DataChannel::Delayed { form, spec };
            return self.answer(200, "Passive delayed.");
        }
        self.request(
            Request::Listen(spec, form.protocol(family)),
            Purpose::Passive(form),
        );
    }

    pub(super) fn on_listening(
        &mut self,
        form: PassiveForm,
        result: Result<Outcome, StorageFailure>,
    ) {
        match self.accept_listening(form, result, false) {
            Ok(reply) | Err(reply) => self.reply(&reply),
        }
    }

    /// Makes the data channel object of a finished `Listen`. The reply announces the address, or
    /// says why there is none.
    pub(super) fn accept_listening(
        &mut self,
        form: PassiveForm,
        result: Result<Outcome, StorageFailure>,
        delayed: bool,
    ) -> Result<Reply, Reply> {
        let addresses = match result {
            Ok(Outcome::Listening(addresses)) => addresses,
            Ok(_) => Vec::new(),
            Err(failure) if failure.errno == errno::EAFNOSUPPORT => {
                return Err(self.other_family());
            }
            Err(failure) => {
                return Err(Reply::new(
                    ReplyCode::of(425),
                    format!("Can't listen for data connections: {}", failure.text),
                ));
            }
        };
        match self.announce(form, &addresses, delayed) {
            Some(reply) => {
                self.session.data_channel = DataChannel::Made {
                    end: End::Passive,
                    cached: false,
                };
                Ok(reply)
            }
            None => {
                self.outputs.push_back(Output::DropDataChannels);
                Err(Reply::new(
                    ReplyCode::of(425),
                    "Can't listen for data connections: no address of that family.",
                ))
            }
        }
    }

    /// 227/229, or 127/129 where the address comes with the transfer. `None` where the form cannot
    /// say the address.
    fn announce(
        &self,
        form: PassiveForm,
        addresses: &[SocketAddr],
        delayed: bool,
    ) -> Option<Reply> {
        let code = |number: u16| ReplyCode::new(if delayed { number - 100 } else { number });
        let first = canonical(*addresses.first()?);
        Some(match form {
            PassiveForm::Pasv => Reply::new(
                code(227)?,
                format!("Entering Passive Mode ({})", format_comma(first)?),
            ),
            PassiveForm::Epsv(_) => {
                // jglobus reads only the short form; the long one is for an address that the client
                // cannot know.
                let place = if first.ip() == self.config.local.ip().to_canonical() {
                    format!("|||{}|", first.port())
                } else {
                    format_extended(first)
                };
                Reply::new(
                    code(229)?,
                    format!("Entering Extended Passive Mode ({place})"),
                )
            }
            PassiveForm::Spas(protocol) => {
                let lines = addresses
                    .iter()
                    .map(|address| {
                        let address = canonical(*address);
                        let line = match protocol {
                            Some(_) => format_extended(address),
                            None => {
                                format_comma(address).unwrap_or_else(|| format_extended(address))
                            }
                        };
                        line.into_bytes()
                    })
                    .collect::<Vec<_>>();
                // One line per stripe and nothing else: GCT's client counts lines.
                Reply::with_body(
                    code(229)?,
                    BodyStyle::Blank,
                    "Entering Striped Passive Mode.",
                    lines,
                    "End",
                )
            }
        })
    }

    pub(super) fn run_active(&mut self, addresses: Vec<SocketAddr>, striped: bool) {
        self.drop_data_channel();
        self.session.delayed_passive = false;
        if self.session.epsv_only {
            return self.answer(501, "Only EPSV is allowed after EPSV ALL.");
        }
        let addresses: Vec<_> = addresses.into_iter().map(canonical).collect();
        let channels_max = usize::try_from(self.config.channels_max).unwrap_or(usize::MAX);
        if addresses.is_empty() || addresses.len() > channels_max {
            return self.answer(501, "Malformed argument.");
        }
        if addresses.iter().any(|address| address.port() < PORT_MIN) {
            return self.answer(501, "Illegal PORT command. : Ports below 1024 are refused.");
        }
        let peer = self.config.peer.ip().to_canonical();
        if !self.session.account.foreign_data_hosts
            && addresses.iter().any(|address| address.ip() != peer)
        {
            return self.answer(
                501,
                "Illegal PORT command. : Data connections go only to the host of the client.",
            );
        }
        if let Some(why) = self.why_unprotected() {
            return self.answer(534, why);
        }
        let mut spec = self.session.data_channel_spec();
        spec.striped = striped;
        self.request(Request::ConnectTo(spec, addresses), Purpose::Active);
    }

    pub(super) fn on_connect_noted(&mut self, result: Result<Outcome, StorageFailure>) {
        match result {
            Ok(Outcome::Done) => {
                self.session.data_channel = DataChannel::Made {
                    end: End::Active,
                    cached: false,
                };
                self.answer(200, "PORT Command successful.");
            }
            Ok(_) => self.answer(451, "Local error in processing."),
            Err(failure) => {
                self.answer(425, format!("Can't open data connection: {}", failure.text));
            }
        }
    }

    /// RFC 2428 §3: what the control connection speaks is what we can serve.
    fn other_family(&self) -> Reply {
        let number = match self.control_family() {
            NetworkProtocol::Ipv4 => 1,
            NetworkProtocol::Ipv6 => 2,
        };
        let text = format!("Network protocol not supported, use ({number}).");
        Reply::new(ReplyCode::of(522), text)
    }

    /// Family of the control connection.
    pub(super) fn control_family(&self) -> NetworkProtocol {
        match self.config.local.ip().to_canonical() {
            IpAddr::V4(_) => NetworkProtocol::Ipv4,
            IpAddr::V6(_) => NetworkProtocol::Ipv6,
        }
    }
}

impl PassiveForm {
    pub(super) fn protocol(self, control: NetworkProtocol) -> NetworkProtocol {
        match self {
            Self::Pasv => NetworkProtocol::Ipv4,
            Self::Epsv(protocol) | Self::Spas(protocol) => protocol.unwrap_or(control),
        }
    }
}

/// An IPv4 address in IPv6 clothes is the IPv4 address.
fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}
