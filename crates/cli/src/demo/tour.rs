//! The tour: does what the script says, over real sockets, and compares each answer with the promise.

mod caller;
mod notes;

use super::place::Place;
use super::script::{heading, steps};
use super::sidecar::Sidecar;
use crate::check::answer::Answer;
use crate::check::wire::Reply;
use crate::failure::Failure;
use crate::output;
use crate::paint::{Paint, Tone};
use caller::{Caller, Order};
use notes::Notes;

/// Takes the tour. Was every answer the promised one?
pub(super) async fn run(place: &Place, sidecar: &mut Sidecar) -> Result<bool, Failure> {
    let paint = Paint::for_stream(&std::io::stdout());
    let caller = Caller::new(place).await?;
    let mut notes = Notes::new(paint);
    let mut first = None;
    for (number, step) in (1..).zip(&steps(place, sidecar.process())) {
        output::write_line(&heading(paint, number, step))?;
        for line in &step.shell {
            output::write_line(&format!("     {}", paint.paint(Tone::Quiet, line)))?;
        }
        match number {
            1 => first = pay(&caller, &mut notes).await?,
            2 => replay(&caller, &mut notes, first.as_ref()).await?,
            3 => mismatch(&caller, &mut notes).await?,
            4 => conflict(&caller, &mut notes).await?,
            5 => failure(&caller, &mut notes).await?,
            6 => lost(&caller, &mut notes).await?,
            7 => unknown(&caller, &mut notes).await?,
            _ if !place.is_durable() => {
                output::write_line("     Left out: this store forgets everything when its process ends.")?;
                continue;
            }
            _ => crash(place, sidecar, &caller, &mut notes, first.as_ref()).await?,
        }
        output::write_line(&format!("     → {}", step.expect))?;
    }
    notes.finish()
}

async fn pay(caller: &Caller<'_>, notes: &mut Notes) -> Result<Option<Answer>, Failure> {
    let reply = caller.pay(&Order::new("order-1", 100)).await;
    notes.saw("answer", &reply)?;
    notes.promise(
        matches!(&reply, Ok(answer) if answer.status == 201 && answer.mark().is_none()),
        "201, not a replay",
    )?;
    notes.promise(caller.count().await? == 1, "one payment was made")?;
    Ok(reply.ok())
}

async fn replay(caller: &Caller<'_>, notes: &mut Notes, first: Option<&Answer>) -> Result<(), Failure> {
    let reply = caller.pay(&Order::new("order-1", 100)).await;
    notes.saw("again", &reply)?;
    notes.promise(is_replay(reply.as_ref().ok(), first), "the same answer, byte for byte, and marked")?;
    notes.promise(caller.count().await? == 1, "still one payment")
}

async fn mismatch(caller: &Caller<'_>, notes: &mut Notes) -> Result<(), Failure> {
    let reply = caller.pay(&Order::new("order-1", 999)).await;
    notes.saw("answer", &reply)?;
    notes.promise(matches!(&reply, Ok(answer) if answer.status == 422), "422")?;
    notes.promise(caller.count().await? == 1, "still one payment")
}

async fn conflict(caller: &Caller<'_>, notes: &mut Notes) -> Result<(), Failure> {
    let is_conflict = |reply: &Reply| matches!(reply, Ok(answer) if answer.status == 409 && answer.header("retry-after").is_some());
    let mut before = caller.count().await?;
    let mut order = Order::new("order-2", 200);
    let (mut first, mut second) = meet(caller, &order, "2s", before).await?;
    if !is_conflict(&second) {
        // On a busy machine the first may have been done before the second was asked: once more, with more time.
        before = caller.count().await?;
        order = Order::new("order-2-again", 200);
        (first, second) = meet(caller, &order, "20s", before).await?;
    }
    notes.saw("while it runs", &second)?;
    notes.promise(is_conflict(&second), "409, with Retry-After")?;
    notes.saw("the first", &first)?;
    let later = caller.pay(&order).await;
    notes.saw("later", &later)?;
    notes.promise(is_replay(later.as_ref().ok(), first.as_ref().ok()), "later the recorded answer")?;
    notes.promise(caller.count().await? == before + 1, "one payment for three requests")
}

