//! The real path of a directory at a server, which detects links that lead back.

use godwit_proto::{FtpPath, facts::Facts};

/// The path to a directory.
#[derive(Clone, Debug)]
pub(super) struct Trail {
    /// The directory's path, with links resolved as far as known.
    real: FtpPath,
    /// Directories whose links led here.
    left: Vec<FtpPath>,
}

impl Trail {
    pub(super) fn new(top: &FtpPath) -> Self {
        Self {
            real: top.clone(),
            left: Vec::new(),
        }
    }

    /// The path to the directory `name`, which `facts` describe; `None` if it leads back to a
    /// directory on the path. Servers that send `Unique` facts need none of this.
    pub(super) fn on_to(&self, name: &[u8], facts: &Facts) -> Option<Self> {
        let led = facts.unix_slink.as_ref().filter(|_| facts.unique.is_none());
        let led = led.and_then(|to| FtpPath::new(to.clone()).ok());
        let Some(real) = led.filter(FtpPath::is_absolute) else {
            let real = self.real.join(name).unwrap_or_else(|_| self.real.clone());
            let left = self.left.clone();
            return Some(Self { real, left });
        };
        let mut left = self.left.clone();
        left.push(self.real.clone());
        let leads_back = left.iter().any(|passed| is_in(passed, &real));
        (!leads_back).then_some(Self { real, left })
    }
}

/// True if `path` is `directory` or below it.
fn is_in(path: &FtpPath, directory: &FtpPath) -> bool {
    let directory = directory.as_bytes();
    let directory = directory.strip_suffix(b"/").unwrap_or(directory);
    let rest = path.as_bytes().strip_prefix(directory);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> FtpPath {
        FtpPath::new(text).unwrap()
    }

    fn link_to(to: &str) -> Facts {
        Facts {
            unix_slink: Some(to.into()),
            ..Facts::default()
        }
    }

    #[test]
    fn links_that_lead_to_a_directory_passed_end_the_way() {
        let plain = Facts::default();
        let top = Trail::new(&path("/t"));
        let sub = top.on_to(b"sub", &plain).unwrap();
        for back in ["/t", "/t/sub", "/"] {
            assert!(sub.on_to(b"l", &link_to(back)).is_none(), "{back}");
        }
        let aside = sub.on_to(b"l", &link_to("/t/subs")).unwrap();
        assert!(aside.on_to(b"m", &link_to("/t/sub")).is_none());
        assert!(aside.on_to(b"m", &link_to("/t/subs/n")).is_some());
        let below = aside.on_to(b"n", &plain).unwrap();
        assert!(below.on_to(b"m", &link_to("/t/subs")).is_none());
        // The text of a link is no path.
        assert!(sub.on_to(b"l", &link_to("..")).is_some());
    }
}
