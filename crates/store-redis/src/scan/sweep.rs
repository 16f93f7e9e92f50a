//! The sweeper: passes over all records, a little at a time, one process at a time.

use std::sync::Arc;
use std::time::Duration;

use onlyonce_core::store::{SweepBudget, Swept};
use onlyonce_core::{Clock as _, RecordId, StoreError, Timestamp};
use redis::{Cmd, Value};
use tokio::sync::Mutex;

use super::{DOING, STEP_KEYS, TOGETHER};
use crate::asked::Told;
use crate::error;
use crate::node::Node;
use crate::scripts::Script;
use crate::store::RedisStore;

/// How many keys one call looks at for each record that it may touch, and in all, whatever it finds: others are served in
/// between.
const KEYS_PER_RECORD: usize = 10;
const KEYS_PER_CALL: usize = 20_000;
/// How many records are swept in one go. Few: it is a write, and whoever comes meanwhile waits for all of it and for its sync.
const SWEPT_TOGETHER: usize = 20;
/// A pass that took a while is followed by a pause of this many times as long. Its own pauses are part of the pass.
const PAUSE_TIMES: u32 = 4;
/// The longest pause. A pass may have lain around unfinished for hours, because its process was frozen, was not elected or kept
/// to quiet hours, and everybody would pay for that.
const PAUSE_MAX: Duration = Duration::from_mins(10);

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
                let pause = pause_after(took, self.shared.options.sweep_every);
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
            if !self.sweep_each(&step.ids, budget, &mut swept).await? {
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

    /// Sweeps those of `ids` that are due. Answers whether the budget was enough for all of them.
    async fn sweep_each(
        &self,
        ids: &[RecordId],
        budget: SweepBudget,
        swept: &mut Swept,
    ) -> Result<bool, StoreError> {
        let mut rest = ids;
        while !rest.is_empty() {
            let left = budget.get() - swept.removed - swept.made_unknown;
            if left == 0 {
                return Ok(false);
            }
            // In a cluster each key is asked about on its own, as the servers want it, and no more of them than may be touched.
            let together = if self.masters.is_cluster() { SWEPT_TOGETHER.min(left) } else { SWEPT_TOGETHER };
            let (some, others) = rest.split_at(together.min(rest.len()));
            let each = if self.masters.is_cluster() { 1 } else { some.len() };
            let calls: Vec<_> = some.chunks(each).map(|ids| self.sweep_call(ids, left)).collect();
            let answers = self.masters.run_packed(&calls, DOING).await;
            let mut answered = 0;
            for (ids, value) in some.chunks(each).zip(answers) {
                answered += self.take_codes(ids, value?, swept)?;
            }
            rest = if answered < some.len() { &rest[answered..] } else { others };
        }
        Ok(true)
    }

    fn sweep_call(&self, ids: &[RecordId], most: usize) -> (Vec<u8>, Cmd) {
        let keys: Vec<_> = ids.iter().map(|id| self.shared.key_of(id)).collect();
        let call = self.shared.call_on(Script::Sweep, &keys, |call| {
            call.arg(most);
        });
        (keys.into_iter().next().unwrap_or_default(), call)
    }

    /// Takes in what became of each. Answers how many were looked at.
    fn take_codes(&self, ids: &[RecordId], codes: Value, swept: &mut Swept) -> Result<usize, StoreError> {
        let codes = match codes {
            Value::Array(codes) if !codes.is_empty() => codes,
            other => return Err(error::unexpected(&other, DOING)),
        };
        let answered = codes.len().min(ids.len());
        for (id, code) in ids.iter().zip(codes) {
            match Told::new(code, DOING).map(|(code, _)| code) {
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
        Ok(answered)
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

/// How long everybody leaves the store alone after a pass that took so long.
fn pause_after(took: Duration, sweep_every: Duration) -> Duration {
    took.saturating_mul(PAUSE_TIMES).min(PAUSE_MAX).max(sweep_every)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pass_that_lay_unfinished_keeps_nobody_from_sweeping_for_long() {
        let every = Duration::from_mins(1);
        assert_eq!(pause_after(Duration::from_secs(1), every), every);
        assert_eq!(pause_after(Duration::from_mins(2), every), Duration::from_mins(8));
        assert_eq!(pause_after(Duration::from_hours(8), every), PAUSE_MAX);
        assert_eq!(pause_after(Duration::MAX, every), PAUSE_MAX);
        let seldom = Duration::from_hours(1);
        assert_eq!(pause_after(Duration::from_hours(8), seldom), seldom, "as asked for");
    }
}
