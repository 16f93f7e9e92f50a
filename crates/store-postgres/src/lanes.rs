//! The lanes: a few connections, each carrying everything that waits when it becomes free.
//!
//! A commit costs the server far more than a command, so commands that wait at the same moment share one. Nobody is
//! held back for that: a lone command finds a free lane and leaves at once, and while that one is under way those that
//! arrive gather by themselves. The first lane takes whatever is there; the others help out when something has waited
//! for a while or much has gathered, because smaller batches on more connections cost the server more: with 64 callers
//! and two lanes that took whatever was there, it spent about a third more on a key, and did less. The lanes are tasks
//! of their own: a caller that vanishes cancels nothing, and no connection is ever left inside a transaction, because a
//! call is one statement.
//!
//! A row that another transaction holds is waited for only for a moment. After that everything else in the call is done
//! without it, and its own command waits elsewhere (see `held`).

mod held;
mod queue;

use std::sync::Arc;
use std::time::Duration;

use onlyonce_core::transition::{Answer, Busy, ClaimAnswer, Command};
use onlyonce_core::{RecordId, StoreError, StoreErrorKind};
use tokio::sync::oneshot;
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use crate::arrays::argument;
use crate::batch::{self, Call, Patience};
use crate::connect::{Argument, Connection};
use crate::error::CallError;
use crate::shared::Shared;

pub(crate) use held::Held;
pub(crate) use queue::{Job, Queue, Rank, Single};

/// How often a call that the server undid for the sake of others is sent again.
const AGAIN_MAX: u32 = 8;
/// How long to wait before that, at first.
const AGAIN_AFTER: Duration = Duration::from_millis(2);
/// How long a record that a stranger's transaction holds is said to be busy: nobody knows when that one ends.
const HELD_UP_FOR: Duration = Duration::from_secs(1);

/// Carries what waits until the store is closed and nothing is left.
pub(crate) async fn run(shared: Arc<Shared>, queue: Arc<Queue>, connection: Option<Connection>, rank: Rank) {
    let mut lane = Lane { shared, connection };
    loop {
        let taken = match rank {
            Rank::First => queue.take().await,
            Rank::Reserve => queue.take_late().await,
        };
        let Some(mut jobs) = taken else { return };
        match jobs.pop() {
            Some(Job::Single(single)) => lane.carry_single(single).await,
            Some(command) => {
                jobs.push(command);
                lane.carry(jobs).await;
            }
            None => {}
        }
    }
}

/// Carries what other transactions hold up, one record at a time, until the store is closed and nothing is left.
pub(crate) async fn run_patiently(shared: Arc<Shared>) {
    let mut lane = Lane { shared, connection: None };
    while let Some(turn) = lane.shared.held.take().await {
        lane.insist(turn).await;
    }
}

struct Lane {
    shared: Arc<Shared>,
    connection: Option<Connection>,
}

/// Where a command's answer goes.
type Reply = oneshot::Sender<Result<Answer, StoreError>>;

/// What a command is told; `None` when another transaction holds its record.
type Told = Option<Result<Answer, StoreError>>;

impl Lane {
    async fn carry(&mut self, jobs: Vec<Job>) {
        let (commands, replies) = commands_of(jobs);
        let mut told = self.ask(&commands, Patience::SHORT).await;
        if told.is_none() {
            // One of them waits for the transaction of a stranger: the others must not wait with it.
            told = self.ask(&commands, Patience::CAREFUL).await;
        }
        if told.is_none() {
            // No record is held but a table: there is nothing else to do than to wait.
            told = self.ask(&commands, Patience::LONG).await;
        }
        let told = told.unwrap_or_else(|| {
            commands.iter().map(|command| Some(Err(held_up(doing_of(command))))).collect()
        });
        for ((command, reply), told) in commands.into_iter().zip(replies).zip(told) {
            match told {
                Some(told) => self.tell(&command, reply, told),
                None => self.hold(*command.id(), Job::Command(command, reply)),
            }
        }
    }

    /// Lets a job wait for the transaction that holds its record, unless too many do.
    fn hold(&self, id: RecordId, job: Job) {
        let Err(job) = self.shared.held.push(id, job) else { return };
        match *job {
            Job::Command(command, reply) => self.tell(&command, reply, busy_or_held_up(&command)),
            Job::Single(single) => {
                let _ = single.reply.send(Err(held_up(single.doing)));
            }
        }
    }

    fn tell(&self, command: &Command, reply: Reply, told: Result<Answer, StoreError>) {
        self.shared.wake_after(command, &told);
        // Whoever asked may have gone; it was done all the same.
        let _ = reply.send(told);
    }

