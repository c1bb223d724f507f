//! The scenarios that come with the program.

/// An embedded scenario.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Embedded {
    /// `family/name`.
    pub name: &'static str,
    /// The file.
    pub text: &'static str,
}

macro_rules! library {
    ($($name:literal),* $(,)?) => {
        &[$(Embedded {
            name: $name,
            text: include_str!(concat!("../../scenarios/", $name, ".toml")),
        }),*]
    };
}

/// All embedded scenarios. A file below `scenarios/` that is missing here fails a test.
pub const LIBRARY: &[Embedded] = library![
    "apt-sim/tau10",
    "apt-sim/tau20",
    "apt-impl/evolution",
    "apt-impl/bandwidth",
    "apt-impl/delay",
    "apt-impl/background",
    "apt-impl/fairness",
    "direct/critical-point",
    "direct/by-group",
    "direct/concurrency",
    "direct/overhead",
    "direct/varying",
    "direct/epochs",
    "direct/heuristics",
    "direct/simultaneous",
    "direct/traffic",
    "godwit/convergence",
    "godwit/clean",
    "godwit/lossy",
    "godwit/adapt",
    "godwit/fairness",
    "godwit/beside",
    "http/windows",
    "http/streams",
    "http/small-files",
    "s3/parts",
    "s3/small-objects",
    "s3/large-object",
    "loss/matrix",
    "pipelining/lan",
    "pipelining/wan",
    "nordugrid/streams",
    "nordugrid/streams-free",
    "nordugrid/many-channels",
    "nordugrid/clients",
    "nordugrid/third-party",
    "striping/scaling",
    "striping/skew",
    "striping/node-loss",
    "sim/reality",
    "third-party/lan",
];
