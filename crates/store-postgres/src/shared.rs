//! What the store, its lanes and its ear have in common.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use onlyonce_core::record::CompletedBy;
use onlyonce_core::store::Watches;
use onlyonce_core::transition::{Answer, ClaimAnswer, Command, CompleteAnswer};
use onlyonce_core::{Clock, StoreError};

use crate::batch;
use crate::check::Facts;
use crate::connect::{Connection, Connector};
use crate::error::OpenError;

/// How many ways there are to put the functions of a batch together.
const TEXTS: usize = 16;

pub(crate) struct Shared {
    connector: Connector,
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
            connector,
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

    pub(crate) fn schema(&self) -> &str {
        &self.connector.options().schema
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
        let make = || batch::text(self.schema(), functions, self.clock.is_some());
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
