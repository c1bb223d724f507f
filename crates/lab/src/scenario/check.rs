//! What the types of a scenario cannot rule out.

use super::error::Invalid;
use super::format::{Client, Expectation, Facet, Method, Scenario, Server, Sweep, Theory, X};
use super::quantity::Time;

/// Most channels of one run: what the emulator stays faithful with.
pub const CHANNELS_MAX: u32 = 512;

/// Most runs of one scenario, so that a slip of the finger does not take a week.
pub const RUNS_MAX: usize = 20_000;

/// Longest run, s.
const SECONDS_MAX: f64 = 3600.0;

impl Scenario {
    /// Checks what types cannot.
    pub(super) fn check(&self) -> Result<(), Invalid> {
        if self.title.trim().is_empty() {
            return Err(Invalid::new("title", "must not be empty"));
        }
        if !(576..=9000).contains(&self.path.mtu) {
            return Err(Invalid::new("path.mtu", "must be 576 to 9000"));
        }
        self.check_hosts()?;
        self.check_run()?;
        check_sweep("sweep", &self.sweep)?;
        check_sweep("quick.sweep", &self.quick.sweep)?;
        self.check_methods()?;
        self.check_words()?;
        // The path model has the last word on values it gets from here.
        for method in &self.method {
            for cell in self.cells(method) {
                (self.path.forward(&cell, 1).check()).map_err(|invalid| {
                    let field = match invalid.field.split('.').next() {
                        Some("queue") if self.path.red.is_some() => "path.red",
                        Some("queue") => "path.queue",
                        _ => "path",
                    };
                    Invalid::new(field, format!("{}: {}", invalid.field, invalid.reason))
                })?;
            }
        }
        let runs: usize = self.method.iter().map(|m| self.cells(m).len()).sum();
        if runs * self.run.repeats as usize > RUNS_MAX {
            return Err(Invalid::new(
                "sweep",
                format!("makes more than {RUNS_MAX} runs"),
            ));
        }
        Ok(())
    }

    fn check_hosts(&self) -> Result<(), Invalid> {
        let hosts = &self.hosts;
        if hosts.buffer_max.is_some_and(|max| max.0 < 4096) {
            return Err(Invalid::new("hosts.buffer_max", "must be at least 4 KiB"));
        }
        if hosts.buffer_default.is_some() && hosts.buffer_max.is_none() {
            return Err(Invalid::new("hosts.buffer_default", "needs buffer_max"));
        }
        Ok(())
    }

    fn check_run(&self) -> Result<(), Invalid> {
        let span = |field: &str, time: Option<Time>, least: f64| match time {
            Some(Time(s)) if !(least..=SECONDS_MAX).contains(&s) => Err(Invalid::new(
                field,
                format!("must be {} to {}", Time(least), Time(SECONDS_MAX)),
            )),
            _ => Ok(()),
        };
        span("run.ramp", Some(self.run.ramp), 0.0)?;
        span("run.measure", Some(self.run.measure), 0.5)?;
        span("quick.ramp", self.quick.ramp, 0.0)?;
        span("quick.measure", self.quick.measure, 0.5)?;
        for (field, repeats) in [
            ("run.repeats", Some(self.run.repeats)),
            ("quick.repeats", self.quick.repeats),
        ] {
            if repeats.is_some_and(|repeats| !(1..=1000).contains(&repeats)) {
                return Err(Invalid::new(field, "must be 1 to 1000"));
            }
        }
        Ok(())
    }

