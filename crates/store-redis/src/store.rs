//! The [`Store`]: each operation is one call of one script.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use onlyonce_core::record::Record;
use onlyonce_core::store::{
    BATCH_MAX, Batch, Durability, Imported, Listing, Page, Stats, StoreFuture, SweepBudget, Swept, Watch,
    check_import,
};
use onlyonce_core::transition::{
    Abandon, AbandonAnswer, Claim, ClaimAnswer, Complete, CompleteAnswer, Erase, EraseAnswer, RecordStep,
    Release, ReleaseAnswer, Renew, RenewAnswer, Resolve, ResolveAnswer, StepAnswer, view,
};
use onlyonce_core::{RecordId, Secret, Store, StoreError, StoreErrorKind, Timestamp};
use redis::{Cmd, Value};
use tokio::runtime::Handle;

use crate::asked::{Asked, Call, Situation, Told};
use crate::codec;
use crate::epoch::Incidents;
use crate::error;
use crate::masters::{Item, Masters, Surely};
use crate::options::{Acknowledgement, Options};
use crate::scan::Sweeper;
use crate::scripts::{Script, Scripts, Telling, Time};
use crate::secret::Agreed;
use crate::shared::Shared;
use crate::survival::Survival;
use crate::target::Target;
use crate::watch::Subscriptions;

/// A store on Redis or Valkey. See the crate's documentation for what it survives.
///
/// Clones, and those that [`acknowledged`](Self::acknowledged) makes, share everything but what they wait for.
#[derive(Clone)]
pub struct RedisStore {
    pub(crate) shared: Arc<Shared>,
    pub(crate) masters: Arc<Masters>,
    pub(crate) sweeper: Arc<Sweeper>,
    pub(crate) agreed: Arc<Agreed>,
    subscriptions: Arc<Subscriptions>,
    acknowledgement: Acknowledgement,
}

impl RedisStore {
    /// Connects to what `url` names, and refuses servers that records must not be kept on.
    ///
    /// Connections live on the runtime that this is called on.
    pub async fn connect(url: &str, options: Options) -> Result<Self, StoreError> {
        Self::open(url, options, Time::Server, |shared| shared).await
    }

    /// The same, but leases and retention go by `clock`, which travels with every command. For the store suite.
    #[cfg(feature = "testkit")]
    pub async fn connect_on(
        url: &str,
        options: Options,
        clock: Arc<dyn onlyonce_core::Clock>,
    ) -> Result<Self, StoreError> {
        Self::open(url, options, Time::Test, |shared| shared.on(clock)).await
    }

    async fn open(
        url: &str,
        options: Options,
        time: Time,
        finish: impl FnOnce(Shared) -> Shared,
    ) -> Result<Self, StoreError> {
        options.check().map_err(|error| {
            StoreError::new(StoreErrorKind::Misuse, "opening the Redis store").because(error)
        })?;
        let target = Target::parse(url, &options)?;
        let telling =
            if matches!(target, Target::Cluster { .. }) { Telling::Shard } else { Telling::Everywhere };
        let scripts = Scripts::new(time, telling);
        let acknowledgement = options.acknowledgement;
        let shared = Arc::new(finish(Shared::new(options, scripts, telling, Handle::current())));
        let masters = Masters::open(&shared, target).await?;
        let store = Self {
            subscriptions: Arc::default(),
            sweeper: Arc::default(),
            agreed: Arc::default(),
            masters: Arc::new(masters),
            acknowledgement: Acknowledgement::None,
            shared,
        };
        store.acknowledged(acknowledgement)
    }

    /// The same store, whose grants and outcomes wait for `acknowledgement` in place of what the options say: one handle
    /// for each route that wants something else. All that wait share connections, and hold up none of the others.
    ///
    /// Refuses what the options would refuse, and what the servers cannot do.
    pub fn acknowledged(&self, acknowledgement: Acknowledgement) -> Result<Self, StoreError> {
        const DOING: &str = "choosing an acknowledgement";
        acknowledgement
            .check(self.shared.options.timeout)
            .map_err(|error| StoreError::new(StoreErrorKind::Misuse, DOING).because(error))?;
        for live in self.masters.all().iter().filter_map(|node| node.live()) {
            live.facts
                .check_acknowledgement(acknowledgement)
                .map_err(|why| StoreError::new(StoreErrorKind::Unavailable, DOING).because(why))?;
        }
        Ok(Self { acknowledgement, ..self.clone() })
    }

    /// What happened to the servers since the store was opened.
    pub fn incidents(&self) -> Incidents {
        self.shared.counts.get()
    }

    /// What an answered command survives, and what it does not, in words.
    pub fn survival(&self) -> Survival {
        Survival::new(&self.masters.all(), self.acknowledgement)
    }

