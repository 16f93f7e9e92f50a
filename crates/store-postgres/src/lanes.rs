//! The lanes: a few connections, each carrying everything that waits when it becomes free.
//!
//! A commit costs the server far more than a command, so commands that wait at the same moment share one. Nobody is
//! held back for that: a lone command finds a free lane and leaves at once, and while all lanes are under way those
//! that arrive gather by themselves. The first two lanes take whatever is there; the others help out when something has
//! waited for a while, because smaller batches on more connections cost the server more. The lanes are tasks of their own: a caller that vanishes cancels nothing, and no
//! connection is ever left inside a transaction, because a call is one statement.

mod queue;

use std::sync::Arc;
use std::time::Duration;

use onlyonce_core::StoreError;
use onlyonce_core::transition::{Answer, Busy, ClaimAnswer, Command};
use tokio_postgres::Row;

use crate::batch::{self, Call};
use crate::connect::{Argument, Connection};
use crate::error::CallError;
use crate::shared::Shared;

pub(crate) use queue::{Job, Queue, Rank};

/// How often a call that the server undid for the sake of others is sent again.
const AGAIN_MAX: u32 = 8;
/// How long a record that a stranger's transaction holds is said to be busy: nobody knows when that one ends.
const HELD_UP_FOR: Duration = Duration::from_secs(1);
/// How long to wait before that, at first.
const AGAIN_AFTER: Duration = Duration::from_millis(2);

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
            Some(Job::Call(text, arguments, doing, reply)) => {
                let result = lane.call(&text, &arguments).await;
                // Whoever asked may have gone; the call was made all the same.
                let _ = reply.send(result.map_err(|error| error.of(doing)));
            }
            Some(command) => {
                jobs.push(command);
                lane.carry(jobs).await;
            }
            None => {}
        }
    }
}

struct Lane {
    shared: Arc<Shared>,
    connection: Option<Connection>,
}

impl Lane {
    async fn carry(&mut self, jobs: Vec<Job>) {
        let (commands, replies): (Vec<_>, Vec<_>) = jobs
            .into_iter()
            .filter_map(|job| match job {
                Job::Command(command, reply) => Some((command, reply)),
                Job::Call(..) => None,
            })
            .unzip();
        let mut answers = self.ask(&commands).await;
        if commands.len() > 1 && answers.iter().any(|(answer, is_held_up)| *is_held_up && answer.is_err()) {
            // One of them waits for the transaction of a stranger: the others must not wait with it.
            answers.clear();
            for command in &commands {
                answers.extend(self.ask(std::slice::from_ref(command)).await);
            }
        }
        for ((command, reply), (told, is_held_up)) in commands.iter().zip(replies).zip(answers) {
            let told = match command {
                // Someone claims it in a transaction of their own that has not ended.
                Command::Claim(_) if is_held_up => {
                    Ok(Answer::Claim(ClaimAnswer::Busy(Busy { left: HELD_UP_FOR })))
                }
                _ => told,
            };
            self.shared.wake_after(command, &told);
            let _ = reply.send(told);
        }
    }

    /// What each of `commands` is told, and whether a stranger's transaction held the call up.
    async fn ask(&mut self, commands: &[Command]) -> Vec<(Result<Answer, StoreError>, bool)> {
        let call = Call::new(commands, self.shared.at());
        let text = self.shared.batch_text(call.functions);
        let result = self.call(&text, &call.arguments).await;
        let is_held_up = result.as_ref().is_err_and(CallError::is_held_up);
        let mut answers = result.map(|rows| call.answers(&rows));
        let mut told = |(at, command): (usize, &Command)| {
            let doing = doing_of(command);
            match &mut answers {
                Ok(Ok(answers)) => batch::told(command, answers[at].take(), doing),
                Ok(Err(damage)) => Err(StoreError::undecodable(*damage, doing)),
                Err(error) => Err(error.of(doing)),
            }
        };
        commands.iter().enumerate().map(|item| (told(item), is_held_up)).collect()
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
