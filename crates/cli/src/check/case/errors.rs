//! After an error: a key must not stay "in progress" for ever. Whether the error is replayed or the work runs again is
//! the endpoint's choice.

use super::Base;
use crate::check::items::{ERROR_FAILED, ERROR_REFUSED};
use crate::check::options::Options;
use crate::check::probe::{Probe, SETTLE_TRIES, fresh_key, told};
use crate::check::verdict::{Findings, Judgement, fail, not_applicable, pass, unknown};
use crate::failure::Failure;

pub(super) const REQUESTS_MAX: u32 = 2 + 3 * SETTLE_TRIES;

pub(super) async fn run(
    probe: &Probe,
    options: &Options,
    base: &Base,
    findings: &mut Findings,
) -> Result<(), Failure> {
    findings.note(&ERROR_REFUSED, refused(probe, options, base).await?);
    findings.note(&ERROR_FAILED, failed(probe, options, base).await?);
    Ok(())
}

async fn refused(probe: &Probe, options: &Options, base: &Base) -> Result<Judgement, Failure> {
    if options.error_body.is_empty() {
        return Ok(not_applicable("give --error-body, a body that is refused with 4xx"));
    }
    let request = base.keyed(&fresh_key()?);
    let wrong = request.body(options.error_body.clone());
    let first = match probe.send(&wrong).await {
        Ok(answer) if answer.is_refused() => answer,
        reply => {
            let why = format!("the error body is answered {} and not 4xx: give --error-body", told(&reply));
            return Ok(not_applicable(why));
        }
    };
    let retry = probe.settle(&wrong).await;
    match &retry {
        Ok(answer) if answer.status == first.status => {}
        Ok(answer) if answer.status == 409 => return Ok(stuck(first.status)),
        _ => return Ok(fail(format!("answered {}, then {} on retry", first.status, told(&retry)))),
    }
    let corrected = probe.settle(&request).await;
    Ok(match &corrected {
        Ok(answer) if answer.is_taken() => {
            pass(format!("{} again on retry; the corrected request is executed", first.status))
        }
        Ok(answer) if answer.status == 409 => stuck(first.status),
        Ok(answer) if answer.is_refused() => pass(format!(
            "{} again on retry; the corrected request needs a new key ({})",
            first.status, answer.status
        )),
        _ => fail(format!("the corrected request was answered {}", told(&corrected))),
    })
}

async fn failed(probe: &Probe, options: &Options, base: &Base) -> Result<Judgement, Failure> {
    let Some(header) = &options.fail else {
        return Ok(not_applicable("give --fail, a header that makes the endpoint answer 5xx"));
    };
    let request = base.keyed(&fresh_key()?);
    let first = match probe.send(&request.header(header)).await {
        Ok(answer) if answer.status >= 500 => answer,
        reply => return Ok(unknown(format!("--fail was answered {} and not 5xx", told(&reply)))),
    };
    let retry = probe.settle(&request).await;
    Ok(match &retry {
        Ok(answer) if answer.is_taken() => pass(format!("{}, then executed on retry", first.status)),
        Ok(answer) if answer.status == first.status => pass(format!("{} is replayed", first.status)),
        // 502 and 504 leave open whether the work happened: an endpoint that says so does not guess.
        Ok(answer) if answer.status == 409 && matches!(first.status, 502 | 504) => {
            pass(format!("{}, and then 409: the outcome is unknown", first.status))
        }
        Ok(answer) if answer.status == 409 => stuck(first.status),
        _ => fail(format!("answered {}, then {} on retry", first.status, told(&retry))),
    })
}

fn stuck(status: u16) -> Judgement {
    fail(format!("answered {status}, and then 409 for as long as was waited: the key is stuck"))
}
