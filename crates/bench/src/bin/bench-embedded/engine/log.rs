//! The ceiling: a file to which as many bytes are appended as the embedded store writes, and a map of keys.
//!
//! No checksums, no segments, no retention, and memory that grows with every key: not a store anyone could use.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{BufReader, ErrorKind, Read as _, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use bytes::Bytes;

use super::Purpose;
use super::grouped::{Ledger, Op};
use crate::Result;
use crate::pair::{KEY_BYTES, Key, OUTCOME_BYTES, Pair};

/// What the embedded store writes for a claim.
const CLAIM_BYTES: usize = 93;
/// What it writes for a completion is 223 bytes: the key is not repeated. Here it is, which makes about as much as its index.
const COMPLETE_BYTES: usize = HEAD_BYTES + OUTCOME_BYTES;
/// What this log writes in front of its filler: the kind and the key.
const HEAD_BYTES: usize = 1 + KEY_BYTES;
const CLAIMED: u8 = 1;
const COMPLETED: u8 = 2;

/// Where the completion of a key is; `None` while it is in flight.
type Place = Option<u64>;

pub(super) struct Log {
    file: File,
    end: u64,
    places: HashMap<Key, Place>,
    synced: bool,
}

impl Log {
    pub(super) fn open(folder: &Path, purpose: Purpose) -> Result<Self> {
        let path = folder.join("log");
        let file = OpenOptions::new().read(true).append(true).create(true).open(&path)?;
        let mut log = Self { file, end: 0, places: HashMap::new(), synced: purpose == Purpose::Measure };
        log.read()?;
        Ok(log)
    }

    fn read(&mut self) -> Result<()> {
        let mut reader = BufReader::with_capacity(1 << 20, self.file.try_clone()?);
        let mut entry = vec![0; CLAIM_BYTES.max(COMPLETE_BYTES)];
        loop {
            match reader.read_exact(&mut entry[..HEAD_BYTES]) {
                Ok(()) => {}
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(()),
                Err(error) => return Err(error.into()),
            }
            let key = *entry[1..].first_chunk().expect("the key is in the head");
            let (size, place) = match entry[0] {
                CLAIMED => (CLAIM_BYTES, None),
                COMPLETED => (COMPLETE_BYTES, Some(self.end)),
                other => return Err(format!("{other} is no kind of entry").into()),
            };
            reader.read_exact(&mut entry[HEAD_BYTES..size])?;
            self.places.insert(key, place);
            self.end += size as u64;
        }
    }

    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        self.file.write_all(bytes)?;
        if self.synced {
            self.file.sync_data()?;
        }
        self.end += bytes.len() as u64;
        Ok(())
    }

    /// Adds the entry of `op` to the bytes that will be at the end of the file.
    fn put(&mut self, bytes: &mut Vec<u8>, op: Op, pair: &Pair) {
        let (kind, size) = match op {
            Op::Claim => (CLAIMED, CLAIM_BYTES),
            Op::Complete => (COMPLETED, COMPLETE_BYTES),
        };
        let (start, place) = (bytes.len(), self.end + bytes.len() as u64);
        bytes.push(kind);
        bytes.extend_from_slice(&pair.key);
        if op == Op::Complete {
            bytes.extend_from_slice(&pair.outcome);
        }
        bytes.resize(start + size, 0);
        self.places.insert(pair.key, (op == Op::Complete).then_some(place));
    }
}

impl Ledger for Log {
    fn commit(&mut self, group: &[(Op, Pair)]) -> Result<Vec<bool>> {
        let mut bytes = Vec::with_capacity(group.len() * COMPLETE_BYTES);
        let mut answers = Vec::with_capacity(group.len());
        for (op, pair) in group {
            let expected = match op {
                Op::Claim => None,
                Op::Complete => Some(&None),
            };
            let accepted = self.places.get(&pair.key) == expected;
            if accepted {
                self.put(&mut bytes, *op, pair);
            }
            answers.push(accepted);
        }
        self.append(&bytes)?;
        Ok(answers)
    }

    fn load(&mut self, pairs: &[Pair]) -> Result<()> {
        let mut bytes = Vec::new();
        for pair in pairs {
            self.put(&mut bytes, Op::Claim, pair);
            self.put(&mut bytes, Op::Complete, pair);
        }
        self.append(&bytes)
    }

    fn count(&self) -> Result<u64> {
        Ok(self.places.values().flatten().count() as u64)
    }

    fn outcome(&self, key: &Key) -> Result<Option<Bytes>> {
        let Some(place) = self.places.get(key).copied().flatten() else { return Ok(None) };
        let mut outcome = vec![0; OUTCOME_BYTES];
        self.file.read_exact_at(&mut outcome, place + HEAD_BYTES as u64)?;
        Ok(Some(outcome.into()))
    }
}
