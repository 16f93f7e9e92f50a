//! What is left of a head that cannot be read.

use super::Home;
use super::codec::{GRANT_BYTES_MAX, Head};

/// The head that one flipped bit made unreadable, if it is one bit: so that the key it names can be refused, and only
/// that key. CRC-32C tells all single flips of so few bytes apart.
pub(crate) fn repair(bytes: &[u8], home: Home, offset: usize) -> Option<Head> {
    let mut head = bytes[..bytes.len().min(GRANT_BYTES_MAX)].to_vec();
    for bit in 0..head.len() * 8 {
        head[bit / 8] ^= 1 << (bit % 8);
        if let Some(repaired) = Head::read(&head, home, offset) {
            return Some(repaired);
        }
        head[bit / 8] ^= 1 << (bit % 8);
    }
    None
}
