//! A store in front of which completions, renewals and releases that wait at the same moment travel together.
//!
//! While one batch is on its way the next one gathers, so that many messages that end at the same time cost one round
//! trip and a single one waits for nobody. Claims arrive here as batches already.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use onlyonce_core::store::{BATCH_MAX, Batch, StoreFuture};
use onlyonce_core::transition::{
    Claim, ClaimAnswer, Complete, CompleteAnswer, Release, ReleaseAnswer, Renew, RenewAnswer,
};
use onlyonce_core::{Store, StoreError, StoreErrorKind};
use tokio::sync::oneshot;

/// See the file. Answers as the store behind it does.
pub(crate) struct Gathered {
    store: Arc<dyn Store>,
    completes: Arc<Lane<Complete, CompleteAnswer>>,
    renews: Arc<Lane<Renew, RenewAnswer>>,
    releases: Arc<Lane<Release, ReleaseAnswer>>,
}

/// Commands of one kind that wait for the batch on its way.
struct Lane<C, A> {
    waiting: Mutex<Waiting<C, A>>,
}

struct Waiting<C, A> {
    commands: Vec<(C, oneshot::Sender<Result<A, StoreError>>)>,
    is_travelling: bool,
}

type SendMany<C, A> = for<'a> fn(&'a dyn Store, &'a [C]) -> StoreFuture<'a, Batch<A>>;

impl<C, A> Default for Lane<C, A> {
    fn default() -> Self {
        Self { waiting: Mutex::new(Waiting { commands: Vec::new(), is_travelling: false }) }
    }
}

impl<C: Clone + Send + 'static, A: Send + 'static> Lane<C, A> {
    fn waiting(&self) -> MutexGuard<'_, Waiting<C, A>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn send(
        self: &Arc<Self>,
        store: &Arc<dyn Store>,
        command: C,
        many: SendMany<C, A>,
    ) -> Result<A, StoreError> {
        let (answer, answered) = oneshot::channel();
        let is_first = {
            let mut waiting = self.waiting();
            waiting.commands.push((command, answer));
            !std::mem::replace(&mut waiting.is_travelling, true)
        };
        if is_first {
            // A task of its own: others wait for it, whatever becomes of this caller.
            tokio::spawn(Arc::clone(self).travel(Arc::clone(store), many));
        }
        let lost = || StoreError::new(StoreErrorKind::TimedOut, "hearing of a command in a batch");
        answered.await.unwrap_or_else(|_| Err(lost()))
    }

    async fn travel(self: Arc<Self>, store: Arc<dyn Store>, many: SendMany<C, A>) {
        let _cleared = ClearedOnPanic(&self);
        loop {
            // What is ready at this very moment joins in.
            tokio::task::yield_now().await;
            let gathered = {
                let mut waiting = self.waiting();
                let count = waiting.commands.len().min(BATCH_MAX);
                waiting.is_travelling = count > 0;
                waiting.commands.drain(..count).collect::<Vec<_>>()
            };
            if gathered.is_empty() {
                return;
            }
            let (commands, answers): (Vec<C>, Vec<_>) = gathered.into_iter().unzip();
            match many(&*store, &commands).await {
                // One that the store left out hears of it by its channel, which is dropped.
                Ok(results) => {
                    for (answer, result) in answers.into_iter().zip(results) {
                        let _ = answer.send(result);
                    }
                }
                Err(error) => {
                    for answer in answers {
                        let _ = answer.send(Err(error.likewise()));
                    }
                }
            }
        }
    }
}

/// A store that panics must not leave those behind who wait: they hear that their command is lost.
struct ClearedOnPanic<'l, C, A>(&'l Lane<C, A>);

impl<C, A> Drop for ClearedOnPanic<'_, C, A> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let mut waiting = self.0.waiting.lock().unwrap_or_else(PoisonError::into_inner);
            waiting.commands.clear();
            waiting.is_travelling = false;
        }
    }
}

impl Gathered {
    pub(crate) fn new(store: Arc<dyn Store>) -> Self {
        Self { store, completes: Arc::default(), renews: Arc::default(), releases: Arc::default() }
    }
}

impl fmt::Debug for Gathered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Gathered({:?})", self.store)
    }
}

impl Store for Gathered {
    fn renew<'a>(&'a self, renew: &'a Renew) -> StoreFuture<'a, RenewAnswer> {
        Box::pin(self.renews.send(&self.store, renew.clone(), |store, many| store.renew_many(many)))
    }

    fn complete<'a>(&'a self, complete: &'a Complete) -> StoreFuture<'a, CompleteAnswer> {
        Box::pin(self.completes.send(&self.store, complete.clone(), |store, many| store.complete_many(many)))
    }

    fn release<'a>(&'a self, release: &'a Release) -> StoreFuture<'a, ReleaseAnswer> {
        Box::pin(self.releases.send(&self.store, release.clone(), |store, many| store.release_many(many)))
    }

    crate::__pass_on_to_store! {
        claim(Claim) -> ClaimAnswer;
        claim_many([Claim]) -> Batch<ClaimAnswer>;
        renew_many([Renew]) -> Batch<RenewAnswer>;
        complete_many([Complete]) -> Batch<CompleteAnswer>;
        release_many([Release]) -> Batch<ReleaseAnswer>;
    }
    crate::__pass_on_the_rest_to_store! {}
}
