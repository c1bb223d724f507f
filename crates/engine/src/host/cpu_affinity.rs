//! Which processors a program keeps to.
//!
//! Where memory and network cards belong to one socket of several (NUMA), a transfer is fastest on
//! the processors that are near its card: what its threads touch first lies in their memory, and
//! the card's interrupts come to them.

use std::{fmt, fs, path::Path, str::FromStr};

use rustix::{
    io::Errno,
    thread::{CpuSet, sched_getaffinity, sched_setaffinity},
};

/// Where the system describes network interfaces.
const INTERFACES: &str = "/sys/class/net";

/// The attribute of a device on a bus that lists the processors near it.
const NEAR: &str = "local_cpulist";

/// The prefix that asks for the processors near a card.
const NEAR_PREFIX: &str = "near:";

/// Processors, as users say them: `0-3,8` in the kernel's numbers, or `near:eth0` for those that
/// are near an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CpuAffinity {
    /// By their numbers, each below [`CpuSet::MAX_CPU`], at least one.
    Listed(Vec<usize>),
    /// Those near this network interface.
    Near(String),
}

/// Why a program cannot be bound to processors, or the text names none.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CpuAffinityError {
    /// That is no list.
    #[error(
        "{0:?} names no processors: write 0-3,8 with numbers below {max}, or near:INTERFACE",
        max = CpuSet::MAX_CPU
    )]
    Text(String),
    /// There is no such interface.
    #[error("there is no network interface {0:?}")]
    NoInterface(String),
    /// It is not a device on a bus, or the system does not list its processors.
    #[error("the system does not say which processors are near {0:?}: list them by number")]
    NotTold(String),
    /// The system keeps us from all of them.
    #[error("none of the processors {0} may be used by this process")]
    NoneAllowed(CpuAffinity),
    /// The system refuses.
    #[error("keep to the processors {processors}: {errno}")]
    Refused {
        /// Which.
        processors: CpuAffinity,
        /// Why.
        errno: Errno,
    },
}

impl CpuAffinity {
    /// Keeps the calling thread, and all threads and processes that it starts from now on, to these
    /// processors, as far as it may use them at all.
    ///
    /// # Errors
    /// There are none of them, or the system does not let us.
    pub fn apply(&self) -> Result<(), CpuAffinityError> {
        let wanted = match self {
            Self::Listed(processors) => processors.clone(),
            Self::Near(interface) => near(Path::new(INTERFACES), interface)?,
        };
        let refused = |errno| CpuAffinityError::Refused {
            processors: self.clone(),
            errno,
        };
        let allowed = sched_getaffinity(None).map_err(refused)?;
        let mut set = CpuSet::new();
        for processor in wanted {
            if allowed.is_set(processor) {
                set.set(processor);
            }
        }
        if set.count() == 0 {
            return Err(CpuAffinityError::NoneAllowed(self.clone()));
        }
        sched_setaffinity(None, &set).map_err(refused)
    }
}

/// The list of the first device above the interface that has one: a virtual function or a queue has
/// it from its card.
fn near(interfaces: &Path, interface: &str) -> Result<Vec<usize>, CpuAffinityError> {
    let no_interface = || CpuAffinityError::NoInterface(interface.to_owned());
    // A name, and no path out of the folder.
    if interface.contains('/') || interface.starts_with('.') {
        return Err(no_interface());
    }
    let device = (interfaces.join(interface).canonicalize()).map_err(|_| no_interface())?;
    let node = (device.ancestors().skip(1))
        .find_map(|device| fs::read_to_string(device.join(NEAR)).ok())
        .and_then(|text| listed(text.trim()));
    node.ok_or_else(|| CpuAffinityError::NotTold(interface.to_owned()))
}

/// `0-3,8`, at least one number.
fn listed(text: &str) -> Option<Vec<usize>> {
    let mut processors = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let [first, last] = [first, last].map(|number| number.parse::<usize>().ok());
        let (first, last) = (first?, last?);
        if first > last || last >= CpuSet::MAX_CPU || processors.len() > CpuSet::MAX_CPU {
            return None;
        }
        processors.extend(first..=last);
    }
    Some(processors)
}

