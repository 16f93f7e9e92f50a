//! Reads a segment from its first byte to its last, and tells damage from what a power cut left.

use std::collections::HashSet;
use std::io;

use bytes::Bytes;
use onlyonce_core::record::codec;
use onlyonce_core::{Record, RecordId};

use super::Place;
use crate::frame::{self, Found, HEAD_BYTES, MARK_BYTES};
use crate::io::{DiskFile, read_exactly};

/// What a segment file holds.
#[derive(Debug, Default)]
pub(crate) struct Scan {
    /// Every entry in the order it was written. `None` for one whose record cannot be read.
    pub(crate) entries: Vec<(RecordId, Place, Option<Record>)>,
    /// Where the readable part ends. What lies behind was never acknowledged.
    pub(crate) end: u64,
    /// Whether entries were damaged beyond knowing whose they were.
    pub(crate) lost_some: bool,
}

/// Scans the segment numbered `seq`.
pub(crate) fn scan(file: &dyn DiskFile, seq: u64) -> io::Result<Scan> {
    let len = usize::try_from(file.len()?).map_err(|_| io::ErrorKind::FileTooLarge)?;
    let bytes = Bytes::from(read_exactly(file, 0, len)?);
    let synced = last_mark(&bytes, seq);
    let mut scan = Scan::default();
    let mut at = 0;
    while at < bytes.len() {
        match frame::read(&bytes[at..], seq, at as u64) {
            Some(Found::Mark) => at += MARK_BYTES,
            Some(Found::Entry { id, len }) if at + HEAD_BYTES + len <= bytes.len() => {
                let body = bytes.slice(at + HEAD_BYTES..at + HEAD_BYTES + len);
                let record = codec::decode(&id, &body).ok();
                if record.is_none() && at >= synced {
                    break;
                }
                // An erased body says nothing: the entry that erased it is the one that counts.
                if record.is_some() || !frame::is_erased(&id, &body) {
                    scan.entries.push((id, place(at, len), record));
                }
                at += HEAD_BYTES + len;
            }
            // Past the last mark: a torn tail. It was never acknowledged.
            _ if at >= synced => break,
            _ => at = step_over_damage(&bytes, seq, at, &mut scan),
        }
    }
    scan.end = at as u64;
    Ok(scan)
}

/// Where entries of the records in `wanted` lie in the first `end` bytes of a segment.
pub(crate) fn places_of(
    file: &dyn DiskFile,
    seq: u64,
    end: u64,
    wanted: &HashSet<RecordId>,
) -> io::Result<Vec<(RecordId, Place)>> {
    let len = usize::try_from(end).map_err(|_| io::ErrorKind::FileTooLarge)?;
    let bytes = read_exactly(file, 0, len)?;
    let mut places = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        at += match frame::read(&bytes[at..], seq, at as u64) {
            Some(Found::Mark) => MARK_BYTES,
            Some(Found::Entry { id, len }) => {
                if wanted.contains(&id) && at + HEAD_BYTES + len <= bytes.len() {
                    places.push((id, place(at, len)));
                }
                HEAD_BYTES + len
            }
            None => 1,
        };
    }
    Ok(places)
}

/// Where the last mark lies. A mark is written after everything before it was synced, so that what cannot be read
/// before it was damaged later.
fn last_mark(bytes: &[u8], seq: u64) -> usize {
    (0..bytes.len().saturating_sub(MARK_BYTES - 1))
        .rev()
        .find(|at| bytes[at + 4] == 1 && frame::read_mark(&bytes[*at..], seq, *at as u64))
        .unwrap_or(0)
}

/// Goes on behind damage at `at`: refuses the key it hit if that can be known, else notes that some key was lost.
fn step_over_damage(bytes: &[u8], seq: u64, at: usize, scan: &mut Scan) -> usize {
    if let Some((id, len)) = frame::repair_head(&bytes[at..])
        && at + HEAD_BYTES + len <= bytes.len()
    {
        scan.entries.push((id, place(at, len), None));
        return at + HEAD_BYTES + len;
    }
    let is_mark = is_mark_but_for_one_bit(&bytes[at..], seq, at as u64);
    if is_mark {
        return at + MARK_BYTES;
    }
    scan.lost_some = true;
    let next = (at + 1..bytes.len()).find(|next| frame::read(&bytes[*next..], seq, *next as u64).is_some());
    next.unwrap_or(bytes.len())
}

fn is_mark_but_for_one_bit(bytes: &[u8], seq: u64, offset: u64) -> bool {
    let Some(mut mark) = bytes.first_chunk::<MARK_BYTES>().copied() else {
        return false;
    };
    (0..MARK_BYTES * 8).any(|bit| {
        mark[bit / 8] ^= 1 << (bit % 8);
        let is_mark = frame::read_mark(&mark, seq, offset);
        mark[bit / 8] ^= 1 << (bit % 8);
        is_mark
    })
}

fn place(at: usize, body_len: usize) -> Place {
    let narrow = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
    Place { offset: narrow(at), body_len: narrow(body_len) }
}
