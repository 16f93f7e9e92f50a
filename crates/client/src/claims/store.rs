//! The store contract over the service: each command is one request, each batch as few as its size allows.

use std::time::Duration;

use onlyonce_core::record::Record;
use onlyonce_core::store::{
    BATCH_MAX, Batch, Durability, Imported, Listing, Page, Stats, StoreFuture, SweepBudget, Swept,
    Unreadable, Watch, check_import,
};
use onlyonce_core::transition::{
    Abandon, AbandonAnswer, Claim, ClaimAnswer, Complete, CompleteAnswer, Erase, EraseAnswer, RecordStep,
    Release, ReleaseAnswer, Renew, RenewAnswer, Resolve, ResolveAnswer, StepAnswer,
};
use onlyonce_core::{RecordId, Secret, Store, StoreError, StoreErrorKind};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::answers::{
    self, AbandonText, Answers, ClaimText, CompleteText, EraseText, ImportedText, Item, LookupText, PageText,
    Reads, ReleaseText, RenewText, ResolveText, SecretText, StatsText, StepReply, SweptText, WaitText,
};
use super::failure::Trouble;
use super::items::{
    ClaimItem, CompleteItem, IdItem, ListItem, RecordItem, ReleaseItem, RenewItem, ResolveItem, StepItem,
    TokenItem, WaitItem,
};
use super::wire::{Hex, id, millis, to_json};
use super::{ClaimsClient, Service};

/// How much longer than a long poll its answer may take.
const WAIT_MARGIN: Duration = Duration::from_secs(10);

impl Store for ClaimsClient {
    fn claim<'a>(&'a self, claim: &'a Claim) -> StoreFuture<'a, ClaimAnswer> {
        Box::pin(self.one::<ClaimItem, ClaimText, _>("/v1/store/claim", claim, "claiming a record"))
    }

    fn renew<'a>(&'a self, renew: &'a Renew) -> StoreFuture<'a, RenewAnswer> {
        Box::pin(self.one::<RenewItem, RenewText, _>("/v1/store/renew", renew, "renewing a lease"))
    }

    fn complete<'a>(&'a self, complete: &'a Complete) -> StoreFuture<'a, CompleteAnswer> {
        let doing = "completing a record";
        Box::pin(self.one::<CompleteItem, CompleteText, _>("/v1/store/complete", complete, doing))
    }

    fn release<'a>(&'a self, release: &'a Release) -> StoreFuture<'a, ReleaseAnswer> {
        let doing = "releasing a record";
        Box::pin(self.one::<ReleaseItem, ReleaseText, _>("/v1/store/release", release, doing))
    }

    fn abandon<'a>(&'a self, abandon: &'a Abandon) -> StoreFuture<'a, AbandonAnswer> {
        let item = TokenItem::from(&abandon.token);
        Box::pin(self.single::<AbandonText>("/v1/store/abandon", item, "abandoning a record"))
    }

    fn record_step<'a>(&'a self, step: &'a RecordStep) -> StoreFuture<'a, StepAnswer> {
        Box::pin(self.single::<StepReply>("/v1/store/step", StepItem::from(step), "recording a step"))
    }

    fn claim_many<'a>(&'a self, claims: &'a [Claim]) -> StoreFuture<'a, Batch<ClaimAnswer>> {
        Box::pin(self.many::<ClaimItem, ClaimText, _>("/v1/store/claim", claims, "claiming records"))
    }

    fn renew_many<'a>(&'a self, renews: &'a [Renew]) -> StoreFuture<'a, Batch<RenewAnswer>> {
        Box::pin(self.many::<RenewItem, RenewText, _>("/v1/store/renew", renews, "renewing leases"))
    }

    fn complete_many<'a>(&'a self, completes: &'a [Complete]) -> StoreFuture<'a, Batch<CompleteAnswer>> {
        let doing = "completing records";
        Box::pin(self.many::<CompleteItem, CompleteText, _>("/v1/store/complete", completes, doing))
    }

    fn release_many<'a>(&'a self, releases: &'a [Release]) -> StoreFuture<'a, Batch<ReleaseAnswer>> {
        let doing = "releasing records";
        Box::pin(self.many::<ReleaseItem, ReleaseText, _>("/v1/store/release", releases, doing))
    }

