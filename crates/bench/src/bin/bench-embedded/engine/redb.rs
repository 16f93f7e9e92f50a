//! redb: each group is one write transaction with `Durability::Immediate`.

use std::path::Path;

use bytes::Bytes;
use redb::{
    Database, Durability, ReadableDatabase as _, ReadableTable as _, TableDefinition, WriteTransaction,
};

use super::grouped::{Ledger, Op};
use super::value::{COMPLETED_BYTES, InFlight, claimed_value, completed_value, outcome_in};
use crate::Result;
use crate::pair::{Key, Pair};

const RECORDS: TableDefinition<'_, &Key, &[u8]> = TableDefinition::new("records");

pub(super) struct Redb {
    database: Database,
    two_phase: bool,
    in_flight: InFlight,
}

impl Redb {
    pub(super) fn open(folder: &Path, two_phase: bool) -> Result<Self> {
        let redb = Self {
            database: Database::create(folder.join("redb"))?,
            two_phase,
            in_flight: InFlight::default(),
        };
        // A table must have been opened for writing before it can be read.
        let transaction = redb.begin()?;
        transaction.open_table(RECORDS)?;
        transaction.commit()?;
        Ok(redb)
    }

    fn begin(&self) -> Result<WriteTransaction> {
        let mut transaction = self.database.begin_write()?;
        transaction.set_durability(Durability::Immediate)?;
        transaction.set_two_phase_commit(self.two_phase);
        Ok(transaction)
    }
}

impl Ledger for Redb {
    /// Small transactions cost as many pages and many more syncs.
    const LOAD_BATCH: usize = 50_000;

    fn commit(&mut self, group: &[(Op, Pair)]) -> Result<Vec<bool>> {
        let transaction = self.begin()?;
        let mut answers = Vec::with_capacity(group.len());
        {
            let mut table = transaction.open_table(RECORDS)?;
            for (op, pair) in group {
                let accepted = match op {
                    Op::Claim => self.in_flight.claim(pair, || Ok(table.get(&pair.key)?.is_some()))?,
                    Op::Complete => self.in_flight.complete(pair),
                };
                match op {
                    _ if !accepted => {}
                    Op::Claim => drop(table.insert(&pair.key, claimed_value(pair).as_slice())?),
                    Op::Complete => drop(table.insert(&pair.key, completed_value(pair).as_slice())?),
                }
                answers.push(accepted);
            }
        }
        transaction.commit()?;
        self.in_flight.committed();
        Ok(answers)
    }

    fn load(&mut self, pairs: &[Pair]) -> Result<()> {
        let mut sorted: Vec<_> = pairs.iter().collect();
        sorted.sort_unstable_by_key(|pair| pair.key);
        let transaction = self.begin()?;
        {
            let mut table = transaction.open_table(RECORDS)?;
            for pair in sorted {
                table.insert(&pair.key, completed_value(pair).as_slice())?;
            }
        }
        Ok(transaction.commit()?)
    }

    fn count(&self) -> Result<u64> {
        let mut completed = 0;
        for record in self.database.begin_read()?.open_table(RECORDS)?.iter()? {
            completed += u64::from(record?.1.value().len() == COMPLETED_BYTES);
        }
        Ok(completed)
    }

    fn outcome(&self, key: &Key) -> Result<Option<Bytes>> {
        let table = self.database.begin_read()?.open_table(RECORDS)?;
        Ok(table.get(key)?.and_then(|value| outcome_in(value.value())))
    }
}
