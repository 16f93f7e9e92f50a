//! Which server a key belongs to, and how the answer "not here" is followed.

mod cluster;
mod slot;

use std::sync::Arc;

use onlyonce_core::StoreError;
use redis::{Cmd, ServerError, Value};

use crate::acknowledged;
use crate::asked::Call;
use crate::error;
use crate::node::{Node, Place};
use crate::options::Acknowledgement;
use crate::shared::Shared;
use crate::target::Target;

use cluster::Cluster;

/// How often one command is sent on before it is given up. None of the times before did it run.
const TRIES_MAX: usize = 5;

/// What is done, and what must have acknowledged it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Surely {
    pub(crate) doing: &'static str,
    pub(crate) acknowledgement: Acknowledgement,
}

impl Surely {
    /// Nothing but the server's own answer.
    pub(crate) const fn plainly(doing: &'static str) -> Self {
        Self { doing, acknowledgement: Acknowledgement::None }
    }
}

/// The servers that records are kept on.
#[derive(Debug)]
pub(crate) enum Masters {
    One(Arc<Node>),
    Cluster(Cluster),
}

impl Masters {
    /// Connects to every server that `target` names or leads to.
    pub(crate) async fn open(shared: &Arc<Shared>, target: Target) -> Result<Self, StoreError> {
        let place = match target {
            Target::One(info) => Place::At(info),
            Target::Sentinel { sentinels, name, like } => Place::Led { sentinels, name, like },
            Target::Cluster { seeds } => return Ok(Self::Cluster(Cluster::open(shared, seeds).await?)),
        };
        let node = Arc::new(Node::new(Arc::clone(shared), place, shared.key_named("epoch")));
        node.started().await?;
        Ok(Self::One(node))
    }

    /// The server of `key`.
    pub(crate) fn of(&self, key: &[u8], doing: &'static str) -> Result<Arc<Node>, StoreError> {
        match self {
            Self::One(node) => Ok(Arc::clone(node)),
            Self::Cluster(cluster) => cluster.of(slot::of(key), doing),
        }
    }

    /// Every server.
    pub(crate) fn all(&self) -> Vec<Arc<Node>> {
        match self {
            Self::One(node) => vec![Arc::clone(node)],
            Self::Cluster(cluster) => cluster.all(),
        }
    }

    /// Runs one call of a script on `key`, wherever the key is.
    pub(crate) async fn run(
        &self,
        key: &[u8],
        call: impl Into<Call<'_>> + Send,
        doing: &'static str,
    ) -> Result<Value, StoreError> {
        let call = call.into();
        let mut node = self.of(key, doing)?;
        let mut answer = node.call(call, doing).await;
        for _ in 1..TRIES_MAX {
            // Nothing was sent, and another server has taken the place of this one meanwhile.
            if !answer.as_ref().is_err_and(|failure| !failure.outcome_unknown() && node.is_retired()) {
                break;
            }
            node = self.of(key, doing)?;
            answer = node.call(call, doing).await;
        }
        match answer? {
            Value::ServerError(error) => Ok(self.follow(node, error, call, doing).await?.1),
            answer => Ok(answer),
        }
    }

    /// The same for calls that are the same for every server.
    pub(crate) async fn run_packed(
        &self,
        calls: &[(Arc<Node>, Cmd)],
        doing: &'static str,
    ) -> Vec<Result<Value, StoreError>> {
        let calls = calls.iter().map(|(node, call)| (Arc::clone(node), Call::Packed(call))).collect();
        self.run_all(calls, Surely::plainly(doing)).await
    }

