//! Checks of a scenario that its types cannot express.

mod methods;
mod nodes;
mod work;

use super::error::Invalid;
use super::format::{
    Direction, Expectation, Facet, Load, Method, PathSpec, Scenario, Sweep, Theory, X,
};
use super::quantity::{Rate, Time};

/// Most channels of one run: what the emulator stays faithful with.
pub const CHANNELS_MAX: u32 = 512;

/// Most runs of one scenario, so that a slip of the finger does not take a week.
pub const RUNS_MAX: usize = 20_000;

/// Longest run, s.
const SECONDS_MAX: f64 = 3600.0;

/// Shortest run that a tuner can be judged by, s.
const EVOLVE_MIN: f64 = 3.0;

/// Most connections of a load.
const FLOWS_MAX: u32 = 128;

/// Most computing processes.
const PROCESSES_MAX: u32 = 1024;

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
        self.check_work()?;
        self.check_path()?;
        self.check_run()?;
        check_sweep("sweep", &self.sweep)?;
        check_sweep("quick.sweep", &self.quick.sweep)?;
        self.check_methods()?;
        self.check_nodes()?;
        self.check_words()?;
        // The path model has the last word on values it gets from here.
        for method in &self.method {
            for cell in self.cells(method) {
                let paths = self.paths_of(&cell);
                let checked = paths.iter().try_for_each(|path| path.check());
                checked.map_err(|invalid| {
                    let field = match invalid.field.split('.').next() {
                        Some("queue") if self.path.red.is_some() => "path.red",
                        Some("queue") => "path.queue",
                        _ => "path",
                    };
                    Invalid::new(field, format!("{}: {}", invalid.field, invalid.reason))
                })?;
            }
        }
        let runs: usize = (self.method.iter())
            .map(|m| self.cells(m).len() * self.repeats(m) as usize)
            .sum();
        if runs > RUNS_MAX {
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

    /// Where there is no path, nothing may ask for one.
    fn check_path(&self) -> Result<(), Invalid> {
        let finite = |field: String, rate: &Rate| {
            let reason = "a path has a rate; without a path, leave it out";
            match rate.0.is_finite() {
                true => Ok(()),
                false => Err(Invalid::new(field, reason)),
            }
        };
        for (table, sweep) in [("sweep", &self.sweep), ("quick.sweep", &self.quick.sweep)] {
            for (index, rate) in sweep.rate.iter().enumerate() {
                finite(format!("{table}.rate[{index}]"), rate)?;
            }
        }
        for (index, change) in self.change.iter().enumerate() {
            let rate = change.rate.as_ref();
            rate.map_or(Ok(()), |rate| finite(format!("change[{index}].rate"), rate))?;
            if change.background.is_some_and(|share| share.0 >= 1.0) {
                let field = format!("change[{index}].background");
                return Err(Invalid::new(field, "must be below 100 %"));
            }
        }
        if self.path.is_emulated() {
            return Ok(());
        }
        if self.path != PathSpec::default() {
            return finite("path.rate".into(), &self.path.rate);
        }
        let sweep = &self.sweep;
        let third = |method: &&Method| method.direction == Direction::ThirdParty;
        let needs = [
            ("sweep.rate", !sweep.rate.is_empty()),
            ("sweep.delay", !sweep.delay.is_empty()),
            ("sweep.loss", !sweep.loss.is_empty()),
            ("sweep.background", !sweep.background.is_empty()),
            ("change", !self.change.is_empty()),
            ("theory", !self.theory.is_empty()),
            ("method", self.method.iter().find(third).is_some()),
        ];
        match needs.into_iter().find(|(_, needed)| *needed) {
            Some((field, _)) => Err(Invalid::new(field, "needs a path")),
            None => Ok(()),
        }
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
        span("run.evolve", self.run.evolve, EVOLVE_MIN)?;
        span("quick.evolve", self.quick.evolve, EVOLVE_MIN)?;
        self.check_times()?;
        let of_methods = (self.method.iter()).map(|m| ("method.repeats", m.repeats));
        for (field, repeats) in [
            ("run.repeats", Some(self.run.repeats)),
            ("quick.repeats", self.quick.repeats),
        ]
        .into_iter()
        .chain(of_methods)
        {
            if repeats.is_some_and(|repeats| !(1..=1000).contains(&repeats)) {
                return Err(Invalid::new(field, "must be 1 to 1000"));
            }
        }
        Ok(())
    }

    /// Things that happen in mid-run need one that is long enough.
    fn check_times(&self) -> Result<(), Invalid> {
        let steps = self.steps();
        let Some(Time(whole)) = self.run.evolve else {
            if self.quick.evolve.is_some() {
                return Err(Invalid::new("quick.evolve", "needs run.evolve"));
            }
            let tuned = self.method.iter().any(Method::is_tuned) && self.work.files.is_none();
            let several = self.method.iter().any(|method| method.stagger.is_some());
            if tuned || several || !steps.is_empty() {
                let reason = "needs evolve, for tuners, staggered starts and changes in mid-run";
                return Err(Invalid::new("run", reason));
            }
            return Ok(());
        };
        if self.work.file.is_some() || self.work.files.is_some() {
            let reason = "files end by themselves: leave evolve out";
            return Err(Invalid::new("run.evolve", reason));
        }
        if steps.last().is_some_and(|last| *last >= whole) {
            let reason = "ends before the last change of load or path";
            return Err(Invalid::new("run.evolve", reason));
        }
        Ok(())
    }

    /// Words that refer to other words.
    fn check_words(&self) -> Result<(), Invalid> {
        for (index, expectation) in self.expect.iter().enumerate() {
            self.check_expectation(index, expectation)?;
        }
        for (index, theory) in self.theory.iter().enumerate() {
            let field = format!("theory[{index}].kind");
            if matches!(theory, Theory::Apt { .. }) && self.figure.x == X::Method {
                return Err(Invalid::new(field, "needs an axis to be drawn over"));
            }
            if *theory == Theory::Simulation
                && let Some(other) = self.not_simulated()
            {
                let reason = format!("there is no simulation with {other}");
                return Err(Invalid::new(field, reason));
            }
        }
        let x = match self.figure.x {
            X::Channels => Some(Facet::Channels),
            X::Rate => Some(Facet::Rate),
            X::Delay => Some(Facet::Delay),
            X::Loss => Some(Facet::Loss),
            X::Background => Some(Facet::Background),
            X::FileSize => Some(Facet::Files),
            X::Nodes => Some(Facet::Nodes),
            X::Method => Some(Facet::Method),
        };
        let taken = (self.figure.panels.iter()).position(|panel| Some(*panel) == x);
        if let Some(index) = taken {
            let field = format!("figure.panels[{index}]");
            return Err(Invalid::new(field, "is the horizontal axis already"));
        }
        for (index, load) in self.load.iter().enumerate() {
            let count = match load {
                Load::Tcp { flows, .. } => ("flows", *flows, FLOWS_MAX),
                Load::Compute { processes, .. } => ("processes", *processes, PROCESSES_MAX),
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

    /// What the simulator of runs does not have.
    fn not_simulated(&self) -> Option<&'static str> {
        let method = |has: fn(&Method) -> bool| self.method.iter().any(has);
        let sweep = &self.sweep;
        let others = [
            (
                "files",
                self.work.file.is_some() || self.work.files.is_some(),
            ),
            ("loads", !self.load.is_empty()),
            ("busy processes", !sweep.compute.is_empty()),
            ("other transfers", !sweep.traffic.is_empty()),
            ("data nodes", !sweep.nodes.is_empty()),
            ("changes of the path", !self.change.is_empty()),
            (
                "buffers that are fixed",
                self.hosts.buffer_default.is_some(),
            ),
            (
                "buffers of programs",
                method(|method| method.tcp_buffer.is_some()),
            ),
            ("tuners", method(Method::is_tuned)),
            ("several transfers", method(|method| method.transfers > 1)),
        ];
        others.iter().find(|(_, has)| *has).map(|(what, _)| *what)
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
            expect.links_at_least.is_some(),
            expect.linear.is_some(),
            expect.theory_factor.is_some(),
            expect.retransmitted_factor.is_some(),
            expect.steady_at_least.is_some(),
            expect.converges_within.is_some(),
            expect.adapts_within.is_some(),
            expect.regret_at_most.is_some(),
            expect.channels_at_most.is_some(),
            expect.jain_at_least.is_some(),
            expect.leaves_at_least.is_some(),
        ];
        if !checks.contains(&true) {
            return Err(Invalid::new(
                format!("expect[{index}]"),
                "needs at_least, at_most or another thing that must hold",
            ));
        }
        if expect.theory_factor.is_some() && self.theory.is_empty() {
            return Err(Invalid::new(field("theory_factor"), "there is no theory"));
        }
        if expect.retransmitted_factor.is_some() && !self.theory.contains(&Theory::Simulation) {
            let reason = "there is no theory of kind simulation";
            return Err(Invalid::new(field("retransmitted_factor"), reason));
        }
        for (name, factor) in [
            ("theory_factor", expect.theory_factor),
            ("retransmitted_factor", expect.retransmitted_factor),
        ] {
            if factor.is_some_and(|factor| factor < 1.0) {
                return Err(Invalid::new(field(name), "must be at least 1"));
            }
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
    let loads = [
        ("compute", &sweep.compute, PROCESSES_MAX),
        ("traffic", &sweep.traffic, FLOWS_MAX),
    ];
    for (name, counts, most) in loads {
        if let Some(index) = counts.iter().position(|count| *count > most) {
            let field = format!("{table}.{name}[{index}]");
            return Err(Invalid::new(field, format!("must be at most {most}")));
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
