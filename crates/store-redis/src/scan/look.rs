//! Looking at records without their bodies: the beginning of each is read as it is and checked here, which costs the server far
//! less than a script that does so. Only what cannot be read like this is left to a script.

use bytes::Bytes;
use onlyonce_core::{RecordId, StoreError, Timestamp};
use redis::{Cmd, Value, cmd};

use super::{DOING, OPENED_TOGETHER, Peeked, TOGETHER};
use crate::asked::Told;
use crate::codec::{self, Due};
use crate::error;
use crate::masters::Answer;
use crate::scripts::Script;
use crate::store::RedisStore;

/// How much of a record is read at first: all of its head, unless the text of its fingerprint's rules is long.
const LOOK_BYTES: usize = 256;

/// What the sweep has to do.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// What has expired, and how it began.
    pub(super) expired: Vec<(RecordId, Bytes)>,
    /// What a script must look into: its lease has passed, or it cannot be read like this.
    pub(super) open: Vec<RecordId>,
}

impl Found {
    pub(super) const fn is_empty(&self) -> bool {
        self.expired.is_empty() && self.open.is_empty()
    }

    /// As much of it as that, and leaves the rest.
    pub(super) fn take(&mut self, most: usize) -> Self {
        let expired: Vec<_> = self.expired.drain(..most.min(self.expired.len())).collect();
        let open = self.open.drain(..(most - expired.len()).min(self.open.len())).collect();
        Self { expired, open }
    }

    fn add(&mut self, id: RecordId, key: &[u8], start: &Bytes, now: Timestamp) {
        match codec::checked_head(key, start).map(|head| codec::due_at(head, now)) {
            Some(Due::Not) => {}
            Some(Due::Expired) => self.expired.push((id, start.slice(..codec::FORM_BYTES))),
            Some(Due::Lapsed) | None => self.open.push(id),
        }
    }
}

/// How records began when they were read.
struct Starts {
    now: Timestamp,
    /// Of each that was asked for its beginning, and how long all of it is. One that is empty may also be gone; nothing where
    /// what is kept is not even a string.
    of: Vec<Option<(Bytes, u64)>>,
}

impl RedisStore {
    /// Those of `ids` that are due.
    pub(super) async fn look(&self, ids: &[RecordId]) -> Result<Found, StoreError> {
        let keys: Vec<_> = ids.iter().map(|id| self.shared.key_of(id)).collect();
        let starts = self.starts(&keys, false).await?;
        let mut found = Found::default();
        for ((id, key), start) in ids.iter().zip(&keys).zip(starts.of) {
            match start {
                Some((start, _)) => found.add(*id, key, &start, starts.now),
                // It fails every script, and would keep all others from being swept.
                None => {
                    tracing::error!(id = id.short(), "what is kept under the key of a record is no record");
                }
            }
        }
        Ok(found)
    }

    /// The heads of records that are still there, or why one cannot be read: that is told, and left to whoever looks at it.
    pub(super) async fn peek(
        &self,
        ids: &[RecordId],
    ) -> Result<Vec<(RecordId, Result<Peeked, StoreError>)>, StoreError> {
        let (mut peeked, mut open) = (Vec::with_capacity(ids.len()), Vec::new());
        for ids in ids.chunks(TOGETHER) {
            let keys: Vec<_> = ids.iter().map(|id| self.shared.key_of(id)).collect();
            let Starts { now, of } = self.starts(&keys, true).await?;
            for ((id, key), start) in ids.iter().zip(&keys).zip(of) {
                let (start, bytes) = start.unwrap_or_default();
                let is_whole = codec::checked_head(key, &start).is_some();
                match codec::decode_head(&start) {
                    Ok((record, _)) if is_whole => peeked.push((*id, Ok(Peeked { now, record, bytes }))),
                    _ => open.push(*id),
                }
            }
        }
        for ids in open.chunks(OPENED_TOGETHER) {
            self.peek_open(ids, &mut peeked).await?;
        }
        Ok(peeked)
    }

