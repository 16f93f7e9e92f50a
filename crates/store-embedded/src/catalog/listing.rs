//! Goes through all records in the order of their ids, a page at a time, over segments that are each sorted.

use std::collections::BTreeMap;

use onlyonce_core::store::{Listing, Page};
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

impl Catalog {
    /// A page of records as commands would read them at `now`.
    pub(crate) fn list(&self, listing: &Listing, now: Timestamp) -> Result<Page, StoreError> {
        let size = listing.page_size();
        let mut page = Page::default();
        let mut after = listing.after;
        loop {
            let (ids, done_up_to) = self.next_ids(after, size + 1)?;
            for (id, record) in ids {
                let Some(seen) = view(Some(&record), now) else { continue };
                if !listing.wants(&id, &seen) {
                    continue;
                }
                if page.records.len() == size {
                    page.next = page.records.last().map(|(id, _)| *id);
                    return Ok(page);
                }
                page.records.push((id, seen.into_owned()));
            }
            match done_up_to {
                Some(id) => after = Some(id),
                None => return Ok(page),
            }
        }
    }

    /// The records that follow `after`, and up to where they are complete; `None` when they are all.
    fn next_ids(
        &self,
        after: Option<RecordId>,
        most: usize,
    ) -> Result<(BTreeMap<RecordId, Record>, Option<RecordId>), StoreError> {
        let mut found = BTreeMap::new();
        let mut done_up_to: Option<RecordId> = None;
        // From the oldest: a newer entry takes the place of an older one.
        for segment in self.segments.values() {
            let run = segment.run(after, most)?;
            if let Some((last, _)) = run.ids.last().filter(|_| run.more) {
                done_up_to = Some(done_up_to.map_or(*last, |done| done.min(*last)));
            }
            for (id, offset) in run.ids {
                found.insert(id, (segment, offset));
            }
        }
        let mut records = BTreeMap::new();
        for (id, (segment, offset)) in found {
            if done_up_to.is_some_and(|done| id > done) {
                break;
            }
            let record = match self.in_flight.get(&id) {
                Some(stored) => stored.record.clone(),
                None => read_record(&*segment.file, segment.home(), &id, offset)?,
            };
            records.insert(id, record);
        }
        Ok((records, done_up_to))
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
        ids.sort_unstable_by_key(|(id, _)| *id);
        let more = ids.len() > most;
        ids.truncate(most);
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