impl FromStr for CpuAffinity {
    type Err = CpuAffinityError;

    fn from_str(text: &str) -> Result<Self, CpuAffinityError> {
        match text.strip_prefix(NEAR_PREFIX) {
            Some(interface) if !interface.is_empty() => Ok(Self::Near(interface.to_owned())),
            _ => listed(text)
                .map(Self::Listed)
                .ok_or_else(|| CpuAffinityError::Text(text.to_owned())),
        }
    }
}

impl fmt::Display for CpuAffinity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Near(interface) => write!(f, "{NEAR_PREFIX}{interface}"),
            Self::Listed(processors) => {
                let numbers: Vec<String> = processors.iter().map(usize::to_string).collect();
                f.write_str(&numbers.join(","))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn only_lists_and_interfaces_are_accepted() {
        let list = |processors: &[usize]| Ok(CpuAffinity::Listed(processors.to_vec()));
        assert_eq!("0".parse(), list(&[0]));
        assert_eq!("0-2,8".parse(), list(&[0, 1, 2, 8]));
        let near = "near:eth0".parse::<CpuAffinity>().expect("an interface");
        assert_eq!(near, CpuAffinity::Near("eth0".into()));
        assert_eq!(near.to_string().parse(), Ok(near));
        for text in [
            "",
            "near:",
            "a",
            "2-1",
            "-1",
            "1-",
            "0,,1",
            "0-99999999999",
            "1024",
            "0 1",
        ] {
            let refused = Err(CpuAffinityError::Text(text.into()));
            assert_eq!(text.parse::<CpuAffinity>(), refused, "{text}");
        }
    }

    #[test]
    fn an_interface_has_the_processors_of_the_card_above_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let (devices, class) = (folder.path().join("devices"), folder.path().join("class"));
        let card = devices.join("pci/virtio0/net/eth0");
        fs::create_dir_all(&card).expect("made");
        fs::create_dir_all(devices.join("virtual/net/lo")).expect("made");
        fs::create_dir(&class).expect("made");
        fs::write(devices.join("pci").join(NEAR), "4-5\n").expect("written");
        symlink(&card, class.join("eth0")).expect("linked");
        symlink(devices.join("virtual/net/lo"), class.join("lo")).expect("linked");
        assert_eq!(super::near(&class, "eth0"), Ok(vec![4, 5]));
        let not_told = Err(CpuAffinityError::NotTold("lo".into()));
        assert_eq!(super::near(&class, "lo"), not_told);
        for name in ["eth1", "../devices/pci", ".."] {
            let missing = Err(CpuAffinityError::NoInterface(name.into()));
            assert_eq!(super::near(&class, name), missing);
        }
    }

    #[test]
    fn threads_that_are_started_keep_to_what_was_chosen() {
        // A thread of its own: the other tests go where they like.
        let kept = std::thread::spawn(|| {
            let allowed = sched_getaffinity(None).expect("known");
            let of_us = |p: &usize| allowed.is_set(*p);
            let last = (0..CpuSet::MAX_CPU).rfind(of_us).expect("we run somewhere");
            CpuAffinity::Listed(vec![last])
                .apply()
                .expect("one of ours");
            let set = std::thread::spawn(|| sched_getaffinity(None)).join();
            let set = set.expect("no panic").expect("known");
            assert!(set.is_set(last) && set.count() == 1);
            let other = (0..CpuSet::MAX_CPU).find(|p| !set.is_set(*p)).expect("one");
            // The kernel lets a thread come back, we do not go where we were not.
            let refused = CpuAffinity::Listed(vec![other]).apply();
            let none = CpuAffinityError::NoneAllowed(CpuAffinity::Listed(vec![other]));
            assert_eq!(refused, Err(none));
        });
        kept.join().expect("no panic");
    }
}