    /// Runs calls of one script, each on a key of its own, in one round trip to each server. One answer for each.
    pub(crate) async fn run_all(
        &self,
        calls: Vec<(Arc<Node>, Call<'_>)>,
        surely: Surely,
    ) -> Vec<Result<Value, StoreError>> {
        let mut answers: Vec<Option<Result<Value, StoreError>>> = calls.iter().map(|_| None).collect();
        let mut batches: Vec<(Arc<Node>, Vec<usize>)> = Vec::new();
        for (at, (node, _)) in calls.iter().enumerate() {
            match batches.iter_mut().find(|(known, _)| Arc::ptr_eq(known, node)) {
                Some((_, places)) => places.push(at),
                None => batches.push((Arc::clone(node), vec![at])),
            }
        }
        for (node, places) in batches {
            let batch: Vec<_> = places.iter().map(|at| calls[*at].1).collect();
            match self.run_batch(&node, &batch, surely).await {
                Ok(values) => {
                    for (at, value) in places.into_iter().zip(values) {
                        answers[at] = Some(value);
                    }
                }
                Err(failure) => {
                    let failure = for_each_item(&failure, surely.doing);
                    for at in places {
                        answers[at] = Some(Err(failure()));
                    }
                }
            }
        }
        let missing = || Err(error::unreachable("the server gave too few answers", surely.doing));
        answers.into_iter().map(|answer| answer.unwrap_or_else(missing)).collect()
    }

    /// One round trip; a second one for what was not there.
    async fn run_batch(
        &self,
        node: &Arc<Node>,
        calls: &[Call<'_>],
        surely: Surely,
    ) -> Result<Vec<Result<Value, StoreError>>, StoreError> {
        let Surely { doing, acknowledgement } = surely;
        let wait = acknowledged::command(acknowledgement);
        let mut values = node.call_all(calls, wait.as_ref(), doing).await?;
        if wait.is_some() {
            acknowledged::check(acknowledgement, &values.pop().unwrap_or_default(), doing)?;
        }
        let mut answers = Vec::with_capacity(calls.len());
        for (call, value) in calls.iter().zip(values) {
            answers.push(match value {
                Value::ServerError(refusal) => {
                    self.follow_surely(node, refusal, *call, wait.as_ref(), surely).await
                }
                value => Ok(value),
            });
        }
        Ok(answers)
    }

    async fn follow_surely(
        &self,
        node: &Arc<Node>,
        refusal: ServerError,
        call: Call<'_>,
        wait: Option<&Cmd>,
        surely: Surely,
    ) -> Result<Value, StoreError> {
        let Surely { doing, acknowledgement } = surely;
        let (node, value) = self.follow(Arc::clone(node), refusal, call, doing).await?;
        if let Some(wait) = wait {
            acknowledged::check(acknowledgement, &node.call(wait, doing).await?, doing)?;
        }
        Ok(value)
    }

    /// Sends a call on after the server refused it without running it; also gives the server that ran it.
    async fn follow(
        &self,
        mut node: Arc<Node>,
        mut refusal: ServerError,
        call: Call<'_>,
        doing: &'static str,
    ) -> Result<(Arc<Node>, Value), StoreError> {
        for _ in 1..TRIES_MAX {
            let answer = match (refusal.code(), self) {
                ("NOSCRIPT", _) => node.call_with_text(call, doing).await?,
                ("READONLY", _) => {
                    // A replica now: the keeper asks who leads, and the next connection is to them.
                    node.give_up();
                    if let Self::Cluster(cluster) = self {
                        cluster.refresh();
                        break;
                    }
                    node.call(call, doing).await?
                }
                ("MOVED", Self::Cluster(cluster)) => {
                    node = cluster.at(moved_to(&refusal).ok_or_else(|| error::refused(&refusal, doing))?);
                    cluster.refresh();
                    node.call(call, doing).await?
                }
                ("ASK", Self::Cluster(cluster)) => {
                    node = cluster.at(moved_to(&refusal).ok_or_else(|| error::refused(&refusal, doing))?);
                    node.call_asking(call, doing).await?
                }
                ("CLUSTERDOWN" | "MASTERDOWN", Self::Cluster(cluster)) => {
                    cluster.refresh();
                    break;
                }
                _ => break,
            };
            match answer {
                Value::ServerError(next) => refusal = next,
                answer => return Ok((node, answer)),
            }
        }
        Err(error::refused(&refusal, doing))
    }
}

/// The host and port in "MOVED slot host:port".
fn moved_to(refusal: &ServerError) -> Option<(&str, u16)> {
    let address = refusal.details()?.split_ascii_whitespace().nth(1)?;
    let (host, port) = address.rsplit_once(':')?;
    Some((host, port.parse().ok()?))
}

/// The same failure for each item of a batch.
fn for_each_item(failure: &StoreError, doing: &'static str) -> impl Fn() -> StoreError {
    let (kind, unknown) = (failure.kind(), failure.outcome_unknown());
    let why = std::error::Error::source(failure).map(ToString::to_string);
    move || {
        let same = StoreError::new(kind, doing);
        let same = match &why {
            Some(why) => same.because(why.clone()),
            None => same,
        };
        if unknown { same.with_unknown_outcome() } else { same }
    }
}
