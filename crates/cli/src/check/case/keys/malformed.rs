//! Keys that must be refused. One that is taken anyway is sent again, to see whether it protects anything.

use crate::check::answer::Answer;
use crate::check::case::{Base, Ran, quoted};
use crate::check::items::{
    Item, KEY_BROKEN, KEY_CONTROL, KEY_EMPTY, KEY_LIST, KEY_NOT_ASCII, KEY_PROBLEM, KEY_TWO_LINES,
};
use crate::check::probe::{Probe, fresh_key, told};
use crate::check::verdict::{Findings, Judgement, fail, not_applicable, pass};
use crate::check::wire::Silence;
use crate::failure::Failure;

/// A way to write a key wrongly: a name for it, and the lines of the field.
type Wrong = (&'static str, Vec<Vec<u8>>);

/// Each of the wrong keys below twice, and one of two lines alone.
pub(super) const REQUESTS_MAX: u32 = 2 * 13 + 1;

/// `missing` is the answer to a request without any key.
pub(super) async fn run(
    probe: &Probe,
    base: &Base,
    missing: Option<Answer>,
    findings: &mut Findings,
) -> Result<(), Failure> {
    let mut refusals = Vec::from_iter(missing.filter(Answer::is_refused));
    for (item, wrongs) in wrong_keys()? {
        let before = refusals.len();
        findings.note(item, refused(probe, base, &wrongs, &mut refusals).await);
        if item.id == KEY_CONTROL.id {
            // Such a request is broken as HTTP: whoever refuses it need not know about keys.
            refusals.truncate(before);
        }
    }
    findings.note(
        &KEY_PROBLEM,
        match refusals.iter().find(|answer| answer.status != 400).or_else(|| refusals.first()) {
            None => not_applicable("no key was refused"),
            Some(answer) if answer.status != 400 => fail(format!("{} instead of 400", answer.status)),
            Some(_) => {
                let described: Result<Vec<_>, _> = refusals.iter().map(Answer::describes_problem).collect();
                described.map_or_else(fail, |described| pass(described.first().cloned().unwrap_or_default()))
            }
        },
    );
    Ok(())
}

fn wrong_keys() -> Result<Vec<(&'static Item, Vec<Wrong>)>, Failure> {
    let key = fresh_key()?;
    // Each is a key of its own, so that none is taken for another one.
    let written = |name: &str, before: &str, after: &[u8]| {
        let mut line = format!("{before}{name}-{key}").into_bytes();
        line.extend_from_slice(after);
        vec![line]
    };
    let two = |one: &str, other: &str| vec![one.as_bytes().to_vec(), other.as_bytes().to_vec()];
    let (one, other) = (quoted(&fresh_key()?), quoted(&fresh_key()?));
    let list = format!("{}, {}", quoted(&fresh_key()?), quoted(&fresh_key()?));
    Ok(vec![
        (&KEY_EMPTY, vec![("no text", vec![Vec::new()]), ("an empty string", vec![b"\"\"".to_vec()])]),
        (
            &KEY_TWO_LINES,
            vec![
                ("two lines", two(&one, &other)),
                ("the same line twice", {
                    let same = quoted(&fresh_key()?);
                    two(&same, &same)
                }),
            ],
        ),
        (
            &KEY_LIST,
            vec![("a list", vec![list.into_bytes()]), ("an inner list", written("inner", "(\"", b"\")"))],
        ),
        (
            &KEY_CONTROL,
            vec![
                ("a tab", written("tab", "\"", b"\tx\"")),
                ("byte 0x01", written("one", "\"", b"\x01x\"")),
                ("byte 0x7f", written("delete", "\"", b"\x7fx\"")),
            ],
        ),
        (
            &KEY_NOT_ASCII,
            vec![
                ("UTF-8", written("text", "\"", "é\"".as_bytes())),
                ("byte 0xff", written("byte", "\"", b"\xff\"")),
            ],
        ),
        (
            &KEY_BROKEN,
            vec![
                ("no closing quote", written("open", "\"", b"")),
                ("the escape \\n", written("escape", "\"", b"\\n\"")),
            ],
        ),
    ])
}

async fn refused(probe: &Probe, base: &Base, wrongs: &[Wrong], refusals: &mut Vec<Answer>) -> Judgement {
    let mut told_ones = Vec::new();
    let mut failures = Vec::new();
    for (name, lines) in wrongs {
        let mut request = base.request.clone();
        request.keys.clone_from(lines);
        let reply = probe.send(&request).await;
        match reply {
            Ok(answer) if answer.is_refused() => {
                told_ones.push(format!("{name}: {}", answer.status));
                refusals.push(answer);
            }
            Err(Silence::Closed) => told_ones.push(format!("{name}: closed")),
            Ok(answer) if answer.is_taken() => {
                failures.push(format!("{name}: {}", taken(probe, base, lines, &answer).await));
            }
            reply => failures.push(format!("{name}: answered {}", told(&reply))),
        }
    }
    if failures.is_empty() { pass(told_ones.join(", ")) } else { fail(failures.join("; ")) }
}

/// What became of a key that should have been refused.
async fn taken(probe: &Probe, base: &Base, lines: &[Vec<u8>], first: &Answer) -> String {
    let mut request = base.request.clone();
    request.keys = lines.to_vec();
    let again = probe.send(&request).await;
    match &again {
        Ok(second) if second.is_taken() => match base.ran(first, second, None) {
            Ran::Once => {}
            Ran::Again(_) => return "executed unprotected, twice".to_owned(),
            Ran::Untold => return "accepted".to_owned(),
        },
        _ => return format!("accepted, then answered {}", told(&again)),
    }
    if let [one, other] = lines
        && one != other
        && let Ok(alone) = probe.send(&base.request.keys([one.clone()])).await
        && alone.is_taken()
        && base.ran(first, &alone, None) == Ran::Once
    {
        return "accepted, and the first line wins".to_owned();
    }
    "accepted as a key".to_owned()
}
