//! How far each partition has come: every offset that is delivered and not finished, and the highest one seen.
//!
//! No record is ever left out because of its offset: this only says what may be committed.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::Handle;

/// A topic and a partition.
pub(super) type Place = (Arc<str>, i32);

/// The partitions that are ours.
#[derive(Debug, Default)]
pub(super) struct Offsets {
    partitions: HashMap<Place, Partition>,
    epochs: u64,
}

#[derive(Debug, Default)]
struct Partition {
    /// Another one for every assignment, and every time that the partition goes back.
    epoch: u64,
    seen: Option<i64>,
    /// Delivered, and not committed.
    open: BTreeMap<i64, Open>,
}

#[derive(Debug)]
struct Open {
    /// The epoch it was delivered in: a delivery of the same offset in another one is not this.
    epoch: u64,
    /// It may be committed, and is not yet.
    is_finished: bool,
}

impl Offsets {
    /// A partition is ours from now on.
    pub(super) fn assign(&mut self, place: Place) {
        self.epochs += 1;
        self.partitions.insert(place, Partition { epoch: self.epochs, ..Partition::default() });
    }

    /// A partition is ours no longer.
    pub(super) fn revoke(&mut self, place: &Place) {
        self.partitions.remove(place);
    }

    /// Nothing is ours any more.
    pub(super) fn clear(&mut self) {
        self.partitions.clear();
    }

    /// A record was delivered: in which epoch. `None`: its partition is not ours.
    pub(super) fn deliver(&mut self, place: &Place, offset: i64) -> Option<u64> {
        let partition = self.partitions.get_mut(place)?;
        if partition.seen.is_some_and(|seen| offset <= seen) {
            // The partition went back: what is under way from here on comes again, or is no more. What is under way before
            // does not come again, so it stays ours, and is not committed past.
            self.epochs += 1;
            partition.epoch = self.epochs;
            partition.open.split_off(&offset);
        }
        partition.seen = Some(offset);
        partition.open.insert(offset, Open { epoch: partition.epoch, is_finished: false });
        Some(partition.epoch)
    }

    /// Whether a delivery is still ours to finish.
    pub(super) fn is_open(&self, handle: &Handle) -> bool {
        self.found(handle).is_some_and(|open| !open.is_finished)
    }

    /// Whether a delivery is still ours: to finish, or to commit.
    pub(super) fn is_ours(&self, handle: &Handle) -> bool {
        self.found(handle).is_some()
    }

    fn found(&self, handle: &Handle) -> Option<&Open> {
        let found = self.partitions.get(&handle.place)?.open.get(&handle.offset);
        found.filter(|open| open.epoch == handle.epoch)
    }

    /// A delivery is finished: it may be committed. False: it was not ours.
    pub(super) fn finish(&mut self, handle: &Handle) -> bool {
        let found = self.open(handle).filter(|open| !open.is_finished);
        found.map(|open| open.is_finished = true).is_some()
    }

    /// It could not be committed, and is not finished after all. False: it is not ours any more.
    pub(super) fn reopen(&mut self, handle: &Handle) -> bool {
        self.open(handle).map(|open| open.is_finished = false).is_some()
    }

    /// It is committed, and over. False: it was not ours any more.
    pub(super) fn committed(&mut self, handle: &Handle) -> bool {
        let is_ours = self.open(handle).is_some_and(|open| open.is_finished);
        if is_ours && let Some(partition) = self.partitions.get_mut(&handle.place) {
            partition.open.remove(&handle.offset);
        }
        is_ours
    }

    fn open(&mut self, handle: &Handle) -> Option<&mut Open> {
        let partition = self.partitions.get_mut(&handle.place)?;
        partition.open.get_mut(&handle.offset).filter(|open| open.epoch == handle.epoch)
    }

    /// Up to where a partition may be committed: the lowest offset that is not finished.
    pub(super) fn position(&self, place: &Place) -> Option<i64> {
        let partition = self.partitions.get(place)?;
        let unfinished = partition.open.iter().find(|(_, open)| !open.is_finished);
        unfinished.map(|(offset, _)| *offset).or_else(|| partition.seen.map(|seen| seen + 1))
    }