    /// One command: one round trip.
    async fn ask<C: Asked>(&self, command: &C) -> Result<C::Answer, StoreError> {
        if self.surely::<C>().acknowledgement != Acknowledgement::None {
            let mut answers = self.ask_many(std::slice::from_ref(command)).await?;
            return answers.pop().unwrap_or_else(|| Err(error::unreachable("no answer came", C::DOING)));
        }
        self.announce(command.lease()).await;
        let key = self.shared.key_of(command.id());
        let pack = self.packs(command, &key);
        let value = self.masters.run(&key, Call::For(&pack), C::DOING).await?;
        command.answer(value)
    }

    /// Many commands: one round trip to each server.
    async fn ask_many<C: Asked>(&self, commands: &[C]) -> Result<Batch<C::Answer>, StoreError> {
        if commands.len() > BATCH_MAX {
            return Err(StoreError::new(
                StoreErrorKind::Misuse,
                "running a batch of more than 1000 commands",
            ));
        }
        self.announce(commands.iter().map(Asked::lease).max().unwrap_or_default()).await;
        let keys: Vec<_> = commands.iter().map(|command| self.shared.key_of(command.id())).collect();
        let packs: Vec<_> =
            commands.iter().zip(&keys).map(|(command, key)| self.packs(command, key)).collect();
        let items: Vec<_> =
            keys.iter().zip(&packs).map(|(key, pack)| Item { key, call: Call::For(pack) }).collect();
        let values = self.masters.run_all(&items, self.surely::<C>()).await;
        Ok(commands.iter().zip(values).map(|(command, value)| command.answer(value?)).collect())
    }

    /// What a command waits for: grants and outcomes as was chosen, the rest for nothing.
    const fn surely<C: Asked>(&self) -> Surely {
        if C::IS_SURE {
            Surely { doing: C::DOING, acknowledgement: self.acknowledgement }
        } else {
            Surely::plainly(C::DOING)
        }
    }

    /// Makes the call of a command for the server that it is sent to.
    fn packs<C: Asked>(&self, command: &C, key: &[u8]) -> impl Fn(Situation) -> Cmd + Sync {
        let is_touched = self.surely::<C>().acknowledgement != Acknowledgement::None;
        move |situation| {
            let situation = Situation { is_touched, ..situation };
            self.shared.call(C::SCRIPT, key, |call| command.arguments(situation, call))
        }
    }

    /// A call of a script on the record's key, with nothing but these words.
    pub(crate) fn read_call(&self, script: Script, id: &RecordId, words: &[&str]) -> (Vec<u8>, Cmd) {
        let key = self.shared.key_of(id);
        let call = self.shared.call(script, &key, |call| {
            call.arg(words);
        });
        (key, call)
    }

    /// Lets the servers know how long leases can be before one that long is used: whoever finds records lost must
    /// know, also when this process is gone by then.
    async fn announce(&self, lease: Duration) {
        if self.shared.is_unannounced(lease) {
            self.shared.see_lease(lease);
            for node in self.masters.all() {
                node.announce_lease().await;
            }
            self.shared.set_announced(lease);
        }
    }

    async fn look_up(&self, id: &RecordId) -> Result<Option<Record>, StoreError> {
        let key = self.shared.key_of(id);
        let call = self.shared.call(Script::Lookup, &key, |_| {});
        let value = self.masters.run(&key, &call, "looking a record up").await?;
        read_record(id, value)
    }

    async fn take_in(&self, records: &[(RecordId, Record)]) -> Result<Imported, StoreError> {
        const DOING: &str = "taking in records";
        check_import(records)?;
        // ORDER: fences are raised before a record can be seen, so that no grant in between is lower.
        if let Some(highest) = records.iter().map(|(_, record)| record.fence.get()).max() {
            self.shared.raise_fence_source(highest + 1);
            for node in self.masters.all() {
                node.raise_fences_above(highest).await?;
            }
        }
        let mut calls = Vec::with_capacity(records.len());
        for (id, record) in records {
            let key = self.shared.key_of(id);
            let (head, tail) = codec::encode(id, record);
            let call = self.shared.call(Script::Import, &key, |call| {
                call.arg(codec::state_and_expiry(record)).arg(head).arg(tail);
            });
            calls.push((key, call));
        }
        let mut imported = Imported::default();
        for value in self.masters.run_packed(&calls, DOING).await {
            match Told::new(value?, DOING)?.0 {
                1 => imported.taken += 1,
                _ => imported.left += 1,
            }
        }
        Ok(imported)
    }

    async fn set_watch(&self, id: &RecordId) -> Result<Watch, StoreError> {
        let key = self.shared.key_of(id);
        let node = self.masters.of(&key, "watching a record")?;
        Ok(self.subscriptions.watch(&self.shared, node, *id, key).await)
    }
}

/// What `lookup.lua` answered, as commands would read it.
pub(crate) fn read_record(id: &RecordId, value: Value) -> Result<Option<Record>, StoreError> {
    const DOING: &str = "looking a record up";
    if value == Value::Nil {
        return Ok(None);
    }
    let (now, mut told) = Told::new(value, DOING)?;
    let now = Timestamp::from_millis(u64::try_from(now).unwrap_or_default());
    let record = codec::decode(id, &told.bytes()?).map_err(|error| StoreError::undecodable(error, DOING))?;
    Ok(view(Some(&record), now).map(std::borrow::Cow::into_owned))
}

