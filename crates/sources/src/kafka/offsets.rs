//! How far each partition has come: every offset that is delivered and not finished, and the highest one seen.
//!
//! No record is ever left out because of its offset: this only says what may be committed.

use std::collections::{BTreeSet, HashMap};
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
    /// Another one for every assignment: what came before is gone.
    epoch: u64,
    seen: Option<i64>,
    /// The gaps: delivered, and not finished.
    open: BTreeSet<i64>,
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
            // The partition went back: all that follows comes again, and what is under way is gone.
            self.epochs += 1;
            *partition = Partition { epoch: self.epochs, ..Partition::default() };
        }
        partition.seen = Some(offset);
        partition.open.insert(offset);
        Some(partition.epoch)
    }

    /// Whether a delivery is still ours to finish.
    pub(super) fn is_open(&self, handle: &Handle) -> bool {
        let partition = self.partitions.get(&handle.place);
        partition.is_some_and(|found| found.epoch == handle.epoch && found.open.contains(&handle.offset))
    }

    /// A delivery is finished. False: it was not ours.
    pub(super) fn finish(&mut self, handle: &Handle) -> bool {
        match self.partitions.get_mut(&handle.place) {
            Some(found) if found.epoch == handle.epoch => found.open.remove(&handle.offset),
            _ => false,
        }
    }

    /// It was not finished after all: it could not be committed.
    pub(super) fn reopen(&mut self, handle: &Handle) {
        if let Some(found) = self.partitions.get_mut(&handle.place)
            && found.epoch == handle.epoch
        {
            found.open.insert(handle.offset);
        }
    }

    /// Up to where a partition may be committed: the lowest offset that is not finished.
    pub(super) fn position(&self, place: &Place) -> Option<i64> {
        let partition = self.partitions.get(place)?;
        partition.open.first().copied().or_else(|| partition.seen.map(|seen| seen + 1))
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
        offsets.reopen(&b);
        assert_eq!(offsets.position(&place()), Some(7));
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
