//! Ways of having an effect, and of counting how often it was had.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::{Arc, Mutex};

use super::stops::{Stops, Window};
use crate::handler::{Handled, Work};

/// What a handler does in the suite.
pub trait Effect: Clone + Send + Sync + 'static {
    /// Whether the effect and its mark are one transaction: then it is had once, whatever is killed.
    const TRANSACTIONAL: bool;

    /// Has the effect of a message, and stops at [`Window::W1`] before it and at [`Window::W2`] after it.
    fn handle(&self, work: Work, stops: Stops) -> impl Future<Output = Handled> + Send;

    /// How often the message named `name` had its effect.
    fn count(&self, name: &str) -> impl Future<Output = usize> + Send;
}

/// Effects outside the store, as mails and charges are: a list in this process that every simulated process writes to.
#[derive(Debug, Clone, Default)]
pub struct Ledger(Arc<Mutex<BTreeMap<String, Vec<String>>>>);

impl Ledger {
    /// The downstream keys under which a message had its effects.
    pub fn keys(&self, name: &str) -> Vec<String> {
        self.0.lock().expect("nobody panics with it").get(name).cloned().unwrap_or_default()
    }
}

impl Effect for Ledger {
    const TRANSACTIONAL: bool = false;

    async fn handle(&self, work: Work, stops: Stops) -> Handled {
        stops.pass(Window::W1).await;
        let name = name_of(&work);
        let key = work.execution().map(|execution| execution.downstream_key("effect").as_str().to_owned());
        let key = key.unwrap_or_default();
        self.0.lock().expect("nobody panics with it").entry(name).or_default().push(key);
        stops.pass(Window::W2).await;
        Handled::with(outcome_of(&work))
    }

    async fn count(&self, name: &str) -> usize {
        let keys = self.keys(name);
        assert!(
            keys.windows(2).all(|pair| pair[0] == pair[1]),
            "every attempt shows the same downstream key"
        );
        keys.len()
    }
}

/// What a message of the suite is called.
pub(crate) fn name_of(work: &Work) -> String {
    String::from_utf8_lossy(&work.message().body).into_owned()
}

/// What an attempt leaves behind: which one it was.
pub(crate) fn outcome_of(work: &Work) -> String {
    format!("attempt {}", work.attempt())
}
