//! The index of a sealed segment: a filter and a table of contents in memory, the sorted entries in a file.
//!
//! ```text
//! file   := block* head tail
//! block  := (prefix:u32 offset:u32)*  crc          up to 128 entries, sorted by prefix
//! head   := version counts times first-prefix-of-each-block in-flight-offsets filter
//! tail   := head-length:u32 crc:u32
//! ```
//!
//! The file is made from the segment and can be made again: one that cannot be read costs a scan, not a record.

use std::fmt;
use std::io;
use std::sync::Arc;

use onlyonce_core::record::StateKind;
use onlyonce_core::store::Ids;
use onlyonce_core::{RecordId, StoreError, StoreErrorKind, Timestamp};
use xorf::{BinaryFuse16, Filter};

use super::scan::places_of;
use super::{Segment, Slot};
use crate::entry::{self, Home};
use crate::io::{Disk, DiskFile, put_in_place, read_exactly, write_new};
use crate::shared::Shared;

const VERSION: u8 = 1;
const ENTRY_BYTES: usize = 8;
const ENTRIES_PER_BLOCK: usize = 128;
const TAIL_BYTES: usize = 8;

/// The index of a sealed segment.
pub(crate) struct SealedIndex {
    file: Arc<dyn DiskFile>,
    filter: Option<BinaryFuse16>,
    /// The first prefix of each block.
    contents: Box<[u32]>,
    entries: usize,
    /// Where records lie that were in flight when the segment was sealed.
    in_flight: Box<[u32]>,
    /// Where the entries of the segment end.
    end: u64,
}

/// What the index file says about its segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Facts {
    pub(crate) end: u64,
    pub(crate) expires_at: Timestamp,
    pub(crate) lost_some: bool,
    pub(crate) counts: [u32; 4],
}

impl fmt::Debug for SealedIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SealedIndex({} entries)", self.entries)
    }
}

/// The part of an id by which the index is sorted: four bytes of its hash.
pub(crate) fn prefix(id: &RecordId) -> u32 {
    id.as_bytes()[1..5].iter().fold(0, |prefix, byte| prefix << 8 | u32::from(*byte))
}

/// The part of an id by which the filter knows it: eight bytes of its hash.
fn mixed(id: &RecordId) -> u64 {
    id.as_bytes()[1..9].iter().fold(0, |mixed, byte| mixed << 8 | u64::from(*byte))
}

impl SealedIndex {
    /// Whether the segment may have an entry of `id`. Wrong once in 65 000 times, and only with "maybe".
    pub(crate) fn may_hold(&self, id: &RecordId) -> bool {
        self.filter.as_ref().map_or(self.entries > 0, |filter| filter.contains(&mixed(id)))
    }

    /// The same index with less memory: every lookup reads the disk.
    pub(crate) fn without_filter(&self) -> Option<Self> {
        self.filter.as_ref()?;
        Some(Self {
            file: Arc::clone(&self.file),
            filter: None,
            contents: self.contents.clone(),
            entries: self.entries,
            in_flight: self.in_flight.clone(),
            end: self.end,
        })
    }

    pub(crate) fn in_flight(&self) -> &[u32] {
        &self.in_flight
    }

    /// How much memory the index takes.
    pub(crate) fn memory(&self) -> usize {
        let filter = self.filter.as_ref().map_or(0, |filter| filter.fingerprints.len() * 2);
        size_of::<Self>() + filter + (self.contents.len() + self.in_flight.len()) * size_of::<u32>()
    }

    /// Where the last entry of `id` lies in its `segment`.
    pub(crate) fn find(
        &self,
        id: &RecordId,
        segment: &dyn DiskFile,
        home: Home,
    ) -> Result<Option<u32>, StoreError> {
        match self.find_by_index(id, segment, home) {
            // The index can be made again from the segment, so its damage is nobody's: the segment is read instead.
            Err(error) if error.kind() == StoreErrorKind::Corrupt => {
                tracing::warn!(seq = home.seq, "the index of a segment is damaged; reading the segment");
                match places_of(segment, home, self.end, &Ids::from_iter([*id])) {
                    Ok((places, true)) => Ok(places.last().map(|(_, offset, _)| *offset)),
                    // The last entry may be the one that cannot be read: neither absence nor an older one is believed.
                    _ => Err(error),
                }
            }
            found => found,
        }
    }

