//! The mark of a message that a [`Consumer`](crate::Consumer) handles, set in the handler's own transaction.

use onlyonce_core::Outcome;
use onlyonce_core::transition::{Complete, CompleteAnswer};
use onlyonce_store_postgres::{InTransaction, PostgresStore};

use super::error::InboxError;
use crate::handler::{Handled, Work};

impl Work {
    /// Records `outcome` in `transaction`, with the fence checked there: effect and mark commit together or not at all.
    /// Return what this gives once the commit has succeeded; roll back on an error.
    ///
    /// `store` must be the consumer's own. A commit whose reply was lost is [`Handled::Unknown`]: the next attempt finds
    /// out.
    pub async fn mark_in(
        &self,
        store: &PostgresStore,
        transaction: &mut impl InTransaction,
        outcome: Outcome,
    ) -> Result<Handled, InboxError> {
        let Some(execution) = self.execution() else {
            return Err(InboxError::misuse("a message that nothing names has no mark to set"));
        };
        let complete = Complete { token: execution.token(), outcome: outcome.clone(), retention: None };
        match store.complete_in(transaction, &complete).await? {
            CompleteAnswer::Completed | CompleteAnswer::Already => Ok(Handled::Done(outcome)),
            CompleteAnswer::Fenced | CompleteAnswer::Late | CompleteAnswer::Alarm => {
                Err(InboxError::fenced())
            }
        }
    }
}
