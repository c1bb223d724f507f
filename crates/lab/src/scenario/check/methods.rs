//! Checks of methods: whether the programs can do what the scenario requires.

use super::super::cell::Cell;
use super::super::error::Invalid;
use super::super::format::{Client, Method, Scenario};
use super::CHANNELS_MAX;

/// Most transfers at once: each has two hosts of its own.
const TRANSFERS_MAX: u32 = 16;

impl Scenario {
    pub(super) fn check_methods(&self) -> Result<(), Invalid> {
        if self.method.is_empty() {
            return Err(Invalid::new("method", "there must be at least one"));
        }
        for (index, method) in self.method.iter().enumerate() {
            let field = |name: &str| format!("method[{index}].{name}");
            let odd = |c: char| !c.is_ascii_alphanumeric() && c != '-';
            if method.name.is_empty() || method.name.contains(odd) {
                return Err(Invalid::new(field("name"), "must be letters, digits and -"));
            }
            if self.method[..index].iter().any(|m| m.name == method.name) {
                return Err(Invalid::new(field("name"), "is taken already"));
            }
            self.check_ability(method, &field)?;
            self.check_method(method, &field)?;
            self.check_tuner(method, &field)?;
            self.check_transfers(method, &field)?;
        }
        let known = |name: &String| self.method.iter().any(|m| m.name == *name);
        if let Some(index) = self.quick.methods.iter().position(|name| !known(name)) {
            let field = format!("quick.methods[{index}]");
            return Err(Invalid::new(field, "no such method"));
        }
        Ok(())
    }

    fn check_method(&self, method: &Method, field: &dyn Fn(&str) -> String) -> Result<(), Invalid> {
        if let Some(channels) = method.channels
            && !(1..=CHANNELS_MAX).contains(&channels)
        {
            let reason = format!("must be 1 to {CHANNELS_MAX}");
            return Err(Invalid::new(field("channels"), reason));
        }
        let most = (method.channels).or_else(|| self.sweep.channels.iter().copied().max());
        let most = most.unwrap_or(1);
        match method.client {
            Client::Curl | Client::Tnftp | Client::Ncftp | Client::Scp | Client::Tar
                if most > 1 =>
            {
                let reason = "this client has one channel: set channels = 1";
                Err(Invalid::new(field("channels"), reason))
            }
            Client::Iperf3 if most > 128 => {
                Err(Invalid::new(field("channels"), "iperf3 has at most 128"))
            }
            Client::Curl
            | Client::Tnftp
            | Client::Ncftp
            | Client::Scp
            | Client::Lftp
            | Client::Rclone
            | Client::Davix
            | Client::Aria2
            | Client::Tar
                if method.tcp_buffer.is_some() =>
            {
                let reason = "only godwit, globus-url-copy and iperf3 ask for a buffer size";
                Err(Invalid::new(field("tcp_buffer"), reason))
            }
            _ => Ok(()),
        }
    }

    fn check_tuner(&self, method: &Method, field: &dyn Fn(&str) -> String) -> Result<(), Invalid> {
        if method.is_tuned() {
            return match method {
                Method { client, .. } if *client != Client::Godwit => {
                    Err(Invalid::new(field("tuner"), "only godwit has tuners"))
                }
                Method {
                    channels: Some(_), ..
                } => Err(Invalid::new(field("channels"), "is the tuner's to choose")),
                _ => Ok(()),
            };
        }
        let of_tuners = [
            ("epoch", method.epoch.is_some()),
            ("epoch_mode", method.epoch_mode.is_some()),
            ("max_channels", method.max_channels.is_some()),
            ("one_user", method.one_user),
        ];
        if let Some((name, _)) = of_tuners.into_iter().find(|(_, given)| *given) {
            return Err(Invalid::new(field(name), "needs tuner"));
        }
        let Some(parallelism) = method.parallelism else {
            return Ok(());
        };
        if !matches!(method.client, Client::Godwit | Client::GlobusUrlCopy) {
            let reason = "only godwit and globus-url-copy have it";
            return Err(Invalid::new(field("parallelism"), reason));
        }
        let cells = self.cells(method);
        let odd = |channels: &u32| parallelism == 0 || !channels.is_multiple_of(parallelism);
        match cells.iter().map(|cell| cell.channels).find(odd) {
            Some(channels) => Err(Invalid::new(
                field("parallelism"),
                format!("does not divide {channels} channels"),
            )),
            None => Ok(()),
        }
    }

    fn check_transfers(
        &self,
        method: &Method,
        field: &dyn Fn(&str) -> String,
    ) -> Result<(), Invalid> {
        if !(1..=TRANSFERS_MAX).contains(&method.transfers) {
            let reason = format!("must be 1 to {TRANSFERS_MAX}");
            return Err(Invalid::new(field("transfers"), reason));
        }
        let ends = self.work.file.is_some() || self.work.files.is_some();
        if method.transfers > 1 && ends {
            let reason = "several transfers need data without end: leave work out";
            return Err(Invalid::new(field("transfers"), reason));
        }
        let last = method.start_of(method.transfers as usize - 1);
        let late = |cell: &Cell| last > self.span(method, cell).0;
        if self.cells(method).iter().any(late) {
            let reason = "the last transfer starts too late to be measured";
            return Err(Invalid::new(field("stagger"), reason));
        }
        Ok(())
    }
}