    fn resolve<'a>(&'a self, resolve: &'a Resolve) -> StoreFuture<'a, ResolveAnswer> {
        let item = ResolveItem::from(resolve);
        Box::pin(self.single::<ResolveText>("/v1/store/resolve", item, "resolving a record"))
    }

    fn erase<'a>(&'a self, erase: &'a Erase) -> StoreFuture<'a, EraseAnswer> {
        let item = IdItem { id: id(&erase.id) };
        Box::pin(self.single::<EraseText>("/v1/store/erase", item, "erasing a record"))
    }

    fn lookup<'a>(&'a self, record_id: &'a RecordId) -> StoreFuture<'a, Option<Record>> {
        Box::pin(async move {
            let doing = "looking up a record";
            let item = IdItem { id: id(record_id) };
            let found: LookupText = self.service.ask("/v1/store/lookup", &item, doing).await?;
            found.record.map(|bytes| answers::record(record_id, &bytes, doing)).transpose()
        })
    }

    fn list<'a>(&'a self, listing: &'a Listing) -> StoreFuture<'a, Page> {
        Box::pin(async move {
            let doing = "listing records";
            let page: PageText = self.service.ask("/v1/store/list", &ListItem::from(listing), doing).await?;
            let read = |found: answers::RecordText| {
                let id = RecordId::from_bytes(found.id.0);
                Ok((id, answers::record(&id, &found.record, doing)?))
            };
            let records = page.records.into_iter().map(read).collect::<Result<_, StoreError>>()?;
            let unreadable = page.unreadable.into_iter();
            let unreadable = unreadable
                .map(|found| Unreadable { id: RecordId::from_bytes(found.id.0), why: found.why })
                .collect();
            Ok(Page { records, unreadable, next: page.next.map(|next| RecordId::from_bytes(next.0)) })
        })
    }

    fn sweep(&self, budget: SweepBudget) -> StoreFuture<'_, Swept> {
        Box::pin(async move {
            let item = serde_json::json!({ "budget": budget.get() });
            let swept: SweptText = self.service.ask("/v1/store/sweep", &item, "sweeping").await?;
            let SweptText { removed, dropped, made_unknown, more } = swept;
            Ok(Swept { removed, dropped, made_unknown, more, ..Swept::default() })
        })
    }

    fn stats(&self) -> StoreFuture<'_, Stats> {
        Box::pin(async move {
            let item = serde_json::json!({});
            let stats: StatsText = self.service.ask("/v1/store/stats", &item, "counting records").await?;
            let StatsText { in_flight, completed, released, unknown, unreadable, bytes, oldest_expired_ms } =
                stats;
            let oldest_expired = oldest_expired_ms.map(Duration::from_millis);
            Ok(Stats { in_flight, completed, released, unknown, unreadable, bytes, oldest_expired })
        })
    }

    fn watch<'a>(&'a self, record_id: &'a RecordId) -> StoreFuture<'a, Watch> {
        Box::pin(async move {
            let record_id = id(record_id);
            let item = WaitItem { id: record_id, version: None, within_ms: None };
            let WaitText { version, .. } =
                self.service.ask("/v1/store/wait", &item, "watching a record").await?;
            let client = self.clone();
            Ok(Watch::new(async move { client.changed(record_id, &version).await }))
        })
    }

    fn secret<'a>(&'a self, offered: &'a Secret) -> StoreFuture<'a, Secret> {
        Box::pin(async move {
            let item = serde_json::json!({ "offered": Hex(*offered.expose()) });
            let SecretText { secret } =
                self.service.ask("/v1/store/secret", &item, "agreeing on a secret").await?;
            Ok(Secret::new(secret.0))
        })
    }

    fn import<'a>(&'a self, records: &'a [(RecordId, Record)]) -> StoreFuture<'a, Imported> {
        Box::pin(async move {
            check_import(records)?;
            let items: Vec<_> = records.iter().map(|(id, record)| RecordItem::of(id, record)).collect();
            let mut imported = Imported::default();
            for chunk in self.chunks(&items, "records") {
                let doing = "taking in records";
                let told = self.post("/v1/store/import", chunk.body).await;
                let ImportedText { taken, left } = told.map_err(|trouble| trouble.into_error(doing))?;
                imported.taken += taken;
                imported.left += left;
            }
            Ok(imported)
        })
    }

    fn durability(&self) -> Durability {
        self.service.durability
    }
}

/// Some items of a batch, as the body of one request.
struct Chunk {
    body: Vec<u8>,
    items: usize,
}

