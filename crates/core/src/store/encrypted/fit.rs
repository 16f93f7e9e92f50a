//! Whether the keys at hand are those that a store was written with: asked once, when it is opened.
//!
//! A record of the house holds one step for each key that ever wrote there: its name, and a few bytes that only this key
//! opens. So a process without the keys, or with others of the same names, is told so before it serves anybody, and not by
//! the first caller whose record it cannot read.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::{Encrypted, Keyring, cipher, record};
use crate::clock::Timestamp;
use crate::fingerprint::{Fingerprint, Rules};
use crate::house;
use crate::lease::{Lease, Retention};
use crate::outcome::Outcome;
use crate::record::{Owner, Record, STEPS_MAX, State, Step, StepName};
use crate::store::{Listing, Store, StoreError, StoreErrorKind};
use crate::transition::{Claim, ClaimAnswer, RecordStep, Release, StepAnswer, Terms, Token, UnknownPolicy};

/// What every key of a store has encrypted once.
const PROOF: Bytes = Bytes::from_static(b"onlyonce: this key writes here");
/// How many records are looked at for whether they are encrypted, in a store that no key has been noted in.
const SAMPLE: usize = 20;
/// For how long keys stay noted after the last start that noted one. Not longer than most records live: a record that stays for
/// years would keep others in an embedded store, which removes them together.
const NOTED_FOR: Duration = Duration::from_hours(31 * 24);
/// What stays noted for at least so long need not be noted again: one write a day is enough, however often a process starts.
const NOTED_ENOUGH: Duration = Duration::from_hours(30 * 24);
const DOING: &str = "seeing which keys the store was written with";

/// Why the keys at hand do not fit a store.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Misfit {
    /// It was written with the keys of these names, and there are none at hand.
    NoKeys(Vec<String>),
    /// It was written with the keys of these names, and none of them is at hand.
    OtherKeys(Vec<String>),
    /// The key of this name is not the one that it was written with.
    AnotherKey(String),
    /// It holds records that are not encrypted, and they are not to be accepted.
    Plain,
}

impl fmt::Display for Misfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list =
            |names: &[String]| names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
        match self {
            Self::NoKeys(names) => write!(
                f,
                "the records of this store are encrypted with {}, and no key file is set: nothing could be replayed, and \
                 what is recorded now would be in the clear",
                list(names)
            ),
            Self::OtherKeys(names) => write!(
                f,
                "the records of this store are encrypted with {}, and none of these keys is in the key file",
                list(names)
            ),
            Self::AnotherKey(name) => {
                write!(f, "the key `{name}` in the key file is not the one of that name that wrote this store")
            }
            Self::Plain => f.write_str(
                "this store holds records that are not encrypted: set store.accept_plain = true until they have expired",
            ),
        }
    }
}

/// Sees whether `keys` fit what `store` holds as it is, and says what does not. Writes nothing.
pub async fn misfit(store: &dyn Store, keys: Option<&Keyring>) -> Result<Option<Misfit>, StoreError> {
    Noted::of(store).await?.misfit(store, keys).await
}

/// Which keys are noted to have written to a store, as it said once.
#[derive(Debug, Clone, Default)]
pub struct Noted {
    /// One for each key.
    steps: Vec<Step>,
    /// Until when it stays noted, while nobody is at it.
    until: Option<Timestamp>,
}

impl Noted {
    async fn of(store: &dyn Store) -> Result<Self, StoreError> {
        let record = match store.lookup(&house::ENCRYPTION).await {
            // A store that is damaged in places serves what it can; this check must not keep it from that.
            Err(error) if error.is_unreadable() => {
                tracing::warn!(%error, "which keys the store was written with cannot be read, and is not checked");
                None
            }
            record => record?,
        };
        Ok(record.map_or_else(Self::default, |record| {
            let until = match record.state {
                State::Released { expires_at } => Some(expires_at),
                _ => None,
            };
            Self { steps: record.steps, until }
        }))
    }

