//! Goes through all records in the order of their ids, a page at a time, over segments that are each sorted.

use std::collections::BTreeMap;

use onlyonce_core::record::StateKind;
use onlyonce_core::store::{Filling, Listing};
use onlyonce_core::transition::view;
use onlyonce_core::{Record, RecordId, StoreError, StoreErrorKind, Timestamp};

use super::Catalog;
use crate::entry::{self, read_record};
use crate::segment::sealed::{SealedIndex, prefix};
use crate::segment::{Index, Segment};

/// Some ids of one segment in order, and whether there are more.
struct Run {
    /// Each with the offset of its last entry there.
    ids: Vec<(RecordId, u32)>,
    more: bool,
}

/// Where the last entry of a record is.
enum At<'c> {
    Memory(&'c Record),
    Segment(&'c Segment, u32),
}

/// How many records are looked at in one go: whoever writes waits meanwhile.
const LOOKED_AT: usize = 1000;

impl Catalog {
    /// Adds records that follow `after` to a page, as commands would read them at `now`. Answers where to go on; `None` when
    /// the page is done.
    pub(crate) fn list(
        &self,
        listing: &Listing,
        page: &mut Filling<'_>,
        after: Option<RecordId>,
        now: Timestamp,
    ) -> Result<Option<RecordId>, StoreError> {
        let (places, done_up_to) = if self.is_all_in_flight(&listing.states) {
            self.believe_absence()?;
            (self.in_flight_after(after), None)
        } else {
            self.next_places(after, (listing.page_size() + 1).max(LOOKED_AT))?
        };
        for (id, at) in places {
            // One at a time, and no more than the page takes: bodies may be large.
            let read = match at {
                At::Memory(record) => Ok(record.clone()),
                At::Segment(segment, offset) => read_record(&*segment.file, segment.home(), &id, offset),
            };
            let read = match read {
                Ok(record) => match view(Some(&record), now) {
                    Some(seen) => Ok(seen.into_owned()),
                    None => continue,
                },
                Err(error) => Err(error),
            };
            if !page.take(id, read)? {
                return Ok(None);
            }
        }
        Ok(done_up_to)
    }

    /// Whether every record that reads as one of `states` is among those in flight: what has lapsed reads as unknown.
    fn is_all_in_flight(&self, states: &[StateKind]) -> bool {
        let is_known = |state: &StateKind| match state {
            StateKind::InFlight => true,
            StateKind::Unknown => self.counts.values().all(|counts| counts[3] == 0),
            StateKind::Completed | StateKind::Released => false,
        };
        !states.is_empty() && states.iter().all(is_known)
    }

    fn in_flight_after(&self, after: Option<RecordId>) -> BTreeMap<RecordId, At<'_>> {
        let follows = self.in_flight.iter().filter(|(id, _)| after.is_none_or(|after| **id > after));
        follows.map(|(id, stored)| (*id, At::Memory(&stored.record))).collect()
    }

    /// Where the records are that follow `after`, and up to where they are complete; `None` when they are all.
    fn next_places(
        &self,
        after: Option<RecordId>,
        most: usize,
    ) -> Result<(BTreeMap<RecordId, At<'_>>, Option<RecordId>), StoreError> {
        let mut found = BTreeMap::new();
        let mut done_up_to: Option<RecordId> = None;
        // From the oldest: a newer entry takes the place of an older one.
        for segment in self.segments.values() {
            let run = segment.run(after, most)?;
            if let Some((last, _)) = run.ids.last().filter(|_| run.more) {
                done_up_to = Some(done_up_to.map_or(*last, |done| done.min(*last)));
            }
            for (id, offset) in run.ids {
                let at = self.in_flight.get(&id).map(|stored| At::Memory(&stored.record));
                found.insert(id, at.unwrap_or(At::Segment(segment, offset)));
            }
        }
        if let Some(done) = done_up_to {
            found.retain(|id, _| *id <= done);
        }
        Ok((found, done_up_to))
    }
}

impl Segment {
    /// Up to `most` ids after `after`, in order.
    fn run(&self, after: Option<RecordId>, most: usize) -> Result<Run, StoreError> {
        let mut ids: Vec<_> = match &self.index {
            Index::Open(slots) => slots.iter().map(|(id, slot)| (*id, slot.offset)).collect(),
            Index::Sealed(sealed) => self.sealed_ids(sealed, after, most)?,
        };
        ids.retain(|(id, _)| after.is_none_or(|after| *id > after));
        let more = ids.len() > most;
        if more {
            // An open segment is not sorted, and may be large: only what is asked for is.
            ids.select_nth_unstable_by_key(most, |(id, _)| *id);
            ids.truncate(most);
        }
        ids.sort_unstable_by_key(|(id, _)| *id);
        Ok(Run { ids, more })
    }

    /// At least `most` + 1 ids after `after` if there are so many; the blocks before it are skipped.
    fn sealed_ids(
        &self,
        sealed: &SealedIndex,
        after: Option<RecordId>,
        most: usize,
    ) -> Result<Vec<(RecordId, u32)>, StoreError> {
        let mut ids: Vec<(RecordId, u32)> = Vec::new();
        let first = after.map_or(0, |after| sealed.first_block(prefix(&after)));
        for block in first..sealed.blocks() {
            for (at, offset) in sealed.block(block)? {
                if after.is_some_and(|after| at < prefix(&after)) {
                    continue;
                }
                // Whole prefixes only: ids of one prefix are not sorted among themselves.
                if ids.len() > most && ids.last().is_some_and(|(last, _)| prefix(last) != at) {
                    return Ok(ids);
                }
                let id = self.id_at(offset)?;
                if after.is_none_or(|after| id > after) {
                    ids.push((id, offset));
                }
            }
        }
        Ok(ids)
    }

    fn id_at(&self, offset: u32) -> Result<RecordId, StoreError> {
        let damaged = || StoreError::new(StoreErrorKind::Corrupt, "listing records");
        let id = entry::id_at(&&*self.file, self.home(), offset as usize);
        id.map_err(|error| damaged().because(error))?.ok_or_else(damaged)
    }
}
