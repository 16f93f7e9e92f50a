//! The clauses, by what they are about.

mod answers;
mod bodies;
mod choices;
mod enforcement;
mod execution;
mod principals;
mod profiles;
mod stores;
mod syntax;

pub use answers::*;
pub use bodies::*;
pub use choices::*;
pub use enforcement::*;
pub use execution::*;
pub use principals::*;
pub use profiles::*;
pub use stores::*;
pub use syntax::*;

use super::{Ask, Got, Stage};

/// A keyed POST.
fn ask(key: &str) -> Ask {
    Ask::post("/payments").key(key)
}

/// Names in a rule.
fn list(items: &[&str]) -> Vec<String> {
    items.iter().map(|&item| item.into()).collect()
}

/// Asserts that one of our own answers came back.
#[track_caller]
fn is_problem(got: &Got, status: u16, kind: &str) {
    assert_eq!((got.status, got.problem().as_str()), (status, kind), "{got:?}");
}

/// Asserts that the application ran for this, as execution `effect`.
#[track_caller]
fn is_first(got: &Got, effect: u64) {
    assert_eq!((got.effect(), got.is_replay()), (effect, false), "{got:?}");
}

/// Asserts that this is a replay of execution `effect`.
#[track_caller]
fn is_replay(got: &Got, effect: u64) {
    assert_eq!((got.effect(), got.is_replay()), (effect, true), "{got:?}");
}

/// Asserts that the same request runs once and is replayed after that.
async fn runs_once(stage: &Stage, ask: Ask) {
    let before = u64::from(stage.effects());
    is_first(&stage.call(ask.clone()).await, before + 1);
    is_replay(&stage.call(ask).await, before + 1);
}
