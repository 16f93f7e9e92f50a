//! Which server a key belongs to, and how the answer "not here" is followed.

mod cluster;
mod slot;

use std::sync::Arc;

use onlyonce_core::{StoreError, StoreErrorKind};
use redis::{Cmd, ServerError, Value};

use crate::acknowledged;
use crate::asked::Call;
use crate::error;
use crate::node::{Live, Node, Place, Sending, Sent};
use crate::options::Acknowledgement;
use crate::shared::Shared;
use crate::target::Target;

use cluster::Cluster;

/// How often one command is sent before it is given up. None of the times before did it run.
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

/// A call of a script on a key.
#[derive(Clone, Copy)]
pub(crate) struct Item<'a> {
    pub(crate) key: &'a [u8],
    pub(crate) call: Call<'a>,
}

/// A call on its way: its place in the batch, and where it goes next.
struct Pending<'a> {
    at: usize,
    node: Arc<Node>,
    sending: Sending<'a>,
}

pub(crate) type Answer = Result<Value, StoreError>;

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
        let node = Arc::new(Node::new(Arc::clone(shared), place, vec![shared.key_named("epoch")]));
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

    /// Whether keys that go together may have to be asked for one by one.
    pub(crate) const fn is_cluster(&self) -> bool {
        matches!(self, Self::Cluster(_))
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
    ) -> Answer {
        let item = Item { key, call: call.into() };
        let node = self.of(key, doing)?;
        let sent = match node.call_over(item.call, doing).await {
            Ok((live, value @ Value::ServerError(_))) => Ok(Sent { live, values: vec![value], last: None }),
            Ok((_, value)) => return Ok(value),
            Err(failure) => Err(failure),
        };
        let pending = vec![Pending { at: 0, node, sending: Sending::plainly(item.call) }];
        let (items, surely) = ([item], Surely::plainly(doing));
        let mut answers = Answers::new(1);
        let pending = self.settle(&items, pending, sent, surely, &mut answers);
        self.send_all(&items, pending, surely, &mut answers).await;
        answers.finish(doing).pop().unwrap_or_else(|| Err(no_answer(doing)))
    }

    /// The same for calls that are the same for every server, each with its key.
    pub(crate) async fn run_packed(&self, calls: &[(Vec<u8>, Cmd)], doing: &'static str) -> Vec<Answer> {
        let items: Vec<_> = calls.iter().map(|(key, call)| Item { key, call: Call::Packed(call) }).collect();
        self.run_all(&items, Surely::plainly(doing)).await
    }

    /// Runs calls of one script, each on a key of its own, in one round trip to each server, and one more for what was
    /// not there. One answer for each.
    pub(crate) async fn run_all(&self, items: &[Item<'_>], surely: Surely) -> Vec<Answer> {
        let mut answers = Answers::new(items.len());
        let mut pending = Vec::with_capacity(items.len());
        for (at, item) in items.iter().enumerate() {
            match self.of(item.key, surely.doing) {
                Ok(node) => pending.push(Pending { at, node, sending: Sending::plainly(item.call) }),
                Err(failure) => answers.set(at, Err(failure)),
            }
        }
        self.send_all(items, pending, surely, &mut answers).await;
        answers.finish(surely.doing)
    }

    /// Sends calls, and those that were refused without being run again, until each is answered.
    async fn send_all<'a>(
        &self,
        items: &[Item<'a>],
        mut pending: Vec<Pending<'a>>,
        surely: Surely,
        answers: &mut Answers,
    ) {
        // ORDER: the wait goes over the connection of what it waits for, right behind it, also when that is sent again.
        let wait = acknowledged::command(surely.acknowledgement);
        for _ in 0..TRIES_MAX {
            let mut again = Vec::new();
            for batch in by_server(std::mem::take(&mut pending)) {
                let sendings: Vec<_> = batch.iter().map(|pending| pending.sending).collect();
                let sent = batch[0].node.send(&sendings, wait.as_ref(), surely.doing).await;
                again.extend(self.settle(items, batch, sent, surely, answers));
            }
            if again.is_empty() {
                return;
            }
            pending = again;
        }
    }

    /// Takes what came back from one server, and gives what must be sent again.
    fn settle<'a>(
        &self,
        items: &[Item<'a>],
        batch: Vec<Pending<'a>>,
        sent: Result<Sent, StoreError>,
        surely: Surely,
        answers: &mut Answers,
    ) -> Vec<Pending<'a>> {
        let doing = surely.doing;
        let mut again = Vec::new();
        let sent = match sent {
            Ok(sent) => sent,
            Err(failure) => {
                for pending in batch {
                    // Nothing was sent, and another server has taken the place of this one meanwhile.
                    let is_elsewhere = !failure.outcome_unknown() && pending.node.is_retired();
                    answers.set(pending.at, Err(same(&failure, doing)));
                    if is_elsewhere && let Ok(node) = self.of(items[pending.at].key, doing) {
                        again.push(Pending { node, ..pending });
                    }
                }
                return again;
            }
        };
        let acknowledged = sent
            .last
            .as_ref()
            .map_or(Ok(()), |answer| acknowledged::check(surely.acknowledgement, answer, doing));
        for (pending, value) in batch.into_iter().zip(sent.values) {
            let answer = match (value, &acknowledged) {
                (Value::ServerError(refusal), _) => {
                    let at = pending.at;
                    again.extend(self.redirect(pending, &refusal, &sent.live));
                    answers.set(at, Err(error::refused(&refusal, doing)));
                    continue;
                }
                (value, Ok(())) => Ok(value),
                (_, Err(failure)) => Err(same(failure, doing)),
            };
            answers.set(pending.at, answer);
        }
        again
    }

    /// Where a call goes next after the server refused it without running it; nowhere if that would not help.
    fn redirect<'a>(
        &self,
        pending: Pending<'a>,
        refusal: &ServerError,
        live: &Arc<Live>,
    ) -> Option<Pending<'a>> {
        let Pending { at, node, sending } = pending;
        match (refusal.code(), self) {
            ("NOSCRIPT", _) => {
                let forgotten = sending.forgotten.saturating_add(1);
                Some(Pending { at, node, sending: Sending { forgotten, ..sending } })
            }
            ("READONLY", _) => {
                // A replica now: the keeper asks who leads, and the next connection is to them.
                node.give_up(live);
                match self {
                    Self::One(_) => Some(Pending { at, node, sending }),
                    Self::Cluster(cluster) => {
                        cluster.refresh();
                        None
                    }
                }
            }
            (code @ ("MOVED" | "ASK"), Self::Cluster(cluster)) => {
                let node = cluster.at(moved_to(refusal)?);
                let is_asking = code == "ASK";
                if !is_asking {
                    cluster.refresh();
                }
                Some(Pending { at, node, sending: Sending { is_asking, ..sending } })
            }
            ("CLUSTERDOWN" | "MASTERDOWN", Self::Cluster(cluster)) => {
                cluster.refresh();
                None
            }
            _ => None,
        }
    }
}

