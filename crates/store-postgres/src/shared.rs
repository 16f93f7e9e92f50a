//! What the store, its lanes and its ear have in common.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use onlyonce_core::record::CompletedBy;
use onlyonce_core::store::Watches;
use onlyonce_core::transition::{Answer, ClaimAnswer, Command, CompleteAnswer};
use onlyonce_core::{Clock, RecordId, StoreError, StoreErrorKind};
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use crate::arrays::argument;
use crate::batch::{self, Patience};
use crate::calls;
use crate::check::Facts;
use crate::connect::{Argument, Connection, Connector};
use crate::error::{OpenError, chain};
use crate::lanes::{Held, Job, Queue, Single};

/// How many ways there are to put the functions of a batch together.
const TEXTS: usize = 16;
/// How often a partition is tried to be made before the next body that misses it starts over.
const DAY_TRIES: u32 = 5;
/// How long to wait in between.
const DAY_AGAIN_AFTER: Duration = Duration::from_secs(1);

/// What a function takes after its own arguments.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Tail<'i> {
    /// No more.
    Nothing,
    /// The time, in tests.
    Clock,
    /// How long to wait for the row of this record, and the time.
    Row(&'i RecordId),
}

pub(crate) struct Shared {
    connector: Connector,
    quoted_schema: String,
    /// Where the connections live.
    pub(crate) runtime: Handle,
    /// Claims, completions, renewals, releases.
    pub(crate) commands: Arc<Queue>,
    /// Everything else.
    pub(crate) calls: Arc<Queue>,
    /// What of both waits for other transactions.
    pub(crate) held: Held,
    /// Whether a partition for bodies is being made.
    making_day: AtomicBool,
    /// In place of the server's clock: only tests have one.
    clock: Option<Arc<dyn Clock>>,
    texts: [OnceLock<Arc<str>>; TEXTS],
    pub(crate) watches: Watches,
    /// Whether changes by other processes are heard of.
    pub(crate) listening: AtomicBool,
    node_loss: AtomicBool,
}

impl Shared {
    pub(crate) fn new(connector: Connector, clock: Option<Arc<dyn Clock>>) -> Self {
        Self {
            quoted_schema: connector.options().quoted_schema(),
            connector,
            runtime: Handle::current(),
            commands: Arc::default(),
            calls: Arc::default(),
            held: Held::default(),
            making_day: AtomicBool::new(false),
            clock,
            texts: Default::default(),
            watches: Watches::default(),
            listening: AtomicBool::new(false),
            node_loss: AtomicBool::new(false),
        }
    }

    pub(crate) fn connector(&self) -> &Connector {
        &self.connector
    }

    /// The name of the schema.
    pub(crate) fn schema(&self) -> &str {
        &self.connector.options().schema
    }

    /// The same as it is written in a statement.
    pub(crate) fn quoted_schema(&self) -> &str {
        &self.quoted_schema
    }

    /// Makes the partition for bodies that expire at `due_at`, in a transaction of its own and while nobody waits.
    pub(crate) fn make_day(self: &Arc<Self>, due_at: i64) {
        if self.making_day.swap(true, Ordering::Relaxed) {
            // Whoever misses it after that asks again.
            return;
        }
        let shared = Arc::clone(self);
        self.runtime.spawn(async move {
            for _ in 0..DAY_TRIES {
                let due = argument(vec![due_at], Type::INT8_ARRAY);
                match shared.call("make_days", vec![due], Tail::Clock, "making a partition").await {
                    Ok(_) => break,
                    Err(error) => {
                        let error = chain(&error);
                        tracing::warn!(%error, "no partition for large bodies; they stay in their rows");
                    }
                }
                tokio::time::sleep(DAY_AGAIN_AFTER).await;
            }
            shared.making_day.store(false, Ordering::Relaxed);
        });
    }

