//! A caller that hangs up: before the answer, and in the middle of the request.

use std::time::Duration;

use super::Base;
use crate::check::items::{DISCONNECT_RETRY, DISCONNECT_TORN};
use crate::check::options::Options;
use crate::check::probe::{Probe, Request, SETTLE_TRIES, fresh_key, told};
use crate::check::verdict::{Findings, Judgement, fail, pass, unknown};
use crate::check::wire::Reply;
use crate::failure::Failure;

/// How long the endpoint has to see a request before its caller hangs up: long enough to be seen, short enough to hang
/// up on. A busy one gets longer.
const SEEN_AFTER: [Duration; 3] =
    [Duration::from_millis(100), Duration::from_millis(500), Duration::from_secs(2)];

/// One that hangs up and its retries: for whole requests at most so often, and once for half a request.
pub(super) const REQUESTS_MAX: u32 = 4 * (1 + SETTLE_TRIES);

pub(super) async fn run(
    probe: &Probe,
    options: &Options,
    base: &Base,
    findings: &mut Findings,
) -> Result<(), Failure> {
    let mut found = None;
    for after in SEEN_AFTER {
        let request = base.keyed(&fresh_key()?);
        let whole = options.slow.as_ref().map_or_else(|| request.clone(), |slow| request.header(slow));
        let (judgement, was_seen) = retried(probe, &whole, false, after).await?;
        found = Some(judgement);
        if was_seen {
            break;
        }
    }
    findings.note(&DISCONNECT_RETRY, found.unwrap_or_else(|| unknown("nobody hung up")));
    let half = base.keyed(&fresh_key()?);
    findings.note(&DISCONNECT_TORN, retried(probe, &half, true, SEEN_AFTER[0]).await?.0);
    Ok(())
}

/// Hangs up and tries again. Also tells whether the request that was hung up on is sure to have been seen: a retry that is
/// answered as a first request may be one.
async fn retried(
    probe: &Probe,
    request: &Request,
    torn: bool,
    after: Duration,
) -> Result<(Judgement, bool), Failure> {
    let before = probe.effects().await?;
    if let Err(silence) = probe.hang_up(request, torn, after).await {
        return Ok((unknown(silence.to_string()), true));
    }
    let retry = probe.settle(request).await;
    let grown =
        super::counts(before, probe.effects().await?).map(|(before, after)| after.saturating_sub(before));
    let is_first = matches!(&retry, Ok(answer) if answer.is_taken() && answer.mark().is_none());
    let was_seen = !is_first || grown.is_some_and(|grown| grown > 1);
    Ok((judged(&retry, grown, torn), was_seen))
}

fn judged(retry: &Reply, grown: Option<u64>, torn: bool) -> Judgement {
    match (retry, grown) {
        (Ok(answer), Some(1)) if answer.is_taken() => pass(format!("answered {}: one effect", answer.status)),
        (Ok(answer), Some(grown)) if answer.is_taken() => {
            fail(format!("answered {}, with {grown} effects for one key", answer.status))
        }
        // Half a request cannot have been executed, so this is its first execution.
        (Ok(answer), None) if answer.is_taken() && torn => pass(format!("answered {}", answer.status)),
        (Ok(answer), None) if answer.is_taken() => match answer.mark() {
            Some(mark) => {
                pass(format!("answered {} with what the caller had missed ({mark})", answer.status))
            }
            None => unknown("answered, but nothing tells whether the work ran twice: give --effects"),
        },
        (Ok(answer), _) if answer.status == 409 => fail("409 for as long as was waited: the key is stuck"),
        (Ok(answer), _) if torn && answer.is_refused() => {
            fail(format!("the whole request is refused with {}: half of it used up the key", answer.status))
        }
        _ => fail(format!("the retry was answered {}", told(retry))),
    }
}
