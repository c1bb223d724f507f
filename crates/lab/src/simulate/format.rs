//! The words of a simulated scenario.

use godwit_sim::{
    MS,
    network::{InvalidTopology, LinkConfig, Route, Topology},
    path::{Discipline, PathConfig, Queue, QueueLimit, RedConfig},
    tcp::{Algorithm, ReceiverConfig, SenderConfig},
    transfer::ChannelConfig,
};
use godwit_tune::Method;
use serde::{Deserialize, Serialize};

use super::research::ResearchStudy;
use crate::scenario::{
    QueueLength, Rate, RedSpec, ScenarioError, Size, Time,
    error::{Invalid, from_parser},
    whole,
};

/// Most channels of a run.
const CHANNELS_MAX: u32 = 1024;
/// Most paths of a study.
const PATHS_MAX: u32 = 100_000;

/// An experiment: either links, a transfer and `channels`, or `tuners`, `limits` or `research`
/// alone.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SimScenario {
    /// One line.
    pub title: String,
    /// Where it comes from.
    #[serde(default)]
    pub source: String,
    /// What a reader has to know.
    #[serde(default)]
    pub about: String,
    /// Links, each with a way back of the same rate and delay.
    #[serde(default)]
    pub link: Vec<SimLink>,
    /// Who sends to whom, and how.
    pub transfer: Option<SimTransfer>,
    /// Static numbers of channels.
    pub channels: Option<StaticStudy>,
    /// Chunks under a tuner.
    pub chunks: Option<ChunkStudy>,
    /// What is varied, all with all.
    #[serde(default)]
    pub vary: Vary,
    /// What is changed alone, with each delay of access links.
    #[serde(default)]
    pub also: Vec<Also>,
    /// The paper's values.
    pub paper: Option<SimPaper>,
    /// Tuners over drawn paths.
    pub tuners: Option<TunerStudy>,
    /// Transfers whose limit is known.
    pub limits: Option<LimitStudy>,
    /// Users of a research network.
    pub research: Option<ResearchStudy>,
}

/// A link in both directions.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SimLink {
    /// One end.
    pub from: String,
    /// The other.
    pub to: String,
    /// Default: none, so no queue either.
    pub rate: Option<Rate>,
    /// One way. Default 0.
    #[serde(default = "no_time")]
    pub delay: Time,
    /// In packets. Default 1000.
    pub queue: Option<QueueLength>,
    /// Random early detection on the way there. Default DropTail.
    pub red: Option<RedSpec>,
    /// Whether `access_delay` and `access_rate` are those of this link.
    #[serde(default)]
    pub access: bool,
}

/// The ends of a transfer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SimTransfer {
    /// Node that sends.
    pub from: String,
    /// Node that receives.
    pub to: String,
    /// `reno`, `newreno`, `sack` or `cubic`.
    pub algorithm: Algorithm,
    /// Payload of a packet.
    pub packet: Size,
    /// Window of a channel, payload.
    pub window: Size,
}

/// Static curves.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StaticStudy {
    /// Numbers of channels.
    pub numbers: Vec<u32>,
    /// Measured from here,
    pub settle: Time,
    /// to here.
    pub until: Time,
    /// Runs of each.
    pub seeds: u32,
}

/// A transfer in chunks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChunkStudy {
    /// As `--tuner` spells it.
    pub tuner: String,
    /// Intended length of a chunk.
    pub delta: Time,
    /// When it ends.
    pub until: Time,
    /// Packets of a block where channels share one queue.
    pub block: u32,
    /// Runs of each.
    pub seeds: u32,
}

/// Values that are combined, all with all.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Vary {
    /// One-way delay of each access link.
    pub access_delay: Vec<Time>,
    /// Gentle RED.
    pub gentle: Vec<bool>,
    /// Timers of senders.
    pub timers: Vec<Timers>,
}

/// What a timer is like.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Timers {
    /// Shortest retransmission timeout.
    pub min_rto: Time,
    /// Granularity of round trips.
    pub tick: Time,
}

