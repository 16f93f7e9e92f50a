//! Keys as they should be, and keys as they should not be. A request whose key cannot be read must not be executed as
//! if it had none.

mod malformed;

use super::{Base, Form, Ran, UNTOLD, counts, quoted};
use crate::check::answer::Answer;
use crate::check::items::{KEY_BARE_SAME, KEY_CASE, KEY_LONG, KEY_MISSING, KEY_PARAMETERS, KEY_PRINTABLE};
use crate::check::probe::{Probe, fresh_key, told};
use crate::check::verdict::{Findings, Judgement, fail, not_applicable, not_supported, pass, unknown};
use crate::check::wire::Reply;
use crate::failure::Failure;

pub(super) const REQUESTS_MAX: u32 = 12 + malformed::REQUESTS_MAX;

const LONG_CHARS: usize = 300;

pub(super) async fn run(probe: &Probe, base: &Base, findings: &mut Findings) -> Result<(), Failure> {
    findings.note(&KEY_BARE_SAME, bare(probe, base).await?);
    findings.note(&KEY_PARAMETERS, parameters(probe, base).await?);
    findings.note(&KEY_PRINTABLE, printable(probe, base).await?);
    findings.note(&KEY_CASE, case(probe, base).await?);
    findings.note(&KEY_LONG, long(probe, base).await?);
    let missing = probe.send(&base.request).await;
    findings.note(
        &KEY_MISSING,
        match &missing {
            Ok(answer) if answer.status == 400 => pass("refused with 400: a key is required"),
            Ok(answer) if answer.is_taken() => pass("executed: a key is optional here"),
            _ => fail(format!("answered {} instead of 400", told(&missing))),
        },
    );
    malformed::run(probe, base, missing.ok(), findings).await
}

/// Sends the request under two written keys that may or may not be the same key.
async fn pair(probe: &Probe, base: &Base, first: &str, second: &str) -> Result<Pair, Failure> {
    let before = probe.effects().await?;
    let first = match probe.send(&base.request.keys([first])).await {
        Ok(first) if first.is_taken() => first,
        first => return Ok(Pair::Neither(first)),
    };
    let second = match probe.send(&base.request.keys([second])).await {
        Ok(second) if second.is_taken() => second,
        second => return Ok(Pair::First(second)),
    };
    let effects = counts(before, probe.effects().await?);
    Ok(Pair::Both(base.ran(&first, &second, effects), first))
}

enum Pair {
    /// Both were taken.
    Both(Ran, Answer),
    /// The second was not, but answered like this.
    First(Reply),
    /// Already the first was not.
    Neither(Reply),
}

async fn bare(probe: &Probe, base: &Base) -> Result<Judgement, Failure> {
    if base.form == Form::Bare {
        return Ok(not_applicable("only keys without quotes are accepted"));
    }
    let key = fresh_key()?;
    Ok(match pair(probe, base, &quoted(&key), &key).await? {
        Pair::Both(Ran::Once, _) => pass("the same key"),
        Pair::Both(Ran::Again(_), _) => {
            fail(format!("\"{}…\" and {}… are two keys: the retry was executed again", &key[..4], &key[..4]))
        }
        Pair::Both(Ran::Untold, _) => unknown(UNTOLD),
        Pair::First(Ok(answer)) if answer.status == 400 => pass("refused with 400: quotes are required"),
        Pair::First(reply) | Pair::Neither(reply) => fail(format!("answered {}", told(&reply))),
    })
}

async fn parameters(probe: &Probe, base: &Base) -> Result<Judgement, Failure> {
    if base.form == Form::Bare {
        return Ok(not_applicable("only keys without quotes are accepted"));
    }
    let key = quoted(&fresh_key()?);
    Ok(match pair(probe, base, &key, &format!("{key};v=1")).await? {
        Pair::Both(Ran::Once, _) => pass("the same key"),
        Pair::Both(Ran::Again(_), _) => fail("a parameter made another key: the retry was executed again"),
        Pair::Both(Ran::Untold, _) => unknown(UNTOLD),
        Pair::First(Ok(answer)) if answer.is_refused() => {
            not_supported(format!("refused with {}", answer.status))
        }
        Pair::First(reply) | Pair::Neither(reply) => fail(format!("answered {}", told(&reply))),
    })
}

async fn printable(probe: &Probe, base: &Base) -> Result<Judgement, Failure> {
    let key = format!("{} a,b;c='d' -- \"e\" \\f <g> %00 ${{h}}", &fresh_key()?[..8]);
    let written = if base.form == Form::Bare { key.replace([' ', '"', ',', ';'], "_") } else { quoted(&key) };
    Ok(match pair(probe, base, &written, &written).await? {
        Pair::Both(Ran::Once, _) => pass("accepted, and replayed"),
        Pair::Both(Ran::Again(_), _) => fail("executed twice"),
        Pair::Both(Ran::Untold, _) => unknown(UNTOLD),
        Pair::Neither(Ok(answer)) if answer.is_refused() => {
            not_supported(format!("refused with {}: the endpoint has a narrower format", answer.status))
        }
        Pair::First(reply) | Pair::Neither(reply) => fail(format!("answered {}", told(&reply))),
    })
}

async fn case(probe: &Probe, base: &Base) -> Result<Judgement, Failure> {
    let key = format!("abc-{}", fresh_key()?);
    let (lower, upper) = (base.form.write(&key), base.form.write(&key.to_ascii_uppercase()));
    Ok(match pair(probe, base, &lower, &upper).await? {
        Pair::Both(Ran::Again(_), _) => pass("two keys, two executions"),
        Pair::Both(Ran::Once, _) => fail("the second was answered with the result of the first"),
        Pair::Both(Ran::Untold, _) => unknown(UNTOLD),
        Pair::Neither(Ok(answer)) if answer.is_refused() => {
            not_applicable(format!("such keys are refused with {}", answer.status))
        }
        Pair::First(reply) | Pair::Neither(reply) => fail(format!("answered {}", told(&reply))),
    })
}

/// Refused, or kept to its last character: a key that is cut is somebody else's key.
async fn long(probe: &Probe, base: &Base) -> Result<Judgement, Failure> {
    let key = format!("{}{}", fresh_key()?, "a".repeat(LONG_CHARS));
    let (one, other) = (format!("{}1", &key[..LONG_CHARS - 1]), format!("{}2", &key[..LONG_CHARS - 1]));
    let (one, other) = (base.form.write(&one), base.form.write(&other));
    let first = match pair(probe, base, &one, &one).await? {
        Pair::Neither(Ok(answer)) if answer.is_refused() => {
            return Ok(pass(format!("refused with {}", answer.status)));
        }
        Pair::Both(Ran::Again(_), _) => return Ok(fail("executed twice: such a key does not protect")),
        Pair::Both(Ran::Untold, _) => return Ok(unknown(UNTOLD)),
        Pair::First(reply) | Pair::Neither(reply) => return Ok(fail(format!("answered {}", told(&reply)))),
        Pair::Both(Ran::Once, first) => first,
    };
    let reply = probe.send(&base.request.keys([other])).await;
    Ok(match &reply {
        Ok(answer) if answer.is_taken() && base.ran(&first, answer, None) != Ran::Once => pass("kept whole"),
        _ => fail(format!(
            "a key that differs in its last character was answered {}: keys are cut",
            told(&reply)
        )),
    })
}
