//! Operations over all records: listing, counting, sweeping. Each master's keys are scanned in small steps.
//!
//! There is no index: an index would cost every claim and every completion a write, and in a cluster it would have to
//! live in the record's own slot. Expired records go by themselves, with their keys; the sweeper has to find only what
//! has lapsed or stayed unknown too long, and may take its time, because every command reads those rightly anyway.

mod list;
mod stats;
mod sweep;

use std::sync::Arc;

use bytes::Bytes;
use onlyonce_core::record::Record;
use onlyonce_core::{RecordId, StoreError, Timestamp};
use redis::{Value, cmd};

use crate::asked::Told;
use crate::codec;
use crate::error;
use crate::node::Node;
use crate::scripts::Script;
use crate::store::RedisStore;

pub(crate) use sweep::Sweeper;

/// About how many keys one step looks at: a fraction of a millisecond of the server's time.
const STEP_KEYS: usize = 500;
/// How many records are asked about together: a server answers them in one go, and others wait for so long.
const TOGETHER: usize = 50;
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

    /// The heads of records that are still there, or why one cannot be read: that is told, and left to whoever looks at it.
    async fn peek(
        &self,
        ids: &[RecordId],
    ) -> Result<Vec<(RecordId, Result<Peeked, StoreError>)>, StoreError> {
        let mut peeked = Vec::with_capacity(ids.len());
        for ids in ids.chunks(TOGETHER) {
            let calls: Vec<_> = ids.iter().map(|id| self.read_call(Script::Lookup, id, &["head"])).collect();
            for (id, value) in ids.iter().zip(self.masters.run_packed(&calls, DOING).await) {
                let value = value?;
                if value == Value::Nil {
                    continue;
                }
                let head = read_peeked(value);
                if let Err(failure) = &head {
                    tracing::error!(id = id.short(), error = %failure, "a record cannot be read");
                }
                peeked.push((*id, head));
            }
        }
        Ok(peeked)
    }
}

fn read_peeked(value: Value) -> Result<Peeked, StoreError> {
    let (now, mut told) = Told::new(value, DOING)?;
    let head: Bytes = told.bytes()?;
    let (record, _) = codec::decode_head(&head).map_err(|error| StoreError::undecodable(error, DOING))?;
    let now = Timestamp::from_millis(u64::try_from(now).unwrap_or_default());
    Ok(Peeked { now, record, bytes: told.number()? })
}