/// One thing that differs from ns-2's defaults as we take them.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Also {
    /// Headers that count on links.
    pub header: Option<Size>,
    /// First window, packets.
    pub initial_window: Option<u32>,
    /// New packets for the first two duplicate acknowledgements.
    pub limited_transmit: Option<bool>,
    /// Rate of access links.
    pub access_rate: Option<Rate>,
}

/// What the paper reports of its tuner.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SimPaper {
    /// Channels at the end.
    pub channels: u32,
    /// Goodput there.
    pub goodput: Rate,
    /// When.
    pub after: Time,
}

/// Tuners over drawn paths.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TunerStudy {
    /// As `--tuner` spells them.
    pub methods: Vec<String>,
    /// Paths to draw; path n has the seed n.
    pub paths: u32,
    /// Length of a transfer.
    pub seconds: u32,
    /// Control epoch of the published methods.
    pub epoch: Time,
    /// Numbers of channels that the best one is chosen of.
    #[serde(rename = "static")]
    pub numbers: Vec<u32>,
    /// Least and largest rate; drawn evenly by its logarithm.
    pub rate: [Rate; 2],
    /// Least and largest round trip; the same.
    pub rtt: [Time; 2],
    /// Packets of a path that is full: faster paths have packets of several segments,
    pub packets_per_second: u32,
    /// but not more than this many, where a round trip must hold enough of them.
    pub packets_per_second_max: u32,
}

/// Transfers whose limit is known by construction.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LimitStudy {
    /// As `--tuner` spells it.
    pub tuner: String,
    /// Of the first case of each limit; the others follow.
    pub seed: u64,
    /// Cases of each limit.
    pub of_each: u32,
    /// Length of a transfer.
    pub seconds: u32,
    /// Control epoch of the published methods.
    pub epoch: Time,
    /// Least and largest rate; drawn evenly by its logarithm.
    pub rate: [Rate; 2],
    /// Least and largest round trip; the same.
    pub rtt: [Time; 2],
    /// As of tuners.
    pub packets_per_second: u32,
    /// The same.
    pub packets_per_second_max: u32,
}

fn no_time() -> Time {
    Time(0.0)
}

/// Reads a scenario; `file` is for messages.
pub(super) fn parse(file: &str, text: &str) -> Result<SimScenario, ScenarioError> {
    let deserializer =
        toml::Deserializer::parse(text).map_err(|error| from_parser(file, text, "", &error))?;
    let scenario: SimScenario =
        serde_path_to_error::deserialize(deserializer).map_err(|error| {
            let path = error.path().to_string();
            from_parser(file, text, &path, error.inner())
        })?;
    check(&scenario).map_err(|invalid| invalid.at(file, text))?;
    Ok(scenario)
}

fn check(scenario: &SimScenario) -> Result<(), Invalid> {
    if let Some(research) = &scenario.research {
        let others = (&scenario.channels, &scenario.tuners, &scenario.limits);
        return match others {
            (None, None, None) => research.check(),
            _ => Err(Invalid::new("research", "cannot be beside others")),
        };
    }
    if let Some(limits) = &scenario.limits {
        return match (&scenario.channels, &scenario.tuners) {
            (None, None) => check_limits(limits),
            _ => Err(Invalid::new("limits", "cannot be beside others")),
        };
    }
    match (&scenario.channels, &scenario.tuners) {
        (None, None) => {
            let reason = "needs a table channels, tuners, limits or research";
            Err(Invalid::new("title", reason))
        }
        (Some(_), Some(_)) => Err(Invalid::new("tuners", "cannot be beside channels")),
        (None, Some(study)) => check_tuners(study),
        (Some(study), None) => {
            check_numbers("channels.numbers", &study.numbers)?;
            check_span("channels", study.settle, study.until, study.seeds)?;
            if let Some(chunks) = &scenario.chunks {
                check_method("chunks.tuner", &chunks.tuner)?;
                check_span("chunks", Time(0.0), chunks.until, chunks.seeds)?;
                if chunks.delta.0 <= 0.0 {
                    return Err(Invalid::new("chunks.delta", "must be above 0"));
                }
            }
            for (index, also) in scenario.also.iter().enumerate() {
                if also.initial_window == Some(0) {
                    let field = format!("also[{index}].initial_window");
                    return Err(Invalid::new(field, "must be at least 1"));
                }
            }
            let transfer = (scenario.transfer.as_ref())
                .ok_or_else(|| Invalid::new("channels", "needs a table transfer"))?;
            if transfer.packet.0 == 0 {
                return Err(Invalid::new("transfer.packet", "must be at least 1 B"));
            }
            if transfer.window < transfer.packet {
                return Err(Invalid::new("transfer.window", "must hold a packet"));
            }
            build(scenario, &Assumption::default()).map(|_| ())
        }
    }
}

