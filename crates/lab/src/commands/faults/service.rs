//! The part of `godwit-lab faults` that disturbs the transfer service.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write};
use std::sync::mpsc;
use std::sync::{
    Mutex, PoisonError,
    atomic::{AtomicBool, Ordering},
};
use std::thread;

use super::{FaultsError, Options, create, megabytes};
use crate::faults::service::{Database, ServiceCampaign, ServiceKind, ServiceOutcome};

/// Runs plans, several at a time: most of their time is waiting.
///
/// # Errors
/// [`FaultsError`]; outcomes until then are kept.
pub(super) fn run(
    options: &Options,
    database: Database,
    out: &mut dyn Write,
) -> Result<(), FaultsError> {
    let campaign = ServiceCampaign::new(options.seed, database)?;
    let mut file = options.out.as_deref().map(create).transpose()?;
    let until = options.until();
    let numbers = Mutex::new(options.numbers().take_while(|_| super::is_before(until)));
    let next = || {
        let mut numbers = numbers.lock().unwrap_or_else(PoisonError::into_inner);
        numbers.next()
    };
    let stop = AtomicBool::new(false);
    let mut outcomes = Vec::new();
    thread::scope(|scope| {
        let (tell, told) = mpsc::channel();
        for _ in 0..options.jobs {
            let (tell, campaign, next, stop) = (tell.clone(), &campaign, &next, &stop);
            scope.spawn(move || {
                while let (false, Some(number)) = (stop.load(Ordering::Acquire), next()) {
                    if tell.send(campaign.run(&campaign.plan(number))).is_err() {
                        return;
                    }
                }
            });
        }
        drop(tell);
        let mut take = |outcome: ServiceOutcome| {
            show(&outcome, out)?;
            if !outcome.findings.is_empty() {
                let ServiceOutcome { plan, .. } = &outcome;
                writeln!(
                    out,
                    "again: godwit-lab faults --service {database} --seed {} --only {}",
                    plan.seed, plan.number
                )?;
            }
            if let Some(file) = &mut file {
                serde_json::to_writer(&mut *file, &outcome).map_err(io::Error::from)?;
                writeln!(file)?;
            }
            outcomes.push(outcome);
            Ok::<_, FaultsError>(())
        };
        let taken = told.into_iter().try_for_each(|outcome| take(outcome?));
        stop.store(true, Ordering::Release);
        taken
    })?;
    let page = table(&outcomes);
    write!(out, "\n{page}")?;
    if let Some(folder) = &options.out {
        fs::write(folder.join("service-faults.md"), page)?;
    }
    let broken = outcomes
        .iter()
        .filter(|outcome| !outcome.findings.is_empty());
    match broken.count() {
        0 => Ok(()),
        broken => Err(FaultsError::Broken {
            broken,
            too_much: 0,
            faults: outcomes.len(),
        }),
    }
}

fn show(outcome: &ServiceOutcome, out: &mut dyn Write) -> io::Result<()> {
    let ServiceOutcome {
        plan,
        seconds,
        jobs,
        files,
        resent_bytes,
        resent_max,
        ..
    } = outcome;
    writeln!(
        out,
        "{:4} {plan}: {jobs} jobs, {files} files, {seconds:.1} s, {:.1} MB again of {:.1}",
        plan.number,
        megabytes(*resent_bytes),
        megabytes(*resent_max)
    )?;
    for finding in &outcome.findings {
        writeln!(out, "     BROKEN {}", finding.replace('\n', "\n     "))?;
    }
    out.flush()
}

/// Rows of one kind of fault.
#[derive(Default)]
struct Sum {
    faults: usize,
    plans: usize,
    broken: usize,
}

/// By kind of fault, as Markdown.
fn table(outcomes: &[ServiceOutcome]) -> String {
    let mut sums: BTreeMap<ServiceKind, Sum> = BTreeMap::new();
    for outcome in outcomes {
        for kind in ServiceKind::ALL {
            let faults = outcome.plan.faults.iter();
            let faults = faults.filter(|fault| fault.kind == kind).count();
            if faults > 0 {
                let sum = sums.entry(kind).or_default();
                sum.faults += faults;
                sum.plans += 1;
                sum.broken += usize::from(!outcome.findings.is_empty());
            }
        }
    }
    let mut page = "| fault | faults | plans with it | of those broke a promise |\n\
                    |---|--:|--:|--:|\n"
        .to_owned();
    for (kind, sum) in &sums {
        page += &format!(
            "| {kind} | {} | {} | {} |\n",
            sum.faults, sum.plans, sum.broken
        );
    }
    let all = |of: fn(&ServiceOutcome) -> u64| outcomes.iter().map(of).sum::<u64>();
    let faults: usize = sums.values().map(|sum| sum.faults).sum();
    let broken = outcomes
        .iter()
        .filter(|outcome| !outcome.findings.is_empty());
    page += &format!(
        "| all | {faults} | {} | {} |\n\n{} files and {:.1} MB arrived; {:.1} MB were sent again, \
         of {:.1} MB that were unacknowledged when a fault began or ended.\n",
        outcomes.len(),
        broken.count(),
        all(|outcome| outcome.files),
        megabytes(all(|outcome| outcome.bytes)),
        megabytes(all(|outcome| outcome.resent_bytes)),
        megabytes(all(|outcome| outcome.resent_max)),
    );
    page
}
