//! What the body of an erased entry is overwritten with.

use onlyonce_core::RecordId;

/// What it begins with.
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
pub(super) fn is_erased(id: &RecordId, body: &[u8]) -> bool {
    body.len() > ERASED.len() && body.starts_with(ERASED) && body == erased_body(id, body.len())
}