    fn find_by_index(
        &self,
        id: &RecordId,
        segment: &dyn DiskFile,
        home: Home,
    ) -> Result<Option<u32>, StoreError> {
        let wanted = prefix(id);
        // Equal prefixes may begin in the block before the first one that starts with a larger prefix, or earlier.
        let mut block = self.first_block(wanted);
        while block < self.contents.len() && self.contents[block] <= wanted {
            let entries = self.block(block)?;
            for (_, offset) in entries.iter().filter(|(prefix, _)| *prefix == wanted) {
                if is_entry_of(id, segment, home, *offset)? {
                    return Ok(Some(*offset));
                }
            }
            block += 1;
        }
        Ok(None)
    }

    /// The entries of one block.
    pub(crate) fn block(&self, number: usize) -> Result<Vec<(u32, u32)>, StoreError> {
        const DOING: &str = "reading a segment's index";
        let full = ENTRIES_PER_BLOCK * ENTRY_BYTES + 4;
        let entries = ENTRIES_PER_BLOCK.min(self.entries - number * ENTRIES_PER_BLOCK);
        let bytes = read_exactly(&*self.file, (number * full) as u64, entries * ENTRY_BYTES + 4)
            .map_err(|error| StoreError::new(StoreErrorKind::Corrupt, DOING).because(error))?;
        let (body, crc) = bytes.split_at(entries * ENTRY_BYTES);
        if crc != crc32c::crc32c(body).to_le_bytes() {
            return Err(StoreError::new(StoreErrorKind::Corrupt, DOING));
        }
        Ok(body.chunks_exact(ENTRY_BYTES).map(read_entry).collect())
    }

    /// The first block that may hold `prefix`.
    pub(crate) fn first_block(&self, prefix: u32) -> usize {
        self.contents.partition_point(|first| *first < prefix).saturating_sub(1)
    }

    pub(crate) fn blocks(&self) -> usize {
        self.contents.len()
    }

    /// Writes the index of `segment`, whose last entries are `slots`, and opens it.
    pub(crate) fn write(shared: &Shared, segment: &Segment, slots: &[(RecordId, Slot)]) -> io::Result<Self> {
        let mut entries: Vec<_> = slots.iter().map(|(id, slot)| (prefix(id), slot.offset)).collect();
        entries.sort_unstable();
        let mut ids: Vec<_> = slots.iter().map(|(id, _)| mixed(id)).collect();
        ids.sort_unstable();
        ids.dedup();
        let filter =
            if ids.is_empty() { None } else { Some(BinaryFuse16::try_from(&ids).map_err(io::Error::other)?) };
        let mut bytes = Vec::with_capacity(entries.len() * (ENTRY_BYTES + 4) + 1024);
        for block in entries.chunks(ENTRIES_PER_BLOCK) {
            let start = bytes.len();
            for (prefix, offset) in block {
                bytes.extend_from_slice(&prefix.to_le_bytes());
                bytes.extend_from_slice(&offset.to_le_bytes());
            }
            let crc = crc32c::crc32c(&bytes[start..]);
            bytes.extend_from_slice(&crc.to_le_bytes());
        }
        let contents: Box<[u32]> =
            entries.iter().step_by(ENTRIES_PER_BLOCK).map(|(prefix, _)| *prefix).collect();
        let mut in_flight: Box<[u32]> = slots
            .iter()
            .filter(|(_, slot)| slot.kind == Some(StateKind::InFlight))
            .map(|(_, slot)| slot.offset)
            .collect();
        in_flight.sort_unstable();
        let head =
            write_head(&facts_of(segment, slots), entries.len(), filter.as_ref(), &contents, &in_flight);
        bytes.extend_from_slice(&head);
        bytes.extend_from_slice(&u32::try_from(head.len()).map_err(io::Error::other)?.to_le_bytes());
        bytes.extend_from_slice(&crc32c::crc32c(&head).to_le_bytes());
        let name = segment.index_name();
        write_new(&*shared.disk, &name, &bytes)?;
        shared.in_folder(|disk| put_in_place(disk, &name))?;
        let file = shared.disk.open(&name)?;
        Ok(Self { file, filter, contents, entries: entries.len(), in_flight, end: segment.end })
    }

    /// Opens the index file `name`. `None` when it is not there or cannot be believed: scan the segment then.
    pub(crate) fn open(disk: &dyn Disk, name: &str) -> io::Result<Option<(Self, Facts)>> {
        let file = match disk.open(name) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let Some(tail_at) = file.len()?.checked_sub(TAIL_BYTES as u64) else {
            return Ok(None);
        };
        let tail = read_exactly(&*file, tail_at, TAIL_BYTES)?;
        let head_len = u32::from_le_bytes([tail[0], tail[1], tail[2], tail[3]]);
        let Some(head_at) = tail_at.checked_sub(head_len.into()) else {
            return Ok(None);
        };
        let head = read_exactly(&*file, head_at, head_len as usize)?;
        if crc32c::crc32c(&head).to_le_bytes() != tail[4..] {
            return Ok(None);
        }
        Ok(read_head(&head).map(|(facts, entries, filter, contents, in_flight)| {
            (Self { file, filter, contents, entries, in_flight, end: facts.end }, facts)
        }))
    }
}

