//! One part of the memory store: some of the records, and when each is due.

use std::collections::BTreeMap;

use crate::clock::Timestamp;
use crate::record::{Record, StateKind};
use crate::scope::RecordId;
use crate::store::{ById, Listing, Stats};
use crate::transition::{Change, view};

/// How many shards there are: enough that two cores rarely meet in one, few enough to walk through.
pub(super) const SHARDS: usize = 64;

/// The shard of `id`: any byte of the hash in it is as good as another.
pub(super) fn of(id: &RecordId) -> usize {
    usize::from(id.as_bytes()[1]) % SHARDS
}

struct Slot {
    record: Record,
    /// The second under which `agenda` names the record.
    scheduled: u64,
}

/// Stands for "not on the agenda" while a sweep has the record in hand.
const OFF_AGENDA: u64 = u64::MAX;

#[derive(Default)]
pub(super) struct Shard {
    /// Boxed: a map of comings and goings has up to four places for each record, and an empty place must cost little.
    slots: ById<Box<Slot>>,
    bytes: usize,
    counts: [u64; StateKind::ALL.len()],
    /// What a sweep should look at, by second. Written when a record comes to be and when it becomes due earlier; one
    /// that becomes due later is moved when its second comes, so that a renewal costs nothing here.
    ///
    /// INVARIANT: every record is named under its `scheduled` second, which is not after the second it is due in.
    agenda: BTreeMap<u64, Vec<RecordId>>,
    /// How many names are on the agenda, stale ones included.
    named: usize,
}

impl Shard {
    pub(super) fn get(&self, id: &RecordId) -> Option<&Record> {
        self.slots.get(id).map(|slot| &slot.record)
    }

