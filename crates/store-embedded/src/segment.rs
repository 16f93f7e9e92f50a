//! One segment: a file of entries, and where the last entry of each record in it lies.
//!
//! An open segment keeps that in a map; a sealed one in an index file beside it, with a filter in memory. Whoever looks
//! a record up goes through the segments from the largest id to the smallest and takes the first entry found.

pub(crate) mod scan;
pub(crate) mod sealed;

use std::sync::Arc;

use onlyonce_core::record::StateKind;
use onlyonce_core::store::ById;
use onlyonce_core::{Record, RecordId, StoreError, Timestamp};

use self::sealed::SealedIndex;
use crate::catalog::Version;
use crate::class::Class;
use crate::entry::{Home, read_record};
use crate::io::DiskFile;

/// The name of a segment.
///
/// INVARIANT: of two entries of one record, the newer is in the segment with the larger id: a newer entry is never in a
/// shorter class than an older one, and within a class segments are begun one after the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct SegmentId {
    pub(crate) class: Class,
    /// Grows with every segment of the store, whatever its class.
    pub(crate) seq: u64,
}

/// Where an entry lies: its segment, and the offset there. Segments are far shorter than 4 GiB.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Place {
    pub(crate) segment: SegmentId,
    pub(crate) offset: u32,
}

/// What an open segment knows of a record without reading it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Slot {
    pub(crate) offset: u32,
    /// `None` for an entry that cannot be read: its key is refused.
    pub(crate) kind: Option<StateKind>,
    /// When the record may be forgotten; `None` while it is in flight.
    pub(crate) expires_at: Option<Timestamp>,
}

#[derive(Debug)]
pub(crate) enum Index {
    Open(ById<Slot>),
    Sealed(Arc<SealedIndex>),
}

/// A segment file and its index.
#[derive(Debug)]
pub(crate) struct Segment {
    pub(crate) id: SegmentId,
    pub(crate) file: Arc<dyn DiskFile>,
    /// Where the next group goes.
    pub(crate) end: u64,
    /// Up to where the file was filled with zeros ahead of the entries, durably: what is written there does not make it
    /// longer, and syncs faster for that.
    pub(crate) filled: u64,
    /// Whether all of it is durable, so that a mark may be written behind it.
    pub(crate) synced: bool,
    /// When it was begun. Part of its name: entries are written relative to it.
    pub(crate) started_at: Timestamp,
    /// When everything in it that may expire has expired.
    pub(crate) expires_at: Timestamp,
    /// Whether entries were lost whose keys are unknown. Until they must have expired, no absence can be believed.
    pub(crate) lost_some: bool,
    /// No record in it that still counts expires before; `None` while none does.
    pub(crate) first_expires_at: Option<Timestamp>,
    /// Whether it is about to be removed.
    pub(crate) is_going: bool,
    /// When it last took in an entry.
    pub(crate) changed_at: Version,
    pub(crate) index: Index,
}

/// What a segment says about a record.
#[derive(Debug)]
pub(crate) enum Candidate {
    /// Its last entry here.
    Here(Arc<dyn DiskFile>, Home, Place),
    /// Perhaps something: the index file tells.
    Maybe(Arc<dyn DiskFile>, Home, SegmentId, Arc<SealedIndex>),
}

impl Segment {
    pub(crate) fn new(id: SegmentId, file: Arc<dyn DiskFile>, started_at: Timestamp) -> Self {
        Self {
            id,
            file,
            end: 0,
            filled: 0,
            synced: true,
            started_at,
            expires_at: started_at,
            lost_some: false,
            first_expires_at: None,
            is_going: false,
            changed_at: Version::default(),
            index: Index::Open(ById::default()),
        }
    }

    pub(crate) fn name(&self) -> String {
        self.id.file_name(self.started_at)
    }

    pub(crate) fn home(&self) -> Home {
        Home { seq: self.id.seq, started_at: self.started_at }
    }

    pub(crate) fn index_name(&self) -> String {
        format!("{}.index", self.name())
    }

    /// What this segment says about `id`, without touching the disk.
    pub(crate) fn candidate(&self, id: &RecordId) -> Option<Candidate> {
        match &self.index {
            Index::Open(slots) => slots.get(id).map(|slot| {
                let place = Place { segment: self.id, offset: slot.offset };
                Candidate::Here(Arc::clone(&self.file), self.home(), place)
            }),
            Index::Sealed(sealed) => sealed
                .may_hold(id)
                .then(|| Candidate::Maybe(Arc::clone(&self.file), self.home(), self.id, Arc::clone(sealed))),
        }
    }

    /// Whether records may have expired that still count and do not go with the segment. Most segments are spared a look at
    /// each of theirs by this.
    pub(crate) fn may_have_expired(&self, now: Timestamp) -> bool {
        !self.is_going && self.first_expires_at.is_some_and(|first| first <= now)
    }

    /// Notes that the last entry of `id` here is the one at `offset`.
    pub(crate) fn note(&mut self, id: RecordId, offset: u32, record: Option<&Record>) {
        let expires_at = record.and_then(Record::expires_at);
        self.expires_at = self.expires_at.max(expires_at.unwrap_or_default());
        if let Index::Open(slots) = &mut self.index {
            self.first_expires_at = [self.first_expires_at, expires_at].into_iter().flatten().min();
            slots.insert(id, Slot { offset, kind: record.map(Record::kind), expires_at });
        }
    }
}

impl Candidate {
    /// The record and where it lies, if this segment has it. `None` when a filter was wrong.
    pub(crate) fn read(&self, id: &RecordId) -> Result<Option<(Record, Place)>, StoreError> {
        let (file, home, place) = match self {
            Self::Here(file, home, place) => (file, home, *place),
            Self::Maybe(file, home, segment, sealed) => match sealed.find(id, &**file, *home)? {
                Some(offset) => (file, home, Place { segment: *segment, offset }),
                None => return Ok(None),
            },
        };
        read_record(&**file, *home, id, place.offset).map(|record| Some((record, place)))
    }
}

impl SegmentId {
    /// The name of its file: the version of the format, the number, so that a listing shows the order in which they were
    /// begun, the class, and when it was begun.
    pub(crate) fn file_name(self, started_at: Timestamp) -> String {
        format!("v1-{:016x}-{}-{:x}.segment", self.seq, self.class.number(), started_at.as_millis())
    }

    /// The segment that a file name stands for, and when it was begun.
    pub(crate) fn parse(name: &str) -> Option<(Self, Timestamp)> {
        let mut parts = name.strip_prefix("v1-")?.strip_suffix(".segment")?.splitn(3, '-');
        let (seq, class, started_at) = (parts.next()?, parts.next()?, parts.next()?);
        let id = Self { class: Class::new(class.parse().ok()?)?, seq: u64::from_str_radix(seq, 16).ok()? };
        let started_at = Timestamp::from_millis(u64::from_str_radix(started_at, 16).ok()?);
        (id.file_name(started_at) == name).then_some((id, started_at))
    }
}