/// Sends a slow order, and the same order again while the first one runs: both answers.
async fn meet(
    caller: &Caller<'_>,
    order: &Order,
    slow: &str,
    before: u64,
) -> Result<(Reply, Reply), Failure> {
    let meanwhile = async {
        caller.count_is(before + 1).await?;
        Ok::<_, Failure>(caller.pay(order).await)
    };
    let slow = order.with("Demo-Slow", slow);
    let (first, second) = tokio::join!(caller.pay(&slow), meanwhile);
    Ok((first, second?))
}

async fn failure(caller: &Caller<'_>, notes: &mut Notes) -> Result<(), Failure> {
    let before = caller.count().await?;
    let order = Order::new("order-3", 300);
    let failed = caller.pay(&order.with("Demo-Fail", "500")).await;
    notes.saw("first", &failed)?;
    notes.promise(matches!(&failed, Ok(answer) if answer.status == 500), "the service's own 500")?;
    let retried = caller.pay(&order).await;
    notes.saw("retry", &retried)?;
    notes.promise(matches!(&retried, Ok(answer) if answer.status == 201), "201: the retry was executed")?;
    notes.promise(caller.count().await? == before + 1, "one payment")
}

async fn lost(caller: &Caller<'_>, notes: &mut Notes) -> Result<(), Failure> {
    let before = caller.count().await?;
    let order = Order::new("order-4", 400);
    caller.hang_up(&order.with("Demo-Slow", "1s"), before + 1).await?;
    output::write_line("     (hung up without an answer)")?;
    let retried = caller.settle(&order).await;
    notes.saw("retry", &retried)?;
    let is_replay = matches!(&retried, Ok(answer) if answer.status == 201 && answer.mark().is_some());
    notes.promise(is_replay, "201, a replay of what was missed")?;
    notes.promise(caller.count().await? == before + 1, "one payment")
}

async fn unknown(caller: &Caller<'_>, notes: &mut Notes) -> Result<(), Failure> {
    let before = caller.count().await?;
    let order = Order::new("order-5", 500);
    let dropped = caller.pay(&order.with("Demo-Drop", "yes")).await;
    notes.saw("first", &dropped)?;
    notes
        .promise(matches!(&dropped, Ok(answer) if answer.status == 502), "502: the service did not answer")?;
    let retried = caller.pay(&order).await;
    notes.saw("retry", &retried)?;
    notes.promise(is_held(retried.as_ref().ok()), "409 outcome-unknown: it is not guessed")?;
    notes.promise(caller.count().await? == before + 1, "one payment, not two")
}

async fn crash(
    place: &Place,
    sidecar: &mut Sidecar,
    caller: &Caller<'_>,
    notes: &mut Notes,
    first: Option<&Answer>,
) -> Result<(), Failure> {
    let before = caller.count().await?;
    let order = Order::new("order-6", 600);
    let running = caller.begin(&order.with("Demo-Slow", "30s"), before + 1).await?;
    sidecar.kill().await?;
    drop(running);
    *sidecar = Sidecar::start(place).await?;
    output::write_line(&format!("     (killed with SIGKILL; back as process {})", sidecar.process()))?;
    let retried = caller.pay(&order).await;
    notes.saw("retry", &retried)?;
    notes.promise(is_held(retried.as_ref().ok()), "409 outcome-unknown, after a crash too")?;
    notes.promise(caller.count().await? == before + 1, "one payment, not two")?;
    let replayed = caller.pay(&Order::new("order-1", 100)).await;
    notes.saw("order-1", &replayed)?;
    notes.promise(is_replay(replayed.as_ref().ok(), first), "the first payment still replays")
}

/// The same result as `first`, marked as a replay.
fn is_replay(answer: Option<&Answer>, first: Option<&Answer>) -> bool {
    answer.zip(first).is_some_and(|(answer, first)| {
        answer.status == first.status
            && answer.body == first.body
            && first.headers_lost_in(answer).is_empty()
            && answer.mark().is_some()
    })
}

/// Refused, because nobody knows.
fn is_held(answer: Option<&Answer>) -> bool {
    answer.is_some_and(|answer| {
        answer.status == 409 && String::from_utf8_lossy(&answer.body).contains("outcome-unknown")
    })
}
