//! Makes keys from chance: UUIDs of version 4 and 7. Never reads a clock; never falls back to weaker chance.
//!
//! A random key protects only if the caller writes it down *before* the first attempt and sends the same one on
//! every retry. A key made anew inside the retry loop protects nothing.

use uuid::Builder;

use super::{DeriveError, Key};
use crate::clock::Timestamp;
use crate::error::RandomError;

/// The largest time a version 7 UUID can carry: 48 bits of milliseconds.
const V7_MILLIS_MAX: u64 = (1 << 48) - 1;

/// A key that says nothing but itself: 122 random bits.
pub fn random_v4() -> Result<Key, DeriveError> {
    Ok(key_of(Builder::from_random_bytes(random_bytes()?)))
}

/// A key that sorts by the time it was made, and lets a server tell that it is older than what it still remembers:
/// 48 bits of `now`, 74 random bits. Two keys of the same millisecond are in no particular order.
pub fn random_v7(now: Timestamp) -> Result<Key, DeriveError> {
    if now.as_millis() > V7_MILLIS_MAX {
        return Err(DeriveError::TooLate);
    }
    Ok(key_of(Builder::from_unix_timestamp_millis(now.as_millis(), &random_bytes()?)))
}

fn random_bytes<const N: usize>() -> Result<[u8; N], DeriveError> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(|source| DeriveError::Random(RandomError::new(source)))?;
    Ok(bytes)
}

fn key_of(builder: Builder) -> Key {
    let mut buffer = uuid::Uuid::encode_buffer();
    Key::new(builder.into_uuid().hyphenated().encode_lower(&mut buffer)).expect("a UUID is a key")
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use uuid::{Uuid, Variant};

    use super::*;

    #[test]
    fn keys_carry_their_version_and_never_repeat() {
        let now = Timestamp::from_millis(1_794_715_740_123);
        let mut seen = HashSet::new();
        for _ in 0..1000 {
            for (key, version) in [(random_v4().unwrap(), 4), (random_v7(now).unwrap(), 7)] {
                let uuid = Uuid::parse_str(key.as_str()).unwrap();
                assert_eq!((uuid.get_version_num(), uuid.get_variant()), (version, Variant::RFC4122));
                assert!(seen.insert(key));
            }
        }
    }

    #[test]
    fn version_7_keys_carry_the_time_they_were_given() {
        let key = random_v7(Timestamp::from_millis(0x0123_4567_89ab)).unwrap();
        assert!(key.as_str().starts_with("01234567-89ab-7"), "{}", key.as_str());
        assert!(random_v7(Timestamp::from_millis(V7_MILLIS_MAX)).is_ok());
        assert!(matches!(random_v7(Timestamp::from_millis(V7_MILLIS_MAX + 1)), Err(DeriveError::TooLate)));
    }
}
