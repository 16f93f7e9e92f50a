//! Opens what a crash left and checks it against what was acknowledged; then crashes the recovery, and checks again.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use onlyonce_core::store::Listing;
use onlyonce_core::transition::{
    Answer, Change, Claim, ClaimAnswer, Command, Moment, Terms, UnknownPolicy, transition,
};
use onlyonce_core::{Clock, Fence, Record, RecordId, Secret, Store, Timestamp};
use onlyonce_store_embedded::{EmbeddedStore, Options};
use onlyonce_testkit::fixture::{fingerprint, terms};
use onlyonce_testkit::{ManualClock, run};
use rand::Rng;
use rand::rngs::SmallRng;
use rand::seq::IndexedRandom;

use crate::disk::{Mode, SimDisk};
use crate::workload::{Recorded, is_recovered, owner, secret};

/// How a process ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Crash {
    /// The process dies, the machine goes on.
    Kill,
    PowerCut(Mode),
}

impl Crash {
    fn any(rng: &mut SmallRng) -> Self {
        if rng.random_ratio(1, 4) { Self::Kill } else { Self::PowerCut(*Mode::HONEST.choose(rng).unwrap()) }
    }

    fn of(self, disk: &SimDisk, ops: usize, rng: &mut SmallRng) -> SimDisk {
        match self {
            Self::Kill => disk.after_kill(ops),
            Self::PowerCut(mode) => disk.after_power_cut(ops, mode, rng),
        }
    }
}

/// What may be found.
#[derive(Clone)]
struct Expected {
    now: Timestamp,
    /// The states in which each record may be: what was acknowledged, and what was on its way.
    records: BTreeMap<RecordId, Vec<Option<Record>>>,
    /// No grant may have a fence up to this one.
    fence: Fence,
    /// Whether the secret must be there.
    secret: bool,
    /// Whether a store was opened on this already: what it said must stay so.
    settled: bool,
}

/// Crashes after the first `ops` operations of a workload and checks what is recovered, `deep` times over.
///
/// Answers how many crashes there were.
pub(crate) fn crash(
    recorded: &Recorded,
    ops: usize,
    crash: Crash,
    deep: usize,
    rng: &mut SmallRng,
) -> Result<u64, String> {
    let mut disk = crash.of(&recorded.disk, ops, rng);
    let mut expected = expected(recorded, ops);
    let mut story = format!("seed {}, {crash:?} after {ops} operations", recorded.seed);
    for depth in 0..=deep {
        let from = disk.log_len();
        let last = depth == deep;
        let opened = open_and_check(recorded, &disk, &expected, last);
        let (opened_at, found) = opened.map_err(|problem| {
            let operations = recorded.disk.story(ops);
            format!("{story}: {problem}\nafter{operations}")
        })?;
        if !last {
            let ops = rng.random_range(from..=disk.log_len());
            if ops >= opened_at {
                expected.settle(found);
            }
            let crash = Crash::any(rng);
            story = format!("{story}, then {crash:?} after {ops} (opened after {opened_at})");
            disk = crash.of(&disk, ops, rng);
        }
    }
    Ok(deep as u64 + 1)
}

/// What a crash after `ops` operations must leave.
fn expected(recorded: &Recorded, ops: usize) -> Expected {
    let last = recorded.steps.iter().rposition(|step| step.end <= ops).unwrap();
    let (acknowledged, next) = (&recorded.steps[last], recorded.steps.get(last + 1));
    let mut expected = Expected {
        now: acknowledged.now,
        records: BTreeMap::new(),
        fence: acknowledged.fence,
        secret: acknowledged.secret,
        settled: false,
    };
    for id in &recorded.ids {
        let mut allowed = vec![acknowledged.records.get(id).cloned()];
        if let Some(next) = next {
            if next.answered.get(id).is_some_and(|answered| *answered <= ops) {
                allowed.clear();
                let fence = next.records.get(id).map_or(Fence::default(), |record| record.fence);
                expected.fence = expected.fence.max(fence);
            }
            allowed.push(next.records.get(id).cloned());
        }
        expected.records.insert(*id, allowed);
    }
    expected
}

impl Expected {
    /// From now on only what was `found` will do: someone may have acted on it.
    fn settle(&mut self, found: BTreeMap<RecordId, Option<Record>>) {
        self.records = found.into_iter().map(|(id, record)| (id, vec![record])).collect();
        self.settled = true;
    }

