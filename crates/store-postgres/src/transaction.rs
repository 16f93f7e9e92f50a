//! Claims and completions inside the caller's own transaction: effect, mark and outcome commit together or vanish
//! together. This is the only mode that may be called exactly once.
//!
//! ```no_run
//! # use onlyonce_core::transition::{Claim, ClaimAnswer, Complete, Token};
//! # use onlyonce_store_postgres::PostgresStore;
//! # async fn pay(store: &PostgresStore, client: &mut tokio_postgres::Client, claim: Claim)
//! # -> Result<(), Box<dyn std::error::Error>> {
//! let mut transaction = client.transaction().await?;
//! match store.claim_in(&mut transaction, &claim).await? {
//!     ClaimAnswer::Granted(grant) => {
//!         transaction.execute("INSERT INTO payments (amount) VALUES (100)", &[]).await?;
//!         let token = Token { id: claim.id, owner: claim.owner, fence: grant.fence };
//!         let outcome = onlyonce_core::Outcome::kept(1, "paid");
//!         store.complete_in(&mut transaction, &Complete { token, outcome, retention: None }).await?;
//!         transaction.commit().await?;
//!     }
//!     other => println!("nothing to do: {other:?}"),
//! }
//! # Ok(())
//! # }
//! ```
//!
//! A claim that meets one in an open transaction waits until that one ends, for as long as the caller's own
//! `lock_timeout` allows. When a commit's reply is lost, claim again: the answer is the outcome, or a new grant.

#[cfg(feature = "sqlx")]
mod sqlx;

use std::future::Future;
use std::pin::Pin;

use onlyonce_core::transition::{Answer, Claim, ClaimAnswer, Command, Complete, CompleteAnswer};
use onlyonce_core::{StoreError, StoreErrorKind};
use tokio_postgres::types::{ToSql, Type};

use crate::arrays::{ClaimArrays, CompleteArrays, argument};
use crate::batch;
use crate::error::CallError;
use crate::lanes::doing_of;
use crate::postgres::PostgresStore;
use crate::row::{self, Answered};

/// A transaction of the caller's: one of tokio-postgres 0.7 and, with the feature `sqlx`, one of sqlx 0.9.
///
/// Not to be implemented by others.
pub trait InTransaction: private::Sealed + Send {
    #[doc(hidden)]
    fn call<'t>(&'t mut self, call: Call<'t>) -> Called<'t>;
}

pub(crate) mod private {
    use super::{Answer, Command, Future, Pin, StoreError};

    pub trait Sealed {}

    /// What an answer comes as, with the time of expiry if the body waits for its day to be made.
    pub(crate) type Called<'t> =
        Pin<Box<dyn Future<Output = Result<(Answer, Option<i64>), StoreError>> + Send + 't>>;

    /// One command, and where its functions are.
    #[derive(Debug)]
    pub struct Call<'t> {
        pub(crate) schema: &'t str,
        pub(crate) at: Option<i64>,
        pub(crate) command: Command,
    }
}

use private::{Call, Called};

impl Call<'_> {
    /// The text: without a bound on the wait for others, which is the caller's own business.
    pub(crate) fn text(&self) -> String {
        let (name, count) =
            if matches!(self.command, Command::Claim(_)) { ("claim", 17) } else { ("complete", 9) };
        let numbers: Vec<_> = (1..=count).map(|number| format!("${number}")).collect();
        let at = if self.at.is_some() { format!(", at => ${}", count + 1) } else { String::new() };
        format!("SELECT * FROM {}.{name}({}{at})", self.schema, numbers.join(", "))
    }

    /// What the command is told by the row that came back.
    pub(crate) fn told(&self, row: Option<&impl Answered>) -> Result<(Answer, Option<i64>), StoreError> {
        let doing = doing_of(&self.command);
        // INVARIANT: nobody is left out in a stranger's transaction, which waits.
        let told = batch::told(&self.command, row.map(row::answer), doing)
            .unwrap_or_else(|| Err(StoreError::undecodable(row::STRANGE, doing)))?;
        Ok((told, row.and_then(row::missed_day)))
    }
}

impl private::Sealed for tokio_postgres::Transaction<'_> {}

impl InTransaction for tokio_postgres::Transaction<'_> {
    fn call<'t>(&'t mut self, call: Call<'t>) -> Called<'t> {
        Box::pin(async move {
            let mut arguments = match &call.command {
                Command::Claim(claim) => ClaimArrays::of(&[claim]).into_arguments(),
                Command::Complete(complete) => CompleteArrays::of(&[complete]).into_arguments(),
                // INVARIANT: only these two are called in a transaction.
                _ => Vec::new(),
            };
            arguments.extend(call.at.map(|at| argument(at, Type::INT8)));
            let typed: Vec<(&(dyn ToSql + Sync), Type)> =
                arguments.iter().map(|(value, of)| (&**value as &(dyn ToSql + Sync), of.clone())).collect();
            // Unnamed, as a pooler in between needs it.
            let rows = self.query_typed(&call.text(), &typed).await;
            let rows = rows.map_err(|error| CallError::Failed(error).of(doing_of(&call.command)))?;
            call.told(rows.first())
        })
    }
}

impl PostgresStore {
    /// Claims inside `transaction`: the grant is there once it commits, and was never there if it does not.
    pub async fn claim_in(
        &self,
        transaction: &mut impl InTransaction,
        claim: &Claim,
    ) -> Result<ClaimAnswer, StoreError> {
        match self.call_in(transaction, Command::Claim(claim.clone())).await? {
            Answer::Claim(answer) => Ok(answer),
            _ => Err(StoreError::new(StoreErrorKind::Corrupt, "claiming a record")),
        }
    }

    /// Completes inside `transaction`, with the fence checked there: what was written beside it counts only if the
    /// grant was still held. Anything but `Completed` and `Already` calls for a rollback.
    pub async fn complete_in(
        &self,
        transaction: &mut impl InTransaction,
        complete: &Complete,
    ) -> Result<CompleteAnswer, StoreError> {
        match self.call_in(transaction, Command::Complete(complete.clone())).await? {
            Answer::Complete(answer) => Ok(answer),
            _ => Err(StoreError::new(StoreErrorKind::Corrupt, "completing a record")),
        }
    }

    async fn call_in(
        &self,
        transaction: &mut impl InTransaction,
        command: Command,
    ) -> Result<Answer, StoreError> {
        let (schema, at) = (self.shared.quoted_schema(), self.shared.at());
        let (answer, missed_day) = transaction.call(Call { schema, at, command }).await?;
        if let Some(due_at) = missed_day {
            // Not in that transaction: all who need the same partition would wait for it to end.
            self.shared.make_day(due_at);
        }
        Ok(answer)
    }
}