    /// Waits for the transaction that holds a record, for as long as its commands may wait.
    async fn insist(&mut self, turn: held::Turn) {
        let patience = Patience::of(turn.patience);
        let mut is_held = false;
        let mut commands = Vec::with_capacity(turn.jobs.len());
        for job in turn.jobs {
            match job {
                Job::Command(..) => commands.push(job),
                Job::Single(mut single) => {
                    single.wait_for(patience);
                    let result = self.call(&single.text, &single.arguments).await;
                    is_held |= result.as_ref().is_err_and(CallError::is_held_up);
                    let _ = single.reply.send(result.map_err(|error| error.of(single.doing)));
                }
            }
        }
        if !commands.is_empty() {
            let (commands, replies) = commands_of(commands);
            let told = self.ask(&commands, patience).await;
            is_held |= told.is_none();
            let mut told = told.unwrap_or_default().into_iter();
            for (command, reply) in commands.iter().zip(replies) {
                let told = told.next().flatten();
                self.tell(command, reply, told.unwrap_or_else(|| busy_or_held_up(command)));
            }
        }
        self.shared.held.tried(turn.id, is_held);
    }

    async fn carry_single(&mut self, single: Single) {
        let result = self.call(&single.text, &single.arguments).await;
        match (single.takes, &result) {
            (Some((id, _)), Err(error)) if error.is_held_up() => {
                self.hold(id, Job::Single(single));
            }
            _ => {
                let _ = single.reply.send(result.map_err(|error| error.of(single.doing)));
            }
        }
    }

    /// What each of `commands` is told; `None` when another transaction held the call up for longer than it waits.
    async fn ask(&mut self, commands: &[Command], patience: Patience) -> Option<Vec<Told>> {
        let call = Call::new(commands, patience, self.shared.at());
        let text = self.shared.batch_text(call.functions);
        let result = self.call(&text, &call.arguments).await;
        if result.as_ref().is_err_and(CallError::is_held_up) {
            return None;
        }
        if let Some(due_at) = result.iter().flatten().find_map(crate::row::missed_day) {
            self.shared.make_day(due_at);
        }
        let mut answers = result.map(|rows| call.answers(&rows));
        let mut told = |(at, command): (usize, &Command)| {
            let doing = doing_of(command);
            match &mut answers {
                Ok(Ok(answers)) => batch::told(command, answers[at].take(), doing),
                Ok(Err(damage)) => Some(Err(StoreError::undecodable(*damage, doing))),
                Err(error) => Some(Err(error.of(doing))),
            }
        };
        Some(commands.iter().enumerate().map(&mut told).collect())
    }

    /// Calls, again when the server undid it for the sake of others.
    async fn call(&mut self, text: &Arc<str>, arguments: &[Argument]) -> Result<Vec<Row>, CallError> {
        let mut pause = AGAIN_AFTER;
        for again in 0.. {
            let result = self.call_once(text, arguments).await;
            match &result {
                Err(error) if error.is_undone_for_others() && again < AGAIN_MAX => {
                    tracing::debug!(%text, "the server undid a call for the sake of others; sending it again");
                }
                _ => return result,
            }
            tokio::time::sleep(pause).await;
            pause *= 2;
        }
        Err(CallError::TimedOut)
    }

    async fn call_once(&mut self, text: &Arc<str>, arguments: &[Argument]) -> Result<Vec<Row>, CallError> {
        let usable = self.connection.take().filter(|connection| !connection.is_closed());
        let mut connection = match usable {
            Some(connection) => connection,
            None => self.shared.connect().await.map_err(CallError::Unsent)?,
        };
        let result = connection.call(text, arguments).await;
        if result.as_ref().err().is_none_or(CallError::leaves_connection) {
            self.connection = Some(connection);
        }
        result
    }
}

impl Single {
    /// Lets the call wait for the record's row for as long as `patience` says.
    fn wait_for(&mut self, patience: Patience) {
        let argued = self.takes.and_then(|(_, at)| self.arguments.get_mut(at));
        if let Some(argued) = argued {
            *argued = argument(patience.millis(), Type::INT4);
        }
    }
}

fn commands_of(jobs: Vec<Job>) -> (Vec<Command>, Vec<Reply>) {
    let command = |job| match job {
        Job::Command(command, reply) => Some((command, reply)),
        Job::Single(_) => None,
    };
    jobs.into_iter().filter_map(command).unzip()
}

/// What a command is told whose record was held for longer than it waits.
fn busy_or_held_up(command: &Command) -> Result<Answer, StoreError> {
    match command {
        // Someone claims it in a transaction of their own that has not ended.
        Command::Claim(_) => Ok(Answer::Claim(ClaimAnswer::Busy(Busy { left: HELD_UP_FOR }))),
        _ => Err(held_up(doing_of(command))),
    }
}

fn held_up(doing: &'static str) -> StoreError {
    StoreError::new(StoreErrorKind::Unavailable, doing).because("another transaction holds what it needs")
}

/// What a command was about to do, for errors.
pub(crate) const fn doing_of(command: &Command) -> &'static str {
    match command {
        Command::Claim(_) => "claiming a record",
        Command::Complete(_) => "completing a record",
        Command::Renew(_) => "renewing a lease",
        Command::Release(_) => "releasing a record",
        _ => "changing a record",
    }
}
