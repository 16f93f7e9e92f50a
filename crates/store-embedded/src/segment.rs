//! One segment: a file of entries, and where the last entry of each record in it lies.
//!
//! An open segment keeps that in a map; a sealed one in an index file beside it, with a filter in memory. Whoever looks
//! a record up goes through the segments from the largest id to the smallest and takes the first entry found.

pub(crate) mod scan;
pub(crate) mod sealed;

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use onlyonce_core::record::{StateKind, codec};
use onlyonce_core::{Record, RecordId, StoreError, StoreErrorKind, Timestamp};

use self::sealed::SealedIndex;
use crate::class::Class;
use crate::frame::{self, Found, HEAD_BYTES};
use crate::io::{DiskFile, read_exactly};

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

/// Where an entry lies in its segment. Segments are far shorter than 4 GiB.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) offset: u32,
    pub(crate) body_len: u32,
}

/// What an open segment knows of a record without reading it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Slot {
    pub(crate) place: Place,
    /// `None` for an entry that cannot be read: its key is refused.
    pub(crate) kind: Option<StateKind>,
    /// When the record may be forgotten; `None` while it is in flight.
    pub(crate) expires_at: Option<Timestamp>,
}

#[derive(Debug)]
pub(crate) enum Index {
    Open(HashMap<RecordId, Slot>),
    Sealed(Arc<SealedIndex>),
}

/// A segment file and its index.
#[derive(Debug)]
pub(crate) struct Segment {
    pub(crate) id: SegmentId,
    pub(crate) file: Arc<dyn DiskFile>,
    /// Where the next group goes.
    pub(crate) end: u64,
    /// Whether all of it is durable, so that a mark may be written behind it.
    pub(crate) synced: bool,
    pub(crate) started_at: Timestamp,
    /// When everything in it that may expire has expired.
    pub(crate) expires_at: Timestamp,
    /// Whether entries were lost whose keys are unknown. Until they must have expired, no absence can be believed.
    pub(crate) lost_some: bool,
    pub(crate) index: Index,
}

/// What a segment says about a record.
#[derive(Debug)]
pub(crate) enum Candidate {
    /// Its last entry here.
    Here(Arc<dyn DiskFile>, SegmentId, Place),
    /// Perhaps something: the index file tells.
    Maybe(Arc<dyn DiskFile>, SegmentId, Arc<SealedIndex>),
}

impl Segment {
    pub(crate) fn new(id: SegmentId, file: Arc<dyn DiskFile>, started_at: Timestamp) -> Self {
        let index = Index::Open(HashMap::new());
        Self { id, file, end: 0, synced: true, started_at, expires_at: started_at, lost_some: false, index }
    }

    pub(crate) fn name(&self) -> String {
        self.id.file_name()
    }

    pub(crate) fn index_name(&self) -> String {
        format!("{}.index", self.name())
    }

    /// What this segment says about `id`, without touching the disk.
    pub(crate) fn candidate(&self, id: &RecordId) -> Option<Candidate> {
        match &self.index {
            Index::Open(slots) => {
                slots.get(id).map(|slot| Candidate::Here(Arc::clone(&self.file), self.id, slot.place))
            }
            Index::Sealed(sealed) => sealed
                .may_hold(id)
                .then(|| Candidate::Maybe(Arc::clone(&self.file), self.id, Arc::clone(sealed))),
        }
    }

    /// Notes that the last entry of `id` here is the one at `place`.
    pub(crate) fn note(&mut self, id: RecordId, place: Place, record: Option<&Record>) {
        let expires_at = record.and_then(Record::expires_at);
        self.expires_at = self.expires_at.max(expires_at.unwrap_or_default());
        if let Index::Open(slots) = &mut self.index {
            slots.insert(id, Slot { place, kind: record.map(Record::kind), expires_at });
        }
    }
}

impl Candidate {
    /// The record, if this segment has it. `None` when a filter was wrong.
    pub(crate) fn read(&self, id: &RecordId) -> Result<Option<Record>, StoreError> {
        match self {
            Self::Here(file, _, place) => read_record(&**file, id, *place).map(Some),
            Self::Maybe(file, _, sealed) => match sealed.find(id, &**file)? {
                Some(place) => read_record(&**file, id, place).map(Some),
                None => Ok(None),
            },
        }
    }

    pub(crate) fn segment(&self) -> SegmentId {
        match self {
            Self::Here(_, segment, _) | Self::Maybe(_, segment, _) => *segment,
        }
    }
}

/// Reads an entry and checks that it is the one of `id`, whole.
pub(crate) fn read_record(file: &dyn DiskFile, id: &RecordId, place: Place) -> Result<Record, StoreError> {
    const DOING: &str = "reading a record";
    let body_len = place.body_len as usize;
    let bytes = read_exactly(file, place.offset.into(), HEAD_BYTES + body_len)
        .map_err(|error| StoreError::new(StoreErrorKind::Corrupt, DOING).because(error))?;
    let head = bytes.first_chunk().and_then(frame::read_head);
    if head != Some(Found::Entry { id: *id, len: body_len }) {
        return Err(
            StoreError::new(StoreErrorKind::Corrupt, DOING).because("the head of its entry is damaged")
        );
    }
    codec::decode(id, &Bytes::from(bytes).slice(HEAD_BYTES..))
        .map_err(|error| StoreError::undecodable(error, DOING))
}

impl SegmentId {
    /// The name of its file: the number first, so that a listing shows the order in which they were begun.
    pub(crate) fn file_name(self) -> String {
        format!("{:016x}-{}.segment", self.seq, self.class.number())
    }

    /// The segment that a file name stands for.
    pub(crate) fn parse(name: &str) -> Option<Self> {
        let (seq, class) = name.strip_suffix(".segment")?.split_once('-')?;
        let class = Class::new(class.parse().ok()?)?;
        (seq.len() == 16).then_some(Self { class, seq: u64::from_str_radix(seq, 16).ok()? })
    }
}
