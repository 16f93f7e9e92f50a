//! fjall: each group is one batch, synced with `fdatasync`.

use std::path::Path;

use bytes::Bytes;
use fjall::{Database, Keyspace, KeyspaceCreateOptions, OwnedWriteBatch, PersistMode};

use super::grouped::{Ledger, Op};
use super::value::{COMPLETED_BYTES, InFlight, claimed_value, completed_value, outcome_in};
use crate::Result;
use crate::pair::{Key, Pair};

/// As much as redb takes by default, and 32 times what fjall does.
const BLOCKS_BYTES_MAX: u64 = 1 << 30;

pub(super) struct Fjall {
    database: Database,
    records: Keyspace,
    in_flight: InFlight,
}

impl Fjall {
    pub(super) fn open(folder: &Path) -> Result<Self> {
        let database =
            Database::builder(folder).cache_size(BLOCKS_BYTES_MAX).manual_journal_persist(true).open()?;
        let records = database.keyspace("records", KeyspaceCreateOptions::default)?;
        Ok(Self { database, records, in_flight: InFlight::default() })
    }

    fn put(&self, batch: &mut OwnedWriteBatch, key: &Key, value: &[u8]) {
        batch.insert(&self.records, key.as_slice(), value);
    }
}

impl Ledger for Fjall {
    fn commit(&mut self, group: &[(Op, Pair)]) -> Result<Vec<bool>> {
        let mut batch = self.database.batch().durability(Some(PersistMode::SyncData));
        let mut answers = Vec::with_capacity(group.len());
        for (op, pair) in group {
            let accepted = match op {
                Op::Claim => {
                    let records = &self.records;
                    self.in_flight.claim(pair, || Ok(records.contains_key(pair.key)?))?
                }
                Op::Complete => self.in_flight.complete(pair),
            };
            match op {
                _ if !accepted => {}
                Op::Claim => self.put(&mut batch, &pair.key, &claimed_value(pair)),
                Op::Complete => self.put(&mut batch, &pair.key, &completed_value(pair)),
            }
            answers.push(accepted);
        }
        batch.commit()?;
        self.in_flight.committed();
        Ok(answers)
    }

    fn load(&mut self, pairs: &[Pair]) -> Result<()> {
        let mut batch = self.database.batch().durability(Some(PersistMode::Buffer));
        for pair in pairs {
            self.put(&mut batch, &pair.key, &completed_value(pair));
        }
        Ok(batch.commit()?)
    }

    fn count(&self) -> Result<u64> {
        let mut completed = 0;
        for record in self.records.iter() {
            completed += u64::from(record.size()? as usize == COMPLETED_BYTES);
        }
        Ok(completed)
    }

    fn outcome(&self, key: &Key) -> Result<Option<Bytes>> {
        Ok(self.records.get(key)?.and_then(|value| outcome_in(&value)))
    }
}