    /// The partitions that are ours.
    pub(super) fn places(&self) -> Vec<Place> {
        self.partitions.keys().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use rdkafka::Timestamp;
    use rdkafka::message::OwnedMessage;

    use super::*;

    fn place() -> Place {
        ("orders".into(), 0)
    }

    fn handle(offset: i64, epoch: u64) -> Handle {
        let record = OwnedMessage::new(None, None, "orders".into(), Timestamp::NotAvailable, 0, offset, None);
        Handle { place: place(), offset, epoch, deliveries: 1, record: Arc::new(record) }
    }

    fn delivered(offsets: &mut Offsets, offset: i64) -> Handle {
        let epoch = offsets.deliver(&place(), offset).expect("ours");
        handle(offset, epoch)
    }

    #[test]
    fn no_further_than_the_lowest_unfinished_is_committed() {
        let mut offsets = Offsets::default();
        offsets.assign(place());
        assert_eq!(offsets.position(&place()), None);
        // Offsets have holes: compaction, transactions.
        let [a, b, c] = [5, 7, 20].map(|offset| delivered(&mut offsets, offset));
        assert!(offsets.finish(&c) && offsets.finish(&b));
        assert_eq!(offsets.position(&place()), Some(5));
        assert!(offsets.finish(&a) && !offsets.finish(&a));
        assert_eq!(offsets.position(&place()), Some(21));
        assert!(offsets.reopen(&b) && offsets.is_open(&b), "it could not be committed");
        assert_eq!(offsets.position(&place()), Some(7));
        assert!(offsets.finish(&b));
        for handle in [&a, &b, &c] {
            assert!(offsets.committed(handle) && !offsets.committed(handle));
            assert!(!offsets.reopen(handle), "what is committed is over");
        }
        assert_eq!(offsets.position(&place()), Some(21));
    }

    #[test]
    fn a_partition_that_goes_back_delivers_everything_again() {
        let mut offsets = Offsets::default();
        offsets.assign(place());
        let [early, late] = [3, 9].map(|offset| delivered(&mut offsets, offset));
        assert!(offsets.finish(&late));
        let again = delivered(&mut offsets, 1);
        assert!(!offsets.is_open(&early), "what was under way comes again");
        assert_eq!(offsets.position(&place()), Some(1));
        assert!(offsets.finish(&again));
        assert_eq!(offsets.position(&place()), Some(2), "not past what is still to come");
    }

    #[test]
    fn what_is_under_way_before_a_truncation_stays_ours() {
        let mut offsets = Offsets::default();
        offsets.assign(place());
        let [early, finishing, late, later] = [2, 3, 7, 9].map(|offset| delivered(&mut offsets, offset));
        assert!(offsets.finish(&finishing) && offsets.finish(&later));
        // Part of the way back: 5 and all that follows is written anew.
        let again = delivered(&mut offsets, 5);
        assert!(offsets.is_open(&early), "it does not come again");
        assert!(!offsets.is_open(&late) && !offsets.finish(&late), "what was at 7 is no more");
        assert!(!offsets.reopen(&later), "and cannot come back when its commit fails");
        assert!(offsets.finish(&again));
        assert_eq!(offsets.position(&place()), Some(2), "not past what is under way");
        let other = delivered(&mut offsets, 7);
        assert!(!offsets.finish(&late) && offsets.is_open(&other), "another record with the same offset");
        assert!(offsets.reopen(&finishing) && offsets.finish(&early));
        assert_eq!(offsets.position(&place()), Some(3));
        assert!(offsets.finish(&finishing) && offsets.finish(&other));
        assert_eq!(offsets.position(&place()), Some(8));
    }

    #[test]
    fn what_is_revoked_is_gone_also_when_it_comes_back() {
        let mut offsets = Offsets::default();
        offsets.assign(place());
        let held = delivered(&mut offsets, 3);
        offsets.revoke(&place());
        assert_eq!(offsets.deliver(&place(), 4), None);
        assert!(!offsets.is_open(&held) && !offsets.finish(&held));
        offsets.assign(place());
        let again = delivered(&mut offsets, 3);
        assert!(!offsets.finish(&held) && offsets.is_open(&again));
    }
}
