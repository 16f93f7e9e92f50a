//! Typed values on top of opaque outcomes: `run` writes and reads them as JSON.

use std::future::Future;

use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::reply::{Conflict, Done, Effect, Ending, Failure, Ran, Recorded, Reply, Request, Run};
use super::{Engine, EngineError, Execution};
use crate::fingerprint::Fingerprinted;
use crate::outcome::{Body, Outcome, Tombstone};
use crate::scope::ScopedKey;

/// Marks outcomes that `run` wrote, so that bytes of another door are never read as a value.
const JSON_VALUE: u16 = 1;

impl Engine {
    /// Runs `work` once for `key` and answers its value now and on every later call.
    ///
    /// The work gets an [`Execution`] and returns its value, or a [`Failure`] that says whether anything happened.
    pub async fn run<T, E, W, F>(
        &self,
        key: &ScopedKey,
        fingerprint: impl Fingerprinted + 'static,
        work: W,
    ) -> Result<Run<T, E>, EngineError>
    where
        T: Serialize + DeserializeOwned + Send + 'static,
        E: Send + 'static,
        W: FnOnce(Execution) -> F + Send + 'static,
        F: Future<Output = Result<T, Failure<E>>> + Send + 'static,
    {
        let request = Request::new(self.secret(), key.clone(), fingerprint);
        let work = move |execution| {
            let running = work(execution);
            async move { ending(running.await) }
        };
        match self.perform(request, work).await? {
            Reply::Ran(Ran { value: Returned::Value(value), attempt, recorded, .. }) => {
                Ok(Run::Done(Done { value, replayed: false, attempt, recorded }))
            }
            Reply::Ran(Ran { value: Returned::Failure(failure), .. }) => Ok(Run::Failed(failure)),
            Reply::Ran(Ran { value: Returned::Unwritable(error), .. }) => Err(EngineError::value(error)),
            Reply::Replay(replay) => Ok(match read(&replay.outcome)? {
                Ok(value) => {
                    let (attempt, recorded) = (replay.attempt, Recorded::Completed);
                    Run::Done(Done { value, replayed: true, attempt, recorded })
                }
                Err(conflict) => Run::Conflict(conflict),
            }),
            Reply::Conflict(conflict) => Ok(Run::Conflict(conflict)),
        }
    }
}

enum Returned<T, E> {
    Value(T),
    Failure(Failure<E>),
    /// The work was done and its value cannot be written down and read back.
    Unwritable(serde_json::Error),
}

fn ending<T: Serialize + DeserializeOwned, E>(result: Result<T, Failure<E>>) -> Ending<Returned<T, E>> {
    match result {
        // The first caller gets what later ones will get: the value as it reads back.
        Ok(value) => {
            match serde_json::to_vec(&value).and_then(|bytes| Ok((serde_json::from_slice(&bytes)?, bytes))) {
                Ok((value, bytes)) => {
                    let outcome = Outcome::kept(JSON_VALUE, bytes);
                    Ending::Complete { value: Returned::Value(value), outcome, retention: None }
                }
                Err(error) => {
                    // The work is done and must not run again, although its value cannot be kept.
                    let outcome = Outcome::tombstone(JSON_VALUE, Tombstone::Discarded);
                    Ending::Complete { value: Returned::Unwritable(error), outcome, retention: None }
                }
            }
        }
        Err(failure) => match failure.effect {
            Effect::Refused => Ending::Release { value: Returned::Failure(failure), keep_fingerprint: false },
            Effect::RolledBack => {
                Ending::Release { value: Returned::Failure(failure), keep_fingerprint: true }
            }
            Effect::Unknown => Ending::Abandon { value: Returned::Failure(failure) },
        },
    }
}

fn read<T: DeserializeOwned>(outcome: &Outcome) -> Result<Result<T, Conflict>, EngineError> {
    match (outcome.content_version(), outcome.body()) {
        (_, Body::Tombstone(why)) => Ok(Err(Conflict::NotKept { why: *why })),
        (JSON_VALUE, Body::Kept(bytes)) => from_json(bytes).map(Ok).map_err(EngineError::value),
        _ => Err(EngineError::value("the outcome was recorded by another door")),
    }
}

pub(super) fn from_json<T: DeserializeOwned>(bytes: &Bytes) -> Result<T, serde_json::Error> {
    serde_json::from_slice(bytes)
}
