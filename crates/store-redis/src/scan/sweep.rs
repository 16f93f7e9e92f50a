//! The sweeper: passes over all records, a little at a time, one process at a time.

use std::sync::Arc;
use std::time::Duration;

use onlyonce_core::store::{SweepBudget, Swept};
use onlyonce_core::{Clock as _, RecordId, StoreError, Timestamp};
use tokio::sync::Mutex;

use super::{DOING, STEP_KEYS, TOGETHER};
use crate::asked::Told;
use crate::node::Node;
use crate::scripts::Script;
use crate::store::RedisStore;

/// How many keys one call looks at for each record that it may touch, and in all, whatever it finds: others are served in
/// between.
const KEYS_PER_RECORD: usize = 10;
const KEYS_PER_CALL: usize = 20_000;
/// A pass that took a while is followed by a pause of this many times as long. Its own pauses are part of the pass.
const PAUSE_TIMES: u32 = 4;

/// Where the pass under way is.
#[derive(Debug, Default)]
pub(crate) struct Sweeper(Mutex<Option<Pass>>);

#[derive(Debug)]
struct Pass {
    begun: Timestamp,
    /// The servers still to go through, the one under way last.
    nodes: Vec<Arc<Node>>,
    cursor: u64,
}

impl RedisStore {
    pub(crate) async fn sweep_some(&self, budget: SweepBudget) -> Result<Swept, StoreError> {
        self.put_secret_back().await?;
        let mut pass = self.sweeper.0.lock().await;
        if pass.is_none() {
            if !self.take_turn("begin", self.shared.options.sweep_every).await? {
                return Ok(Swept::default());
            }
            *pass = Some(Pass { begun: self.shared.clock.now(), nodes: self.masters.all(), cursor: 0 });
        }
        let mut swept = Swept::default();
        let (mut keys, keys_max) = (0, KEYS_PER_CALL.min(budget.get() * KEYS_PER_RECORD));
        while let Some(under_way) = pass.as_mut() {
            let Some(node) = under_way.nodes.last() else {
                let took = under_way.begun.until(self.shared.clock.now());
                *pass = None;
                let pause = self.shared.options.sweep_every.max(took * PAUSE_TIMES);
                if !self.shared.options.sweep_every.is_zero() {
                    self.take_turn("end", pause).await?;
                }
                break;
            };
            if node.is_retired() {
                // Another server has its keys now, and the next pass goes through them.
                under_way.nodes.pop();
                under_way.cursor = 0;
                continue;
            }
            let left = budget.get() - swept.removed - swept.made_unknown;
            if left == 0 || keys >= keys_max {
                swept.more = true;
                break;
            }
            // No more than can be swept: the rest would be looked at again by the next call.
            let step = self.step_of(node, under_way.cursor, left.clamp(TOGETHER, STEP_KEYS)).await?;
            keys += step.keys;
            let heads = self.peek(&step.ids).await?;
            let mut due: Vec<_> = heads
                .into_iter()
                .filter(|(_, head)| head.as_ref().is_ok_and(|head| head.record.due_at() <= head.now))
                .map(|(id, _)| id)
                .collect();
            let is_too_much = due.len() > left;
            due.truncate(left);
            for some in due.chunks(TOGETHER) {
                self.sweep_each(some, &mut swept).await?;
            }
            if is_too_much {
                // The rest of this step is found again by the next call.
                swept.more = true;
                break;
            }
            under_way.cursor = step.next;
            if step.next == 0 {
                under_way.nodes.pop();
            }
        }
        Ok(swept)
    }

    async fn sweep_each(&self, due: &[RecordId], swept: &mut Swept) -> Result<(), StoreError> {
        let calls: Vec<_> = due.iter().map(|id| self.read_call(Script::Sweep, id, &[])).collect();
        for (id, value) in due.iter().zip(self.masters.run_packed(&calls, DOING).await) {
            match Told::new(value?, DOING).map(|(code, _)| code) {
                Ok(1) => swept.removed += 1,
                Ok(2) => swept.made_unknown += 1,
                Ok(_) => continue,
                Err(failure) => {
                    tracing::error!(id = id.short(), error = %failure, "a record cannot be read");
                    continue;
                }
            }
            self.shared.watches.wake(id);
        }
        Ok(())
    }

    /// Whether this process may begin a pass; others may after `pause`.
    async fn take_turn(&self, what: &str, pause: Duration) -> Result<bool, StoreError> {
        let key = self.shared.key_named("sweep");
        let mut call = self.shared.scripts.call(Script::SweepTurn, &key);
        call.arg(u64::try_from(pause.as_millis()).unwrap_or(u64::MAX)).arg(what);
        let value = self.masters.run(&key, &call, DOING).await?;
        Ok(Told::new(value, DOING)?.0 == 1)
    }
}
