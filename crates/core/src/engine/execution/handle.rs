//! What the work is given: who it is, values that stay the same on every attempt, and keys for the calls it makes.

use std::collections::HashMap;
use std::error::Error;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::finish::until_answered;
use super::lost::Lost;
use super::step::of_a_caller;
use super::{Asked, Attempt};
use crate::engine::Request;
use crate::engine::alarm::Idle;
use crate::engine::shared::Shared;
use crate::engine::typed::from_json;
use crate::error::{BoxError, MisuseError};
use crate::key::Key;
use crate::record::{Fence, Step, StepName};
use crate::scope::{RecordId, ScopedKey};
use crate::store::{StoreError, StoreErrorKind};
use crate::transition::{RecordStep, StepAnswer, Token};

/// The grant, in the hands of the work. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Execution {
    shared: Arc<Shared>,
    token: Token,
    attempt: u32,
    store_within: Duration,
    request: Arc<Request>,
    /// Names the request and not only the key: a corrected request under the same key makes other calls.
    fingerprint: [u8; 32],
    known: Arc<Known>,
}

/// What is known of a grant to all who work under it.
#[derive(Debug)]
pub(super) struct Known {
    pub(super) lost: Lost,
    steps: Mutex<HashMap<StepName, Option<Bytes>>>,
}

impl Known {
    pub(super) fn new(steps: Vec<Step>) -> Self {
        let steps = steps.into_iter().map(|step| (step.name, step.value)).collect();
        Self { lost: Lost::default(), steps: Mutex::new(steps) }
    }
}

impl Execution {
    pub(super) fn new(attempt: &Attempt, asked: Asked) -> Self {
        Self {
            shared: Arc::clone(&attempt.engine.shared),
            token: attempt.token,
            attempt: attempt.attempt,
            store_within: attempt.engine.policy.store_within,
            request: asked.request,
            fingerprint: asked.fingerprint,
            known: Arc::clone(&attempt.known),
        }
    }

    /// Where the operation is remembered.
    pub const fn id(&self) -> RecordId {
        self.token.id
    }

    /// The operation.
    pub fn key(&self) -> &ScopedKey {
        &self.request.key
    }

    /// The fence of this attempt. Show it to whoever can refuse lower ones.
    pub const fn fence(&self) -> Fence {
        self.token.fence
    }

    /// What the grant is shown by, for doors that complete it inside a transaction of their own.
    pub const fn token(&self) -> Token {
        self.token
    }

    /// 1 for the first attempt.
    pub const fn attempt(&self) -> u32 {
        self.attempt
    }

    /// Resolves when the grant is lost: work that blocks, or that runs elsewhere, must stop. Work that awaits is stopped
    /// anyway.
    pub async fn lost(&self) {
        self.known.lost.heard().await;
    }

    /// A value that differs each time it is made (a time, a random number), made once and the same on every later
    /// attempt of this request.
    ///
    /// It is on record before it is returned, so that nothing can be done with it that a later attempt would do
    /// differently.
    pub async fn memo<T>(&self, name: &str, make: impl FnOnce() -> T) -> Result<T, MemoError>
    where
        T: Serialize + DeserializeOwned,
    {
        let name = of_a_caller(name)?;
        if let Some(known) = self.known(&name) {
            let bytes = known.ok_or(MemoError::Erased)?;
            return from_json(&bytes).map_err(MemoError::unreadable);
        }
        let value = make();
        let bytes = Bytes::from(serde_json::to_vec(&value).map_err(MemoError::unreadable)?);
        // What is handed out is what later attempts will read; what cannot be read back is not recorded.
        let value = from_json(&bytes).map_err(MemoError::unreadable)?;
        match self.record(&name, &bytes).await? {
            StepAnswer::Recorded => {
                self.remember(name, bytes);
                Ok(value)
            }
            StepAnswer::Already(bytes) => {
                self.remember(name, bytes.clone());
                from_json(&bytes).map_err(MemoError::unreadable)
            }
            StepAnswer::Erased => Err(MemoError::Erased),
            StepAnswer::Full => Err(MemoError::Full),
            StepAnswer::Fenced => Err(MemoError::Fenced),
        }
    }

