//! Durable steps: parts of the work whose results are on record, so that a later attempt goes on after the last one.
//!
//! ORDER: a mark that the step has begun is on record before its work starts, its result before the step returns. A
//! result is given again on later attempts; a mark without a result is a step that was cut short, and nobody can tell
//! whether its effect happened. Marks are steps of the record too, under names that no caller can choose.

use std::error::Error;
use std::fmt;
use std::future::Future;

use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::handle::{Execution, MemoError};
use crate::engine::reply::{Effect, Failure};
use crate::engine::typed::from_json;
use crate::error::MisuseError;
use crate::record::{STEPS_MAX, StepName};
use crate::transition::StepAnswer;

/// Begins the names of marks. Names of callers must not begin with it.
pub(super) const MARK: char = '~';
const BEGUN: &str = "~begun";
const UNDONE: &str = "~undone";

/// The longest name of a durable step: its marks have longer ones.
pub const DURABLE_NAME_CHARS_MAX: usize = 80;

/// What to do with a step that an earlier attempt began and did not finish.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CutShort {
    Stop,
    Repeat,
}

impl Execution {
    /// A part of the work that happens once: its result is on record before it is returned, and later attempts of
    /// this request get it without running `work`.
    ///
    /// If an earlier attempt was killed *inside* the step, nobody knows whether its effect happened: the answer is
    /// [`StepError::Unknown`], `work` is not run, and the failure, passed on, leaves the operation unknown. To find
    /// out instead: if it happened, record what came of it with [`memo`](Self::memo) under the same name; if it did
    /// not, or may happen twice, run it with [`repeatable_step`](Self::repeatable_step).
    ///
    /// A failure of `work` that says nothing happened lets a later attempt begin the step again. Once a step is
    /// finished, no later one can refuse the request: the same request goes on from there.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use onlyonce_core::{Engine, Failure, Fingerprint, Key, MemoryStore, Principal, Scope, StepError};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let engine = Engine::builder(Arc::new(MemoryStore::default())).build().await?;
    /// # let key = Scope::new("shop", Principal::named("alice")).key(Key::new("order-7")?);
    /// # let asked = engine.fingerprint().field("amount", b"100").finish();
    /// let sold = engine.run(&key, asked, |execution| async move {
    ///     let charge = execution.step("charge", || async { Ok::<_, Failure<String>>("ch_1".to_owned()) }).await?;
    ///     execution.step("mail", || async { Ok::<_, Failure<String>>(()) }).await?;
    ///     Ok::<_, Failure<StepError<String>>>(charge)
    /// });
    /// assert_eq!(sold.await?.done().map(|done| done.value), Some("ch_1".to_owned()));
    /// # Ok(())
    /// # }
    /// ```
    pub async fn step<T, E, W, F>(&self, name: &str, work: W) -> Result<T, Failure<StepError<E>>>
    where
        T: Serialize + DeserializeOwned,
        W: FnOnce() -> F,
        F: Future<Output = Result<T, Failure<E>>>,
    {
        self.take_step(name, CutShort::Stop, work).await
    }

    /// A step that may happen twice: one that was cut short is run again.
    ///
    /// For what does no harm twice, or what is itself protected by a [`downstream_key`](Self::downstream_key).
    pub async fn repeatable_step<T, E, W, F>(&self, name: &str, work: W) -> Result<T, Failure<StepError<E>>>
    where
        T: Serialize + DeserializeOwned,
        W: FnOnce() -> F,
        F: Future<Output = Result<T, Failure<E>>>,
    {
        self.take_step(name, CutShort::Repeat, work).await
    }

    async fn take_step<T, E, W, F>(
        &self,
        name: &str,
        cut_short: CutShort,
        work: W,
    ) -> Result<T, Failure<StepError<E>>>
    where
        T: Serialize + DeserializeOwned,
        W: FnOnce() -> F,
        F: Future<Output = Result<T, Failure<E>>>,
    {
        // Until the work starts nothing has happened, whatever goes wrong.
        let name = durable(name).map_err(|error| Failure::rolled_back(error.into()))?;
        if let Some(known) = self.known(&name) {
            let value = known.ok_or(MemoError::Erased).and_then(|bytes| read(&bytes));
            return value.map_err(|error| Failure::rolled_back(error.into()));
        }
        let number = self.begin(&name, cut_short).await?;
        match work().await {
            // It happened. If that cannot be recorded, the step stays unknown.
            Ok(value) => {
                self.finish_step(name, value).await.map_err(|error| Failure::unknown(StepError::Memo(error)))
            }
            Err(failure) => Err(self.failed(&name, number, failure).await),
        }
    }

