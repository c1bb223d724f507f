//! Every kind of bad credential, each beside a good one of the same shape: one table for all who
//! verify them. `refused` shows them to the verifier alone, `godwit-lab`'s tests to both programs.

mod holders;
mod proxies;

use std::time::SystemTime;

use godwit_gsi::cert::key::KeyKind;
use godwit_gsi::cert::proxy::{self, ProxyRequest};
use godwit_gsi::cert::{Certificate, Credential};
use openssl::pkey::{PKey, Private};

use crate::grid::{Grid, sent};
use crate::pki::*;

/// What a peer sends and signs with, and the CAs that are trusted where it is verified.
pub(crate) struct Shown {
    pub(crate) grid: Grid,
    /// Its own first. Empty: it has nothing to show.
    pub(crate) sent: Vec<Certificate>,
    pub(crate) key: PKey<Private>,
}

/// What is refused, and what is not for being good in that place.
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) bad: Shown,
    pub(crate) good: Shown,
    /// What the refusal says.
    pub(crate) message: &'static str,
}

/// Who shows them: hosts have names of hosts.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Whose {
    User,
    Host,
}

/// The host that [`Whose::Host`] is.
pub(crate) const HOST: &str = "127.0.0.1";

/// All of them, valid (where they are) around `now`.
pub(crate) fn cases(whose: Whose, now: SystemTime) -> Vec<Case> {
    let mut table = Table {
        whose,
        now,
        cases: Vec::new(),
    };
    table.proxies();
    table.chains_of_proxies();
    table.holders();
    table.roots();
    table.intermediates();
    table.strangers();
    table.policies_and_lists();
    match whose {
        Whose::User => table.nothing(),
        Whose::Host => table.names_of_hosts(),
    }
    table.cases
}

struct Table {
    whose: Whose,
    now: SystemTime,
    cases: Vec<Case>,
}

/// Whoever it is, so that messages are the same.
const NAME: &str = "/O=Grid/CN=Jo";

fn shown(grid: Grid, credential: &Credential) -> Shown {
    Shown {
        grid,
        sent: sent(credential),
        key: credential.key().clone(),
    }
}

pub(crate) fn full() -> Vec<u8> {
    proxy_cert_info(INHERIT_ALL, None, None)
}

pub(crate) fn rsa_1024() -> PKey<Private> {
    PKey::from_rsa(openssl::rsa::Rsa::generate(1024).unwrap()).unwrap()
}

fn small_curve() -> PKey<Private> {
    let curve = openssl::nid::Nid::X9_62_PRIME192V1;
    let group = openssl::ec::EcGroup::from_curve_name(curve).unwrap();
    PKey::from_ec_key(openssl::ec::EcKey::generate(&group).unwrap()).unwrap()
}

/// Another proxyCertInfo than there was.
fn info(blueprint: Blueprint, critical: bool, content: &[u8]) -> Blueprint {
    let blueprint = blueprint.without(PROXY_CERT_INFO);
    blueprint.extension(PROXY_CERT_INFO, critical, content)
}

impl Table {
    fn add(&mut self, name: &'static str, message: &'static str, bad: Shown, good: Shown) {
        self.cases.push(Case {
            name,
            bad,
            good,
            message,
        });
    }

    fn authority(&self, subject: &str) -> Blueprint {
        Blueprint::authority(subject).at(self.now)
    }

    fn grid(&self) -> Grid {
        Grid::with(self.authority("/O=Grid/CN=CA"))
    }

    /// RSA keys sign with every digest, the broken ones too.
    fn rsa_grid(&self) -> Grid {
        Grid::with(self.authority("/O=Grid/CN=CA").key(rsa_key()))
    }

    fn named(&self, name: &str) -> Blueprint {
        let blueprint = match self.whose {
            Whose::User => Blueprint::user(name),
            Whose::Host => Blueprint::host(name, &[HOST]),
        };
        blueprint.at(self.now)
    }

