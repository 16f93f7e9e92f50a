//! The cases: what is sent, in which order, and how the answers are judged. One file for each group of items.
//!
//! Nothing here knows what is inside the endpoint. How often the work ran is read from the answers: two executions
//! give two results if the results carry ids; `--effects` makes it certain.

mod concurrent;
mod disconnect;
mod errors;
mod first;
mod keys;
mod mismatch;
mod replay;
mod scope;

use super::answer::Answer;
use super::items::Group;
use super::options::Options;
use super::probe::{Probe, Request};
use super::verdict::Findings;
use crate::failure::Failure;

/// How keys are written for this endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    Quoted,
    Bare,
}

impl Form {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Quoted => "quoted",
            Self::Bare => "bare",
        }
    }

    fn write(self, key: &str) -> String {
        match self {
            Self::Quoted => quoted(key),
            Self::Bare => key.to_owned(),
        }
    }
}

fn quoted(key: &str) -> String {
    format!("\"{}\"", key.replace('\\', "\\\\").replace('"', "\\\""))
}

/// What the first requests showed: all other cases build on it.
#[derive(Debug)]
pub(crate) struct Base {
    /// The request, without a key.
    request: Request,
    pub(crate) form: Form,
    /// The key of the first request.
    key: String,
    /// The answer to it.
    first: Answer,
    /// By what the answers of two executions can be told apart.
    distinct: Distinct,
}

/// Where the results of two executions differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Distinct {
    Nowhere,
    Body,
    Location,
}

impl Distinct {
    fn of(one: &Answer, other: &Answer) -> Self {
        if one.body != other.body {
            Self::Body
        } else if one.is_same_result(other) {
            Self::Nowhere
        } else {
            Self::Location
        }
    }
}

impl Base {
    /// Does this answer show which execution it came from?
    fn can_tell(&self, answer: &Answer) -> bool {
        match self.distinct {
            Distinct::Nowhere => false,
            Distinct::Body => true,
            Distinct::Location => answer.header("location").is_some(),
        }
    }

    /// The request under this key.
    fn keyed(&self, key: &str) -> Request {
        self.request.keys([self.form.write(key)])
    }
}

/// How often the work ran for two answers to one key.
#[derive(Debug, PartialEq, Eq)]
enum Ran {
    Once,
    Again(String),
    /// It cannot be told.
    Untold,
}

impl Base {
    /// Judges two answers that were taken. `effects` are the counts before the first and after the second of them.
    fn ran(&self, first: &Answer, second: &Answer, effects: Option<(u64, u64)>) -> Ran {
        if let Some((before, after)) = effects {
            let grown = after.saturating_sub(before);
            return match grown {
                1 => Ran::Once,
                0 => Ran::Untold,
                _ => Ran::Again(format!("{grown} effects for one key")),
            };
        }
        // A replay that says so is one, also if it was put together anew: other items compare the bytes.
        let is_marked = second.mark().is_some() && first.mark().is_none();
        match (is_marked, self.can_tell(second), first.is_same_result(second)) {
            (true, _, _) | (false, true, true) => Ran::Once,
            (false, true, false) => Ran::Again("two results for one key".to_owned()),
            (false, false, _) => Ran::Untold,
        }
    }

    /// May `answer` come from the execution that `first` came from?
    fn is_replay(&self, first: &Answer, answer: &Answer) -> bool {
        answer.is_taken() && !matches!(self.ran(first, answer, None), Ran::Again(_))
    }
}

/// What to say when the answers do not tell.
const UNTOLD: &str = "two executions answer alike here: give --effects to see how often the work ran";

/// Pairs two counts, when both are there.
fn counts(before: Option<u64>, after: Option<u64>) -> Option<(u64, u64)> {
    before.zip(after)
}

/// How many requests a group sends at most.
pub(crate) fn requests_max(group: Group, options: &Options) -> u32 {
    match group {
        Group::First => first::REQUESTS_MAX,
        Group::Replay => replay::REQUESTS_MAX,
        Group::Mismatch => mismatch::REQUESTS_MAX,
        Group::Concurrent => concurrent::REQUESTS_MAX + u32::from(options.concurrency),
        Group::Keys => keys::REQUESTS_MAX,
        Group::Scope => scope::REQUESTS_MAX,
        Group::Errors => errors::REQUESTS_MAX,
        Group::Disconnect => disconnect::REQUESTS_MAX,
    }
}

/// Runs the groups, the first one always: the others build on it.
pub(crate) async fn run(
    probe: &Probe,
    options: &Options,
    groups: &[Group],
    findings: &mut Findings,
    progress: impl Fn(Group),
) -> Result<Base, Failure> {
    let base = first::run(probe, options, findings).await?;
    for &group in groups {
        probe.begin(group.as_str());
        progress(group);
        match group {
            Group::First => {}
            Group::Replay => replay::run(probe, &base, findings).await?,
            Group::Mismatch => mismatch::run(probe, options, &base, findings).await?,
            Group::Concurrent => concurrent::run(probe, options, &base, findings).await?,
            Group::Keys => keys::run(probe, &base, findings).await?,
            Group::Scope => scope::run(probe, options, &base, findings).await?,
            Group::Errors => errors::run(probe, options, &base, findings).await?,
            Group::Disconnect => disconnect::run(probe, options, &base, findings).await?,
        }
    }
    Ok(base)
}
