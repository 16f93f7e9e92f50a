//! How much is stored: counted when there is little, estimated from a sample when there is much.

use std::time::Duration;

use onlyonce_core::StoreError;
use onlyonce_core::record::StateKind;
use onlyonce_core::store::Stats;
use redis::{Value, cmd};

use super::{DOING, Peeked};
use crate::error;
use crate::store::RedisStore;

/// How many keys of each server are looked at. Keys are scanned in the order of their hashes, so the first ones are as
/// good a sample as any.
const SAMPLE_KEYS: usize = 50_000;

/// What was found on one server.
#[derive(Default)]
struct Found {
    by_state: [u64; StateKind::ALL.len()],
    unreadable: u64,
    bytes: u64,
    oldest_expired: Option<Duration>,
}

impl Found {
    fn add(&mut self, head: &Peeked) {
        self.by_state[head.record.kind() as usize] += 1;
        self.bytes += head.bytes;
        let expired = head.record.expires_at().filter(|at| *at <= head.now).map(|at| at.until(head.now));
        self.oldest_expired = self.oldest_expired.max(expired);
    }
}

impl RedisStore {
    pub(crate) async fn count_records(&self) -> Result<Stats, StoreError> {
        let mut stats = Stats::default();
        for node in self.masters.all() {
            let (mut found, mut cursor, mut keys) = (Found::default(), 0, 0);
            loop {
                let step = self.step(&node, cursor).await?;
                for (_, head) in self.peek(&step.ids).await? {
                    match head {
                        Ok(head) => found.add(&head),
                        Err(_) => found.unreadable += 1,
                    }
                }
                (cursor, keys) = (step.next, keys + step.keys);
                if cursor == 0 || keys >= SAMPLE_KEYS {
                    break;
                }
            }
            let all = if cursor == 0 { keys as u64 } else { self.keys_of(&node).await? };
            let whole = |count: u64| scaled(count, keys as u64, all);
            stats.in_flight += whole(found.by_state[StateKind::InFlight as usize]);
            stats.completed += whole(found.by_state[StateKind::Completed as usize]);
            stats.released += whole(found.by_state[StateKind::Released as usize]);
            stats.unknown += whole(found.by_state[StateKind::Unknown as usize]);
            stats.unreadable += whole(found.unreadable);
            stats.bytes += whole(found.bytes);
            stats.oldest_expired = stats.oldest_expired.max(found.oldest_expired);
        }
        Ok(stats)
    }

    async fn keys_of(&self, node: &crate::node::Node) -> Result<u64, StoreError> {
        match node.call(&cmd("DBSIZE"), DOING).await? {
            Value::Int(keys) => Ok(u64::try_from(keys).unwrap_or_default()),
            other => Err(error::unexpected(&other, DOING)),
        }
    }
}

/// `count` of `seen`, as it would be of `all`.
fn scaled(count: u64, seen: u64, all: u64) -> u64 {
    if seen == 0 || seen >= all {
        return count;
    }
    u64::try_from(u128::from(count) * u128::from(all) / u128::from(seen)).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_is_scaled_and_a_whole_is_not() {
        assert_eq!(scaled(10, 100, 100), 10);
        assert_eq!(scaled(10, 100, 1000), 100);
        assert_eq!(scaled(0, 0, 1000), 0);
        assert_eq!(scaled(u64::MAX, 1, 2), u64::MAX);
    }
}
