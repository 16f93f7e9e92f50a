//! Many at once: every request is sent but for its last byte, then all last bytes together.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::sync::Barrier;

use super::{Base, UNTOLD, counts};
use crate::check::answer::Answer;
use crate::check::items::{
    CONCURRENT_ANSWER, CONCURRENT_ONCE, CONCURRENT_SETTLES, CONFLICT_MISMATCH, CONFLICT_PROBLEM,
    CONFLICT_RETRY_AFTER,
};
use crate::check::options::Options;
use crate::check::probe::{Probe, Request, SETTLE_TRIES, fresh_key, told};
use crate::check::verdict::{Findings, Judgement, fail, not_applicable, not_supported, pass, unknown};
use crate::check::wire::{Reply, Silence};
use crate::failure::Failure;

/// How often a slow request and another one beside it are sent until the slow one comes first.
const MEANWHILE_TRIES: u32 = 3;

/// Beside those at once: retries until the key settles, and with `--slow` one request and another body, some times.
pub(super) const REQUESTS_MAX: u32 = SETTLE_TRIES + 2 * MEANWHILE_TRIES;

pub(super) async fn run(
    probe: &Probe,
    options: &Options,
    base: &Base,
    findings: &mut Findings,
) -> Result<(), Failure> {
    let request = slowed(options, &base.keyed(&fresh_key()?));
    let before = probe.effects().await?;
    let replies = at_once(probe, &request, options.concurrency).await;
    let settled = probe.settle(&request).await;
    let effects = counts(before, probe.effects().await?);
    let taken: Vec<&Answer> = replies.iter().flatten().filter(|answer| answer.is_taken()).collect();
    findings.note(&CONCURRENT_ONCE, once(base, &taken, effects));
    findings.note(&CONCURRENT_ANSWER, answers(&replies, taken.len()));
    findings.note(
        &CONCURRENT_SETTLES,
        match (&settled, taken.first()) {
            (Ok(settled), Some(winner)) if base.is_replay(winner, settled) => {
                pass(format!("answered {} with the same result", settled.status))
            }
            (Ok(settled), Some(_)) if settled.is_taken() => fail("a later retry got another result"),
            _ => fail(format!("a later retry was answered {}", told(&settled))),
        },
    );
    let conflict = replies.iter().flatten().find(|answer| answer.status == 409);
    let (problem, retry_after) = match conflict {
        Some(answer) => (
            answer.describes_problem().map_or_else(fail, pass),
            match answer.header("retry-after") {
                Some(after) => pass(format!("Retry-After: {after}")),
                None => not_supported("no Retry-After"),
            },
        ),
        None => (not_applicable("no 409 was seen"), not_applicable("no 409 was seen")),
    };
    findings.note(&CONFLICT_PROBLEM, problem);
    findings.note(&CONFLICT_RETRY_AFTER, retry_after);
    findings.note(&CONFLICT_MISMATCH, mismatch(probe, options, base).await?);
    Ok(())
}

fn slowed(options: &Options, request: &Request) -> Request {
    options.slow.as_ref().map_or_else(|| request.clone(), |slow| request.header(slow))
}

async fn at_once(probe: &Probe, request: &Request, concurrency: u16) -> Vec<Reply> {
    let barrier = Arc::new(Barrier::new(concurrency.into()));
    let one = async || {
        let held = probe.hold(request).await;
        // Also those that could not connect come here, or the others would wait for ever.
        barrier.wait().await;
        held?.release().await
    };
    join_all((0..concurrency).map(|_| one())).await
}

fn once(base: &Base, taken: &[&Answer], effects: Option<(u64, u64)>) -> Judgement {
    let Some((winner, others)) = taken.split_first() else {
        return fail("none of them was executed");
    };
    if let Some((before, after)) = effects {
        return match after.saturating_sub(before) {
            1 => pass("one effect"),
            0 => fail("answered, but without an effect"),
            grown => fail(format!("{grown} effects for one key")),
        };
    }
    let mut results = vec![*winner];
    for answer in others {
        if !results.iter().any(|known| known.is_same_result(answer)) {
            results.push(answer);
        }
    }
    match (taken.iter().all(|answer| base.can_tell(answer)), results.len()) {
        (true, 1) => pass("one result"),
        (true, count) => fail(format!("{count} different results for one key")),
        (false, _) if others.iter().all(|answer| answer.mark().is_some()) => pass("one first answer"),
        (false, _) => unknown(UNTOLD),
    }
}

fn answers(replies: &[Reply], taken: usize) -> Judgement {
    let conflicts = replies.iter().flatten().filter(|answer| answer.status == 409).count();
    let wrong: Vec<String> = replies
        .iter()
        .filter(|reply| !matches!(reply, Ok(answer) if answer.is_taken() || answer.status == 409))
        .map(told)
        .collect();
    match wrong.first() {
        Some(first) => fail(format!("{} of {} were answered {first}", wrong.len(), replies.len())),
        None => pass(format!("{taken} answered with the result, {conflicts} with 409")),
    }
}

/// While a slow request is running: the same key with another body.
async fn mismatch(probe: &Probe, options: &Options, base: &Base) -> Result<Judgement, Failure> {
    if options.slow.is_none() {
        return Ok(not_applicable("give --slow, a header that makes the endpoint take a second or so"));
    }
    let mut first = Err(Silence::Spent);
    for _ in 0..MEANWHILE_TRIES {
        let running = slowed(options, &base.keyed(&fresh_key()?));
        let other = async {
            // The running one needs a start; how long it has been running does not matter.
            probe.pause(Duration::from_millis(200)).await;
            probe.send(&running.body(options.other_body.clone())).await
        };
        let reply;
        (first, reply) = tokio::join!(probe.send(&running), other);
        // On a busy machine the other one may have come first, and then it is the right one to run.
        let came_first = matches!(&first, Ok(first) if first.is_taken());
        if came_first || !matches!(&reply, Ok(answer) if answer.is_taken()) {
            return Ok(beside(&reply));
        }
    }
    Ok(unknown(format!("the slow request did not come first: it was answered {}", told(&first))))
}

/// Judges the answer to another body while the first is running.
fn beside(reply: &Reply) -> Judgement {
    match reply {
        Ok(answer) if answer.status == 422 => pass("422, also while the first is running"),
        Ok(answer) if answer.is_refused() => {
            pass(format!("refused with {}; the draft leaves the order open", answer.status))
        }
        _ => fail(format!("answered {}", told(reply))),
    }
}
