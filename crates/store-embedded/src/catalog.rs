//! Every segment and what is in flight: what is durable, as readers see it.
//!
//! The committer changes it only after a sync, so that nobody ever acts on what a power cut could take back.

mod listing;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use onlyonce_core::store::{ById, Stats};
use onlyonce_core::{Record, RecordId, StoreError, StoreErrorKind, Timestamp};

use crate::class::Class;
use crate::segment::sealed::SealedIndex;
use crate::segment::{Candidate, Index, Place, Segment, SegmentId};

/// What is durable.
#[derive(Debug, Default)]
pub(crate) struct Catalog {
    /// By id, in which order newer entries of a record follow older ones.
    pub(crate) segments: BTreeMap<SegmentId, Segment>,
    /// The segment of each class that takes new entries.
    active: [Option<SegmentId>; Class::COUNT],
    /// Whole records of what is in flight: they change often and are few.
    in_flight: ById<Stored>,
    /// How many records have their last entry in each segment, by state: what a dropped segment takes with it.
    counts: BTreeMap<SegmentId, [u64; 4]>,
    next_seq: u64,
    version: Version,
}

/// How often the catalog has changed: what was absent at one version can only have come to be in a segment that changed
/// since.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Version(u64);

/// How many records more than are in flight there may be room for.
const SPARE: usize = 1024;

/// How many segments one boot may begin, in bits: a thousand million million bytes of them.
pub(crate) const SEQ_BITS: u32 = 24;

/// A record as it is stored, and where its last entry lies.
#[derive(Debug, Clone)]
pub(crate) struct Stored {
    /// Shared: a record is large, and goes from the group into the catalog, and from there to whoever changes it next.
    pub(crate) record: Arc<Record>,
    pub(crate) place: Place,
}

/// Where to look for a record: found without the disk, to be read without holding anyone up.
#[derive(Debug)]
pub(crate) enum Lookup {
    InFlight(Stored),
    Candidates(Vec<Candidate>),
}

impl Lookup {
    /// Reads what was found.
    pub(crate) fn read(self, id: &RecordId) -> Result<Option<Stored>, StoreError> {
        match self {
            Self::InFlight(stored) => Ok(Some(stored)),
            Self::Candidates(candidates) => {
                for candidate in candidates {
                    if let Some((record, place)) = candidate.read(id)? {
                        return Ok(Some(Stored { record: Arc::new(record), place }));
                    }
                }
                Ok(None)
            }
        }
    }
}

impl Catalog {
    pub(crate) fn version(&self) -> Version {
        self.version
    }

    /// Where the last entry of `id` is, if it was absent at the version `since`.
    pub(crate) fn lookup(&self, id: &RecordId, since: Option<Version>) -> Lookup {
        if let Some(stored) = self.in_flight.get(id) {
            return Lookup::InFlight(stored.clone());
        }
        let mut candidates = Vec::new();
        let changed = |segment: &&Segment| since.is_none_or(|since| segment.changed_at > since);
        for segment in self.segments.values().rev().filter(changed) {
            if let Some(candidate) = segment.candidate(id) {
                let certain = matches!(candidate, Candidate::Here(..));
                candidates.push(candidate);
                if certain {
                    break;
                }
            }
        }
        Lookup::Candidates(candidates)
    }

    pub(crate) fn active(&self, class: Class) -> Option<&Segment> {
        self.segments.get(&self.active[usize::from(class.number())]?)
    }

    /// Takes in a segment. New entries of its class go there if it is `active`.
    pub(crate) fn add(&mut self, segment: Segment, active: bool) {
        if active {
            self.active[usize::from(segment.id.class.number())] = Some(segment.id);
        }
        self.next_seq = self.next_seq.max(segment.id.seq + 1);
        self.counts.entry(segment.id).or_default();
        self.segments.insert(segment.id, segment);
    }

    /// The number of the next segment: one that no segment ever had, also none that was dropped. What is said about a
    /// segment that is gone must never be taken for another.
    pub(crate) fn next_seq(&self) -> u64 {
        self.next_seq
    }

    /// Numbers segments from those of the boot `number` on.
    pub(crate) fn begin_boot(&mut self, number: u64) {
        self.next_seq = self.next_seq.max(number << SEQ_BITS);
    }