    /// A key for a call that the work makes, the same on every attempt of this request. `name` tells apart the calls
    /// of one operation.
    pub fn downstream_key(&self, name: &str) -> Key {
        let mut hasher = self.shared.secret.downstream_hasher();
        hasher.field(self.token.id.as_bytes());
        hasher.field(&self.fingerprint);
        hasher.field(name.as_bytes());
        Key::from_digest(&hasher.finish())
    }

    pub(super) async fn record(&self, name: &StepName, value: &Bytes) -> Result<StepAnswer, StoreError> {
        let step = RecordStep { token: self.token, name: name.clone(), value: value.clone() };
        self.shared.bounded(self.store_within, self.shared.store.record_step(&step)).await
    }

    /// The same for what has happened already: a store that fails is asked again, for a while.
    pub(super) async fn record_insisting(
        &self,
        name: &StepName,
        value: &Bytes,
    ) -> Result<StepAnswer, StoreError> {
        let step = RecordStep { token: self.token, name: name.clone(), value: value.clone() };
        let (store, patience) = (&self.shared.store, self.store_within * 3);
        let mut idle = Idle::new(&*self.shared.clock);
        let record = || store.record_step(&step);
        until_answered(&self.shared, &self.token, self.store_within, patience, &mut idle, record)
            .await
            .map(|(answer, _)| answer)
            .ok_or_else(|| StoreError::new(StoreErrorKind::TimedOut, "recording a step"))
    }

    /// How many steps are on record, as far as this attempt knows.
    pub(super) fn steps_known(&self) -> usize {
        self.known_steps().len()
    }

    pub(super) fn step_names(&self) -> Vec<StepName> {
        self.known_steps().keys().cloned().collect()
    }

    #[expect(clippy::option_option, reason = "no step, an erased step, a step")]
    pub(super) fn known(&self, name: &StepName) -> Option<Option<Bytes>> {
        self.known_steps().get(name).cloned()
    }

    /// Whether it was not known before.
    pub(super) fn remember(&self, name: StepName, bytes: Bytes) -> bool {
        self.known_steps().insert(name, Some(bytes)).is_none()
    }

    fn known_steps(&self) -> MutexGuard<'_, HashMap<StepName, Option<Bytes>>> {
        self.known.steps.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Why a value could not be made or read back. The work must not go on with another one.
#[derive(Debug)]
#[non_exhaustive]
pub enum MemoError {
    /// The name is not one.
    Name(MisuseError),
    /// The store failed.
    Store(StoreError),
    /// The value cannot be written or read as JSON.
    Unreadable(BoxError),
    /// The value was recorded by an earlier attempt and erased since.
    Erased,
    /// The record keeps no more values.
    Full,
    /// The grant is lost: this attempt must stop.
    Fenced,
}

impl MemoError {
    pub(super) fn unreadable(source: serde_json::Error) -> Self {
        Self::Unreadable(source.into())
    }
}

impl From<MisuseError> for MemoError {
    fn from(source: MisuseError) -> Self {
        Self::Name(source)
    }
}

impl From<StoreError> for MemoError {
    fn from(source: StoreError) -> Self {
        Self::Store(source)
    }
}

impl fmt::Display for MemoError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Name(_) => "the step's name is not accepted",
            Self::Store(_) => "the step could not be recorded",
            Self::Unreadable(_) => "the step's value cannot be written or read",
            Self::Erased => "the step's value was erased",
            Self::Full => "the record keeps no more steps",
            Self::Fenced => "the grant is lost",
        })
    }
}

impl Error for MemoError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Name(source) => Some(source),
            Self::Store(source) => Some(source),
            Self::Unreadable(source) => Some(&**source),
            Self::Erased | Self::Full | Self::Fenced => None,
        }
    }
}