    /// Their names.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.steps.iter().map(|step| step.name.as_str())
    }

    /// Whether the first of `keys` is among them, and stays so for long enough: there is nothing to note at `now`.
    pub fn is_enough(&self, keys: &Keyring, now: Timestamp) -> bool {
        let is_noted = self.names().any(|name| name == keys.first().as_str());
        is_noted && self.until.is_some_and(|until| until >= now + NOTED_ENOUGH)
    }

    async fn misfit(&self, store: &dyn Store, keys: Option<&Keyring>) -> Result<Option<Misfit>, StoreError> {
        let names = || self.names().map(str::to_owned).collect::<Vec<_>>();
        let Some(keys) = keys else {
            return Ok((!self.steps.is_empty()).then(|| Misfit::NoKeys(names())));
        };
        if self.steps.is_empty() {
            let is_plain = !keys.accepts_plain() && holds_plain(store).await?;
            return Ok(is_plain.then_some(Misfit::Plain));
        }
        let mut is_one_known = false;
        for step in &self.steps {
            if keys.named(step.name.as_str().as_bytes()).is_none() {
                continue;
            }
            is_one_known = true;
            let open = |value| record::open_step(keys, &house::ENCRYPTION, &step.name, value);
            if !matches!(step.value.as_ref().map(open), Some(Ok(proof)) if proof == PROOF) {
                return Ok(Some(Misfit::AnotherKey(step.name.as_str().to_owned())));
            }
        }
        // Where no more could be noted, those at hand may have come later.
        let is_known_of_all = self.steps.len() < STEPS_MAX;
        Ok((!is_one_known && is_known_of_all).then(|| Misfit::OtherKeys(names())))
    }
}

/// Whether a few records show that what is kept here is in the clear.
async fn holds_plain(store: &dyn Store) -> Result<bool, StoreError> {
    let page = match store.list(&Listing { limit: SAMPLE, ..Listing::default() }).await {
        Err(error) if error.is_unreadable() => return Ok(false),
        page => page?,
    };
    Ok(page.records.iter().any(|(_, record)| is_plain(record)))
}

fn is_plain(record: &Record) -> bool {
    let in_the_clear = |bytes: Option<&Bytes>| bytes.is_some_and(|bytes| !cipher::is_sealed(bytes));
    let of_outcome = |outcome: &Outcome| in_the_clear(outcome.body().bytes());
    let outcome = match &record.state {
        State::Completed(completed) => {
            of_outcome(&completed.outcome) || completed.late.as_deref().is_some_and(of_outcome)
        }
        _ => false,
    };
    outcome || record.steps.iter().any(|step| in_the_clear(step.value.as_ref()))
}

impl Encrypted {
    /// Which keys are noted to have written there. Nothing, where that is damaged.
    pub async fn noted(&self) -> Result<Noted, StoreError> {
        Noted::of(&*self.store).await
    }

    /// Sees whether `keys` fit what the store holds, where `noted` is what it says of that. See [`misfit`].
    pub async fn misfit(&self, noted: &Noted, keys: &Keyring) -> Result<Option<Misfit>, StoreError> {
        noted.misfit(&*self.store, Some(keys)).await
    }

    /// Notes in the store that the first of `keys` writes there, and keeps what is noted for another 31 days. While another
    /// process is at it, that one's key is noted, and this one's the next time.
    pub async fn note(&self, keys: &Keyring) -> Result<(), StoreError> {
        let failed = |error: &str| StoreError::new(StoreErrorKind::Misuse, DOING).because(error.to_owned());
        let name = StepName::new(keys.first().as_str()).map_err(|error| failed(&error.to_string()))?;
        let owner = Owner::random()
            .map_err(|error| StoreError::new(StoreErrorKind::Unavailable, DOING).because(error))?;
        let claim = Claim {
            id: house::ENCRYPTION,
            fingerprint: Fingerprint::from_parts(Rules::standard(), [0; 32]),
            owner,
            terms: Arc::new(terms()),
        };
        let ClaimAnswer::Granted(grant) = self.store.claim(&claim).await? else { return Ok(()) };
        let token = Token { id: house::ENCRYPTION, owner, fence: grant.fence };
        let value = record::seal_step(keys, &house::ENCRYPTION, &name, &PROOF);
        let answer = self.store.record_step(&RecordStep { token, name, value }).await?;
        self.store.release(&Release { token, keep_fingerprint: true }).await?;
        match answer {
            StepAnswer::Full => Err(failed("more keys have been written with than can be noted")),
            _ => Ok(()),
        }
    }
}

/// Whoever died at it is followed by the next.
fn terms() -> Terms {
    let retention = Retention::new(NOTED_FOR).unwrap_or(Retention::DEFAULT);
    Terms {
        lease: Lease::DEFAULT,
        retention,
        unknown_retention: retention,
        unknown: UnknownPolicy::Rerun,
        attempts_max: u32::MAX,
        ..Terms::default()
    }
}