    fn check_methods(&self) -> Result<(), Invalid> {
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
            if (method.client == Client::Iperf3) != (method.server == Server::Iperf3) {
                return Err(Invalid::new(
                    field("server"),
                    "iperf3 speaks to iperf3 only",
                ));
            }
            self.check_method(method, &field)?;
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
            Client::Curl if most > 1 => Err(Invalid::new(
                field("channels"),
                "curl has one channel: set channels = 1",
            )),
            Client::Iperf3 if most > 128 => {
                Err(Invalid::new(field("channels"), "iperf3 has at most 128"))
            }
            Client::Iperf3 if self.work.file.is_some() => {
                Err(Invalid::new(field("client"), "iperf3 moves no files"))
            }
            Client::Lftp if self.work.file.is_none() => {
                Err(Invalid::new(field("client"), "lftp needs work.file"))
            }
            Client::Curl | Client::Lftp if method.tcp_buffer.is_some() => Err(Invalid::new(
                field("tcp_buffer"),
                "curl and lftp ask for no buffer size",
            )),
            _ => Ok(()),
        }
    }

    /// Words that refer to other words.
    fn check_words(&self) -> Result<(), Invalid> {
        for (index, expectation) in self.expect.iter().enumerate() {
            self.check_expectation(index, expectation)?;
        }
        for (index, theory) in self.theory.iter().enumerate() {
            if matches!(theory, Theory::Apt { .. }) && self.figure.x == X::Method {
                let field = format!("theory[{index}].kind");
                return Err(Invalid::new(field, "needs an axis to be drawn over"));
            }
        }
        let x = match self.figure.x {
            X::Channels => Some(Facet::Channels),
            X::Rate => Some(Facet::Rate),
            X::Delay => Some(Facet::Delay),
            X::Loss => Some(Facet::Loss),
            X::Background => Some(Facet::Background),
            X::Method => Some(Facet::Method),
        };
        let taken = (self.figure.panels.iter()).position(|panel| Some(*panel) == x);
        if let Some(index) = taken {
            let field = format!("figure.panels[{index}]");
            return Err(Invalid::new(field, "is the horizontal axis already"));
        }
        for (index, load) in self.load.iter().enumerate() {
            let count = match load {
                super::format::Load::Tcp { flows, .. } => ("flows", *flows, 128),
                super::format::Load::Compute { processes, .. } => ("processes", *processes, 1024),
            };
            let (name, count, most) = count;
            if !(1..=most).contains(&count) {
                let field = format!("load[{index}].{name}");
                return Err(Invalid::new(field, format!("must be 1 to {most}")));
            }
            if let (Some(from), Some(until)) = load.times()
                && until <= from
            {
                let field = format!("load[{index}].until");
                return Err(Invalid::new(field, "must be later than from"));
            }
        }
        Ok(())
    }

    fn check_expectation(&self, index: usize, expect: &Expectation) -> Result<(), Invalid> {
        let field = |name: &str| format!("expect[{index}].{name}");
        let known = |name: &String| self.method.iter().any(|m| m.name == *name);
        if let Some(unknown) = expect.methods.iter().position(|name| !known(name)) {
            let name = format!("methods[{unknown}]");
            return Err(Invalid::new(field(&name), "no such method"));
        }
        let checks = [
            expect.at_least.is_some(),
            expect.at_most.is_some(),
            expect.linear.is_some(),
            expect.theory_factor.is_some(),
        ];
        if !checks.contains(&true) {
            return Err(Invalid::new(
                format!("expect[{index}]"),
                "needs at_least, at_most, linear or theory_factor",
            ));
        }
        if expect.theory_factor.is_some() && self.theory.is_empty() {
            return Err(Invalid::new(field("theory_factor"), "there is no theory"));
        }
        if expect.theory_factor.is_some_and(|factor| factor < 1.0) {
            return Err(Invalid::new(field("theory_factor"), "must be at least 1"));
        }
        Ok(())
    }
}

fn check_sweep(table: &str, sweep: &Sweep) -> Result<(), Invalid> {
    for (index, channels) in sweep.channels.iter().enumerate() {
        if !(1..=CHANNELS_MAX).contains(channels) {
            let field = format!("{table}.channels[{index}]");
            let reason = format!("must be 1 to {CHANNELS_MAX}");
            return Err(Invalid::new(field, reason));
        }
    }
    for (index, background) in sweep.background.iter().enumerate() {
        if background.0 >= 1.0 {
            let field = format!("{table}.background[{index}]");
            return Err(Invalid::new(field, "must be below 100 %"));
        }
    }
    for (index, name) in sweep.congestion_control.iter().enumerate() {
        if name.is_empty() || name.contains(|c: char| !c.is_ascii_alphanumeric() && c != '_') {
            let field = format!("{table}.congestion_control[{index}]");
            return Err(Invalid::new(field, "must be the name of a kernel module"));
        }
    }
    Ok(())
}