    /// Puts on record that the step begins: which time that is.
    async fn begin<E>(&self, name: &StepName, cut_short: CutShort) -> Result<usize, Failure<StepError<E>>> {
        let mut number = 1;
        while self.known(&mark(BEGUN, number, name)).is_some() {
            if self.known(&mark(UNDONE, number, name)).is_none() {
                return match cut_short {
                    CutShort::Stop => Err(Failure::unknown(StepError::Unknown)),
                    CutShort::Repeat => Ok(number),
                };
            }
            number += 1;
        }
        // The result needs a place too: without one the step would end in doubt.
        if self.steps_known() + 2 > STEPS_MAX {
            return Err(Failure::rolled_back(MemoError::Full.into()));
        }
        let begun = mark(BEGUN, number, name);
        let fence = Bytes::from(self.fence().to_string());
        let nothing_begun = |error: MemoError| Failure::rolled_back(StepError::Memo(error));
        match self.record(&begun, &fence).await.map_err(|error| nothing_begun(error.into()))? {
            StepAnswer::Recorded => {}
            // Ours, whose reply was lost. Of two calls at once, only one starts (see below).
            StepAnswer::Already(by) if by == fence => {}
            StepAnswer::Already(_) => return Err(Failure::unknown(StepError::Unknown)),
            StepAnswer::Erased => return Err(nothing_begun(MemoError::Erased)),
            StepAnswer::Full => return Err(nothing_begun(MemoError::Full)),
            StepAnswer::Fenced => return Err(nothing_begun(MemoError::Fenced)),
        }
        if !self.remember(begun, fence) {
            return Err(Failure::unknown(StepError::Unknown));
        }
        Ok(number)
    }

    async fn finish_step<T>(&self, name: StepName, value: T) -> Result<T, MemoError>
    where
        T: Serialize + DeserializeOwned,
    {
        let bytes = Bytes::from(serde_json::to_vec(&value).map_err(MemoError::unreadable)?);
        // What is handed out is what later attempts will read.
        let value = read(&bytes)?;
        match self.record_insisting(&name, &bytes).await? {
            StepAnswer::Recorded => {
                self.remember(name, bytes);
                Ok(value)
            }
            StepAnswer::Already(bytes) => {
                self.remember(name, bytes.clone());
                read(&bytes)
            }
            StepAnswer::Erased => Err(MemoError::Erased),
            StepAnswer::Full => Err(MemoError::Full),
            StepAnswer::Fenced => Err(MemoError::Fenced),
        }
    }

    /// What a failure of the step's work means for the operation.
    async fn failed<E>(&self, name: &StepName, number: usize, failure: Failure<E>) -> Failure<StepError<E>> {
        let Failure { error, effect } = failure;
        let error = StepError::Failed(error);
        if effect == Effect::Unknown {
            return Failure::unknown(error);
        }
        let undone = mark(UNDONE, number, name);
        let nothing = Bytes::new();
        // If it cannot be recorded the step stays in doubt, which is safe.
        if let Ok(StepAnswer::Recorded | StepAnswer::Already(_)) =
            self.record_insisting(&undone, &nothing).await
        {
            self.remember(undone, nothing);
        }
        // A refusal forgets the request, and with it the steps that did happen.
        if effect == Effect::Refused && !self.any_finished() {
            return Failure::refused(error);
        }
        Failure::rolled_back(error)
    }

    /// Whether a durable step has a result.
    fn any_finished(&self) -> bool {
        self.step_names().iter().any(|begun| {
            let named = begun.as_str().strip_prefix(BEGUN).and_then(|rest| rest.trim_start().split_once(' '));
            named
                .and_then(|(_, name)| StepName::new(name).ok())
                .is_some_and(|name| self.known(&name).is_some())
        })
    }
}

fn durable(name: &str) -> Result<StepName, MemoError> {
    if name.len() > DURABLE_NAME_CHARS_MAX {
        return Err(MisuseError::new("a durable step's name has 1 to 80 printable ASCII characters").into());
    }
    of_a_caller(name)
}

/// A name that a caller may choose.
pub(super) fn of_a_caller(name: &str) -> Result<StepName, MemoError> {
    if name.starts_with(MARK) {
        return Err(MisuseError::new("a step name that begins with ~ is the engine's own").into());
    }
    Ok(StepName::new(name)?)
}

fn mark(kind: &str, number: usize, name: &StepName) -> StepName {
    StepName::new(&format!("{kind} {number} {}", name.as_str()))
        .expect("a durable name leaves room for marks")
}

fn read<T: DeserializeOwned>(bytes: &Bytes) -> Result<T, MemoError> {
    from_json(bytes).map_err(MemoError::unreadable)
}

/// Why a durable step has no result.
#[derive(Debug)]
#[non_exhaustive]
pub enum StepError<E> {
    /// The step's work failed.
    Failed(E),
    /// The step was begun before and not finished: nobody knows whether its effect happened.
    Unknown,
    /// The step could not be put on record, or read back.
    Memo(MemoError),
}

impl<E> From<MemoError> for StepError<E> {
    fn from(error: MemoError) -> Self {
        Self::Memo(error)
    }
}

impl<E> fmt::Display for StepError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Failed(_) => "the step failed",
            Self::Unknown => "the step was begun before, and nobody knows whether it happened",
            Self::Memo(_) => "the step could not be put on record",
        })
    }
}

impl<E: Error + 'static> Error for StepError<E> {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Failed(source) => Some(source),
            Self::Memo(source) => Some(source),
            Self::Unknown => None,
        }
    }
}
