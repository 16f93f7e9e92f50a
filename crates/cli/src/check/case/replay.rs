//! The same request again, twice: is it answered from what is remembered, and is that the same answer?

use super::{Base, Ran, UNTOLD, counts};
use crate::check::answer::Answer;
use crate::check::items::{
    REPLAY_BODY, REPLAY_HEADERS, REPLAY_MARK, REPLAY_ONCE, REPLAY_STATUS, REPLAY_STAYS,
};
use crate::check::probe::{Probe, fresh_key, told};
use crate::check::verdict::{Findings, Judgement, fail, not_supported, pass, unknown};
use crate::failure::Failure;

/// Two retries of the first request; and with `--effects` a request of its own and its retry.
pub(super) const REQUESTS_MAX: u32 = 4;

pub(super) async fn run(probe: &Probe, base: &Base, findings: &mut Findings) -> Result<(), Failure> {
    let request = base.keyed(&base.key);
    let (second, third) = (probe.send(&request).await, probe.send(&request).await);
    let Ok(replay) = &second else {
        let why = format!("the retry got no answer: {}", told(&second));
        for item in [&REPLAY_ONCE, &REPLAY_STATUS, &REPLAY_BODY, &REPLAY_HEADERS, &REPLAY_STAYS] {
            findings.note(item, fail(why.clone()));
        }
        findings.note(&REPLAY_MARK, unknown(why));
        return Ok(());
    };
    let first = &base.first;
    findings.note(&REPLAY_ONCE, once(probe, base, replay).await?);
    findings.note(
        &REPLAY_STATUS,
        if replay.status == first.status {
            pass(format!("{} both times", first.status))
        } else {
            fail(format!("{} first, {} on retry", first.status, replay.status))
        },
    );
    findings.note(
        &REPLAY_BODY,
        if replay.body == first.body {
            pass(format!("{} bytes, the same", first.body.len()))
        } else {
            fail(format!("{} bytes first, {} other bytes on retry", first.body.len(), replay.body.len()))
        },
    );
    let lost = first.headers_lost_in(replay);
    findings.note(
        &REPLAY_HEADERS,
        if lost.is_empty() {
            let names: Vec<_> = first.stable_headers().iter().map(|(name, _)| *name).collect();
            pass(format!("all came again: {}", names.join(", ")))
        } else {
            fail(format!("lost or changed on retry: {}", lost.join(", ")))
        },
    );
    findings.note(
        &REPLAY_STAYS,
        match &third {
            Ok(third) if third.status == replay.status && third.is_same_result(replay) => {
                pass("the same again")
            }
            _ => fail(format!("{} on the first retry, {} on the second", told(&second), told(&third))),
        },
    );
    findings.note(
        &REPLAY_MARK,
        match (replay.mark(), first.mark()) {
            (Some(mark), None) => pass(mark),
            (Some(mark), Some(_)) => fail(format!("the first answer says it too: {mark}")),
            (None, _) => not_supported("no header tells a replay from a first answer"),
        },
    );
    Ok(())
}

async fn once(probe: &Probe, base: &Base, replay: &Answer) -> Result<Judgement, Failure> {
    if !replay.is_taken() {
        return Ok(fail(format!("the retry was answered {}", replay.status)));
    }
    // Only a pair of its own can be counted: effects before this group belong to other requests.
    if let Some(before) = probe.effects().await? {
        let request = base.keyed(&fresh_key()?);
        let (first, second) = (probe.send(&request).await, probe.send(&request).await);
        let effects = counts(Some(before), probe.effects().await?);
        return Ok(match (first, second) {
            (Ok(first), Ok(second)) => judged(&base.ran(&first, &second, effects)),
            (first, second) => fail(format!("answered {}, then {}", told(&first), told(&second))),
        });
    }
    Ok(judged(&base.ran(&base.first, replay, None)))
}

fn judged(ran: &Ran) -> Judgement {
    match ran {
        Ran::Once => pass("one execution for two requests"),
        Ran::Again(why) => fail(format!("executed again: {why}")),
        Ran::Untold => unknown(UNTOLD),
    }
}
