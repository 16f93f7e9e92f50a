//! What messages have caused, and whether that is right: each message once, none left out.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio_postgres::Client;

use crate::Result;

/// One row for each effect. Nothing keeps a second one out: that is what is checked.
pub(crate) const TABLE: &str = "CREATE TABLE effects (event_id text NOT NULL, body bytea NOT NULL)";

/// Effects that are had in this process.
#[derive(Debug, Clone, Default)]
pub(crate) struct Counted(Arc<Mutex<HashMap<String, u32>>>);

impl Counted {
    pub(crate) fn add(&self, id: &str) {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match counts.get_mut(id) {
            Some(count) => *count += 1,
            None => drop(counts.insert(id.to_owned(), 1)),
        }
    }

    /// How many effects there are, and of how many messages.
    pub(crate) fn had(&self) -> Had {
        let counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Had { effects: counts.values().map(|count| u64::from(*count)).sum(), messages: counts.len() as u64 }
    }
}

/// How many effects there are, and of how many messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Had {
    pub(crate) effects: u64,
    pub(crate) messages: u64,
}

impl Had {
    /// Those in the table.
    pub(crate) async fn in_table(client: &Client) -> Result<Self> {
        let row = client.query_one("SELECT count(*), count(DISTINCT event_id) FROM effects", &[]).await?;
        Ok(Self {
            effects: row.get::<_, i64>(0).unsigned_abs(),
            messages: row.get::<_, i64>(1).unsigned_abs(),
        })
    }

    /// What is wrong with them, if `distinct` messages were published.
    pub(crate) fn fault(self, distinct: u64) -> Option<String> {
        let Self { effects, messages } = self;
        let is_right = effects == distinct && messages == distinct;
        (!is_right)
            .then(|| format!("{effects} effects of {messages} messages, where {distinct} were published"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_effect_that_is_missing_or_there_twice_is_found() {
        let counted = Counted::default();
        for id in ["a", "b"] {
            counted.add(id);
        }
        assert_eq!(counted.had().fault(2), None);
        assert!(counted.had().fault(3).is_some(), "one is missing");
        counted.add("a");
        assert!(counted.had().fault(2).is_some(), "one is there twice");
        assert!(counted.had().fault(3).is_some(), "one is missing and one is there twice");
    }
}