    /// Calls one function on a lane of its own: dropping the future cancels nothing.
    pub(crate) async fn call(
        &self,
        function: &str,
        mut arguments: Vec<Argument>,
        tail: Tail<'_>,
        doing: &'static str,
    ) -> Result<Vec<Row>, StoreError> {
        let at = self.at().filter(|_| !matches!(tail, Tail::Nothing));
        let takes = match tail {
            Tail::Row(id) => Some((*id, arguments.len())),
            Tail::Nothing | Tail::Clock => None,
        };
        arguments.extend(takes.map(|_| argument(Patience::SHORT.millis(), Type::INT4)));
        arguments.extend(at.map(|at| argument(at, Type::INT8)));
        let text = calls::text(self.quoted_schema(), function, arguments.len());
        let (reply, answer) = oneshot::channel();
        let job = Job::Single(Single { text, arguments, takes, doing, reply });
        match takes {
            Some((id, _)) if self.held.has(&id) => self.held.push(id, job).map_err(|job| job.refused())?,
            _ => self.calls.push(job)?,
        }
        answer.await.map_err(|_| closed(doing))?
    }

    /// No more is coming: what waits is carried, and then the lanes end.
    pub(crate) fn close(&self) {
        self.commands.close();
        self.calls.close();
        self.held.close();
    }

    /// Lets a command travel with whatever else waits, or wait for whoever holds its record.
    pub(crate) fn push(
        &self,
        command: Command,
        reply: oneshot::Sender<Result<Answer, StoreError>>,
    ) -> Result<(), StoreError> {
        let id = *command.id();
        let job = Job::Command(command, reply);
        if self.held.has(&id) {
            self.held.push(id, job).map_err(|job| job.refused())
        } else {
            self.commands.push(job)
        }
    }

    /// A connection to a server that may keep records in our schema.
    ///
    /// Looked at each time: after a fail-over, or behind a pooler, it may be another server.
    pub(crate) async fn connect(&self) -> Result<Connection, OpenError> {
        let (connection, facts) = self.connector.connect().await?;
        facts.refuse_other_schema(self.schema())?;
        self.learn(facts);
        Ok(connection)
    }

    fn learn(&self, facts: Facts) {
        self.node_loss.store(facts.has_synchronous_standby, Ordering::Relaxed);
    }

    pub(crate) fn survives_node_loss(&self) -> bool {
        self.node_loss.load(Ordering::Relaxed)
    }

    /// The time to be sent in place of the server's.
    pub(crate) fn at(&self) -> Option<i64> {
        self.clock.as_ref().map(|clock| crate::column::time(clock.now()))
    }

    /// The text of a call of `functions`, made once.
    pub(crate) fn batch_text(&self, functions: u8) -> Arc<str> {
        let make = || batch::text(self.quoted_schema(), functions, self.clock.is_some());
        match self.texts.get(usize::from(functions)) {
            Some(text) => Arc::clone(text.get_or_init(make)),
            None => make(),
        }
    }

    /// Wakes who waits in this process, after whatever may have changed the record.
    pub(crate) fn wake_after(&self, command: &Command, told: &Result<Answer, StoreError>) {
        let changed = match told {
            Ok(Answer::Claim(answer)) => match answer {
                ClaimAnswer::Granted(_) | ClaimAnswer::Recover(_) | ClaimAnswer::Held(_) => true,
                ClaimAnswer::Replay(replay) => replay.by == CompletedBy::Seal,
                _ => false,
            },
            Ok(Answer::Complete(answer)) => {
                matches!(answer, CompleteAnswer::Completed | CompleteAnswer::Late)
            }
            Ok(Answer::Renew(_)) => false,
            Ok(_) => true,
            Err(error) => error.outcome_unknown(),
        };
        if changed {
            self.watches.wake(command.id());
        }
    }
}

/// The failure of a command whose lanes are gone.
pub(crate) fn closed(doing: &'static str) -> StoreError {
    StoreError::new(StoreErrorKind::Unavailable, doing)
        .because("the runtime of the store has ended")
        .with_unknown_outcome()
}
