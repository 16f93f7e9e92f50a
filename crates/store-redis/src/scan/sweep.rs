//! The sweeper: passes over all records, a little at a time, one process at a time.

use std::sync::Arc;
use std::time::Duration;

use onlyonce_core::store::{SweepBudget, Swept};
use onlyonce_core::{Clock as _, RecordId, StoreError, Timestamp};
use redis::{Cmd, Value};
use tokio::sync::Mutex;
use tokio::task::JoinSet;

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
/// How many records are swept in one go, and how many such goes there are at a time. Few: whoever comes meanwhile waits for them.
const SWEPT_TOGETHER: usize = 10;
const GOES: usize = 2;
/// About how long the server is busy with those.
const GOES_TAKE: Duration = Duration::from_micros(300);
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
        let budget = budget.get();
        let mut pass = self.sweeper.0.lock().await;
        if pass.is_none() {
            if !self.take_turn("begin", self.shared.options.sweep_every).await? {
                return Ok(Swept::default());
            }
            *pass = Some(Pass { begun: self.shared.clock.now(), nodes: self.masters.all(), cursor: 0 });
        }
        let mut swept = Swept::default();
        let (mut keys, keys_max) = (0, KEYS_PER_CALL.min(budget * KEYS_PER_RECORD));
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
            let left = budget - swept.removed - swept.made_unknown;
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

    /// Sweeps those of `ids` that are due, until `budget` is spent. Answers whether it was enough for all of them.
    async fn sweep_each(
        &self,
        ids: &[RecordId],
        budget: usize,
        swept: &mut Swept,
    ) -> Result<bool, StoreError> {
        for ids in ids.chunks(TOGETHER) {
            // ORDER: looked at first, which others hardly notice: nearly always most of them live.
            let mut due = self.look(ids).await?;
            let left = budget - swept.removed - swept.made_unknown;
            let is_enough = due.len() <= left;
            due.truncate(left);
            for ids in due.chunks(SWEPT_TOGETHER * GOES) {
                self.sweep_due(ids, swept).await?;
            }
            if !is_enough {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Those of `ids` that are due.
    async fn look(&self, ids: &[RecordId]) -> Result<Vec<RecordId>, StoreError> {
        let mut due = Vec::new();
        let answers = self.masters.run_packed(&self.sweep_calls(ids, ids.len(), "look"), DOING).await;
        let codes = codes_of(answers)?;
        for (id, code) in ids.iter().zip(codes) {
            match Told::new(code, DOING) {
                Ok((1 | 2, _)) => due.push(*id),
                Ok(_) => {}
                Err(failure) => tracing::error!(id = id.short(), error = %failure, "a record cannot be read"),
            }
        }
        Ok(due)
    }

    /// Sweeps records that are due, unless they are no longer.
    async fn sweep_due(&self, ids: &[RecordId], swept: &mut Swept) -> Result<(), StoreError> {
        let calls = self.sweep_calls(ids, SWEPT_TOGETHER, "sweep");
        let answers = if self.masters.is_cluster() {
            self.masters.run_packed(&calls, DOING).await
        } else {
            let begun = self.shared.clock.now();
            let (answers, rode) = self.ride(calls).await;
            if rode {
                // Whoever was carried along with cost others no more than the work itself.
                let took = begun.until(self.shared.clock.now());
                swept.waited += took.saturating_sub(GOES_TAKE);
            }
            answers
        };
        for (id, code) in ids.iter().zip(codes_of(answers)?) {
            match Told::new(code, DOING) {
                Ok((1, _)) => swept.removed += 1,
                Ok((2, _)) => swept.made_unknown += 1,
                _ => continue,
            }
            self.shared.watches.wake(id);
        }
        Ok(())
    }

    /// Sends calls along with others. Answers also whether all of them rode.
    async fn ride(&self, calls: Vec<(Vec<u8>, Cmd)>) -> (Vec<Result<Value, StoreError>>, bool) {
        let mut rides = JoinSet::new();
        for (at, (key, call)) in calls.iter().enumerate() {
            if let Ok(node) = self.masters.of(key, DOING) {
                let call = call.clone();
                rides.spawn(async move { (at, node.ride(call, DOING).await) });
            }
        }
        let (mut values, mut rode) = (vec![None; calls.len()], true);
        while let Some(ridden) = rides.join_next().await {
            if let Ok((at, Ok((value, did)))) = ridden {
                values[at] = value.filter(|value| matches!(value, Value::Array(_)));
                rode &= did;
            }
        }
        let mut answers = Vec::with_capacity(calls.len());
        for (value, call) in values.into_iter().zip(calls) {
            answers.push(match value {
                Some(value) => Ok(value),
                // Whatever it was, a call of its own gets over it or tells what it is. A second one does no harm.
                None => {
                    rode = false;
                    self.masters.run(&call.0, &call.1, DOING).await
                }
            });
        }
        (answers, rode)
    }

    /// Calls of the script about `each` of them at a time. In a cluster each key is asked about on its own, as the servers
    /// want it.
    fn sweep_calls(&self, ids: &[RecordId], each: usize, what: &str) -> Vec<(Vec<u8>, Cmd)> {
        let each = if self.masters.is_cluster() { 1 } else { each.max(1) };
        let calls = ids.chunks(each).map(|ids| {
            let keys: Vec<_> = ids.iter().map(|id| self.shared.key_of(id)).collect();
            let call = self.shared.call_on(Script::Sweep, &keys, |call| {
                call.arg(what);
            });
            (keys.into_iter().next().unwrap_or_default(), call)
        });
        calls.collect()
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

/// What became of each key, of all calls.
fn codes_of(answers: Vec<Result<Value, StoreError>>) -> Result<Vec<Value>, StoreError> {
    let mut all = Vec::new();
    for answer in answers {
        match answer? {
            Value::Array(codes) => all.extend(codes),
            other => return Err(error::unexpected(&other, DOING)),
        }
    }
    Ok(all)
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