    fn holder_of(&self, grid: &Grid) -> Credential {
        self.named(NAME).issued_by(&grid.authority)
    }

    fn good_holder(&self) -> Shown {
        let grid = self.grid();
        let holder = self.holder_of(&grid);
        shown(grid, &holder)
    }

    fn proxy_of(&self, issuer: &Credential) -> Blueprint {
        let proxy = Blueprint::proxy(issuer, "1").at(self.now);
        proxy.extension(PROXY_CERT_INFO, true, &full())
    }

    fn below(&self, issuer: &Credential, request: &ProxyRequest) -> Credential {
        proxy::create(issuer, request, KeyKind::EcP256, self.now).expect("makes")
    }

    fn good_proxy(&self) -> Shown {
        let grid = self.grid();
        let holder = self.holder_of(&grid);
        let proxy = self.proxy_of(&holder).issued_by(&holder);
        shown(grid, &proxy)
    }

    fn good_proxy_of_proxy(&self) -> Shown {
        let grid = self.grid();
        let first = self.below(&self.holder_of(&grid), &ProxyRequest::default());
        let second = self.below(&first, &ProxyRequest::default());
        shown(grid, &second)
    }

    fn proxy(
        &mut self,
        name: &'static str,
        message: &'static str,
        change: impl Fn(Blueprint) -> Blueprint,
    ) {
        let make = |change: &dyn Fn(Blueprint) -> Blueprint| {
            let grid = self.grid();
            let holder = self.named(NAME).key(rsa_key()).issued_by(&grid.authority);
            let proxy = change(self.proxy_of(&holder)).issued_by(&holder);
            shown(grid, &proxy)
        };
        let (bad, good) = (make(&change), make(&|same| same));
        self.add(name, message, bad, good);
    }

    fn holder(
        &mut self,
        name: &'static str,
        message: &'static str,
        change: impl Fn(Blueprint) -> Blueprint,
    ) {
        let make = |change: &dyn Fn(Blueprint) -> Blueprint| {
            let grid = self.rsa_grid();
            let holder = change(self.named(NAME)).issued_by(&grid.authority);
            shown(grid, &holder)
        };
        let (bad, good) = (make(&change), make(&|same| same));
        self.add(name, message, bad, good);
    }

    /// A root CA that is installed nevertheless.
    fn root(
        &mut self,
        name: &'static str,
        message: &'static str,
        change: impl Fn(Blueprint) -> Blueprint,
    ) {
        let make = |change: &dyn Fn(Blueprint) -> Blueprint| {
            let grid = Grid::with(change(self.authority("/O=Grid/CN=CA")));
            let holder = self.holder_of(&grid);
            shown(grid, &holder)
        };
        let (bad, good) = (make(&change), make(&|same| same));
        self.add(name, message, bad, good);
    }

    /// A CA below the root.
    fn intermediate(
        &mut self,
        name: &'static str,
        message: &'static str,
        change: impl Fn(Blueprint) -> Blueprint,
        then: impl Fn(&Grid, &Credential, &mut Vec<Certificate>),
    ) {
        let make = |is_bad: bool| {
            let grid = self.grid();
            let middle = self.authority("/O=Grid/CN=Sub").serial(15);
            let middle = if is_bad { change(middle) } else { middle };
            let middle = middle.issued_by(&grid.authority);
            grid.set_policy(middle.certificate(), "'\"/O=Grid/*\"'");
            let holder = self.named(NAME).issued_by(&middle);
            let mut all = sent(&holder);
            if is_bad {
                then(&grid, &middle, &mut all);
            }
            let key = holder.key().clone();
            Shown {
                grid,
                sent: all,
                key,
            }
        };
        let (bad, good) = (make(true), make(false));
        self.add(name, message, bad, good);
    }

    /// A good credential where the CAs' files are not.
    fn place(&mut self, name: &'static str, message: &'static str, change: impl Fn(&Grid)) {
        let bad = self.good_holder();
        change(&bad.grid);
        let good = self.good_holder();
        self.add(name, message, bad, good);
    }
}