    /// Lets the script read what could not be read as it is.
    async fn peek_open(
        &self,
        ids: &[RecordId],
        peeked: &mut Vec<(RecordId, Result<Peeked, StoreError>)>,
    ) -> Result<(), StoreError> {
        let calls: Vec<_> = ids.iter().map(|id| self.read_call(Script::Lookup, id, &["head"])).collect();
        for (id, value) in ids.iter().zip(self.masters.run_packed(&calls, DOING).await) {
            let head = match value {
                Ok(Value::Nil) => continue,
                Ok(value) => read_peeked(value),
                Err(failure) if failure.is_unreadable() => Err(failure),
                Err(failure) => return Err(failure),
            };
            if let Err(failure) = &head {
                tracing::error!(id = id.short(), error = %failure, "a record cannot be read");
            }
            peeked.push((*id, head));
        }
        Ok(())
    }

    /// How what is kept under `keys` begins, and how long it is if that is wanted.
    async fn starts(&self, keys: &[Vec<u8>], with_length: bool) -> Result<Starts, StoreError> {
        let mut starts = self.starts_of(keys, with_length).await?;
        let long = starts.of.iter_mut().zip(keys).filter_map(|(start, key)| match start {
            Some((start, _)) if codec::goes_on(start) => Some((start, key)),
            _ => None,
        });
        let (long, keys): (Vec<_>, Vec<_>) = long.unzip();
        let calls: Vec<_> = keys.into_iter().map(|key| read(key, codec::HEAD_BYTES_MAX)).collect();
        for (start, answer) in long.into_iter().zip(self.masters.run_packed(&calls, DOING).await) {
            // Whatever else is answered now, a script looks into it.
            if let Ok(Value::BulkString(whole)) = answer {
                *start = whole.into();
            }
        }
        Ok(starts)
    }

    async fn starts_of(&self, keys: &[Vec<u8>], with_length: bool) -> Result<Starts, StoreError> {
        let Some(first) = keys.first() else {
            return Ok(Starts { now: Timestamp::from_millis(0), of: Vec::new() });
        };
        let mut calls = vec![(first.clone(), cmd("TIME"))];
        for key in keys {
            calls.push(read(key, LOOK_BYTES));
            if with_length {
                let mut length = cmd("STRLEN");
                length.arg(key);
                calls.push((key.clone(), length));
            }
        }
        let mut answers = self.masters.run_packed(&calls, DOING).await.into_iter();
        let time = answers.next().transpose()?.unwrap_or_default();
        let now = self.shared.moment(&time).ok_or_else(|| error::unexpected(&time, DOING))?;
        let mut of = Vec::with_capacity(keys.len());
        while let Some(start) = answers.next() {
            let length = if with_length { answers.next() } else { None };
            of.push(start_in(start, length.unwrap_or(Ok(Value::Int(0))))?);
        }
        Ok(Starts { now, of })
    }
}

/// A call that reads so many bytes of what is kept under `key`.
fn read(key: &[u8], bytes: usize) -> (Vec<u8>, Cmd) {
    let mut read = cmd("GETRANGE");
    read.arg(key).arg(0).arg(bytes - 1);
    (key.to_vec(), read)
}

fn start_in(start: Answer, length: Answer) -> Result<Option<(Bytes, u64)>, StoreError> {
    match (start, length) {
        (Ok(Value::BulkString(start)), Ok(Value::Int(length))) => {
            Ok(Some((start.into(), u64::try_from(length).unwrap_or_default())))
        }
        (Ok(other), Ok(_)) => Err(error::unexpected(&other, DOING)),
        (Err(failure), _) | (_, Err(failure)) if failure.is_unreadable() => Ok(None),
        (Err(failure), _) | (_, Err(failure)) => Err(failure),
    }
}

fn read_peeked(value: Value) -> Result<Peeked, StoreError> {
    let (now, mut told) = Told::new(value, DOING)?;
    let head: Bytes = told.bytes()?;
    let (record, _) = codec::decode_head(&head).map_err(|error| StoreError::undecodable(error, DOING))?;
    let now = Timestamp::from_millis(u64::try_from(now).unwrap_or_default());
    Ok(Peeked { now, record, bytes: told.number()? })
}
