//! A page of records in the order of their ids: the smallest ids that are wanted, of all that there are.

use std::collections::BTreeSet;

use onlyonce_core::store::{Filling, Listing, Page};
use onlyonce_core::transition::view;
use onlyonce_core::{RecordId, StoreError};

use super::DOING;
use crate::scripts::Script;
use crate::store::{RedisStore, read_record};

/// How many whole records are read at a time: bodies may be large.
const WHOLE_AT_ONCE: usize = 20;

impl RedisStore {
    pub(crate) async fn list_records(&self, listing: &Listing) -> Result<Page, StoreError> {
        let size = listing.page_size();
        let mut smallest: BTreeSet<RecordId> = BTreeSet::new();
        for node in self.masters.all() {
            let mut cursor = 0;
            loop {
                let step = self.step(&node, cursor).await?;
                let is_full = smallest.len() > size;
                let may_be = |id: &RecordId| {
                    listing.after.is_none_or(|after| *id > after)
                        && listing.scope.is_none_or(|tag| id.is_in(tag))
                        && listing.prefix.as_ref().is_none_or(|prefix| id.begins_with(prefix))
                        && !(is_full && smallest.last().is_some_and(|last| id > last))
                };
                let candidates: Vec<_> = step.ids.into_iter().filter(may_be).collect();
                for (id, head) in self.peek(&candidates).await? {
                    let is_wanted = match head {
                        Ok(head) => {
                            view(Some(&head.record), head.now).is_some_and(|seen| listing.wants(&id, &seen))
                        }
                        // It is there, and somebody has to look at it.
                        Err(_) => listing.may_want(&id),
                    };
                    if is_wanted {
                        smallest.insert(id);
                    }
                }
                // One more than fits tells that there is a next page.
                while smallest.len() > size + 1 {
                    smallest.pop_last();
                }
                cursor = step.next;
                if cursor == 0 {
                    break;
                }
            }
        }
        let more = smallest.len() > size;
        if more {
            smallest.pop_last();
        }
        let next = smallest.last().copied().filter(|_| more);
        let mut page = self.read_whole(listing, smallest).await?;
        page.next = page.next.or(next);
        Ok(page)
    }

    /// The records themselves, where they are still wanted, as far as they fit on a page.
    async fn read_whole(&self, listing: &Listing, ids: BTreeSet<RecordId>) -> Result<Page, StoreError> {
        let ids: Vec<_> = ids.into_iter().collect();
        let mut page = Filling::new(listing);
        for some in ids.chunks(WHOLE_AT_ONCE) {
            let calls: Vec<_> = some.iter().map(|id| self.read_call(Script::Lookup, id, &[])).collect();
            for (id, value) in some.iter().zip(self.masters.run_packed(&calls, DOING).await) {
                let Some(read) = value.and_then(|value| read_record(id, value)).transpose() else { continue };
                if !page.take(*id, read)? {
                    return Ok(page.finish());
                }
            }
        }
        Ok(page.finish())
    }
}