    /// Whether a record may be as it was `found`.
    fn allows(&self, id: &RecordId, found: Option<&Record>, failed: &[Command]) -> bool {
        let allowed = &self.records[id];
        if self.settled {
            return allowed.iter().any(|record| record.as_ref() == found);
        }
        let mut allowed = allowed.clone();
        for command in failed.iter().filter(|command| command.id() == id) {
            // A command without an answer may have been applied, with any fence.
            let next_fence = found.map_or(Fence::default(), |record| record.fence);
            let moment = Moment { now: self.now, next_fence };
            if let Change::Put(record) = transition(allowed[0].as_ref(), command, moment).0 {
                allowed.push(Some(record));
            }
        }
        allowed.iter().any(|record| is_recovered(record.as_ref(), found, self.now))
    }
}

/// Opens a store and checks it, if this is the `last` time also by claiming every record. Answers the length of the log
/// when it was open, and what it said.
fn open_and_check(
    recorded: &Recorded,
    disk: &SimDisk,
    expected: &Expected,
    last: bool,
) -> Result<(usize, BTreeMap<RecordId, Option<Record>>), String> {
    let clock = Arc::new(ManualClock::at(expected.now));
    let store = open(disk, &clock, recorded.options).map_err(|error| format!("does not open: {error:?}"))?;
    let opened_at = disk.log_len();
    run(async {
        let found = look_up(&store, &recorded.ids).await?;
        for (id, found) in &found {
            if !expected.allows(id, found.as_ref(), &recorded.failed) {
                let allowed = &expected.records[id];
                return Err(format!("{} is {found:#?}, expected one of {allowed:#?}", id.short()));
            }
        }
        let kept = store.secret(&Secret::new([7; 32])).await.map_err(|error| format!("{error:?}"))?;
        if expected.secret && kept != secret() {
            return Err("the secret is another one".to_owned());
        }
        if last {
            claim_all(&store, &clock, &found, expected.fence).await?;
        }
        Ok((opened_at, found))
    })
}

pub(crate) fn open(
    disk: &SimDisk,
    clock: &Arc<ManualClock>,
    options: Options,
) -> Result<EmbeddedStore, onlyonce_core::StoreError> {
    EmbeddedStore::open_on(Arc::new(disk.clone()), clock.clone(), options)
}

/// Every record, one by one and as a list.
async fn look_up(store: &dyn Store, ids: &[RecordId]) -> Result<BTreeMap<RecordId, Option<Record>>, String> {
    let mut found = BTreeMap::new();
    for id in ids {
        found.insert(*id, store.lookup(id).await.map_err(|error| format!("looking up: {error:?}"))?);
    }
    let listed = store.list(&Listing::default()).await.map_err(|error| format!("listing: {error:?}"))?;
    let looked_up = found.iter().filter_map(|(id, record)| Some((*id, record.clone()?)));
    if listed.records != looked_up.collect::<Vec<_>>() {
        return Err(format!("listed {:#?} and looked up {found:#?}", listed.records));
    }
    Ok(found)
}

/// Claims every record under `hold`: done is replayed, unknown is held, and what is granted has a new fence.
async fn claim_all(
    store: &dyn Store,
    clock: &ManualClock,
    found: &BTreeMap<RecordId, Option<Record>>,
    fence: Fence,
) -> Result<(), String> {
    let terms = Arc::new(Terms { hold_for: Duration::MAX, ..terms(UnknownPolicy::Hold) });
    let claim = |(number, (id, record)): (usize, (&RecordId, &Option<Record>))| Claim {
        id: *id,
        fingerprint: record
            .as_ref()
            .and_then(|record| record.fingerprint.clone())
            .unwrap_or_else(|| fingerprint(b"body")),
        owner: owner(u64::MAX - number as u64),
        terms: Arc::clone(&terms),
    };
    let claims: Vec<_> = found.iter().enumerate().map(claim).collect();
    let answers = store.claim_many(&claims).await.map_err(|error| format!("claiming: {error:?}"))?;
    for (claim, answer) in claims.into_iter().zip(answers) {
        let answer = answer.map_err(|error| format!("claiming: {error:?}"))?;
        let granted = match &answer {
            ClaimAnswer::Granted(grant) => grant.fence,
            _ => Fence::default(),
        };
        let moment = Moment { now: clock.now(), next_fence: granted };
        let record = found[&claim.id].as_ref();
        let (change, right) = transition(record, &Command::Claim(claim), moment);
        if Answer::Claim(answer.clone()) != right {
            return Err(format!("{record:#?} was answered {answer:?}, not {right:?}"));
        }
        if granted != Fence::default() && change != Change::Keep && granted <= fence {
            return Err(format!("{granted:?} was granted, after {fence:?}"));
        }
    }
    Ok(())
}