fn check_tuners(study: &TunerStudy) -> Result<(), Invalid> {
    for (index, method) in study.methods.iter().enumerate() {
        check_method(&format!("tuners.methods[{index}]"), method)?;
    }
    check_numbers("tuners.static", &study.numbers)?;
    let packets = [study.packets_per_second, study.packets_per_second_max];
    check_ranges("tuners", study.rate, study.rtt, packets)?;
    if !(1..=PATHS_MAX).contains(&study.paths) {
        let reason = format!("must lie between 1 and {PATHS_MAX}");
        return Err(Invalid::new("tuners.paths", reason));
    }
    check_length("tuners", study.seconds, study.epoch)
}

fn check_limits(study: &LimitStudy) -> Result<(), Invalid> {
    check_method("limits.tuner", &study.tuner)?;
    let packets = [study.packets_per_second, study.packets_per_second_max];
    check_ranges("limits", study.rate, study.rtt, packets)?;
    if !(1..=PATHS_MAX).contains(&study.of_each) {
        let reason = format!("must lie between 1 and {PATHS_MAX}");
        return Err(Invalid::new("limits.of_each", reason));
    }
    check_length("limits", study.seconds, study.epoch)
}

fn check_ranges(
    table: &str,
    rate: [Rate; 2],
    rtt: [Time; 2],
    packets_per_second: [u32; 2],
) -> Result<(), Invalid> {
    let packets = packets_per_second.map(f64::from);
    for (field, low, high) in [
        ("rate", rate[0].0, rate[1].0),
        ("rtt", rtt[0].0, rtt[1].0),
        ("packets_per_second_max", packets[0], packets[1]),
    ] {
        if !(low > 0.0 && low <= high && high.is_finite()) {
            let field = format!("{table}.{field}");
            return Err(Invalid::new(field, "must begin above 0 and not end before"));
        }
    }
    Ok(())
}

fn check_length(table: &str, seconds: u32, epoch: Time) -> Result<(), Invalid> {
    if !(3..=3600).contains(&seconds) {
        let field = format!("{table}.seconds");
        return Err(Invalid::new(field, "must lie between 3 and 3600"));
    }
    if epoch.0 < 0.1 {
        let field = format!("{table}.epoch");
        return Err(Invalid::new(field, "must be at least 100 ms"));
    }
    Ok(())
}

fn check_numbers(field: &str, numbers: &[u32]) -> Result<(), Invalid> {
    if numbers.is_empty() {
        return Err(Invalid::new(field, "must not be empty"));
    }
    match numbers.iter().position(|n| !(1..=CHANNELS_MAX).contains(n)) {
        None => Ok(()),
        Some(index) => {
            let reason = format!("must lie between 1 and {CHANNELS_MAX}");
            Err(Invalid::new(format!("{field}[{index}]"), reason))
        }
    }
}

fn check_span(table: &str, from: Time, until: Time, seeds: u32) -> Result<(), Invalid> {
    if !(until.0 > from.0 && until.0 <= 3600.0) {
        let reason = "must end behind its beginning, within an hour";
        return Err(Invalid::new(format!("{table}.until"), reason));
    }
    if !(1..=100).contains(&seeds) {
        return Err(Invalid::new(
            format!("{table}.seeds"),
            "must lie between 1 and 100",
        ));
    }
    Ok(())
}

