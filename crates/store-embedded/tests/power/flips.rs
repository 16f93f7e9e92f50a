//! Single bits of closed stores are flipped: a damaged record is refused, never replayed wrongly, never taken for
//! absent, and never a reason to refuse another.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use onlyonce_core::record::State;
use onlyonce_core::transition::{
    Answer, Claim, ClaimAnswer, Command, Complete, Moment, Terms, Token, UnknownPolicy, transition,
};
use onlyonce_core::{Clock, Fence, Record, RecordId, Store, StoreErrorKind, Timestamp};
use onlyonce_store_embedded::Options;
use onlyonce_testkit::fixture::{any_id, fingerprint, outcome, terms};
use onlyonce_testkit::{ManualClock, Soak, run};

use crate::disk::{Image, SimDisk};
use crate::verify::open;
use crate::workload::{is_recovered, owner, record};

/// A store that was closed, and what it holds.
struct Closed {
    image: Image,
    records: BTreeMap<RecordId, Record>,
    now: Timestamp,
    options: Options,
}

/// A closed store of random commands: several classes and segments, sealed or not.
fn of_chance(seed: u64) -> Closed {
    let recorded = record(seed, 60);
    let last = recorded.steps.last().unwrap();
    Closed {
        image: recorded.disk.image(),
        records: last.records.clone(),
        now: last.now,
        options: recorded.options,
    }
}

/// A closed store of many records in one sealed segment, whose index has several blocks.
fn of_many(records: u64) -> Closed {
    let disk = SimDisk::default();
    let clock = Arc::new(ManualClock::default());
    let options = Options { reserve_bytes: 512, ..Options::default() };
    let store = open(&disk, &clock, options).unwrap();
    let records = run(async {
        let mut stored = BTreeMap::new();
        for number in 0..records {
            let (id, owner) = (any_id(), owner(number + 1));
            let terms = Arc::new(terms(UnknownPolicy::Hold));
            let claim = Claim { id, fingerprint: fingerprint(b"body"), owner, terms };
            let ClaimAnswer::Granted(grant) = store.claim(&claim).await.unwrap() else { panic!("no grant") };
            let token = Token { id, owner, fence: grant.fence };
            let complete = Complete { token, outcome: outcome("done"), retention: None };
            store.complete(&complete).await.unwrap();
            stored.insert(id, store.lookup(&id).await.unwrap().unwrap());
        }
        stored
    });
    drop(store);
    // What was still open is sealed at the next start.
    drop(open(&disk, &clock, options).unwrap());
    Closed { image: disk.image(), records, now: clock.now(), options }
}

/// What came of flips in one kind of file.
#[derive(Debug, Default, Clone, Copy)]
struct Tally {
    flips: u64,
    /// The store refused to open.
    unopened: u64,
    /// One record was refused.
    refused: u64,
    /// Records that were refused beside the damaged one, the most with one flip.
    others: usize,
}

impl Closed {
    /// Flips the bit `bit` of the file `name`, and sees what a store makes of it.
    fn flip(&self, name: &str, bit: usize, tally: &mut Tally) {
        let mut image = self.image.clone();
        image.files.get_mut(name).unwrap()[bit / 8] ^= 1 << (bit % 8);
        let clock = Arc::new(ManualClock::at(self.now));
        tally.flips += 1;
        let store = match open(&SimDisk::holding(image), &clock, self.options) {
            Ok(store) => store,
            Err(error) => {
                let kind = error.kind();
                assert!(matches!(kind, StoreErrorKind::Corrupt | StoreErrorKind::Unsupported), "{error:?}");
                assert_eq!(name, "meta", "bit {bit}: the store does not open: {error:?}");
                tally.unopened += 1;
                return;
            }
        };
        let mut refused = 0;
        run(async {
            for (id, record) in self.records.iter().map(|(id, record)| (*id, Some(record))) {
                let works = self.works(&store, id, record).await;
                refused += usize::from(!works.unwrap_or_else(|problem| {
                    panic!("bit {bit} of {name}, {}: {problem}", id.short());
                }));
            }
            // A record that never was is absent, whatever was damaged.
            refused += usize::from(!self.works(&store, any_id(), None).await.unwrap());
        });
        tally.refused += u64::from(refused > 0);
        tally.others = tally.others.max(refused.saturating_sub(1));
    }

