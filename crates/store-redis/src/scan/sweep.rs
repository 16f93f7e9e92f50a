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
const SWEPT_TOGETHER: usize = 5;
const GOES: usize = 8;
/// About how long the server is busy with a record that is swept.
const SWEEP_TAKES: Duration = Duration::from_micros(8);
/// The same for a go that found nobody to ride with: everybody waits for its sync.
const SYNC_TAKES: Duration = Duration::from_millis(1);
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
    /// Whether most of what was seen last was due.
    mostly_due: bool,
}

/// What one call did.
#[derive(Debug)]
struct Done {
    swept: Swept,
    /// Whether there is anybody to ride with. Where nobody comes nobody is spared anything by waiting.
    in_company: bool,
}

impl Done {
    /// How many records were touched one by one.
    const fn touched(&self) -> usize {
        self.swept.removed + self.swept.made_unknown
    }
}

impl RedisStore {
    pub(crate) async fn sweep_some(&self, budget: SweepBudget) -> Result<Swept, StoreError> {
        // In a cluster each key is a call of its own.
        let in_company = !self.masters.is_cluster();
        let mut done = Done { swept: Swept::default(), in_company };
        self.sweep_until(budget, &mut done).await?;
        Ok(done.swept)
    }

    async fn sweep_until(&self, budget: SweepBudget, done: &mut Done) -> Result<(), StoreError> {
        self.put_secret_back().await?;
        let budget = budget.get();
        let mut pass = self.sweeper.0.lock().await;
        if pass.is_none() {
            if !self.take_turn("begin", self.shared.options.sweep_every).await? {
                return Ok(());
            }
            let (begun, nodes) = (self.shared.clock.now(), self.masters.all());
            *pass = Some(Pass { begun, nodes, cursor: 0, mostly_due: false });
        }
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
            let left = budget - done.touched();
            if left == 0 || keys >= keys_max {
                done.swept.more = true;
                break;
            }
            // No more than can be swept: the rest would be looked at again by the next call.
            let step = self.step_of(node, under_way.cursor, left.clamp(TOGETHER, STEP_KEYS)).await?;
            keys += step.keys;
            if !self.sweep_each(&step.ids, budget, done, &mut under_way.mostly_due).await? {
                // The rest of this step is found again by the next call.
                done.swept.more = true;
                break;
            }
            under_way.cursor = step.next;
            if step.next == 0 {
                under_way.nodes.pop();
            }
        }
        Ok(())
    }

    /// Sweeps those of `ids` that are due, until `budget` is spent. Answers whether it was enough for all of them.
    async fn sweep_each(
        &self,
        ids: &[RecordId],
        budget: usize,
        done: &mut Done,
        mostly_due: &mut bool,
    ) -> Result<bool, StoreError> {
        for ids in ids.chunks(TOGETHER) {
            // ORDER: looked at first, which others hardly notice: nearly always most of them live. Where most of those before
            // were due that would only be done twice.
            let before = done.touched();
            let left = budget - before;
            if left == 0 {
                return Ok(false);
            }
            let is_known = *mostly_due && ids.len() <= left;
            let mut due = if is_known { ids.to_vec() } else { self.look(ids).await? };
            let is_enough = due.len() <= left;
            due.truncate(left);
            let mut rest = due.as_slice();
            while !rest.is_empty() {
                let together = if done.in_company { SWEPT_TOGETHER * GOES } else { TOGETHER };
                let (now, later) = rest.split_at(together.min(rest.len()));
                self.sweep_due(now, done).await?;
                rest = later;
            }
            *mostly_due = 2 * (done.touched() - before) > ids.len().min(left);
            if !is_enough {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Those of `ids` that are due.
    async fn look(&self, ids: &[RecordId]) -> Result<Vec<RecordId>, StoreError> {
        let answers = self.masters.run_packed(&self.sweep_calls(ids, ids.len(), "look"), DOING).await;
        let codes = codes_of(answers)?;
        let due = ids.iter().zip(codes).filter(|(id, code)| matches!(told(id, code), 1 | 2));
        Ok(due.map(|(id, _)| *id).collect())
    }

    /// Sweeps those of `ids` that are due.
    async fn sweep_due(&self, ids: &[RecordId], done: &mut Done) -> Result<(), StoreError> {
        let answers = if done.in_company {
            let begun = self.shared.clock.now();
            let calls = self.sweep_calls(ids, SWEPT_TOGETHER, "sweep");
            let goes = calls.len();
            let (answers, alone) = self.ride(calls).await;
            done.in_company = alone < goes;
            // Whoever was carried along with cost others no more than the work itself.
            let busy = times(SWEEP_TAKES, ids.len()) + times(SYNC_TAKES, alone);
            done.swept.waited += begun.until(self.shared.clock.now()).saturating_sub(busy);
            answers
        } else {
            self.masters.run_packed(&self.sweep_calls(ids, ids.len(), "sweep"), DOING).await
        };
        for (id, code) in ids.iter().zip(codes_of(answers)?) {
            match told(id, &code) {
                1 => done.swept.removed += 1,
                2 => done.swept.made_unknown += 1,
                _ => continue,
            }
            self.shared.watches.wake(id);
        }
        Ok(())
    }

    /// Sends calls along with others. Answers also how many went alone.
    async fn ride(&self, calls: Vec<(Vec<u8>, Cmd)>) -> (Vec<Result<Value, StoreError>>, usize) {
        let mut rides = JoinSet::new();
        for (at, (key, call)) in calls.iter().enumerate() {
            if let Ok(node) = self.masters.of(key, DOING) {
                let call = call.clone();
                rides.spawn(async move { (at, node.ride(call, DOING).await) });
            }
        }
        let (mut values, mut alone) = (vec![None; calls.len()], 0);
        while let Some(ridden) = rides.join_next().await {
            if let Ok((at, Ok((value, did)))) = ridden {
                values[at] = value.filter(|value| matches!(value, Value::Array(_)));
                alone += usize::from(!did);
            }
        }
        let mut answers = Vec::with_capacity(calls.len());
        for (value, call) in values.into_iter().zip(calls) {
            answers.push(match value {
                Some(value) => Ok(value),
                // Whatever it was, a call of its own gets over it or tells what it is. A second one does no harm.
                None => {
                    alone += 1;
                    self.masters.run(&call.0, &call.1, DOING).await
                }
            });
        }
        (answers, alone)
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

fn times(each: Duration, count: usize) -> Duration {
    each * u32::try_from(count).unwrap_or(u32::MAX)
}

/// What the script says of a record. One that cannot be read is told, and left to whoever looks at it.
fn told(id: &RecordId, code: &Value) -> i64 {
    match Told::new(code.clone(), DOING) {
        Ok((code, _)) => code,
        Err(failure) => {
            tracing::error!(id = id.short(), error = %failure, "a record cannot be read");
            0
        }
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
