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
use crate::fingerprint::{Fingerprint, Rules};
use crate::house;
use crate::lease::{Lease, Retention};
use crate::outcome::Outcome;
use crate::record::{Owner, Record, STEPS_MAX, State, StepName};
use crate::store::{Listing, Store, StoreError, StoreErrorKind};
use crate::transition::{Claim, ClaimAnswer, RecordStep, Release, StepAnswer, Terms, Token, UnknownPolicy};

/// What every key of a store has encrypted once.
const PROOF: Bytes = Bytes::from_static(b"onlyonce: this key writes here");
/// How many records are looked at for whether they are encrypted, in a store that no key has been noted in.
const SAMPLE: usize = 20;
/// For how long keys stay noted after the last start that noted one. Not longer than most records live: a record that stays for
/// years would keep others in an embedded store, which removes them together.
const NOTED_FOR: Duration = Duration::from_hours(31 * 24);
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
    let noted = match store.lookup(&house::ENCRYPTION).await {
        // A store that is damaged in places serves what it can; this check must not keep it from that.
        Err(error) if error.is_unreadable() => {
            tracing::warn!(%error, "which keys the store was written with cannot be read, and is not checked");
            None
        }
        noted => noted?,
    };
    let names = noted.iter().flat_map(|record| &record.steps).map(|step| step.name.as_str().to_owned());
    let names: Vec<_> = names.collect();
    let Some(keys) = keys else {
        return Ok((!names.is_empty()).then_some(Misfit::NoKeys(names)));
    };
    if names.is_empty() {
        let is_plain = !keys.accepts_plain() && holds_plain(store).await?;
        return Ok(is_plain.then_some(Misfit::Plain));
    }
    let mut is_one_known = false;
    for step in noted.iter().flat_map(|record| &record.steps) {
        if keys.named(step.name.as_str().as_bytes()).is_none() {
            continue;
        }
        is_one_known = true;
        let proof =
            step.value.as_ref().map(|value| record::open_step(keys, &house::ENCRYPTION, &step.name, value));
        if !matches!(proof, Some(Ok(proof)) if proof == PROOF) {
            return Ok(Some(Misfit::AnotherKey(step.name.as_str().to_owned())));
        }
    }
    // Where no more could be noted, those at hand may have come later.
    let is_known_of_all = names.len() < STEPS_MAX;
    Ok((!is_one_known && is_known_of_all).then_some(Misfit::OtherKeys(names)))
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
            of_outcome(&completed.outcome) || completed.late.as_ref().is_some_and(of_outcome)
        }
        _ => false,
    };
    outcome || record.steps.iter().any(|step| in_the_clear(step.value.as_ref()))
}

impl Encrypted {
    /// Sees whether `keys` fit what the store holds. See [`misfit`].
    pub async fn misfit(&self, keys: &Keyring) -> Result<Option<Misfit>, StoreError> {
        misfit(&*self.store, Some(keys)).await
    }

    /// The names of the keys that are noted to have written there.
    pub async fn noted(&self) -> Result<Vec<String>, StoreError> {
        let noted = self.store.lookup(&house::ENCRYPTION).await?;
        let steps = noted.map(|record| record.steps).unwrap_or_default();
        Ok(steps.iter().map(|step| step.name.as_str().to_owned()).collect())
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