    /// Whether a record can be read and claimed. An error if it is not the one that was stored.
    async fn works(&self, store: &dyn Store, id: RecordId, record: Option<&Record>) -> Result<bool, String> {
        let found = match store.lookup(&id).await {
            Ok(found) if is_recovered(record, found.as_ref(), self.now) => found,
            Ok(found) => return Err(format!("looked up {found:#?}, not {record:#?}")),
            Err(error) => {
                let damage = matches!(error.kind(), StoreErrorKind::Corrupt | StoreErrorKind::Unsupported);
                assert!(damage, "{error:?}");
                None
            }
        };
        let known = found.as_ref().or(record);
        let known_print = known.and_then(|record| record.fingerprint.clone());
        let claim = Claim {
            id,
            fingerprint: known_print.unwrap_or_else(|| fingerprint(b"body")),
            owner: owner(u64::MAX),
            terms: Arc::new(Terms { hold_for: Duration::MAX, ..terms(UnknownPolicy::Hold) }),
        };
        let Ok(answer) = store.claim(&claim).await else {
            return Ok(false);
        };
        let granted = match &answer {
            ClaimAnswer::Granted(grant) => grant.fence,
            _ => Fence::default(),
        };
        let moment = Moment { now: self.now, next_fence: granted };
        let live = record.filter(|record| !matches!(record.state, State::InFlight { .. }));
        let stored = if found.is_some() { found.as_ref() } else { live };
        let (_, right) = transition(stored, &Command::Claim(claim), moment);
        if Answer::Claim(answer.clone()) != right {
            return Err(format!("claimed {answer:?}, not {right:?}"));
        }
        Ok(true)
    }
}

/// Flips `flips` bits, spread evenly over all files of `stores`. Answers what came of it, by kind of file.
fn flip_evenly(stores: &[Closed], flips: usize, first: usize) -> BTreeMap<&'static str, Tally> {
    let mut tallies: BTreeMap<&str, Tally> = BTreeMap::new();
    let bits: usize = stores.iter().map(|store| store.image.bytes() * 8).sum();
    // An odd number of bits apart, so that all bits of a byte get their turn.
    let apart = (bits / flips).max(1) | 1;
    let mut skip = first % apart;
    for store in stores {
        for (name, bytes) in &store.image.files {
            let kind = match name.rsplit_once('.') {
                Some((_, "segment")) => "segment",
                Some((_, "index")) => "index",
                _ if name == "meta" => "meta",
                _ => "other",
            };
            while skip < bytes.len() * 8 {
                store.flip(name, skip, tallies.entry(kind).or_default());
                skip += apart;
            }
            skip -= bytes.len() * 8;
        }
    }
    for (kind, tally) in &tallies {
        println!("flips in {kind} files: {tally:?}");
    }
    tallies
}

#[test]
fn a_flipped_bit_is_refused_and_never_believed() {
    let mut stores: Vec<_> = (101..=112).map(of_chance).collect();
    stores.push(of_many(140));
    let tallies = flip_evenly(&stores, 2_000, 0);
    assert_eq!(tallies["segment"].others, 0, "damage to one record had others refused");
    assert_eq!(tallies["index"].others, 0, "damage to an index had records refused");
}

#[test]
fn flipped_bit_soak() {
    let mut soak = Soak::new("flipped bits", 2);
    let mut flips = 0;
    while let Some((seed, _)) = soak.next_round() {
        let tallies = flip_evenly(&[of_chance(seed)], 1_000, usize::try_from(seed).unwrap());
        assert_eq!(tallies["segment"].others, 0, "seed {seed}: damage to one record had others refused");
        flips += tallies.values().map(|tally| tally.flips).sum::<u64>();
    }
    soak.report(flips, "flips");
}

#[test]
fn of_a_key_that_is_not_found_beside_entries_of_nobody_no_more_is_said_than_is_known() {
    let mut closed = of_many(10);
    let is_kind = |name: &str, kind: &str| name.rsplit_once('.').is_some_and(|(_, of)| of == kind);
    // Without an index a segment is read from its first byte to its last.
    closed.image.files.retain(|name, _| !is_kind(name, "index"));
    for (_, bytes) in closed.image.files.iter_mut().filter(|(name, _)| is_kind(name, "segment")) {
        let wiped = bytes.len().min(300);
        bytes[..wiped].fill(0xff);
    }
    let clock = Arc::new(ManualClock::at(closed.now));
    let store = open(&SimDisk::holding(closed.image), &clock, closed.options).unwrap();
    let error = run(async { store.lookup(&any_id()).await }).expect_err("it may be what was wiped");
    assert_eq!(error.kind(), StoreErrorKind::Corrupt, "i14: {error:?}");
    let why = std::error::Error::source(&error).unwrap().to_string();
    assert!(why.starts_with("it is absent, or among"), "{why}");
}
