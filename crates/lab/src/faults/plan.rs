//! Which fault happens, and when: plain values, drawn from a seed.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::path::Rng;

/// What goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// SIGKILL to the client; the command is given again.
    ClientKilled,
    /// SIGKILL to our server and all its sessions; it is started again at once.
    ServerKilled,
    /// The same to the server that sends to another one.
    SourceKilled,
    /// The same to the server that another one sends to.
    TargetKilled,
    /// The same to the Grid Community Toolkit's server, unmodified.
    GctKilled,
    /// Nothing passes for a second, in either direction.
    Cut,
    /// Nothing passes for a minute.
    LongCut,
    /// From then on two packets in a hundred are lost, as those are that a checksum of the network
    /// refuses.
    Lost,
    /// From then on one packet in twenty is overtaken by others.
    Reordered,
    /// From then on one packet in twenty comes twice.
    Duplicated,
    /// A bit or two of what is still to come are flipped, and TCP's checksum is right all the same.
    Flipped,
    /// The file system of the target has no room left until the command has ended.
    Full,
    /// Some reads of the source end with EIO.
    ReadError,
    /// Some writes to the target end with EIO.
    WriteError,
    /// Some writes to the target take half of what they are given.
    ShortWrite,
    /// Some reads of the source and writes to the target take 50 ms each.
    Slow,
    /// The server stands still for three seconds, as in a virtual machine that is moved: for it the
    /// clock jumps.
    Frozen,
    /// Listings end before their end, with 226 or another reply.
    ListingCut,
    /// Listings are refused.
    ListingRefused,
    /// Listings have lines that are none.
    ListingGarbled,
    /// Renames are refused.
    RenameRefused,
    /// A command takes effect, and the control connection ends before its reply.
    ReplyLost,
    /// Data connections are refused or reset.
    DataRefused,
    /// A directory may not be read.
    DirectoryUnreadable,
    /// A worker of the client panics.
    WorkerPanics,
}

impl Kind {
    /// All there are.
    pub const ALL: [Kind; 25] = [
        Kind::ClientKilled,
        Kind::ServerKilled,
        Kind::SourceKilled,
        Kind::TargetKilled,
        Kind::GctKilled,
        Kind::Cut,
        Kind::LongCut,
        Kind::Lost,
        Kind::Reordered,
        Kind::Duplicated,
        Kind::Flipped,
        Kind::Full,
        Kind::ReadError,
        Kind::WriteError,
        Kind::ShortWrite,
        Kind::Slow,
        Kind::Frozen,
        Kind::ListingCut,
        Kind::ListingRefused,
        Kind::ListingGarbled,
        Kind::RenameRefused,
        Kind::ReplyLost,
        Kind::DataRefused,
        Kind::DirectoryUnreadable,
        Kind::WorkerPanics,
    ];

    /// Those that concern what client and server say to each other.
    pub const OF_DIALOGUES: [Kind; 8] = [
        Kind::ListingCut,
        Kind::ListingRefused,
        Kind::ListingGarbled,
        Kind::RenameRefused,
        Kind::ReplyLost,
        Kind::DataRefused,
        Kind::DirectoryUnreadable,
        Kind::WorkerPanics,
    ];