    pub(super) fn len(&self) -> usize {
        self.slots.len()
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn write(&mut self, id: &RecordId, change: Change) {
        match change {
            Change::Keep => {}
            Change::Put(record) => self.put(id, record),
            Change::Remove => {
                if let Some(slot) = self.slots.remove(id) {
                    self.discount(&slot.record);
                }
            }
        }
    }

    fn put(&mut self, id: &RecordId, record: Record) {
        let due = second(record.due_at());
        self.bytes += record.weight();
        self.counts[record.kind() as usize] += 1;
        let earlier = match self.slots.get_mut(id) {
            Some(slot) => {
                let before = std::mem::replace(&mut slot.record, record);
                let earlier = due < slot.scheduled;
                slot.scheduled = slot.scheduled.min(due);
                self.discount(&before);
                earlier
            }
            None => {
                self.slots.insert(*id, Box::new(Slot { record, scheduled: due }));
                true
            }
        };
        if earlier {
            self.agenda.entry(due).or_default().push(*id);
            self.named += 1;
            self.forget_stale_names();
        }
    }

    /// Makes the agenda anew when most of what it names is stale: records that became due earlier leave names behind.
    fn forget_stale_names(&mut self) {
        if self.named <= 2 * self.slots.len() + 64 {
            return;
        }
        self.agenda.clear();
        for (id, slot) in &mut self.slots {
            slot.scheduled = second(slot.record.due_at());
            self.agenda.entry(slot.scheduled).or_default().push(*id);
        }
        self.named = self.slots.len();
    }

    fn discount(&mut self, record: &Record) {
        self.bytes -= record.weight();
        self.counts[record.kind() as usize] -= 1;
    }

    /// Takes up to `most` records off the agenda that are due. Each must be given back by [`Self::schedule`].
    pub(super) fn due(&mut self, now: Timestamp, most: usize) -> Vec<RecordId> {
        let (mut due, mut not_yet) = (Vec::new(), Vec::new());
        while due.len() < most
            && let Some(mut entry) = self.agenda.first_entry()
            && *entry.key() <= second(now)
        {
            let at = *entry.key();
            while due.len() < most
                && let Some(id) = entry.get_mut().pop()
            {
                self.named -= 1;
                // An entry from before the record was rescheduled, or of a record long gone, says nothing.
                let Some(slot) = self.slots.get_mut(&id).filter(|slot| slot.scheduled == at) else {
                    continue;
                };
                slot.scheduled = OFF_AGENDA;
                if slot.record.due_at() <= now { &mut due } else { &mut not_yet }.push(id);
            }
            if entry.get().is_empty() {
                entry.remove();
            }
        }
        // Named for this second or an earlier one, but due later: moved to where it belongs, at no one's cost.
        for id in not_yet {
            self.schedule(&id);
        }
        due
    }

    /// Puts a record back on the agenda, if it is still there.
    pub(super) fn schedule(&mut self, id: &RecordId) {
        if let Some(slot) = self.slots.get_mut(id) {
            slot.scheduled = second(slot.record.due_at());
            self.agenda.entry(slot.scheduled).or_default().push(*id);
            self.named += 1;
        }
    }

    pub(super) fn has_due(&self, now: Timestamp) -> bool {
        self.slots_due(now).next().is_some()
    }

    /// What is really due among what the agenda names up to now.
    fn slots_due(&self, now: Timestamp) -> impl Iterator<Item = &Record> {
        let named = self.agenda.range(..=second(now)).flat_map(|(_, ids)| ids);
        named.filter_map(|id| self.get(id)).filter(move |record| record.due_at() <= now)
    }

    /// The first `most` records of this shard that `listing` wants.
    pub(super) fn list(&self, listing: &Listing, now: Timestamp, most: usize) -> Vec<(RecordId, Record)> {
        let mut ids: Vec<_> =
            self.slots.keys().filter(|id| listing.after.is_none_or(|after| **id > after)).collect();
        ids.sort_unstable();
        let seen = ids.into_iter().filter_map(|id| Some((*id, view(self.get(id), now)?)));
        let wanted = seen.filter(|(id, record)| listing.wants(id, record));
        wanted.take(most).map(|(id, record)| (id, record.into_owned())).collect()
    }

    pub(super) fn add_to(&self, stats: &mut Stats, now: Timestamp) {
        stats.in_flight += self.counts[StateKind::InFlight as usize];
        stats.completed += self.counts[StateKind::Completed as usize];
        stats.released += self.counts[StateKind::Released as usize];
        stats.unknown += self.counts[StateKind::Unknown as usize];
        stats.bytes += self.bytes as u64;
        let expired = self.slots_due(now).filter_map(Record::expires_at).map(|at| at.until(now)).max();
        stats.oldest_expired = stats.oldest_expired.max(expired);
    }
}

fn second(at: Timestamp) -> u64 {
    at.as_millis() / 1000
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use super::*;
    use crate::transition::{Claim, ClaimAnswer, Complete, Moment, Sweep, Terms, Token, apply};
    use crate::{
        Fence, Fingerprint, Key, Outcome, Owner, Policy, Principal, Retention, Rules, Scope, Secret,
    };

    /// Records that come in a second, and seconds for which they are kept.
    const RATE: u64 = 200;
    const KEPT: u64 = 5;

    /// Bytes that the shard takes beside the records themselves.
    fn room(shard: &Shard) -> usize {
        fn place<T>(_: &ById<T>) -> usize {
            size_of::<(RecordId, T)>() + 1
        }
        let agenda: usize = shard.agenda.values().map(Vec::capacity).sum();
        shard.slots.capacity() * place(&shard.slots) + agenda * size_of::<RecordId>()
    }

    /// One request: claimed, completed, and gone when its retention is over.
    fn come(shard: &mut Shard, secret: &Secret, terms: &Arc<Terms>, number: u64, moment: Moment) {
        let key = Scope::new("test", Principal::Anonymous).key(Key::new(&format!("k{number}")).unwrap());
        let fingerprint = Fingerprint::builder(secret, Rules::standard()).finish();
        let (id, owner) = (key.record_id(secret), Owner::random().unwrap());
        let claim = Claim { id, fingerprint, owner, terms: Arc::clone(terms) };
        let (change, answer) = apply(shard.get(&id), &claim, moment);
        shard.write(&id, change);
        let ClaimAnswer::Granted(grant) = answer else { panic!("a new key: {answer:?}") };
        let token = Token { id, owner, fence: grant.fence };
        let complete = Complete { token, outcome: Outcome::kept(1, "done"), retention: None };
        let (change, _) = apply(shard.get(&id), &complete, moment);
        shard.write(&id, change);
    }

    #[test]
    fn comings_and_goings_take_room_by_what_is_there_and_not_by_what_was() {
        let (secret, mut shard) = (Secret::new([7; 32]), Shard::default());
        let policy = Policy::default().retention(Retention::new(Duration::from_secs(KEPT)).unwrap());
        let terms = Arc::new(policy.terms().clone());
        let (mut number, mut most) = (0, 0);
        for second in 1..=300 {
            let now = Timestamp::from_millis(second * 1000);
            for _ in 0..RATE {
                number += 1;
                let next_fence = Fence::new(number).unwrap();
                come(&mut shard, &secret, &terms, number, Moment { now, next_fence });
            }
            for id in shard.due(now, usize::MAX) {
                let (change, _) =
                    apply(shard.get(&id), &Sweep { id }, Moment { now, next_fence: Fence::default() });
                shard.write(&id, change);
                shard.schedule(&id);
            }
            most = most.max(room(&shard));
        }
        let live = shard.len();
        assert!(live as u64 <= RATE * (KEPT + 1), "{live} records are left");
        // A map under churn grows to four places for each record, and each is named on the agenda at most twice.
        assert!(most / live < 400, "{most} bytes for {live} records");
    }
}
