//! The house's own records: what *onlyonce* keeps in a store for its own work, such as who sweeps.
//!
//! They are ordinary records under ids that no caller's key can have: the first byte of a caller's id is the version of
//! its derivation, which is never zero. Listings leave them out, and no quota counts them.

use crate::record::StateKind;
use crate::scope::RecordId;
use crate::store::{Stats, Store, StoreError};

/// The first byte of the house's own ids.
const FIRST: u8 = 0;

/// Who sweeps.
pub const SWEEP: RecordId = id("onlyonce/sweep");

/// Who sweeps while that record cannot be read.
pub const SWEEP_SPARE: RecordId = id("onlyonce/sweep-spare");

/// Which keys the records are encrypted with.
pub const ENCRYPTION: RecordId = id("onlyonce/encryption");

/// All of them.
const ALL: [RecordId; 3] = [SWEEP, SWEEP_SPARE, ENCRYPTION];

/// The id of the house's own record `name`, of at most 31 bytes: the name itself, so that whoever meets it in a store can
/// read what it is.
const fn id(name: &str) -> RecordId {
    assert!(name.len() < 32, "the name must fit into the id");
    let mut bytes = [0; 32];
    bytes[0] = FIRST;
    let mut at = 0;
    while at < name.len() {
        bytes[at + 1] = name.as_bytes()[at];
        at += 1;
    }
    RecordId::from_bytes(bytes)
}

/// Whether `id` is one of the house's own.
pub const fn is_ours(id: &RecordId) -> bool {
    id.as_bytes()[0] == FIRST
}

/// Whether `id` is one of those that this version keeps. Only they may be put where there is no room for others: whatever
/// else has such an id came from outside.
pub fn is_kept(id: &RecordId) -> bool {
    ALL.contains(id)
}

/// What the house's own record `id` is for; `None` for a caller's.
pub fn name(id: &RecordId) -> Option<&str> {
    let name = id.as_bytes().strip_prefix(&[FIRST])?;
    let end = name.iter().position(|byte| *byte == 0).unwrap_or(name.len());
    std::str::from_utf8(&name[..end]).ok().filter(|name| !name.is_empty())
}

/// How much callers have stored: the house's own records are not counted. Their bytes, a few hundred, are.
pub async fn count_callers(store: &dyn Store) -> Result<Stats, StoreError> {
    let mut stats = store.stats().await?;
    for id in &ALL {
        // One more than there are is better than no count at all: such a record may be damaged, and nobody's.
        if let Ok(Some(record)) = store.lookup(id).await {
            stats = less(stats, record.kind());
        }
    }
    Ok(stats)
}

/// One record of `kind` less. What has lapsed reads as unknown, and is counted as in flight until it is swept.
fn less(mut stats: Stats, kind: StateKind) -> Stats {
    let counts = match kind {
        StateKind::InFlight => [&mut stats.in_flight, &mut stats.unknown],
        StateKind::Unknown => [&mut stats.unknown, &mut stats.in_flight],
        StateKind::Completed => [&mut stats.completed, &mut stats.in_flight],
        StateKind::Released => [&mut stats.released, &mut stats.in_flight],
    };
    if let Some(count) = counts.into_iter().find(|count| **count > 0) {
        *count -= 1;
    }
    stats
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Key, Principal, Scope, Secret};

    #[test]
    fn no_key_of_a_caller_has_an_id_of_the_house() {
        assert!(is_ours(&SWEEP) && name(&SWEEP) == Some("onlyonce/sweep"));
        assert!(is_ours(&SWEEP_SPARE) && is_kept(&SWEEP_SPARE) && !is_kept(&RecordId::from_bytes([0; 32])));
        for namespace in ["", "onlyonce", "onlyonce/sweep"] {
            for principal in [Principal::Shared, Principal::Anonymous, Principal::named("onlyonce/sweep")] {
                let key = Scope::new(namespace, principal).key(Key::new("onlyonce/sweep").unwrap());
                let id = key.record_id(&Secret::new([7; 32]));
                assert!(!is_ours(&id) && name(&id).is_none(), "{key:?}");
            }
        }
        assert_eq!(name(&RecordId::from_bytes([0; 32])), None);
    }

    #[test]
    fn a_record_is_taken_from_where_it_is_counted() {
        let stats = Stats { in_flight: 1, completed: 5, ..Stats::default() };
        assert_eq!(less(stats, StateKind::InFlight), Stats { completed: 5, ..Stats::default() });
        assert_eq!(less(stats, StateKind::Unknown).in_flight, 0, "lapsed, and not swept yet");
        assert_eq!(less(Stats::default(), StateKind::Released), Stats::default());
    }
}