    /// Whether new entries go to the segment `id`.
    pub(crate) fn is_active(&self, id: SegmentId) -> bool {
        self.active[usize::from(id.class.number())] == Some(id)
    }

    /// Notes a durable entry of `id`, in place of the one that was stored before.
    pub(crate) fn put(&mut self, id: RecordId, stored: Stored, before: Option<&Stored>) {
        if let Some(before) = before {
            self.discount(&id, before);
        }
        self.version.0 += 1;
        if let Some(segment) = self.segments.get_mut(&stored.place.segment) {
            segment.changed_at = self.version;
            segment.note(id, stored.place.offset, Some(&stored.record));
        }
        self.counts.entry(stored.place.segment).or_default()[stored.record.kind() as usize] += 1;
        self.put_in_flight(id, stored);
    }

    /// Keeps or drops the whole record, by its state.
    pub(crate) fn put_in_flight(&mut self, id: RecordId, stored: Stored) {
        if stored.record.kind() == onlyonce_core::StateKind::InFlight {
            self.in_flight.insert(id, stored);
        } else {
            self.in_flight.remove(&id);
            // What a burst has taken is given back: claims are refused by what the map takes, too, not only by what is in it.
            if self.in_flight.capacity() > 4 * self.in_flight.len() + SPARE {
                self.in_flight.shrink_to(2 * self.in_flight.len());
            }
        }
    }

    fn discount(&mut self, id: &RecordId, before: &Stored) {
        let forgotten = match self.segments.get(&before.place.segment).map(|segment| &segment.index) {
            Some(Index::Open(slots)) => slots.get(id).is_some_and(|slot| slot.kind.is_none()),
            _ => false,
        };
        if let Some(counts) = self.counts.get_mut(&before.place.segment).filter(|_| !forgotten) {
            let count = &mut counts[before.record.kind() as usize];
            *count = count.saturating_sub(1);
        }
    }

    pub(crate) fn set_counts(&mut self, segment: SegmentId, counts: [u64; 4]) {
        self.counts.insert(segment, counts);
    }

    /// Puts the index of a sealed segment in place of its map.
    pub(crate) fn seal(&mut self, segment: SegmentId, index: Arc<SealedIndex>) {
        if let Some(segment) = self.segments.get_mut(&segment) {
            segment.index = Index::Sealed(index);
        }
    }

    /// What is in flight and past its lease, up to `most`, from the oldest segment on: on a full disk one segment is emptied
    /// after the other.
    pub(crate) fn lapsed(&self, now: Timestamp, most: usize) -> Vec<RecordId> {
        let lapsed = self.in_flight.iter().filter(|(_, stored)| stored.record.is_lapsed(now));
        let mut lapsed: Vec<_> =
            lapsed.map(|(id, stored)| (stored.place.segment, stored.place.offset, *id)).collect();
        lapsed.sort_unstable();
        lapsed.into_iter().take(most).map(|(_, _, id)| id).collect()
    }

    /// What is in flight in segments that take no more entries and of which all else has expired, up to `most`.
    pub(crate) fn pinning(&self, now: Timestamp, most: usize) -> Vec<(RecordId, Stored)> {
        let over = |id: SegmentId| {
            !self.is_active(id) && self.segments.get(&id).is_some_and(|segment| now >= segment.expires_at)
        };
        let pinning = self.in_flight.iter().filter(|(_, stored)| over(stored.place.segment));
        pinning.take(most).map(|(id, stored)| (*id, stored.clone())).collect()
    }

    /// Stops counting up to `most` expired records of open segments. They stay, unseen, to hide their older entries.
    pub(crate) fn forget_expired(&mut self, now: Timestamp, most: usize) -> usize {
        let mut forgotten = 0;
        for (id, segment) in &mut self.segments {
            if !segment.may_have_expired(now) {
                continue;
            }
            let Index::Open(slots) = &mut segment.index else { continue };
            let counts = self.counts.entry(*id).or_default();
            let mut first: Option<Timestamp> = None;
            for slot in slots.values_mut() {
                let (Some(kind), Some(at)) = (slot.kind, slot.expires_at) else { continue };
                if at <= now && forgotten < most {
                    slot.kind = None;
                    counts[kind as usize] = counts[kind as usize].saturating_sub(1);
                    forgotten += 1;
                } else {
                    first = Some(first.map_or(at, |first| first.min(at)));
                }
            }
            segment.first_expires_at = first;
        }
        forgotten
    }