impl ClaimsClient {
    async fn post<A: DeserializeOwned>(&self, path: &'static str, body: Vec<u8>) -> Result<A, Trouble> {
        self.service.call(http::Method::POST, path, Some(body), self.service.within).await
    }

    /// A command that has no batch.
    async fn single<A>(
        &self,
        path: &'static str,
        item: impl Serialize,
        doing: &'static str,
    ) -> Result<A::Answer, StoreError>
    where
        A: Reads + DeserializeOwned,
    {
        let answer: A = self.service.ask(path, &item, doing).await?;
        answer.read().map_err(|why| unreadable(why).into_error(doing))
    }

    /// A batch of one.
    async fn one<'a, I, A, C>(
        &self,
        path: &'static str,
        command: &'a C,
        doing: &'static str,
    ) -> Result<A::Answer, StoreError>
    where
        I: From<&'a C> + Serialize,
        A: Reads + DeserializeOwned,
    {
        let answered = self.many::<I, A, C>(path, std::slice::from_ref(command), doing).await?;
        answered.into_iter().next().unwrap_or_else(|| Err(unreadable("no answer").into_error(doing)))
    }

    async fn many<'a, I, A, C>(
        &self,
        path: &'static str,
        commands: &'a [C],
        doing: &'static str,
    ) -> Result<Batch<A::Answer>, StoreError>
    where
        I: From<&'a C> + Serialize,
        A: Reads + DeserializeOwned,
    {
        if commands.len() > BATCH_MAX {
            return Err(
                StoreError::new(StoreErrorKind::Misuse, doing).because("a batch has at most 1000 items")
            );
        }
        let items: Vec<_> = commands.iter().map(I::from).collect();
        let mut batch = Vec::with_capacity(items.len());
        for chunk in self.chunks(&items, "items") {
            match self.post::<Answers<A>>(path, chunk.body).await {
                Ok(answers) if answers.answers.len() == chunk.items => {
                    batch.extend(answers.answers.into_iter().map(|item| read(item, doing)));
                }
                Ok(_) => return Err(unreadable("another number of answers").into_error(doing)),
                Err(trouble) if batch.is_empty() => return Err(trouble.into_error(doing)),
                // What was answered before counts; each of the others has this failure for itself.
                Err(trouble) => {
                    batch.extend((0..chunk.items).map(|_| Err(trouble.clone().into_error(doing))));
                }
            }
        }
        Ok(batch)
    }

    /// Requests that the service takes, of as many items each as fit. Items that fit in none go alone, to be refused.
    fn chunks(&self, items: &[impl Serialize], member: &str) -> Vec<Chunk> {
        let mut chunks = Vec::new();
        let begin = || (format!("{{\"{member}\":[").into_bytes(), 0);
        let (mut body, mut count) = begin();
        for item in items {
            let json = to_json(item);
            if count > 0 && body.len() + json.len() + 3 > self.service.request_bytes_max {
                body.extend_from_slice(b"]}");
                chunks.push(Chunk { body, items: count });
                (body, count) = begin();
            }
            if count > 0 {
                body.push(b',');
            }
            body.extend_from_slice(&json);
            count += 1;
        }
        if count > 0 {
            body.extend_from_slice(b"]}");
            chunks.push(Chunk { body, items: count });
        }
        chunks
    }

    /// Waits for a change, by long polls. A service that fails wakes the watcher, who asks it again anyway.
    async fn changed(&self, record_id: Hex<32>, version: &str) {
        let Service { wait_max, .. } = *self.service;
        loop {
            let item = WaitItem { id: record_id, version: Some(version), within_ms: Some(millis(wait_max)) };
            let waited = self.service.call::<WaitText>(
                http::Method::POST,
                "/v1/store/wait",
                Some(to_json(&item)),
                wait_max + WAIT_MARGIN,
            );
            if waited.await.map_or(true, |waited| waited.changed) {
                return;
            }
        }
    }
}

fn read<A: Reads>(item: Item<A>, doing: &'static str) -> Result<A::Answer, StoreError> {
    match item {
        Item::Answered(answer) => answer.read().map_err(|why| unreadable(why).into_error(doing)),
        Item::Failed { error } => Err(Trouble::of_store(&error).into_error(doing)),
    }
}

fn unreadable(why: &'static str) -> Trouble {
    Trouble::unreadable(onlyonce_core::BoxError::from(why).as_ref())
}