/// Whether the entry at `offset` is one of `id`. One of which nobody can tell is taken for it: the first bits of its
/// key agree, and to take it for another's would be to take damage for absence.
fn is_entry_of(id: &RecordId, segment: &dyn DiskFile, home: Home, offset: u32) -> Result<bool, StoreError> {
    let found = entry::id_at(&segment, home, offset as usize)
        .map_err(|error| StoreError::new(StoreErrorKind::Corrupt, "reading a record").because(error))?;
    Ok(found.is_none_or(|found| found == *id))
}

fn facts_of(segment: &Segment, slots: &[(RecordId, Slot)]) -> Facts {
    let mut counts = [0; 4];
    for kind in slots.iter().filter_map(|(_, slot)| slot.kind) {
        counts[kind as usize] += 1;
    }
    Facts { end: segment.end, expires_at: segment.expires_at, lost_some: segment.lost_some, counts }
}

fn read_entry(bytes: &[u8]) -> (u32, u32) {
    let mut numbers = Numbers(bytes);
    (numbers.u32().unwrap_or_default(), numbers.u32().unwrap_or_default())
}

fn write_head(
    facts: &Facts,
    entries: usize,
    filter: Option<&BinaryFuse16>,
    contents: &[u32],
    in_flight: &[u32],
) -> Vec<u8> {
    let mut head = vec![VERSION, u8::from(facts.lost_some)];
    for number in [facts.end, facts.expires_at.as_millis(), entries as u64] {
        head.extend_from_slice(&number.to_le_bytes());
    }
    for count in facts.counts {
        head.extend_from_slice(&count.to_le_bytes());
    }
    for numbers in [contents, in_flight] {
        head.extend_from_slice(&(numbers.len() as u64).to_le_bytes());
        for number in numbers {
            head.extend_from_slice(&number.to_le_bytes());
        }
    }
    if let Some(filter) = filter {
        let shape = &filter.descriptor;
        head.extend_from_slice(&shape.seed.to_le_bytes());
        for number in [shape.segment_length, shape.segment_length_mask, shape.segment_count_length] {
            head.extend_from_slice(&number.to_le_bytes());
        }
        for fingerprint in &filter.fingerprints {
            head.extend_from_slice(&fingerprint.to_le_bytes());
        }
    }
    head
}

type Head = (Facts, usize, Option<BinaryFuse16>, Box<[u32]>, Box<[u32]>);

fn read_head(head: &[u8]) -> Option<Head> {
    let [VERSION, lost_some, rest @ ..] = head else {
        return None;
    };
    let mut numbers = Numbers(rest);
    let end = numbers.u64()?;
    let expires_at = numbers.u64()?;
    let entries = usize::try_from(numbers.u64()?).ok()?;
    let mut counts = [0; 4];
    for count in &mut counts {
        *count = numbers.u32()?;
    }
    let contents = (0..numbers.u64()?).map(|_| numbers.u32()).collect::<Option<_>>()?;
    let in_flight = (0..numbers.u64()?).map(|_| numbers.u32()).collect::<Option<_>>()?;
    let filter = if numbers.0.is_empty() { None } else { Some(read_filter(&mut numbers)?) };
    let facts =
        Facts { end, expires_at: Timestamp::from_millis(expires_at), lost_some: *lost_some != 0, counts };
    Some((facts, entries, filter, contents, in_flight))
}

fn read_filter(numbers: &mut Numbers<'_>) -> Option<BinaryFuse16> {
    // Its parts can be set but not put together: an existing filter is taken and every part of it replaced.
    let mut filter = BinaryFuse16::try_from(&[0_u64][..]).ok()?;
    filter.descriptor.seed = numbers.u64()?;
    filter.descriptor.segment_length = numbers.u32()?;
    filter.descriptor.segment_length_mask = numbers.u32()?;
    filter.descriptor.segment_count_length = numbers.u32()?;
    filter.fingerprints =
        numbers.0.chunks_exact(2).map(|pair| u16::from_le_bytes([pair[0], pair[1]])).collect();
    Some(filter)
}

struct Numbers<'b>(&'b [u8]);

impl Numbers<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (first, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*first)
    }

    fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_le_bytes)
    }

    fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_le_bytes)
    }
}