    /// As it is typed and printed.
    pub fn name(self) -> &'static str {
        match self {
            Kind::ClientKilled => "client-killed",
            Kind::ServerKilled => "server-killed",
            Kind::SourceKilled => "source-killed",
            Kind::TargetKilled => "target-killed",
            Kind::GctKilled => "gct-killed",
            Kind::Cut => "cut",
            Kind::LongCut => "long-cut",
            Kind::Lost => "lost",
            Kind::Reordered => "reordered",
            Kind::Duplicated => "duplicated",
            Kind::Flipped => "flipped",
            Kind::Full => "full",
            Kind::ReadError => "read-error",
            Kind::WriteError => "write-error",
            Kind::ShortWrite => "short-write",
            Kind::Slow => "slow",
            Kind::Frozen => "frozen",
            Kind::ListingCut => "listing-cut",
            Kind::ListingRefused => "listing-refused",
            Kind::ListingGarbled => "listing-garbled",
            Kind::RenameRefused => "rename-refused",
            Kind::ReplyLost => "reply-lost",
            Kind::DataRefused => "data-refused",
            Kind::DirectoryUnreadable => "directory-unreadable",
            Kind::WorkerPanics => "worker-panics",
        }
    }

    /// How often it is drawn, relative to the others. What takes a minute is drawn rarely.
    fn weight(self) -> u64 {
        match self {
            Kind::LongCut => 1,
            Kind::Lost | Kind::Reordered | Kind::Duplicated | Kind::Slow | Kind::Frozen => 4,
            Kind::SourceKilled | Kind::TargetKilled => 6,
            _ => 12,
        }
    }

    fn ways(self) -> &'static [Way] {
        match self {
            Kind::ClientKilled => &[Way::Put, Way::Get, Way::Between],
            Kind::SourceKilled | Kind::TargetKilled => &[Way::Between],
            // A rename here is the kernel's.
            Kind::RenameRefused => &[Way::Put, Way::Between],
            kind if kind.is_of_a_dialogue() => &[Way::Put, Way::Get, Way::Between],
            _ => &[Way::Put, Way::Get],
        }
    }

    /// Concerns what client and server say to each other; the size of files does not matter.
    pub fn is_of_a_dialogue(self) -> bool {
        Kind::OF_DIALOGUES.contains(&self)
    }

    /// Kills programs.
    pub fn is_of_a_program(self) -> bool {
        matches!(
            self,
            Kind::ClientKilled
                | Kind::ServerKilled
                | Kind::SourceKilled
                | Kind::TargetKilled
                | Kind::GctKilled
        )
    }

    /// Needs the emulated path between client and server; the others need programs of one host
    /// only.
    pub fn is_of_the_path(self) -> bool {
        matches!(
            self,
            Kind::Cut
                | Kind::LongCut
                | Kind::Lost
                | Kind::Reordered
                | Kind::Duplicated
                | Kind::Flipped
        )
    }

    /// Needs a bad disk at the source or the target.
    pub fn is_of_a_disk(self) -> bool {
        matches!(
            self,
            Kind::ReadError | Kind::WriteError | Kind::ShortWrite | Kind::Slow
        )
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl std::str::FromStr for Kind {
    type Err = String;

    fn from_str(text: &str) -> Result<Kind, String> {
        (Kind::ALL.into_iter().find(|kind| kind.name() == text)).ok_or_else(|| {
            let names = Kind::ALL.map(Kind::name);
            format!("no such fault; there are {}", names.join(", "))
        })
    }
}

/// Which way files go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Way {
    /// From the client to a server.
    Put,
    /// From a server to the client.
    Get,
    /// From one server to another.
    Between,
}

/// Which files are copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Shape {
    /// A large one and some beside.
    Large,
    /// Some of each size.
    Mixed,
    /// Many small ones.
    Small,
}

impl Shape {
    /// All there are.
    pub const ALL: [Shape; 3] = [Shape::Large, Shape::Mixed, Shape::Small];

    /// Bytes and number of its files, one pair a size.
    pub fn files(self) -> &'static [(u64, u32)] {
        match self {
            Shape::Large => &[(192_000_000, 1), (4_000_001, 3)],
            Shape::Mixed => &[
                (64_000_000, 1),
                (6_000_001, 4),
                (100_000, 60),
                (1_000, 100),
                (0, 1),
            ],
            Shape::Small => &[(10_000, 2_000)],
        }
    }

    /// Bytes of all its files.
    pub fn bytes(self) -> u64 {
        let sizes = self.files().iter();
        sizes.map(|(bytes, count)| bytes * u64::from(*count)).sum()
    }

    /// How many files.
    pub fn count(self) -> u32 {
        self.files().iter().map(|(_, count)| count).sum()
    }
}

/// Sessions and data channels of each that clients use: the bound of what may be sent
/// again depends on them.
const CHANNELS: [(u32, u32); 4] = [(1, 1), (1, 4), (2, 2), (4, 2)];

/// One command, and what goes wrong meanwhile.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fault {
    /// Which of the campaign, from 0.
    pub number: u64,
    /// What.
    pub kind: Kind,
    /// Which way files go.
    pub way: Way,
    /// Which files.
    pub shape: Shape,
    /// How much lies at the target when it happens, in thousandths of all bytes.
    pub at_per_mille: u32,
    /// Sessions of the client (`-c`).
    pub concurrency: u32,
    /// Data channels of each (`-p`).
    pub parallelism: u32,
}

