//! The key of the first request with another body, at another URI and with another method.

use super::Base;
use crate::check::answer::Answer;
use crate::check::items::{
    MISMATCH_METHOD, MISMATCH_PROBLEM, MISMATCH_REFUSED, MISMATCH_STATUS, MISMATCH_STAYS, MISMATCH_URI,
};
use crate::check::options::Options;
use crate::check::probe::{Probe, Request, fresh_key, told};
use crate::check::verdict::{Findings, Judgement, fail, not_applicable, pass, unknown};
use crate::check::wire::Reply;
use crate::failure::Failure;

/// The other body under a key of its own, three times under the used key, a replay, another URI, another method.
pub(super) const REQUESTS_MAX: u32 = 1 + TRIES + 3;

const TRIES: u32 = 3;

pub(super) async fn run(
    probe: &Probe,
    options: &Options,
    base: &Base,
    findings: &mut Findings,
) -> Result<(), Failure> {
    bodies(probe, options, base, findings).await?;
    let at_other_uri = Request { path: probe.other_path(), ..base.keyed(&base.key) };
    let reply = probe.send(&at_other_uri).await;
    findings.note(&MISMATCH_URI, elsewhere(base, &reply, "one more query parameter"));
    let method = if base.request.method == "PATCH" { "POST" } else { "PATCH" };
    let with_other_method = Request { method: method.to_owned(), ..base.keyed(&base.key) };
    let reply = probe.send(&with_other_method).await;
    let judgement = match &reply {
        Ok(Answer { status: 404 | 405 | 501, .. }) => {
            not_applicable(format!("the endpoint does not take {method}"))
        }
        _ => elsewhere(base, &reply, method),
    };
    findings.note(&MISMATCH_METHOD, judgement);
    Ok(())
}

async fn bodies(
    probe: &Probe,
    options: &Options,
    base: &Base,
    findings: &mut Findings,
) -> Result<(), Failure> {
    let all = [&MISMATCH_REFUSED, &MISMATCH_STATUS, &MISMATCH_PROBLEM, &MISMATCH_STAYS];
    // A body that is refused under any key would be refused for the wrong reason here.
    let control = probe.send(&base.keyed(&fresh_key()?).body(options.other_body.clone())).await;
    if !matches!(&control, Ok(answer) if answer.is_taken()) {
        let why = format!(
            "the other body is answered {} under a key of its own: give --other-body",
            told(&control)
        );
        for item in all {
            findings.note(item, not_applicable(why.clone()));
        }
        return Ok(());
    }
    let request = base.keyed(&base.key).body(options.other_body.clone());
    let mut replies = Vec::new();
    for _ in 0..TRIES {
        replies.push(probe.send(&request).await);
    }
    let replay = probe.send(&base.keyed(&base.key)).await;
    let (refused, answer) = refusal(base, &replies[0]);
    findings.note(&MISMATCH_REFUSED, refused);
    match answer {
        Some(answer) => {
            findings.note(
                &MISMATCH_STATUS,
                match answer.status {
                    422 => pass("422"),
                    status => fail(format!("{status} instead of 422")),
                },
            );
            findings.note(&MISMATCH_PROBLEM, answer.describes_problem().map_or_else(fail, pass));
            findings.note(&MISMATCH_STAYS, stays(base, &replies, &replay));
        }
        None => {
            findings.note(&MISMATCH_STATUS, not_applicable("nothing was refused"));
            findings.note(&MISMATCH_PROBLEM, not_applicable("nothing was refused"));
            findings.note(&MISMATCH_STAYS, fail(format!("not refused: {}", told(&replies[0]))));
        }
    }
    Ok(())
}

/// The judgement, and the answer if it is a refusal.
fn refusal<'a>(base: &Base, reply: &'a Reply) -> (Judgement, Option<&'a Answer>) {
    match reply {
        Ok(answer) if answer.is_refused() => (pass(format!("refused with {}", answer.status)), Some(answer)),
        Ok(answer) if answer.is_taken() && (answer.mark().is_some() || same(base, answer)) => {
            (fail("answered with the result of another request"), None)
        }
        Ok(answer) if answer.is_taken() => (fail("executed under a key that was already used"), None),
        _ => (fail(format!("answered {}", told(reply))), None),
    }
}

fn same(base: &Base, answer: &Answer) -> bool {
    base.can_tell(answer) && answer.is_same_result(&base.first)
}

fn stays(base: &Base, replies: &[Reply], replay: &Reply) -> Judgement {
    let statuses: Vec<_> = replies.iter().map(told).collect();
    if statuses.iter().any(|status| *status != statuses[0]) {
        return fail(format!("answered {}", statuses.join(", then ")));
    }
    match replay {
        Ok(replay) if base.is_replay(&base.first, replay) => {
            pass(format!("{} each time; the first answer still replays", statuses[0]))
        }
        _ => fail(format!("the first request is now answered {} and not as before", told(replay))),
    }
}

/// Was a request elsewhere answered with what belongs to the first one?
fn elsewhere(base: &Base, reply: &Reply, what: &str) -> Judgement {
    match reply {
        Ok(answer) if answer.is_taken() && (answer.mark().is_some() || same(base, answer)) => {
            fail(format!("{what}: answered with the result of another request"))
        }
        Ok(answer) if answer.is_refused() => pass(format!("{what}: refused with {}", answer.status)),
        Ok(answer) if answer.is_taken() && base.can_tell(answer) => {
            pass(format!("{what}: executed apart, keys belong to one URI and method"))
        }
        Ok(answer) if answer.is_taken() => unknown(super::UNTOLD),
        _ => fail(format!("{what}: answered {}", told(reply))),
    }
}
