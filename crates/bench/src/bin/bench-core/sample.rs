//! What a typical request and its answer look like: the same in every workload, so that their figures can be compared.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use onlyonce_core::store::StoreError;
use onlyonce_core::transition::{Claim, ClaimAnswer, Complete, Grant, Token};
use onlyonce_core::{Fingerprint, MemoryLimits, Outcome, Principal, Rules, Scope, Secret, Terms};

use crate::Result;
use crate::names::Names;

/// The body of every request and of every answer: a small JSON document.
pub(crate) const BODY: [u8; 200] = [b'x'; 200];

/// A workload of any size fits.
pub(crate) const NO_LIMITS: MemoryLimits = MemoryLimits { records_max: usize::MAX, bytes_max: usize::MAX };

pub(crate) fn secret() -> Secret {
    Secret::new([7; 32])
}

pub(crate) fn scope() -> Scope {
    Scope::new("payments", Principal::named("alice@example.com"))
}

pub(crate) fn fingerprint(secret: &Secret) -> Fingerprint {
    Fingerprint::builder(secret, Rules::standard())
        .field("method", b"POST")
        .field("path", b"/v1/payments")
        .field("body", &BODY)
        .finish()
}

/// Its bytes are on the heap and shared by all clones, as those of an answer on its way to a client are.
pub(crate) fn outcome() -> Result<Outcome> {
    Ok(Outcome::kept(1, Bytes::copy_from_slice(&BODY)).with_head(&b"201"[..])?)
}

/// Makes the commands of callers who each use a key of their own.
pub(crate) struct Caller {
    pub(crate) names: Names,
    fingerprint: Fingerprint,
    terms: Arc<Terms>,
    outcome: Outcome,
}

impl Caller {
    pub(crate) fn new() -> Result<Self> {
        Ok(Self {
            names: Names::new(),
            fingerprint: fingerprint(&secret()),
            terms: Arc::new(Terms::default()),
            outcome: outcome()?,
        })
    }

    /// A claim of a record that was never claimed.
    pub(crate) fn claim(&mut self) -> Claim {
        Claim {
            id: self.names.id(),
            fingerprint: self.fingerprint.clone(),
            owner: self.names.owner(),
            terms: Arc::clone(&self.terms),
        }
    }

    pub(crate) fn complete(&self, claim: &Claim, grant: &Grant) -> Complete {
        let token = Token { id: claim.id, owner: claim.owner, fence: grant.fence };
        Complete { token, outcome: self.outcome.clone(), retention: None }
    }
}

/// The grant, or an error: a workload that is refused measures something else.
pub(crate) fn granted(answer: ClaimAnswer) -> Result<Grant> {
    match answer {
        ClaimAnswer::Granted(grant) => Ok(grant),
        other => Err(format!("a new key was not granted: {other:?}").into()),
    }
}

/// The answer of a store that answers at once.
pub(crate) fn answered<T>(asked: impl Future<Output = std::result::Result<T, StoreError>>) -> Result<T> {
    match pin!(asked).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(answer) => Ok(answer?),
        Poll::Pending => Err("the store did not answer at once".into()),
    }
}