    /// Whether an expired record still counts.
    pub(crate) fn has_expired(&self, now: Timestamp) -> bool {
        self.oldest_expired(now).is_some()
    }

    fn oldest_expired(&self, now: Timestamp) -> Option<Duration> {
        let segments = self.segments.values().filter(|segment| segment.may_have_expired(now));
        let open = segments.filter_map(|segment| match &segment.index {
            Index::Open(slots) => Some(slots),
            Index::Sealed(_) => None,
        });
        let counted = open.flat_map(ById::values).filter(|slot| slot.kind.is_some());
        counted.filter_map(|slot| slot.expires_at).filter(|at| *at <= now).min().map(|at| at.until(now))
    }

    /// Takes no more entries into active segments in which everything has expired. Answers which.
    pub(crate) fn retire_idle(&mut self, now: Timestamp) -> Vec<SegmentId> {
        let active = self.active.iter().flatten().filter_map(|id| self.segments.get(id));
        let idle: Vec<_> =
            active.filter(|segment| self.is_over(segment, now)).map(|segment| segment.id).collect();
        for id in &idle {
            self.active[usize::from(id.class.number())] = None;
        }
        idle
    }

    /// The segments in which everything has expired and behind which no older entry of their records is left.
    ///
    /// Those can be in older segments of the same class, and in segments of shorter classes that were begun before the
    /// next one of this class was.
    pub(crate) fn droppable(&self, now: Timestamp) -> Vec<SegmentId> {
        let mut kept: Vec<SegmentId> = Vec::new();
        let mut droppable = Vec::new();
        let mut segments = self.segments.iter().peekable();
        while let Some((id, segment)) = segments.next() {
            if segment.is_going {
                continue;
            }
            let next = segments.peek().filter(|(next, _)| next.class == id.class);
            let until = next.map_or(u64::MAX, |(next, _)| next.seq);
            let blocked = kept.iter().any(|older| older.class == id.class || older.seq < until);
            let active = self.is_active(*id);
            if blocked || active || !self.is_over(segment, now) {
                kept.push(*id);
            } else {
                droppable.push(*id);
            }
        }
        droppable
    }

    /// Marks up to `most` of the droppable, the oldest first. They go in this order, and nothing is written to them any more.
    pub(crate) fn let_go(&mut self, now: Timestamp, most: usize) -> Vec<SegmentId> {
        let mut going = self.droppable(now);
        going.truncate(most);
        for id in &going {
            if let Some(segment) = self.segments.get_mut(id) {
                segment.is_going = true;
            }
        }
        going
    }

    fn is_over(&self, segment: &Segment, now: Timestamp) -> bool {
        now >= segment.expires_at && !self.in_flight.values().any(|stored| stored.place.segment == segment.id)
    }

    /// Keeps a segment for as long as what cannot be read in it may have been meant to last.
    pub(crate) fn keep_for_doubt(&mut self, id: SegmentId, now: Timestamp) {
        if let Some(segment) = self.segments.get_mut(&id) {
            segment.expires_at = segment.expires_at.max(now + id.class.doubt());
        }
    }

    /// Lets go of a segment. Answers how many records went with it.
    pub(crate) fn drop_segment(&mut self, id: SegmentId) -> Option<(Segment, u64)> {
        let gone = self.counts.remove(&id).unwrap_or_default().iter().sum();
        self.segments.remove(&id).map(|segment| (segment, gone))
    }

    /// Refuses to call a key absent while entries are missing whose keys nobody knows.
    pub(crate) fn believe_absence(&self) -> Result<(), StoreError> {
        if self.segments.values().any(|segment| segment.lost_some) {
            return Err(StoreError::new(StoreErrorKind::Corrupt, "looking for a record")
                .because("it is absent, or among entries that are damaged beyond knowing whose they were"));
        }
        Ok(())
    }