fn check_method(field: &str, method: &str) -> Result<(), Invalid> {
    Method::parse(method).map_or_else(
        |error| Err(Invalid::new(field, error.to_string())),
        |_| Ok(()),
    )
}

/// What a variant chooses of what the paper does not say.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Assumption {
    pub(super) access_delay_s: f64,
    pub(super) access_rate_bps: Option<f64>,
    pub(super) gentle: bool,
    pub(super) timers: Option<Timers>,
    pub(super) also: Option<Also>,
}

/// The network and the channels of a variant.
pub(super) fn build(
    scenario: &SimScenario,
    assumed: &Assumption,
) -> Result<(Topology, ChannelConfig), Invalid> {
    let transfer = (scenario.transfer.as_ref())
        .ok_or_else(|| Invalid::new("title", "needs a table transfer"))?;
    let mut links = Vec::new();
    for (index, link) in scenario.link.iter().enumerate() {
        let there = path(index, link, assumed)?;
        let back = PathConfig {
            queue: Queue::default(),
            ..there.clone()
        };
        for (from, to, path) in [(&link.from, &link.to, there), (&link.to, &link.from, back)] {
            links.push(LinkConfig {
                from: from.clone(),
                to: to.clone(),
                path,
            });
        }
    }
    let topology = Topology::new(&links).map_err(|error| in_scenario(&error))?;
    let route = (topology.route(&transfer.from, &transfer.to))
        .map_err(|error| Invalid::new(format!("transfer.{}", error.field), error.reason))?;
    Ok((topology, channel(transfer, assumed, route)))
}

/// Links of a topology are two of a scenario: `link[4].to` is `link[2].to`.
fn in_scenario(error: &InvalidTopology) -> Invalid {
    let index = (error.field.strip_prefix("link["))
        .and_then(|rest| rest.split_once(']'))
        .and_then(|(index, rest)| Some((index.parse::<usize>().ok()?, rest)));
    let field = match index {
        Some((index, rest)) => {
            let rest = if rest.starts_with(".path") { "" } else { rest };
            format!("link[{}]{rest}", index / 2)
        }
        None => error.field.clone(),
    };
    Invalid::new(field, error.reason.clone())
}

fn path(index: usize, link: &SimLink, assumed: &Assumption) -> Result<PathConfig, Invalid> {
    let (mut rate, mut delay_s) = (link.rate.map(|rate| rate.0), link.delay.0);
    if link.access {
        delay_s += assumed.access_delay_s;
        rate = assumed.access_rate_bps.or(rate);
    }
    let limit = match link.queue {
        None => Queue::default().limit,
        Some(QueueLength::Packets(packets)) => QueueLimit::Packets(packets),
        Some(_) => {
            let reason = "counts packets here";
            return Err(Invalid::new(format!("link[{index}].queue"), reason));
        }
    };
    let discipline = link.red.map_or(Discipline::DropTail, |red| {
        Discipline::Red(RedConfig {
            min: red.min,
            max: red.max,
            max_p: red.max_p,
            weight: red.w_q,
            mean_packet_bytes: 1000,
            wait: true,
            gentle: assumed.gentle,
        })
    });
    Ok(PathConfig {
        rate_bps: rate.filter(|rate| rate.is_finite()).map(whole),
        delay_ns: whole(delay_s * 1e9),
        queue: Queue { limit, discipline },
        ..PathConfig::default()
    })
}

