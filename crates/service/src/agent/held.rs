//! The units that an agent holds, and what they have to report.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::Arc,
};

use godwit_service_api::agent::{
    FileEnd, FileOutcome, Grant, GrantedCredential, HANDED_BACK, Lease, MAX_UNIT_FILES, POISON,
    Share, Stop, StopReason, Undivided, UnitProgress, UnitResult, Work,
};
use godwit_service_api::job::{FileError, WhoActs};
use tokio::sync::mpsc;

use super::{
    deaths::{DEATHS_MAX, DEATHS_SUSPECT, Deaths},
    plan::{self, UnitSettings},
    unit::{self, Ended, Event, IdleThreads, Progress, Running},
};

pub(super) struct UnitTable {
    slots: u32,
    settings: Arc<UnitSettings>,
    deaths: Deaths,
    events: mpsc::UnboundedSender<Event>,
    threads: IdleThreads,
    units: HashMap<Lease, HeldUnit>,
    /// Not yet on disk.
    reports: Vec<UnitResult>,
    /// Granted while an earlier grant of the same unit still ends here, or while a suspect unit
    /// runs: that one runs alone.
    waiting: BTreeMap<i64, Grant>,
}

struct HeldUnit {
    grant: Grant,
    state: State,
    /// The process died with it more than once.
    suspect: bool,
    progress: Arc<Progress>,
    /// Ended and not yet reported.
    files: Vec<FileOutcome>,
    /// Not yet reported.
    undivided: Vec<Undivided>,
    /// Reported or to be reported: what a second run leaves out.
    done: HashSet<u64>,
    /// Bytes moved of files that ended.
    done_bytes: u64,
    /// The same when the present run began. What earlier runs have moved of other files, this one
    /// resumes and counts.
    bytes_before: u64,
}

enum State {
    Runs(Running),
    /// Stopped, and its thread has not ended.
    Stops(Running, StopReason),
    /// Its lease was about to end; it continues if the service still knows it.
    Suspends(Running),
    Suspended,
    /// The last result waits to be acknowledged.
    Over {
        last: u64,
    },
}

impl Drop for UnitTable {
    fn drop(&mut self) {
        self.threads.end();
    }
}

