//! The sweeper: passes over all records, a little at a time, one process at a time.

use std::sync::Arc;
use std::time::Duration;

use onlyonce_core::store::{SweepBudget, Swept};
use onlyonce_core::{Clock as _, RecordId, StoreError, Timestamp};
use redis::{Cmd, Value};
use tokio::sync::Mutex;
use tokio::task::JoinSet;

use super::look::Found;
use super::{DOING, OPENED_TOGETHER, TOGETHER};
use crate::asked::Told;
use crate::error;
use crate::node::Node;
use crate::scripts::Script;
use crate::store::RedisStore;

/// How many keys one call looks at for each record that it may touch, and in all, whatever it finds: others are served in
/// between.
const KEYS_PER_RECORD: usize = 10;
const KEYS_PER_CALL: usize = 20_000;
/// How many records go with one call. Few: whoever carries it waits for them.
const REMOVED_TOGETHER: usize = 7;
/// About how long the server is busy with a record that is removed, and with one that a script has to look into.
const REMOVAL_TAKES: Duration = Duration::from_micros(4);
const OPENING_TAKES: Duration = Duration::from_micros(25);
/// The same for a call that found nobody to ride with: everybody waits for its sync.
const SYNC_TAKES: Duration = Duration::from_millis(1);
/// How long one call goes on, whatever is left: whoever stops waits for it.
const CALL_MAX: Duration = Duration::from_secs(1);
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

