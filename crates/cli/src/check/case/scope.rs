//! Two callers, one key: they must never meet.

use super::{Base, Ran, UNTOLD};
use crate::check::items::SCOPE_PRINCIPAL;
use crate::check::options::Options;
use crate::check::probe::{Probe, fresh_key, told};
use crate::check::verdict::{Findings, Judgement, fail, not_applicable, pass, unknown};
use crate::failure::Failure;

pub(super) const REQUESTS_MAX: u32 = 2;

pub(super) async fn run(
    probe: &Probe,
    options: &Options,
    base: &Base,
    findings: &mut Findings,
) -> Result<(), Failure> {
    findings.note(&SCOPE_PRINCIPAL, judge(probe, options, base).await?);
    Ok(())
}

async fn judge(probe: &Probe, options: &Options, base: &Base) -> Result<Judgement, Failure> {
    let has_own = options.headers.iter().any(|(name, _)| {
        ["authorization", "cookie"].iter().any(|credential| name.eq_ignore_ascii_case(credential))
    });
    let made_up = |who: &str| ("Authorization".to_owned(), format!("Bearer onlyonce-check-{who}"));
    let request = base.keyed(&fresh_key()?);
    let (own, other) = match &options.other_caller {
        Some(other) => (request.clone(), request.header(other)),
        None if has_own => {
            return Ok(not_applicable("give --other-header with the credential of another caller"));
        }
        // An endpoint that asks for no credential usually does not mind one.
        None => (request.header(&made_up("one")), request.header(&made_up("two"))),
    };
    let first = probe.send(&own).await;
    let Ok(answer) = &first else { return Ok(fail(format!("answered {}", told(&first)))) };
    if !answer.is_taken() {
        let why =
            format!("a made-up credential is answered {}: give --header and --other-header", answer.status);
        return Ok(not_applicable(why));
    }
    let second = probe.send(&other).await;
    Ok(match &second {
        Ok(second) if second.is_taken() => match base.ran(answer, second, None) {
            Ran::Again(_) => pass("executed: the key of another caller is another key"),
            Ran::Once => fail("another caller was given the stored answer"),
            Ran::Untold => unknown(UNTOLD),
        },
        Ok(second) if matches!(second.status, 401 | 403) => {
            not_applicable(format!("the other caller is answered {}", second.status))
        }
        _ => fail(format!("another caller was answered {}: it learns that the key is in use", told(&second))),
    })
}
