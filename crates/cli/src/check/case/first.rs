//! A first request, and the same payload under another key: what every other case is compared with.

use super::{Base, Distinct, Form, counts, quoted};
use crate::check::items::{FIRST_EXECUTES, KEY_QUOTED, OTHER_KEY_EXECUTES};
use crate::check::options::Options;
use crate::check::probe::{Probe, Request, fresh_key, told};
use crate::check::verdict::{Findings, fail, pass, unknown};
use crate::check::wire::{Reply, Silence};
use crate::failure::Failure;

pub(super) const REQUESTS_MAX: u32 = 3;

pub(super) async fn run(probe: &Probe, options: &Options, findings: &mut Findings) -> Result<Base, Failure> {
    let request = Request {
        method: options.method.clone(),
        path: probe.path(),
        key_name: options.key_name.clone(),
        keys: Vec::new(),
        content_type: options.content_type.clone(),
        headers: options.headers.clone(),
        body: options.body.clone(),
    };
    let before = probe.effects().await?;
    let key = fresh_key()?;
    let (form, reply) = first(probe, &request, &key, findings).await;
    let first = taken(options, reply)?;
    let after = probe.effects().await?;
    findings.note(
        &FIRST_EXECUTES,
        match counts(before, after) {
            Some((before, after)) if after != before + 1 => {
                fail(format!("answered {}, but the effects went from {before} to {after}", first.status))
            }
            _ => pass(format!("answered {}", first.status)),
        },
    );
    let mut base = Base { request, form, key, first, distinct: Distinct::Nowhere };
    let other = probe.send(&base.keyed(&fresh_key()?)).await;
    let effects = counts(after, probe.effects().await?);
    if let Ok(other) = &other {
        base.distinct = Distinct::of(&base.first, other);
    }
    findings.note(
        &OTHER_KEY_EXECUTES,
        match (&other, effects) {
            (Ok(other), Some((before, after))) if other.is_taken() && after == before => {
                fail("answered without an effect: two keys are taken for one operation")
            }
            (Ok(other), Some(_)) if other.is_taken() => pass("executed: one more effect"),
            (Ok(other), None) if other.is_taken() && base.can_tell(other) => pass("executed: another result"),
            (Ok(other), None) if other.is_taken() && other.mark().is_some() => {
                fail("answered with the result of another key")
            }
            (Ok(other), None) if other.is_taken() => unknown(super::UNTOLD),
            _ => fail(format!("answered {}: two legitimate operations are taken for one", told(&other))),
        },
    );
    Ok(base)
}

/// Tries the quoted form that the draft asks for, then the bare one.
async fn first(probe: &Probe, request: &Request, key: &str, findings: &mut Findings) -> (Form, Reply) {
    let reply = probe.send(&request.keys([quoted(key)])).await;
    match &reply {
        Ok(answer) if !answer.is_refused() => {
            findings.note(&KEY_QUOTED, pass(format!("answered {}", answer.status)));
            return (Form::Quoted, reply);
        }
        Ok(_) => {}
        Err(_) => return (Form::Quoted, reply),
    }
    let bare = probe.send(&request.keys([key])).await;
    match &bare {
        Ok(answer) if answer.is_taken() => {
            findings.note(
                &KEY_QUOTED,
                fail(format!("answered {}; the same key without quotes is accepted", told(&reply))),
            );
            (Form::Bare, bare)
        }
        _ => (Form::Quoted, reply),
    }
}

/// The first answer, or why nothing can be learnt from this endpoint.
fn taken(options: &Options, reply: Reply) -> Result<crate::check::answer::Answer, Failure> {
    match reply {
        Ok(answer) if answer.is_taken() => Ok(answer),
        Ok(answer) => {
            let body = String::from_utf8_lossy(&answer.body);
            let start: String = body.chars().filter(|c| !c.is_control()).take(160).collect();
            let text = format!(
                "a first {} with a new key was answered {}, so there is nothing to check: \
                 give --method, --body, --content-type and --header as the endpoint needs them ({start})",
                options.method, answer.status
            );
            Err(Failure::Refused(text.into()))
        }
        Err(silence @ (Silence::Unreachable(_) | Silence::TimedOut(_) | Silence::Closed)) => {
            Err(Failure::Unavailable(silence.to_string().into()))
        }
        Err(silence) => Err(Failure::Refused(silence.to_string().into())),
    }
}