    pub(crate) fn stats(&self, now: Timestamp) -> Stats {
        let mut stats = Stats::default();
        for counts in self.counts.values() {
            stats.in_flight += counts[0];
            stats.completed += counts[1];
            stats.released += counts[2];
            stats.unknown += counts[3];
        }
        stats.bytes = self.segments.values().map(|segment| segment.end).sum();
        stats.oldest_expired = self.oldest_expired(now);
        stats
    }

    /// How much memory the indexes and what is in flight take, roughly.
    pub(crate) fn memory(&self) -> usize {
        let indexes = self.segments.values().map(|segment| match &segment.index {
            Index::Open(slots) => slots.capacity() * (size_of::<(RecordId, crate::segment::Slot)>() + 1),
            Index::Sealed(sealed) => sealed.memory(),
        });
        indexes.sum::<usize>() + self.in_flight_memory()
    }

    /// How much memory what is in flight takes, roughly. It cannot be given up.
    pub(crate) fn in_flight_memory(&self) -> usize {
        self.in_flight.capacity() * size_of::<(RecordId, Stored)>()
            + self.in_flight.len() * size_of::<Record>()
    }

    /// Gives up filters, the oldest segment's first, until the memory is below `most`.
    pub(crate) fn spare_memory(&mut self, most: usize) {
        while self.memory() > most {
            let smaller = self.segments.values_mut().find_map(|segment| match &segment.index {
                Index::Sealed(sealed) => sealed.without_filter().map(|smaller| (segment, smaller)),
                Index::Open(_) => None,
            });
            let Some((segment, smaller)) = smaller else { break };
            segment.index = Index::Sealed(Arc::new(smaller));
        }
    }
}

#[cfg(test)]
mod tests {
    use onlyonce_core::record::{Completed, CompletedBy, State};
    use onlyonce_core::{Fence, Fingerprint, Outcome, Owner, Retention, Rules};

    use super::*;
    use crate::io::{Disk, RealDisk};

    fn record() -> Record {
        let at = Timestamp::from_millis(1_780_000_000_000);
        let outcome = Outcome::kept(1, "done");
        let expires_at = at + Duration::from_hours(24);
        Record {
            fence: Fence::new(1).unwrap(),
            attempt: 1,
            owner: Owner::from_bytes([9; 16]),
            fingerprint: Some(Fingerprint::from_parts(Rules::standard(), [5; 32])),
            created_at: at,
            granted_at: at,
            run_until: at,
            retention: Retention::DEFAULT,
            unknown_retention: Retention::UNKNOWN_DEFAULT,
            remote: false,
            steps: Vec::new(),
            state: State::Completed(Completed {
                outcome,
                by: CompletedBy::Execution,
                at,
                expires_at,
                late: None,
            }),
        }
    }

    fn is_found(catalog: &Catalog, id: &RecordId, since: Option<Version>) -> bool {
        matches!(catalog.lookup(id, since), Lookup::Candidates(found) if !found.is_empty())
    }

    #[test]
    fn what_came_after_a_key_was_seen_absent_is_found() {
        let folder = tempfile::tempdir().unwrap();
        let disk = RealDisk::new(folder.path()).unwrap();
        let mut catalog = Catalog::default();
        for seq in 0..2 {
            let segment = SegmentId { class: Class::new(4).unwrap(), seq };
            let file = disk.create(&seq.to_string()).unwrap();
            catalog.add(Segment::new(segment, file, Timestamp::default()), true);
        }
        let place = |seq| Place { segment: SegmentId { class: Class::new(4).unwrap(), seq }, offset: 9 };
        let ids = [1, 2, 3].map(|byte| RecordId::from_bytes([byte; 32]));
        for (id, seq) in ids.iter().zip([0, 1, 0]) {
            let before = catalog.version();
            catalog.put(*id, Stored { record: Arc::new(record()), place: place(seq) }, None);
            assert!(is_found(&catalog, id, None) && is_found(&catalog, id, Some(before)));
            assert!(!is_found(&catalog, id, Some(catalog.version())), "nothing has changed since");
        }
        // A segment that was not written to since is not looked at; one that was is.
        let third = catalog.version();
        catalog.put(ids[1], Stored { record: Arc::new(record()), place: place(1) }, None);
        assert!(is_found(&catalog, &ids[1], Some(third)) && !is_found(&catalog, &ids[0], Some(third)));
    }
}