fn channel(transfer: &SimTransfer, assumed: &Assumption, route: Route) -> ChannelConfig {
    let small = |bytes: u64| u32::try_from(bytes).unwrap_or(u32::MAX);
    let window = small(transfer.window.0 / transfer.packet.0.max(1)).max(1);
    let ns2 = SenderConfig::ns2(window);
    let also = assumed.also;
    let sender = SenderConfig {
        algorithm: transfer.algorithm,
        payload_bytes: small(transfer.packet.0),
        header_bytes: also.and_then(|a| a.header).map_or(0, |size| small(size.0)),
        initial_window: (also.and_then(|a| a.initial_window)).unwrap_or(ns2.initial_window),
        limited_transmit: (also.and_then(|a| a.limited_transmit)).unwrap_or(ns2.limited_transmit),
        min_rto_ns: assumed
            .timers
            .map_or(200 * MS, |t| whole(t.min_rto.0 * 1e9)),
        tick_ns: assumed.timers.map_or(10 * MS, |t| whole(t.tick.0 * 1e9)),
        ..ns2
    };
    ChannelConfig {
        route,
        sender,
        receiver: ReceiverConfig { delayed_ack: None },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulate::SIMULATIONS;

    fn said(name: &str, change: impl Fn(String) -> String) -> String {
        let entry = SIMULATIONS.iter().find(|entry| entry.name == name).unwrap();
        let text = change(entry.text.to_owned());
        parse("x.toml", &text).unwrap_err().to_string()
    }

    #[test]
    fn the_embedded_ones_are_well_formed() {
        for entry in SIMULATIONS {
            parse(entry.name, entry.text).unwrap();
        }
    }

    #[test]
    fn malformed_ones_are_refused_by_line_field_and_reason() {
        for (name, from, to, expected) in [
            (
                "sim/apt-tau10",
                "algorithm = \"reno\"",
                "algorithm = \"vegas\"",
                "x.toml:32: transfer.algorithm: unknown variant `vegas`, expected one of `reno`, \
                 `newreno`, `sack`, `cubic`",
            ),
            (
                "sim/apt-tau10",
                "numbers = [1, 2,",
                "numbers = [1, 0,",
                "x.toml:37: channels.numbers[1]: must lie between 1 and 1024",
            ),
            (
                "sim/apt-tau10",
                "to = \"receiver\"\nalgorithm",
                "to = \"reciever\"\nalgorithm",
                "x.toml:31: transfer.to: no link names reciever",
            ),
            (
                "sim/apt-tau10",
                "min = 25",
                "min = 95",
                "x.toml:16: link[1]: must be above 0 and below max",
            ),
            (
                "sim/apt-tau10",
                "queue = \"100 packets\"",
                "queue = \"1 BDP\"",
                "x.toml:21: link[1].queue: counts packets here",
            ),
            (
                "sim/apt-tau10",
                "apt:n0=4",
                "apt:n1=4",
                "x.toml:43: chunks.tuner: ",
            ),
            (
                "sim/research-network",
                "users = 200",
                "users = 0",
                "x.toml:@: research.users: must lie between 1 and 10000",
            ),
            (
                "sim/research-network",
                "to = \"corvo\"",
                "to = \"corvus\"",
                "x.toml:@: research.link[0].to: no site is called corvus",
            ),
            (
                "sim/research-network",
                "look = \"100 ms\"",
                "look = \"100 s\"",
                "x.toml:@: research.service.look: must lie between 1 ms and 10 s",
            ),
            (
                "sim/tuners",
                "paths = 1000",
                "paths = 0",
                "x.toml:13: tuners.paths: must lie between 1 and 100000",
            ),
            (
                "sim/tuners",
                "[\"1 ms\", \"300 ms\"]",
                "[\"1 ms\", \"0 ms\"]",
                "x.toml:18: tuners.rtt: must begin above 0 and not end before",
            ),
        ] {
            let error = said(name, |text| {
                assert!(text.contains(from), "{from}");
                text.replacen(from, to, 1)
            });
            // `@`: wherever the value stands.
            let text = SIMULATIONS.iter().find(|entry| entry.name == name).unwrap();
            let before = text.text.split(from).next().unwrap();
            let line = 1 + before.matches('\n').count();
            let expected = expected.replace('@', &line.to_string());
            assert!(error.starts_with(&expected), "{error}");
        }
    }

    #[test]
    fn a_transfer_needs_links_to_its_end() {
        let error = said("sim/apt-tau10", |text| {
            text.replace(
                "from = \"right\"\nto = \"receiver\"",
                "from = \"x\"\nto = \"receiver\"",
            )
        });
        assert_eq!(
            error,
            "x.toml:31: transfer.to: no links lead from sender to receiver"
        );
    }
}
