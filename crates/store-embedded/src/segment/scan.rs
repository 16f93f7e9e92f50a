//! Reads a segment from its first byte to its last, and tells damage from what a power cut left.

use std::io;
use std::ops::Range;

use bytes::Bytes;
use onlyonce_core::store::Ids;
use onlyonce_core::{Record, RecordId};

use crate::entry::{self, Content, Found, Head, Home, MARK_BYTES};
use crate::io::{DiskFile, read_exactly};

/// What a segment file holds.
#[derive(Debug, Default)]
pub(crate) struct Scan {
    /// Every entry in the order it was written, and its offset.
    pub(crate) entries: Vec<(RecordId, u32, Said)>,
    /// Where the readable part ends. What lies behind was never acknowledged.
    pub(crate) end: u64,
    /// Whether there is something behind it, and not only what was filled ahead.
    pub(crate) torn: bool,
    /// Whether entries were damaged beyond knowing whose they were.
    pub(crate) lost_some: bool,
}

/// What an entry says of its record.
#[derive(Debug)]
pub(crate) enum Said {
    Record(Box<Record>),
    /// Nothing: the entry that erased it is the one that counts. Should that one be missing, the key is refused.
    Erased,
    /// It cannot be read.
    Damaged,
}

/// Scans a segment.
pub(crate) fn scan(file: &dyn DiskFile, home: Home) -> io::Result<Scan> {
    let bytes = read_all(file, file.len()?)?;
    let synced = last_mark(&bytes, home);
    let mut scan = Scan::default();
    let mut at = 0;
    while at < bytes.len() {
        match entry::read(&bytes, home, at)? {
            Found::Mark => at += MARK_BYTES,
            Found::Entry(entry) => {
                let said = match entry.content {
                    Content::Record(record) => Said::Record(record),
                    Content::Erased => Said::Erased,
                    Content::Damaged(_) if at >= synced => break,
                    Content::Damaged(_) => Said::Damaged,
                };
                scan.entries.push((entry.id, narrow(at), said));
                at += entry.bytes;
            }
            Found::Orphan { bytes } if at < synced => {
                scan.lost_some = true;
                at += bytes;
            }
            // Past the last mark: a torn tail. It was never acknowledged.
            Found::Orphan { .. } | Found::Unreadable if at >= synced => break,
            Found::Orphan { .. } | Found::Unreadable => at = step_over_damage(&bytes, home, at, &mut scan)?,
        }
    }
    // A completion of which nothing else is known may claim to be longer than what is left.
    let end = at.min(bytes.len());
    scan.end = end as u64;
    scan.torn = bytes[end..].iter().any(|byte| *byte != 0);
    Ok(scan)
}

/// An entry in a segment, and its body if it has one.
pub(crate) type Extent = (RecordId, u32, Option<Range<usize>>);

/// Where entries of the records in `wanted` lie in the first `end` bytes of a segment, and whether all of it could be
/// read.
pub(crate) fn places_of(
    file: &dyn DiskFile,
    home: Home,
    end: u64,
    wanted: &Ids,
) -> io::Result<(Vec<Extent>, bool)> {
    let bytes = read_all(file, end)?;
    let (mut places, mut whole) = (Vec::new(), true);
    let mut at = 0;
    while at < bytes.len() {
        at += match entry::read(&bytes, home, at)? {
            Found::Mark => MARK_BYTES,
            Found::Entry(entry) => {
                if wanted.contains(&entry.id) {
                    places.push((entry.id, narrow(at), entry.body));
                }
                entry.bytes
            }
            Found::Orphan { bytes } => {
                whole = false;
                bytes
            }
            Found::Unreadable => {
                whole = false;
                1
            }
        };
    }
    Ok((places, whole))
}

fn read_all(file: &dyn DiskFile, len: u64) -> io::Result<Bytes> {
    let len = usize::try_from(len).map_err(|_| io::ErrorKind::FileTooLarge)?;
    read_exactly(file, 0, len).map(Bytes::from)
}

/// Where the last mark lies. A mark is written after everything before it was synced, so that what cannot be read
/// before it was damaged later.
fn last_mark(bytes: &[u8], home: Home) -> usize {
    let found = (0..bytes.len()).rev().find(|at| {
        entry::may_be_mark(bytes[*at]) && Head::read(&bytes[*at..], home, *at) == Some(Head::Mark)
    });
    found.unwrap_or(0)
}

/// Goes on behind damage at `at`: refuses the key it hit if that can be known, else notes that some key was lost.
fn step_over_damage(bytes: &Bytes, home: Home, at: usize, scan: &mut Scan) -> io::Result<usize> {
    if let Some(head) = entry::repair(&bytes[at..], home, at) {
        let end = at + head.head_bytes() + head.body_bytes();
        if head == Head::Mark {
            return Ok(end);
        }
        if let Some(id) = entry::id_at(bytes, home, at)?.filter(|_| end <= bytes.len()) {
            scan.entries.push((id, narrow(at), Said::Damaged));
            return Ok(end);
        }
    }
    scan.lost_some = true;
    let next = (at + 1..bytes.len()).find(|next| Head::read(&bytes[*next..], home, *next).is_some());
    Ok(next.unwrap_or(bytes.len()))
}

fn narrow(at: usize) -> u32 {
    u32::try_from(at).unwrap_or(u32::MAX)
}