/// What one call did.
#[derive(Debug)]
struct Done {
    swept: Swept,
    /// Whether there is anybody to ride with. Where nobody comes nobody is spared anything by waiting.
    in_company: bool,
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
            *pass = Some(Pass { begun, nodes, cursor: 0 });
        }
        let begun = self.shared.clock.now();
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
            let left = budget - done.swept.touched();
            if left == 0 || keys >= keys_max || begun.until(self.shared.clock.now()) >= CALL_MAX {
                done.swept.more = true;
                break;
            }
            // Small steps: a large one takes as long as several calls, and the rest of it would be seen again by the next sweep.
            let step = self.step_of(node, under_way.cursor, TOGETHER).await?;
            keys += step.keys;
            if !self.sweep_each(&step.ids, budget, done).await? {
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
    async fn sweep_each(&self, ids: &[RecordId], budget: usize, done: &mut Done) -> Result<bool, StoreError> {
        for ids in ids.chunks(TOGETHER) {
            let mut found = self.look(ids).await?;
            // In parts: what a script has to look into need not be due, and then it costs nothing of the budget.
            while !found.is_empty() {
                let left = budget - done.swept.touched();
                if left == 0 {
                    return Ok(false);
                }
                self.sweep_found(&found.take(left), done).await?;
            }
        }
        Ok(true)
    }

    async fn sweep_found(&self, found: &Found, done: &mut Done) -> Result<(), StoreError> {
        let calls = self.sweep_calls(found, done.in_company);
        let answers = if done.in_company {
            let begun = self.shared.clock.now();
            let count = calls.len();
            let (answers, alone) = self.ride(calls).await;
            done.in_company = alone < count;
            // Whoever was carried along with cost others no more than the work itself.
            let work = times(REMOVAL_TAKES, found.expired.len()) + times(OPENING_TAKES, found.open.len());
            let busy = work + times(SYNC_TAKES, alone);
            done.swept.waited += begun.until(self.shared.clock.now()).saturating_sub(busy);
            answers
        } else {
            self.masters.run_packed(&calls, DOING).await
        };
        let ids = found.expired.iter().map(|(id, _)| id).chain(&found.open);
        for (id, code) in ids.zip(codes_of(answers)?) {
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

    /// Calls of the script about what was found, in its order. In a cluster each key is asked about on its own, as the servers
    /// want it.
    fn sweep_calls(&self, found: &Found, in_company: bool) -> Vec<(Vec<u8>, Cmd)> {
        let (removed, opened) = match (self.masters.is_cluster(), in_company) {
            (true, _) => (1, 1),
            (false, true) => (REMOVED_TOGETHER, OPENED_TOGETHER),
            (false, false) => (TOGETHER, OPENED_TOGETHER),
        };
        let expired = found.expired.chunks(removed).map(|expired| {
            let (ids, starts): (Vec<_>, Vec<_>) =
                expired.iter().map(|(id, start)| (id, start.as_ref())).unzip();
            self.sweep_call(ids, "remove", &starts)
        });
        let open = found.open.chunks(opened).map(|ids| self.sweep_call(ids, "sweep", &[]));
        expired.chain(open).collect()
    }

    fn sweep_call<'a>(
        &self,
        ids: impl IntoIterator<Item = &'a RecordId>,
        what: &str,
        starts: &[&[u8]],
    ) -> (Vec<u8>, Cmd) {
        let keys: Vec<_> = ids.into_iter().map(|id| self.shared.key_of(id)).collect();
        let call = self.shared.call_on(Script::Sweep, &keys, |call| {
            call.arg(what).arg(starts);
        });
        (keys.into_iter().next().unwrap_or_default(), call)
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
    use onlyonce_core::Store as _;
    use onlyonce_core::fingerprint::RULES_BYTES_MAX;
    use onlyonce_core::transition::{Claim, ClaimAnswer, Complete, CompleteAnswer, Terms, Token};
    use onlyonce_core::{Fingerprint, Outcome, Owner, Rules};
    use onlyonce_testkit::fixture::any_id;
    use onlyonce_testkit::servers::{RedisOptions, RedisServer};
    use onlyonce_testkit::{ManualClock, run};

    use super::*;
    use crate::Options;

    fn claim_of(id: RecordId, rules_bytes: usize) -> Claim {
        let owner = Owner::random().unwrap();
        let fingerprint = Fingerprint::from_parts(Rules::new(vec![b'r'; rules_bytes]).unwrap(), [1; 32]);
        Claim { id, fingerprint, owner, terms: Arc::new(Terms::default()) }
    }

    async fn complete(store: &RedisStore, claim: &Claim) {
        let ClaimAnswer::Granted(grant) = store.claim(claim).await.unwrap() else { panic!("not granted") };
        let token = Token { id: claim.id, owner: claim.owner, fence: grant.fence };
        let complete = Complete { token, outcome: Outcome::kept(1, "done"), retention: None };
        assert_eq!(store.complete(&complete).await.unwrap(), CompleteAnswer::Completed);
    }

    #[test]
    fn what_has_changed_since_it_was_looked_at_stays() {
        run(async {
            let server = RedisServer::start(RedisOptions::default()).unwrap();
            let clock = Arc::new(ManualClock::default());
            let (url, options) = (server.url(), Options::default());
            let store = RedisStore::connect_on(&url, options, Arc::clone(&clock) as _).await.unwrap();
            let (changed, same) = (claim_of(any_id(), 0), claim_of(any_id(), 0));
            // Its head is longer than what is read at first.
            let long = claim_of(any_id(), RULES_BYTES_MAX);
            for claim in [&changed, &same, &long] {
                complete(&store, claim).await;
            }
            let ids = [changed.id, same.id, long.id];
            assert!(store.look(&ids).await.unwrap().is_empty(), "nothing is due");
            clock.advance(changed.terms.retention.get());
            let found = store.look(&ids).await.unwrap();
            assert_eq!((found.expired.len(), found.open.len()), (3, 0));

            // One is claimed anew before the sweep comes to it.
            complete(&store, &claim_of(changed.id, 0)).await;
            let mut done = Done { swept: Swept::default(), in_company: false };
            store.sweep_found(&found, &mut done).await.unwrap();
            assert_eq!(done.swept.touched(), 2);
            assert!(store.lookup(&changed.id).await.unwrap().is_some(), "a live record went");
            for gone in [same.id, long.id] {
                assert!(store.lookup(&gone).await.unwrap().is_none());
            }
        });
    }

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
