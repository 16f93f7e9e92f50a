//! A caller that hangs up: before the answer, and in the middle of the request.

use super::Base;
use crate::check::items::{DISCONNECT_RETRY, DISCONNECT_TORN};
use crate::check::options::Options;
use crate::check::probe::{Probe, Request, SETTLE_TRIES, fresh_key, told};
use crate::check::verdict::{Findings, Judgement, fail, pass, unknown};
use crate::failure::Failure;

pub(super) const REQUESTS_MAX: u32 = 2 + 2 * SETTLE_TRIES;

pub(super) async fn run(
    probe: &Probe,
    options: &Options,
    base: &Base,
    findings: &mut Findings,
) -> Result<(), Failure> {
    let request = base.keyed(&fresh_key()?);
    let whole = options.slow.as_ref().map_or_else(|| request.clone(), |slow| request.header(slow));
    findings.note(&DISCONNECT_RETRY, retried(probe, &whole, false).await?);
    findings.note(&DISCONNECT_TORN, retried(probe, &base.keyed(&fresh_key()?), true).await?);
    Ok(())
}

async fn retried(probe: &Probe, request: &Request, torn: bool) -> Result<Judgement, Failure> {
    let before = probe.effects().await?;
    if let Err(silence) = probe.hang_up(request, torn).await {
        return Ok(unknown(silence.to_string()));
    }
    let retry = probe.settle(request).await;
    let grown =
        super::counts(before, probe.effects().await?).map(|(before, after)| after.saturating_sub(before));
    Ok(match (&retry, grown) {
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
        _ => fail(format!("the retry was answered {}", told(&retry))),
    })
}
