//! What the scheduler decides is written: units to agents, shares of sums.

use std::collections::{BTreeMap, HashMap};

use godwit_scheduler::LeaseId;
use godwit_service_api::agent::{Share, Work};

use super::Books;
use crate::{
    scheduling::{Board, convert::to_api, holders::Granted},
    store::{
        Store, StoreError,
        model::{GrantOrder, GrantedUnit, Leadership, QueueKey},
    },
};

impl Books {
    pub(super) async fn hand_out(
        &mut self,
        store: &Store,
        board: &Board,
        leader: Leadership,
    ) -> Result<u64, StoreError> {
        let now = self.now();
        let grants = self.scheduler.step(now);
        if grants.is_empty() {
            return Ok(0);
        }
        let mut orders = Vec::with_capacity(grants.len());
        let mut waiting: HashMap<(String, QueueKey, Share), Vec<LeaseId>> = HashMap::new();
        let mut idle = Vec::new();
        for grant in grants {
            let agent = self.holders.agent(&grant.agent);
            let Some((agent, queue)) = agent.zip(self.waiting.key(&grant.queue)) else {
                idle.push(grant.lease);
                continue;
            };
            orders.push(GrantOrder {
                queue,
                agent: grant.agent.clone(),
                incarnation: agent.record.incarnation,
                share: to_api(grant.share),
                files: grant.files,
            });
            let order = (grant.agent, queue, to_api(grant.share));
            waiting.entry(order).or_default().push(grant.lease);
        }
        let granted = store.grant(leader, &orders).await;
        for unit in granted.iter().flatten() {
            let order = (unit.agent.clone(), unit.queue, unit.share);
            if let Some(id) = waiting.get_mut(&order).and_then(Vec::pop) {
                self.started(unit, id, board);
            }
        }
        // Nothing started for these: what was known of them was wrong.
        for ((_, queue, _), leases) in waiting {
            if !leases.is_empty() {
                self.waiting.doubt(queue.job);
                idle.extend(leases);
            }
        }
        idle.into_iter()
            .for_each(|id| self.scheduler.lease_ended(id, 0, 0, now));
        granted.map(|units| units.len() as u64)
    }

    fn started(&mut self, unit: &GrantedUnit, id: LeaseId, board: &Board) {
        let files = match &unit.work {
            Work::Copy(files) => files.len(),
            Work::List { .. } => 1,
        };
        let running = Granted {
            id,
            agent: unit.agent.clone(),
            job: unit.job,
            link: unit.queue.link,
            bytes: unit.bytes,
            files: u32::try_from(files).unwrap_or(u32::MAX),
            share: unit.share,
        };
        self.holders.leases.insert(unit.lease, running);
        self.waiting.granted(unit.queue.job);
        self.said.first.insert(unit.queue.job);
        board.wake_agent(&unit.agent);
        board.job_changed(unit.job);
    }

    pub(super) async fn decide_shares(
        &mut self,
        store: &Store,
        board: &Board,
        leader: Leadership,
    ) -> Result<(), StoreError> {
        let decided = self.scheduler.shares(self.now()).into_iter();
        let decided: HashMap<LeaseId, Share> =
            decided.map(|(id, share)| (id, to_api(share))).collect();
        let mut changed = BTreeMap::new();
        for (lease, running) in &self.holders.leases {
            if let Some(share) = decided.get(&running.id).filter(|s| **s != running.share) {
                changed.insert(*lease, *share);
            }
        }
        if changed.is_empty() {
            return Ok(());
        }
        store.set_shares(leader, &changed).await?;
        for (lease, share) in changed {
            if let Some(running) = self.holders.leases.get_mut(&lease) {
                running.share = share;
                board.wake_agent(&running.agent);
            }
        }
        Ok(())
    }
}