impl fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisStore")
            .field("prefix", &self.shared.options.prefix)
            .field("on", &self.masters)
            .finish()
    }
}

/// Runs a command and wakes whoever waits for its record in this process, if the answer says that it changed.
macro_rules! asked {
    ($self:ident, $command:ident, $changed:pat) => {
        Box::pin(async move {
            let answer = $self.ask($command).await?;
            if matches!(answer, $changed) {
                $self.shared.watches.wake(Asked::id($command));
            }
            Ok(answer)
        })
    };
}

/// The same for a batch.
macro_rules! asked_many {
    ($self:ident, $commands:ident, $changed:pat) => {
        Box::pin(async move {
            let answers = $self.ask_many($commands).await?;
            for (command, answer) in $commands.iter().zip(&answers) {
                if matches!(answer, Ok($changed)) {
                    $self.shared.watches.wake(Asked::id(command));
                }
            }
            Ok(answers)
        })
    };
}

impl Store for RedisStore {
    fn claim<'a>(&'a self, claim: &'a Claim) -> StoreFuture<'a, ClaimAnswer> {
        asked!(self, claim, ClaimAnswer::Granted(_) | ClaimAnswer::Replay(_) | ClaimAnswer::Held(_))
    }

    fn renew<'a>(&'a self, renew: &'a Renew) -> StoreFuture<'a, RenewAnswer> {
        Box::pin(self.ask(renew))
    }

    fn complete<'a>(&'a self, complete: &'a Complete) -> StoreFuture<'a, CompleteAnswer> {
        asked!(self, complete, CompleteAnswer::Completed | CompleteAnswer::Late)
    }

    fn release<'a>(&'a self, release: &'a Release) -> StoreFuture<'a, ReleaseAnswer> {
        asked!(self, release, ReleaseAnswer::Released)
    }

    fn abandon<'a>(&'a self, abandon: &'a Abandon) -> StoreFuture<'a, AbandonAnswer> {
        asked!(self, abandon, AbandonAnswer::Abandoned)
    }

    fn record_step<'a>(&'a self, step: &'a RecordStep) -> StoreFuture<'a, StepAnswer> {
        Box::pin(self.ask(step))
    }

    fn claim_many<'a>(&'a self, claims: &'a [Claim]) -> StoreFuture<'a, Batch<ClaimAnswer>> {
        asked_many!(self, claims, ClaimAnswer::Granted(_) | ClaimAnswer::Replay(_) | ClaimAnswer::Held(_))
    }

    fn renew_many<'a>(&'a self, renews: &'a [Renew]) -> StoreFuture<'a, Batch<RenewAnswer>> {
        Box::pin(self.ask_many(renews))
    }

    fn complete_many<'a>(&'a self, completes: &'a [Complete]) -> StoreFuture<'a, Batch<CompleteAnswer>> {
        asked_many!(self, completes, CompleteAnswer::Completed | CompleteAnswer::Late)
    }

    fn release_many<'a>(&'a self, releases: &'a [Release]) -> StoreFuture<'a, Batch<ReleaseAnswer>> {
        asked_many!(self, releases, ReleaseAnswer::Released)
    }

    fn resolve<'a>(&'a self, resolve: &'a Resolve) -> StoreFuture<'a, ResolveAnswer> {
        asked!(self, resolve, ResolveAnswer::Resolved)
    }

    fn erase<'a>(&'a self, erase: &'a Erase) -> StoreFuture<'a, EraseAnswer> {
        asked!(self, erase, EraseAnswer::Erased)
    }

    fn lookup<'a>(&'a self, id: &'a RecordId) -> StoreFuture<'a, Option<Record>> {
        Box::pin(self.look_up(id))
    }

    fn list<'a>(&'a self, listing: &'a Listing) -> StoreFuture<'a, Page> {
        Box::pin(self.list_records(listing))
    }

    fn sweep(&self, budget: SweepBudget) -> StoreFuture<'_, Swept> {
        Box::pin(self.sweep_some(budget))
    }

    fn stats(&self) -> StoreFuture<'_, Stats> {
        Box::pin(self.count_records())
    }

    fn watch<'a>(&'a self, id: &'a RecordId) -> StoreFuture<'a, Watch> {
        Box::pin(self.set_watch(id))
    }

    fn secret<'a>(&'a self, offered: &'a Secret) -> StoreFuture<'a, Secret> {
        Box::pin(self.keep_secret(offered))
    }

    fn import<'a>(&'a self, records: &'a [(RecordId, Record)]) -> StoreFuture<'a, Imported> {
        Box::pin(self.take_in(records))
    }

    fn durability(&self) -> Durability {
        self.survival().durability()
    }
}