impl Fault {
    /// The fault of this number in the campaign of `seed`, whatever the others were. `kinds` are
    /// those that can be had here; there must be one.
    pub fn draw(seed: u64, number: u64, kinds: &[Kind]) -> Fault {
        let mut rng = Rng::new(seed, number);
        let weights: u64 = kinds.iter().map(|kind| kind.weight()).sum();
        let mut drawn = rng.up_to(weights.saturating_sub(1));
        let kind = *(kinds.iter())
            .find(|kind| {
                let found = drawn < kind.weight();
                drawn = drawn.saturating_sub(kind.weight());
                found
            })
            .expect("a number below the sum of the weights falls to one of them");
        let way = one_of(&mut rng, kind.ways());
        let shape = one_of(&mut rng, &Shape::ALL);
        let (concurrency, parallelism) = one_of(&mut rng, &CHANNELS);
        Fault {
            number,
            kind,
            way,
            shape,
            at_per_mille: u32::try_from(rng.up_to(1000)).expect("at most 1000"),
            concurrency,
            parallelism,
        }
    }

    /// Bytes at the target at which it happens.
    pub fn at_bytes(&self) -> u64 {
        self.shape.bytes() / 1000 * u64::from(self.at_per_mille)
    }

    /// What may be sent again because of it: 1 % of the bytes, and a block for each channel.
    pub fn resent_max(&self) -> u64 {
        let channels = u64::from(self.concurrency * self.parallelism);
        self.shape.bytes() / 100 + channels * BLOCK_BYTES
    }
}

/// Longest block of the extended block mode that the client sends, its default.
const BLOCK_BYTES: u64 = 1 << 20;

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.kind.is_of_a_dialogue() {
            return write!(f, "{} during a {:?}", self.kind, self.way);
        }
        write!(
            f,
            "{} during a {:?} of {:?} files, {} x {} channels, at {} per mille",
            self.kind, self.way, self.shape, self.concurrency, self.parallelism, self.at_per_mille
        )
    }
}

fn one_of<T: Copy>(rng: &mut Rng, all: &[T]) -> T {
    let last = all.len() as u64 - 1;
    all[usize::try_from(rng.up_to(last)).expect("below the length")]
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn a_number_is_the_same_fault_whichever_came_before() {
        let all: Vec<Fault> = (0..50).map(|n| Fault::draw(7, n, &Kind::ALL)).collect();
        assert_eq!(Fault::draw(7, 31, &Kind::ALL), all[31]);
        assert_ne!(Fault::draw(8, 31, &Kind::ALL), all[31]);
        assert!(
            all.iter()
                .any(|fault| fault.at_per_mille != all[0].at_per_mille)
        );
    }

    #[test]
    fn every_kind_is_drawn_about_as_often_as_it_weighs() {
        let mut drawn = BTreeMap::new();
        for number in 0..5000 {
            let fault = Fault::draw(1, number, &Kind::ALL);
            assert!(fault.kind.ways().contains(&fault.way));
            assert!(fault.at_per_mille <= 1000);
            *drawn.entry(fault.kind).or_insert(0_u64) += 1;
        }
        let weights: u64 = Kind::ALL.iter().map(|kind| kind.weight()).sum();
        for kind in Kind::ALL {
            let expected = 5000 * kind.weight() / weights;
            let count = drawn[&kind];
            assert!(
                count > expected / 2 && count < expected * 2,
                "{kind}: {count} instead of {expected}"
            );
        }
    }

    #[test]
    fn only_what_can_be_had_is_drawn() {
        for number in 0..100 {
            let fault = Fault::draw(3, number, &[Kind::GctKilled]);
            assert_eq!(fault.kind, Kind::GctKilled);
        }
    }

    #[test]
    fn names_are_read_back() {
        for kind in Kind::ALL {
            assert_eq!(kind.name().parse(), Ok(kind));
            let json = serde_json::to_string(&kind).unwrap();
            assert_eq!(json, format!("\"{kind}\""));
        }
        assert!("none".parse::<Kind>().is_err());
    }

    #[test]
    fn one_hundredth_and_a_block_a_channel_may_be_resent() {
        let fault = Fault {
            number: 0,
            kind: Kind::Cut,
            way: Way::Put,
            shape: Shape::Small,
            at_per_mille: 500,
            concurrency: 2,
            parallelism: 3,
        };
        assert_eq!(fault.resent_max(), 200_000 + 6 * 1_048_576);
        assert_eq!(fault.at_bytes(), 10_000_000);
    }
}
