//! How entries lie in a segment: each with a checked head that names its record, in groups that were written and
//! synced together. Knows no record.
//!
//! ```text
//! segment  := group*
//! group    := mark entry*          one write, one sync
//! mark     := crc  0x01  offset:u64  base:u64          the mark's own position proves all before it was synced
//! entry    := crc  0x02  len:u32  id:32  body:len       crc covers kind, len and id; the body has its own checksum
//! ```
//!
//! A mark is written only after the group before it was synced. So bytes that cannot be read *before* the last mark
//! were damaged after the fact; *after* it they may be what a power cut left, and were never acknowledged.

use onlyonce_core::RecordId;

const MARK: u8 = 1;
const ENTRY: u8 = 2;

/// The bytes of a mark.
pub(crate) const MARK_BYTES: usize = 4 + 1 + 8 + 8;
/// The bytes of an entry before its body.
pub(crate) const HEAD_BYTES: usize = 4 + 1 + 4 + 32;
/// The longest body: an outcome of 64 MiB and its record. A longer length is damage.
pub(crate) const BODY_BYTES_MAX: usize = (64 << 20) + (1 << 20);

/// What is found at a position.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Found {
    Mark,
    Entry { id: RecordId, len: usize },
}

/// Appends a mark that will lie at `offset` of the segment numbered `segment`.
pub(crate) fn put_mark(into: &mut Vec<u8>, segment: u64, offset: u64) {
    let mut mark = [0; MARK_BYTES];
    mark[4] = MARK;
    mark[5..13].copy_from_slice(&offset.to_le_bytes());
    mark[13..].copy_from_slice(&segment.to_le_bytes());
    let crc = crc32c::crc32c(&mark[4..]);
    mark[..4].copy_from_slice(&crc.to_le_bytes());
    into.extend_from_slice(&mark);
}

/// Appends an entry.
pub(crate) fn put_entry(into: &mut Vec<u8>, id: &RecordId, body: &[u8]) {
    let len = u32::try_from(body.len()).expect("bodies are bounded far below 4 GiB");
    let mut head = [0; HEAD_BYTES];
    head[4] = ENTRY;
    head[5..9].copy_from_slice(&len.to_le_bytes());
    head[9..].copy_from_slice(id.as_bytes());
    let crc = crc32c::crc32c(&head[4..]);
    head[..4].copy_from_slice(&crc.to_le_bytes());
    into.extend_from_slice(&head);
    into.extend_from_slice(body);
}

/// What lies at `offset` of the segment numbered `segment`, if its head can be believed. `bytes` start there.
pub(crate) fn read(bytes: &[u8], segment: u64, offset: u64) -> Option<Found> {
    match *bytes.get(4)? {
        MARK => read_mark(bytes, segment, offset).then_some(Found::Mark),
        ENTRY => read_head(bytes.first_chunk()?),
        _ => None,
    }
}

/// Whether `bytes` begin with the mark of this very position: one that was copied from elsewhere proves nothing.
pub(crate) fn read_mark(bytes: &[u8], segment: u64, offset: u64) -> bool {
    let Some(mark) = bytes.first_chunk::<MARK_BYTES>() else {
        return false;
    };
    mark[4] == MARK
        && mark[5..13] == offset.to_le_bytes()
        && mark[13..] == segment.to_le_bytes()
        && mark[..4] == crc32c::crc32c(&mark[4..]).to_le_bytes()
}

/// The head of an entry, if its checksum holds.
pub(crate) fn read_head(head: &[u8; HEAD_BYTES]) -> Option<Found> {
    if head[4] != ENTRY || head[..4] != crc32c::crc32c(&head[4..]).to_le_bytes() {
        return None;
    }
    let len = u32::from_le_bytes([head[5], head[6], head[7], head[8]]) as usize;
    let mut id = [0; 32];
    id.copy_from_slice(&head[9..]);
    (len <= BODY_BYTES_MAX).then(|| Found::Entry { id: RecordId::from_bytes(id), len })
}

/// The head that one flipped bit made unreadable, if it is one bit: so that the key it names can be refused, and only
/// that key. CRC-32C tells all single flips of so few bytes apart.
pub(crate) fn repair_head(bytes: &[u8]) -> Option<(RecordId, usize)> {
    let mut head: [u8; HEAD_BYTES] = *bytes.first_chunk()?;
    for bit in 0..HEAD_BYTES * 8 {
        head[bit / 8] ^= 1 << (bit % 8);
        if let Some(Found::Entry { id, len }) = read_head(&head) {
            return Some((id, len));
        }
        head[bit / 8] ^= 1 << (bit % 8);
    }
    None
}

/// What an erased body begins with.
const ERASED: &[u8; 8] = b"\0erased\0";

/// What an erased body of `len` bytes is overwritten with. It names its record, so that no damage looks like it.
pub(crate) fn erased_body(id: &RecordId, len: usize) -> Vec<u8> {
    let mut body = vec![0; len.max(ERASED.len() + 4)];
    body[..ERASED.len()].copy_from_slice(ERASED);
    let crc = crc32c::crc32c_append(crc32c::crc32c(ERASED), id.as_bytes());
    body[ERASED.len()..ERASED.len() + 4].copy_from_slice(&crc.to_le_bytes());
    body.truncate(len);
    body
}

/// Whether a body was overwritten on request.
pub(crate) fn is_erased(id: &RecordId, body: &[u8]) -> bool {
    body.starts_with(ERASED) && body == erased_body(id, body.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: RecordId = RecordId::from_bytes([7; 32]);

    #[test]
    fn what_was_put_is_found() {
        let mut bytes = Vec::new();
        put_mark(&mut bytes, 3, 100);
        put_entry(&mut bytes, &ID, b"body");
        assert_eq!(read(&bytes, 3, 100), Some(Found::Mark));
        assert_eq!(read(&bytes[MARK_BYTES..], 3, 121), Some(Found::Entry { id: ID, len: 4 }));
    }

    #[test]
    fn a_mark_counts_only_where_it_was_written() {
        let mut bytes = Vec::new();
        put_mark(&mut bytes, 3, 100);
        assert_eq!(read(&bytes, 3, 101), None);
        assert_eq!(read(&bytes, 4, 100), None);
        assert_eq!(read(&bytes[..MARK_BYTES - 1], 3, 100), None);
    }

    #[test]
    fn every_flipped_bit_of_a_head_is_noticed_and_repaired() {
        let mut bytes = Vec::new();
        put_entry(&mut bytes, &ID, b"body");
        for bit in 0..HEAD_BYTES * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(read(&flipped, 0, 0), None, "bit {bit}");
            assert_eq!(repair_head(&flipped), Some((ID, 4)), "bit {bit}");
        }
        assert_eq!(repair_head(&[0; 64]), None);
    }
}
