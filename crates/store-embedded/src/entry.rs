//! Entries: what a segment is made of. Most operations are one grant and one completion, so these two have short forms.
//!
//! | entry | what it is |
//! |---|---|
//! | mark | proof that all before it was synced |
//! | grant | a first grant, without a body: whole and checked as one |
//! | finish | the completion of an entry of the same segment, to which it refers |
//! | whole | any other record, by the codec of `onlyonce-core` |
//!
//! `codec` knows their bytes, `damage` what is left of one that cannot be read.

mod codec;
mod damage;
mod erased;

use std::io;
use std::ops::Range;

use bytes::Bytes;
use onlyonce_core::{Record, RecordId, StateKind, StoreError, StoreErrorKind, Timestamp};

use crate::io::DiskFile;

pub(crate) use codec::{Head, MARK_BYTES, RECORD_BYTES_MAX, may_be_mark, put_mark};
pub(crate) use damage::repair;
pub(crate) use erased::erased_body;

/// What the entries of a segment are written relative to. It is in the segment's name, which no entry can damage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Home {
    /// The number of the segment.
    pub(crate) seq: u64,
    pub(crate) started_at: Timestamp,
}

/// The bytes of a segment: in memory while it is scanned, on disk otherwise.
pub(crate) trait Source {
    /// Up to `len` bytes from `offset`; less only at the end.
    fn at(&self, offset: usize, len: usize) -> io::Result<Bytes>;
}

impl Source for Bytes {
    fn at(&self, offset: usize, len: usize) -> io::Result<Bytes> {
        let start = offset.min(self.len());
        Ok(self.slice(start..start + len.min(self.len() - start)))
    }
}

impl Source for &dyn DiskFile {
    fn at(&self, offset: usize, len: usize) -> io::Result<Bytes> {
        let mut bytes = vec![0; len];
        let read = self.read_at(offset as u64, &mut bytes)?;
        bytes.truncate(read);
        Ok(bytes.into())
    }
}

/// What lies at a position.
#[derive(Debug)]
pub(crate) enum Found {
    Mark,
    Entry(Entry),
    /// The completion of an entry that is damaged beyond knowing whose it was.
    Orphan {
        bytes: usize,
    },
    /// Nothing whose head can be believed.
    Unreadable,
}

#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) id: RecordId,
    /// How long it is, head and body.
    pub(crate) bytes: usize,
    /// Where its body lies in the segment, if it has one.
    pub(crate) body: Option<Range<usize>>,
    pub(crate) content: Content,
}

/// What an entry says of its record.
#[derive(Debug)]
pub(crate) enum Content {
    Record(Box<Record>),
    /// Nothing any more: a later entry took its place, and the body was overwritten on request.
    Erased,
    /// It cannot be read.
    Damaged(Box<StoreError>),
}

/// How much is read at first: enough for most entries as a whole.
const FIRST_READ: usize = 512;

/// What lies at `offset`.
pub(crate) fn read(source: &impl Source, home: Home, offset: usize) -> io::Result<Found> {
    let first = source.at(offset, FIRST_READ)?;
    let Some(head) = Head::read(&first, home, offset) else {
        return Ok(Found::Unreadable);
    };
    let (head_len, body_len) = (head.head_bytes(), head.body_bytes());
    let bytes = head_len + body_len;
    let start = offset + head_len;
    let (id, base) = match head {
        Head::Mark => return Ok(Found::Mark),
        Head::Grant { id, record, .. } => {
            return Ok(Found::Entry(Entry { id, bytes, body: None, content: Content::Record(record) }));
        }
        Head::Whole { id, .. } => (id, None),
        Head::Finish { base, .. } => match read_base(source, home, base, offset)? {
            Some((id, base)) => (id, Some(base)),
            None => return Ok(Found::Orphan { bytes }),
        },
    };
    let body =
        if bytes <= first.len() { first.slice(head_len..bytes) } else { source.at(start, body_len)? };
    if body.len() < body_len {
        return Ok(Found::Unreadable);
    }
    let content = if erased::is_erased(&id, &body) {
        Content::Erased
    } else {
        let decoded = match base {
            None => codec::decode_whole(&id, &body),
            Some(base) => base.and_then(|base| codec::decode_finish(&id, &base, &body)),
        };
        decoded.map_or_else(
            |error| Content::Damaged(Box::new(error)),
            |record| Content::Record(Box::new(record)),
        )
    };
    Ok(Found::Entry(Entry { id, bytes, body: Some(start..start + body_len), content }))
}