impl UnitTable {
    pub(super) fn new(
        slots: u32,
        settings: Arc<UnitSettings>,
        deaths: Deaths,
        events: mpsc::UnboundedSender<Event>,
    ) -> Self {
        Self {
            slots,
            settings,
            deaths,
            events,
            threads: IdleThreads::default(),
            units: HashMap::new(),
            reports: Vec::new(),
            waiting: BTreeMap::new(),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.units.len() + self.waiting.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Something writes.
    pub(super) fn runs(&self) -> bool {
        self.units
            .values()
            .any(|unit| matches!(unit.state, State::Runs(_)))
    }

    pub(super) fn free_slots(&self) -> u32 {
        let is_over = |unit: &&HeldUnit| matches!(unit.state, State::Over { .. });
        let over = self.units.values().filter(is_over).count();
        let taken = u32::try_from(self.len() - over).unwrap_or(u32::MAX);
        self.slots.saturating_sub(taken)
    }

    pub(super) fn progress(&self) -> Vec<UnitProgress> {
        let of = |(lease, unit): (&Lease, &HeldUnit)| {
            let report = unit.progress.report();
            let bytes = unit.bytes_before.saturating_add(report.bytes);
            UnitProgress {
                lease: *lease,
                bytes,
                open_bytes: match unit.state {
                    State::Over { .. } => 0,
                    _ => bytes.saturating_sub(unit.done_bytes),
                },
                files: unit.done.len() as u64,
                goodput: report.goodput,
                setting: report.setting,
                limited_by: report.limited_by,
            }
        };
        let waiting = self.waiting.values().map(|grant| UnitProgress {
            lease: grant.lease,
            bytes: 0,
            open_bytes: 0,
            files: 0,
            goodput: 0.0,
            setting: Share::default(),
            limited_by: None,
        });
        self.units.iter().map(of).chain(waiting).collect()
    }

    pub(super) fn grant(&mut self, grant: Grant) {
        let lease = grant.lease;
        if self.units.contains_key(&lease) {
            return;
        }
        let mut older = Vec::new();
        for other in self.units.keys() {
            if other.unit == lease.unit {
                older.push(*other);
            }
        }
        if older.iter().any(|other| other.epoch > lease.epoch) {
            return;
        }
        for other in older {
            self.stop(Stop {
                lease: other,
                why: StopReason::Fenced,
            });
        }
        self.waiting.insert(lease.unit, grant);
        self.start_waiting();
    }

    /// Starts what may start now.
    fn start_waiting(&mut self) {
        for unit in self.waiting.keys().copied().collect::<Vec<_>>() {
            if let Some(grant) = self.waiting.remove(&unit) {
                match self.may_start(grant.lease) {
                    true => self.start_first(grant),
                    false => drop(self.waiting.insert(unit, grant)),
                }
            }
        }
    }

    /// A unit with which the process died time after time may be why: nothing else runs beside it.
    fn may_start(&self, lease: Lease) -> bool {
        let mut others = self.units.iter();
        let is_over = |unit: &HeldUnit| matches!(unit.state, State::Over { .. });
        let suspect = self.deaths.of(lease) >= DEATHS_SUSPECT;
        others.all(|(other, unit)| {
            let apart = other.unit != lease.unit;
            apart && (is_over(unit) || !suspect && !unit.suspect)
        })
    }

    fn start_first(&mut self, grant: Grant) {
        let deaths = self.deaths.of(grant.lease);
        if deaths < DEATHS_MAX {
            return self.start(grant, HashSet::new(), 0);
        }
        tracing::warn!(
            unit = grant.lease.unit,
            deaths,
            "this agent dies with a unit"
        );
        self.deaths.ended(grant.lease);
        let error = FileError {
            code: POISON.to_owned(),
            message: format!("the agent died {deaths} times"),
            who: WhoActs::Operator,
            may_pass: false,
        };
        let mut result = given_back(grant);
        result.error = Some(error);
        self.reports.push(result);
    }

    /// Results that are to be stored.
    pub(super) fn take_reports(&mut self) -> Vec<UnitResult> {
        std::mem::take(&mut self.reports)
    }

    fn start(&mut self, grant: Grant, done: HashSet<u64>, done_bytes: u64) {
        if grant.next_result > 0 && matches!(grant.work, Work::List { .. }) {
            // The service has some of what an earlier run found, and would take it twice.
            return self.reports.push(given_back(grant));
        }
        tracing::info!(
            unit = grant.lease.unit,
            epoch = grant.lease.epoch,
            "unit starts"
        );
        let suspect = self.deaths.of(grant.lease) >= DEATHS_SUSPECT;
        self.deaths.starts(grant.lease);
        let progress = Arc::<Progress>::default();
        let mut left = grant.clone();
        if let Work::Copy(files) = &mut left.work {
            files.retain(|file| !done.contains(&file.index));
        }
        let running = unit::start(
            left,
            &self.settings,
            &self.threads,
            Arc::clone(&progress),
            self.events.clone(),
        );
        let unit = HeldUnit {
            state: State::Runs(running),
            suspect,
            progress,
            files: Vec::new(),
            undivided: Vec::new(),
            done,
            done_bytes,
            bytes_before: done_bytes,
            grant,
        };
        self.units.insert(unit.grant.lease, unit);
    }

    pub(super) fn share(&mut self, lease: Lease, share: Share) {
        if let Some(unit) = self.units.get_mut(&lease) {
            unit.grant.share = share;
            if let State::Runs(running) = &unit.state {
                running.set_share(share);
            }
        } else if let Some(grant) = self.waiting.get_mut(&lease.unit) {
            grant.share = share;
        }
    }

    /// New credentials of a unit, for sessions that log in from here on.
    pub(super) fn renew(&mut self, lease: Lease, credentials: Vec<GrantedCredential>) {
        if let Some(unit) = self.units.get_mut(&lease) {
            if let State::Runs(running) = &unit.state {
                let granted = &running.granted;
                credentials.iter().for_each(|one| plan::renew(granted, one));
            }
            unit.grant.credentials = credentials;
        } else if let Some(grant) = self.waiting.get_mut(&lease.unit) {
            grant.credentials = credentials;
        }
    }

    pub(super) fn stop(&mut self, stop: Stop) {
        let Stop { lease, why } = stop;
        if self
            .waiting
            .get(&lease.unit)
            .is_some_and(|grant| grant.lease == lease)
        {
            let waiting = self.waiting.remove(&lease.unit);
            self.reports.extend(
                waiting
                    .filter(|_| why != StopReason::Fenced)
                    .map(given_back),
            );
        }
        let Some(unit) = self.units.get_mut(&lease) else {
            return;
        };
        tracing::info!(unit = lease.unit, epoch = lease.epoch, ?why, "unit stops");
        if why == StopReason::Fenced {
            unit.files.clear();
        }
        match std::mem::replace(&mut unit.state, State::Suspended) {
            State::Runs(running) | State::Suspends(running) | State::Stops(running, _) => {
                running.stop(why);
                unit.state = State::Stops(running, why);
            }
            // Nothing of it runs; a repeated run would find what is left in the journal.
            State::Suspended => {
                let error = Some(handed_back());
                self.end(lease, Ended { error }, why != StopReason::Fenced);
            }
            State::Over { .. } if why == StopReason::Fenced => self.remove(lease),
            over @ State::Over { .. } => unit.state = over,
        }
    }

    pub(super) fn stop_all(&mut self, why: StopReason) {
        let stops = |unit: &&HeldUnit| matches!(unit.state, State::Runs(_) | State::Suspended);
        let leases: Vec<_> = self
            .units
            .values()
            .filter(stops)
            .map(|u| u.grant.lease)
            .collect();
        leases
            .into_iter()
            .for_each(|lease| self.stop(Stop { lease, why }));
        let waiting = std::mem::take(&mut self.waiting).into_values();
        self.reports.extend(waiting.map(given_back));
    }

    /// Nothing is written any more until the service answers.
    pub(super) fn suspend(&mut self) {
        for unit in self.units.values_mut() {
            match std::mem::replace(&mut unit.state, State::Suspended) {
                State::Runs(running) => {
                    running.stop(StopReason::Paused);
                    unit.state = State::Suspends(running);
                }
                other => unit.state = other,
            }
        }
    }

    /// The service knows the leases of all that it did not stop.
    pub(super) fn resume(&mut self) {
        let suspended = |(_, unit): &(&Lease, &HeldUnit)| matches!(unit.state, State::Suspended);
        let leases: Vec<_> = self
            .units
            .iter()
            .filter(suspended)
            .map(|(lease, _)| *lease)
            .collect();
        for lease in leases {
            if let Some(unit) = self.units.remove(&lease) {
                let files = unit.files;
                self.start(unit.grant, unit.done, unit.done_bytes);
                if let Some(again) = self.units.get_mut(&lease) {
                    again.files = files;
                }
            }
        }
    }

    /// True where the service should hear of it at once.
    pub(super) fn note(&mut self, event: Event) -> bool {
        match event {
            Event::File(lease, outcome) => {
                if let Some(unit) = self.units.get_mut(&lease)
                    && unit.counts()
                    && unit.done.insert(outcome.index)
                {
                    unit.done_bytes = unit.done_bytes.saturating_add(outcome.bytes);
                    unit.files.push(outcome);
                }
                false
            }
            Event::Undivided(lease, undivided) => {
                if let Some(unit) = self.units.get_mut(&lease) {
                    unit.undivided.push(undivided);
                }
                false
            }
            Event::Found(lease, found) => {
                let Some(unit) = self.units.get_mut(&lease).filter(|unit| unit.counts()) else {
                    return false;
                };
                let mut result = unit.result();
                result.found = found;
                self.reports.push(result);
                true
            }
            Event::Ended(lease, ended) => self.ended(lease, ended),
        }
    }

    fn ended(&mut self, lease: Lease, mut ended: Ended) -> bool {
        self.deaths.ended(lease);
        let Some(unit) = self.units.get_mut(&lease) else {
            return false;
        };
        let reports = match &unit.state {
            State::Suspends(_) => {
                unit.state = State::Suspended;
                return false;
            }
            State::Runs(_) => true,
            State::Stops(_, why) => {
                // A list that was interrupted did not fail.
                if matches!(unit.grant.work, Work::List { .. }) && ended.error.is_some() {
                    ended.error = Some(handed_back());
                }
                *why != StopReason::Fenced
            }
            State::Suspended | State::Over { .. } => false,
        };
        if matches!(unit.state, State::Runs(_)) {
            unit.fail_the_rest(&ended);
        }
        self.end(lease, ended, reports);
        true
    }

    /// Nothing of a unit runs any more.
    fn end(&mut self, lease: Lease, ended: Ended, reports: bool) {
        let Some(unit) = self.units.get_mut(&lease).filter(|_| reports) else {
            return self.remove(lease);
        };
        let mut result = unit.result();
        result.files = std::mem::take(&mut unit.files);
        result.last = true;
        result.error = ended.error;
        unit.state = State::Over {
            last: result.sequence,
        };
        self.reports.push(result);
        self.start_waiting();
    }

    fn remove(&mut self, lease: Lease) {
        self.units.remove(&lease);
        self.start_waiting();
    }

    /// Files that ended become results, so that a dead agent's are not copied again.
    pub(super) fn seal(&mut self) {
        for unit in self.units.values_mut() {
            if (unit.files.is_empty() && unit.undivided.is_empty()) || !unit.counts() {
                continue;
            }
            let rest = unit.files.split_off(unit.files.len().min(MAX_UNIT_FILES));
            let files = std::mem::replace(&mut unit.files, rest);
            let mut result = unit.result();
            result.files = files;
            self.reports.push(result);
        }
    }

    pub(super) fn acknowledged(&mut self, lease: Lease, sequence: u64) {
        let is_last =
            |unit: &HeldUnit| matches!(unit.state, State::Over { last } if last == sequence);
        if self.units.get(&lease).is_some_and(is_last) {
            self.remove(lease);
        }
    }
}

fn result_of(grant: &Grant) -> UnitResult {
    UnitResult {
        lease: grant.lease,
        sequence: grant.next_result,
        files: Vec::new(),
        found: Vec::new(),
        last: false,
        undivided: Vec::new(),
        error: None,
    }
}

/// A unit goes back untouched.
fn given_back(grant: Grant) -> UnitResult {
    UnitResult {
        last: true,
        error: Some(handed_back()),
        ..result_of(&grant)
    }
}

fn handed_back() -> FileError {
    FileError {
        code: HANDED_BACK.to_owned(),
        message: "the agent did not do it".to_owned(),
        who: WhoActs::Service,
        may_pass: true,
    }
}

impl HeldUnit {
    /// What it reports is counted.
    fn counts(&self) -> bool {
        !matches!(
            self.state,
            State::Stops(_, StopReason::Fenced) | State::Over { .. }
        )
    }

    fn result(&mut self) -> UnitResult {
        let result = UnitResult {
            undivided: std::mem::take(&mut self.undivided),
            ..result_of(&self.grant)
        };
        self.grant.next_result += 1;
        result
    }

    /// A run that came to its end has said of each file what became of it. One of which it has not
    /// would come back for ever.
    fn fail_the_rest(&mut self, ended: &Ended) {
        let Work::Copy(files) = &self.grant.work else {
            return;
        };
        let error = ended.error.clone().unwrap_or_else(|| FileError {
            code: "internal".to_owned(),
            message: "the agent does not know what became of the file".to_owned(),
            who: WhoActs::Operator,
            may_pass: true,
        });
        for file in files {
            if self.done.insert(file.index) {
                self.files.push(FileOutcome {
                    index: file.index,
                    bytes: 0,
                    end: FileEnd::Failed(error.clone()),
                });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{path::Path, time::Duration};

    use godwit_client::{
        auth::secrets::Secrets,
        spec::{Connections, Rates, Ssh, addresses},
    };
    use godwit_gsi::{cert::files::Locations, ftps::Authorities};
    use godwit_service_api::{
        agent::{AddressScope, GrantOptions},
        job::JobOptions,
    };
    use uuid::Uuid;

    use super::*;

    fn table(state: &Path) -> UnitTable {
        let settings = UnitSettings {
            journals: state.to_owned(),
            connections: Connections {
                stall_limit: Duration::from_secs(60),
                secrets: Secrets::of_environment(|_| None, 0),
                authorities: Authorities::System,
                addresses: addresses::AddressScope::default(),
                data_hosts: Vec::new(),
                stripe_block: None,
                port_range: None,
                protect: None,
                locations: Locations::new(|_| None, 0),
                proxies: Vec::new(),
                subjects: Vec::new(),
                granted: Default::default(),
                ssh: Ssh::default(),
                buckets: Default::default(),
                kept: None,
            },
            own_credentials: false,
            local: Vec::new(),
            rates: Rates::default(),
            traces: Default::default(),
        };
        let deaths = Deaths::open(&state.join("starts")).unwrap();
        UnitTable::new(4, Arc::new(settings), deaths, mpsc::unbounded_channel().0)
    }

    fn listing(next_result: u64) -> Grant {
        let options = JobOptions::default();
        Grant {
            lease: Lease { unit: 1, epoch: 1 },
            job: Uuid::new_v4(),
            work: Work::List {
                source: "file:///tree".to_owned(),
                destination: "file:///copy".to_owned(),
            },
            options: GrantOptions {
                verify: options.verify,
                overwrite: options.overwrite,
                preserve_times: options.preserve_times,
                class: options.class,
                divide_above: None,
                divides_uploads: false,
            },
            again: false,
            addresses: AddressScope::Public,
            share: Share::default(),
            next_result,
            credentials: Vec::new(),
            trace: None,
        }
    }

    #[tokio::test]
    async fn a_listing_of_which_the_service_has_a_part_is_handed_back() {
        let state = tempfile::tempdir().unwrap();
        let mut table = table(state.path());
        table.grant(listing(1));
        let reports = table.take_reports();
        assert_eq!((reports[0].sequence, reports[0].last), (1, true));
        assert_eq!(reports[0].error.as_ref().unwrap().code, HANDED_BACK);
        assert!(table.is_empty());
    }

    #[tokio::test]
    async fn a_unit_that_kills_its_agent_goes_back_as_poison() {
        let state = tempfile::tempdir().unwrap();
        for _ in 0..DEATHS_MAX {
            let mut table = table(state.path());
            table.grant(listing(0));
            assert_eq!((table.take_reports().len(), table.len()), (0, 1));
        }
        let mut table = table(state.path());
        table.grant(listing(0));
        assert_eq!(table.take_reports()[0].error.as_ref().unwrap().code, POISON);
    }
}
