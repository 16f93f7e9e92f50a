//! Operations over all records: listing, counting, sweeping. Each master's keys are scanned in small steps.
//!
//! There is no index: an index would cost every claim and every completion a write, and in a cluster it would have to
//! live in the record's own slot. Expired records go by themselves, with their keys; the sweeper has to find only what
//! has lapsed or stayed unknown too long, and may take its time, because every command reads those rightly anyway.

mod list;
mod look;
mod stats;
mod sweep;

use std::sync::Arc;

use onlyonce_core::record::Record;
use onlyonce_core::{RecordId, StoreError, Timestamp};
use redis::{Value, cmd};

use crate::error;
use crate::node::Node;
use crate::store::RedisStore;

pub(crate) use sweep::Sweeper;

/// About how many keys one step looks at: a fraction of a millisecond of the server's time.
const STEP_KEYS: usize = 500;
/// How many records are asked about together: a server answers them in one go, and others wait for so long.
const TOGETHER: usize = 50;
/// The same where a script looks into each.
const OPENED_TOGETHER: usize = 3;
const DOING: &str = "scanning the records";

/// One step through a server's keys.
struct Step {
    /// Where the next step begins; 0 when all were seen.
    next: u64,
    /// How many keys were seen, ours and others'.
    keys: usize,
    ids: Vec<RecordId>,
}

/// The head of a record, when it was read, and how many bytes the whole takes.
struct Peeked {
    now: Timestamp,
    record: Record,
    bytes: u64,
}

impl RedisStore {
    async fn step(&self, node: &Arc<Node>, cursor: u64) -> Result<Step, StoreError> {
        self.step_of(node, cursor, STEP_KEYS).await
    }

    /// A step that looks at about `keys` keys.
    async fn step_of(&self, node: &Arc<Node>, cursor: u64, keys: usize) -> Result<Step, StoreError> {
        let mut scan = cmd("SCAN");
        scan.arg(cursor).arg("COUNT").arg(keys);
        let Value::Array(mut parts) = node.call(&scan, DOING).await? else {
            return Err(error::unreachable("SCAN was refused", DOING));
        };
        match (parts.pop(), parts.pop()) {
            (Some(Value::Array(keys)), Some(Value::BulkString(next))) => {
                let next = String::from_utf8_lossy(&next).parse();
                let ids = keys.iter().filter_map(|key| match key {
                    Value::BulkString(key) => self.shared.id_of(key),
                    _ => None,
                });
                let ids = ids.collect();
                let next = next.map_err(|_| error::unreachable("SCAN gave no cursor", DOING))?;
                Ok(Step { next, keys: keys.len(), ids })
            }
            _ => Err(error::unreachable("SCAN gave an answer of an unknown form", DOING)),
        }
    }
}