/// Whose entry lies at `offset`, read or guessed from its head. `None` when that cannot be known.
pub(crate) fn id_at(source: &impl Source, home: Home, offset: usize) -> io::Result<Option<RecordId>> {
    let head = match head_at(source, home, offset)? {
        Some(Head::Finish { base, .. }) if base < offset => head_at(source, home, base)?,
        head => head,
    };
    Ok(match head {
        Some(Head::Whole { id, .. } | Head::Grant { id, .. }) => Some(id),
        _ => None,
    })
}

/// The head at `offset`, read or guessed.
fn head_at(source: &impl Source, home: Home, offset: usize) -> io::Result<Option<Head>> {
    let first = source.at(offset, FIRST_READ)?;
    Ok(Head::read(&first, home, offset).or_else(|| repair(&first, home, offset)))
}

type Base = (RecordId, Result<Record, StoreError>);

/// The entry that a completion refers to: whose it is, and what it says if it can be read.
fn read_base(source: &impl Source, home: Home, base: usize, finish: usize) -> io::Result<Option<Base>> {
    if base >= finish {
        return Ok(None);
    }
    let first = source.at(base, FIRST_READ)?;
    match Head::read(&first, home, base) {
        Some(Head::Grant { id, record, .. }) => Ok(Some((id, Ok(*record)))),
        Some(head @ Head::Whole { id, .. }) => {
            let body = source.at(base + head.head_bytes(), head.body_bytes())?;
            Ok(Some((id, codec::decode_whole(&id, &body))))
        }
        Some(_) => Ok(None),
        None => {
            Ok(id_at(source, home, base)?.map(|id| (id, Err(damaged("the head of its grant is damaged")))))
        }
    }
}

/// The record of `id` whose entry lies at `offset`, whole.
pub(crate) fn read_record(
    file: &dyn DiskFile,
    home: Home,
    id: &RecordId,
    offset: u32,
) -> Result<Record, StoreError> {
    match read(&file, home, offset as usize).map_err(damaged)? {
        Found::Entry(entry) if entry.id == *id => match entry.content {
            Content::Record(record) => Ok(*record),
            Content::Erased => Err(damaged("its body was erased and no later entry is left")),
            Content::Damaged(error) => Err(*error),
        },
        _ => Err(damaged("the head of its entry is damaged")),
    }
}

fn damaged(why: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> StoreError {
    StoreError::new(StoreErrorKind::Corrupt, "reading a record").because(why)
}

/// Appends the entry of `record` for a segment. `base` is the last entry of the record in the same segment, if there is
/// one, and what it says.
pub(crate) fn put(
    into: &mut Vec<u8>,
    home: Home,
    id: &RecordId,
    record: &Record,
    base: Option<(u32, &Record)>,
) {
    // Never on top of another completion: a chain would have to be followed, and kept readable, to its end.
    let open = base.filter(|(_, base)| matches!(base.kind(), StateKind::InFlight | StateKind::Unknown));
    if let Some((base_offset, base)) = open
        && codec::put_finish(into, id, record, base_offset, base)
    {
        return;
    }
    if !codec::put_grant(into, home, id, record) {
        codec::put_whole(into, id, record);
    }
}

#[cfg(test)]
mod tests;
