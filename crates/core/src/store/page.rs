//! A listing and its pages: bounded in records and in bytes, whatever the records hold.

use super::StoreError;
use crate::clock::Timestamp;
use crate::house;
use crate::record::{Record, StateKind};
use crate::scope::{RecordId, ScopeTag};

/// The most records on one page of a listing.
pub const PAGE_MAX: usize = 1000;
/// How many bytes of records one page has, about: the one that goes past them is its last.
pub const PAGE_BYTES_MAX: usize = 8 << 20;

/// Which records an operator asks for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Listing {
    /// Only these states; all when empty.
    pub states: Vec<StateKind>,
    /// Only this namespace and principal.
    pub scope: Option<ScopeTag>,
    /// Only ids that begin with these hexadecimal digits.
    pub prefix: Option<String>,
    /// Only records first claimed before this.
    pub created_before: Option<Timestamp>,
    /// Only ids after this one: the `next` of the page before.
    pub after: Option<RecordId>,
    /// How many at most; [`PAGE_MAX`] when zero or larger. A page of large records has fewer: see [`PAGE_BYTES_MAX`].
    pub limit: usize,
}

impl Listing {
    /// The number of records a page may have.
    pub fn page_size(&self) -> usize {
        if self.limit == 0 { PAGE_MAX } else { self.limit.min(PAGE_MAX) }
    }

    /// Whether `record`, as commands read it, is asked for. `after` and `limit` are the store's to keep. The house's own
    /// records never are: they are nobody's operation.
    pub fn wants(&self, id: &RecordId, record: &Record) -> bool {
        self.may_want(id)
            && (self.states.is_empty() || self.states.contains(&record.kind()))
            && self.created_before.is_none_or(|before| record.created_at < before)
    }

    /// Whether a record of `id` is asked for, as far as its id tells: all that is known of one that cannot be read.
    pub fn may_want(&self, id: &RecordId) -> bool {
        !house::is_ours(id)
            && self.scope.is_none_or(|tag| id.is_in(tag))
            && self.prefix.as_ref().is_none_or(|prefix| id.begins_with(prefix))
    }
}

/// Part of a listing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Page {
    /// In the order of their ids.
    pub records: Vec<(RecordId, Record)>,
    /// What is there and cannot be read, in the order of the ids. Its state and its age are not known: it is here whichever
    /// were asked for.
    pub unreadable: Vec<Unreadable>,
    /// Where the next page starts; `None` on the last.
    pub next: Option<RecordId>,
}

/// A record that cannot be read: it is there, and its key is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unreadable {
    /// Its id.
    pub id: RecordId,
    /// What is wrong with it.
    pub why: String,
}

impl Unreadable {
    /// The record `id`, as `error` says that it cannot be read.
    pub fn new(id: RecordId, error: &StoreError) -> Self {
        let why = std::error::Error::source(error).map_or_else(|| error.to_string(), ToString::to_string);
        Self { id, why }
    }
}

/// A page that is being filled, in the order of the ids.
#[derive(Debug)]
pub struct Filling<'l> {
    listing: &'l Listing,
    page: Page,
    bytes: usize,
    last: Option<RecordId>,
}

impl<'l> Filling<'l> {
    /// An empty page of `listing`.
    pub fn new(listing: &'l Listing) -> Self {
        Self { listing, page: Page::default(), bytes: 0, last: None }
    }

    /// Whether nothing more fits.
    pub fn is_full(&self) -> bool {
        self.len() >= self.listing.page_size() || self.bytes >= PAGE_BYTES_MAX
    }

    /// How many more records fit, if they are small.
    pub fn room(&self) -> usize {
        self.listing.page_size() - self.len()
    }

    fn len(&self) -> usize {
        self.page.records.len() + self.page.unreadable.len()
    }

    /// Adds what was read under `id`, if it is asked for. `false` when the page was full: it ends before this one. An error
    /// that says nothing of the record itself is the listing's own.
    pub fn take(&mut self, id: RecordId, read: Result<Record, StoreError>) -> Result<bool, StoreError> {
        let is_wanted = match &read {
            Ok(record) => self.listing.wants(&id, record),
            Err(error) if error.is_unreadable() => self.listing.may_want(&id),
            Err(_) => true,
        };
        if !is_wanted {
            return Ok(true);
        }
        if self.is_full() {
            self.page.next = self.last;
            return Ok(false);
        }
        match read {
            Ok(record) => {
                self.bytes += record.weight();
                self.page.records.push((id, record));
            }
            Err(error) if error.is_unreadable() => self.page.unreadable.push(Unreadable::new(id, &error)),
            Err(error) => return Err(error),
        }
        self.last = Some(id);
        Ok(true)
    }

    /// The page. It is the last one unless something did not fit.
    pub fn finish(self) -> Page {
        self.page
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::StoreErrorKind;

    fn id(first: u8) -> RecordId {
        RecordId::from_bytes([first; 32])
    }

    fn unreadable() -> StoreError {
        StoreError::new(StoreErrorKind::Corrupt, "reading a record").because("its key is lost")
    }

    #[test]
    fn what_cannot_be_read_takes_a_place_of_its_own_and_ends_nothing() {
        let listing = Listing { limit: 2, states: vec![StateKind::Unknown], ..Listing::default() };
        let mut filling = Filling::new(&listing);
        assert!(filling.take(house::SWEEP, Err(unreadable())).unwrap(), "the house's own are not listed");
        assert!(filling.take(id(1), Err(unreadable())).unwrap());
        assert!(filling.take(id(2), Err(unreadable())).unwrap());
        assert!(!filling.take(id(3), Err(unreadable())).unwrap(), "it is full");
        let page = filling.finish();
        assert_eq!(page.unreadable[0], Unreadable { id: id(1), why: "its key is lost".to_owned() });
        assert_eq!((page.unreadable.len(), page.next), (2, Some(id(2))));
    }

    #[test]
    fn a_store_that_fails_is_no_page() {
        let listing = Listing::default();
        let gone = || StoreError::new(StoreErrorKind::Unavailable, "listing records");
        assert!(Filling::new(&listing).take(id(1), Err(gone())).is_err());
    }
}