/// Calls that go to the same server, together.
fn by_server(pending: Vec<Pending<'_>>) -> Vec<Vec<Pending<'_>>> {
    let mut batches: Vec<Vec<Pending<'_>>> = Vec::new();
    for pending in pending {
        match batches.iter_mut().find(|batch| Arc::ptr_eq(&batch[0].node, &pending.node)) {
            Some(batch) => batch.push(pending),
            None => batches.push(vec![pending]),
        }
    }
    batches
}

/// The answers of a batch, as far as they are there. The last one counts.
struct Answers(Vec<Option<Answer>>);

impl Answers {
    fn new(count: usize) -> Self {
        Self((0..count).map(|_| None).collect())
    }

    fn set(&mut self, at: usize, answer: Answer) {
        self.0[at] = Some(answer);
    }

    fn finish(self, doing: &'static str) -> Vec<Answer> {
        self.0.into_iter().map(|answer| answer.unwrap_or_else(|| Err(no_answer(doing)))).collect()
    }
}

fn no_answer(doing: &'static str) -> StoreError {
    StoreError::new(StoreErrorKind::Unavailable, doing)
        .because("the server gave too few answers")
        .with_unknown_outcome()
}

/// The host and port in "MOVED slot host:port".
fn moved_to(refusal: &ServerError) -> Option<(&str, u16)> {
    let address = refusal.details()?.split_ascii_whitespace().nth(1)?;
    let (host, port) = address.rsplit_once(':')?;
    Some((host, port.parse().ok()?))
}

/// The same failure for another item of a batch.
fn same(failure: &StoreError, doing: &'static str) -> StoreError {
    let same = StoreError::new(failure.kind(), doing);
    let same = match std::error::Error::source(failure) {
        Some(why) => same.because(why.to_string()),
        None => same,
    };
    if failure.outcome_unknown() { same.with_unknown_outcome() } else { same }
}
