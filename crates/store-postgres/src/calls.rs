//! Calls of one function each: their arguments, and what their rows say.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use onlyonce_core::record::codec::CodecError;
use onlyonce_core::record::{STEPS_BYTES_MAX, STEPS_MAX, StateKind};
use onlyonce_core::store::{Ids, Stats, Swept};
use onlyonce_core::transition::{
    AbandonAnswer, Actor, EraseAnswer, RecordStep, Resolve, ResolveAnswer, StepAnswer, Token, Verdict, view,
};
use onlyonce_core::{Outcome, Record, RecordId, Secret, StoreError};
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use crate::arrays::{Blob, argument};
use crate::column::{self, OutcomeColumns};
use crate::connect::Argument;
use crate::row::{self, DAMAGED, get};

const STRANGE: CodecError = CodecError::Damaged("answer");

/// The text of a call of `function` with so many arguments.
pub(crate) fn text(schema: &str, function: &str, arguments: usize) -> Arc<str> {
    let mut text = format!("SELECT * FROM {schema}.{function}(");
    for at in 1..=arguments {
        let _ = write!(text, "{}${at}", if at == 1 { "" } else { ", " });
    }
    text.push(')');
    text.into()
}

/// The first of `items` for each id, and the rest, both in their order.
pub(crate) fn first_of_each<T>(items: Vec<T>, id: impl Fn(&T) -> RecordId) -> (Vec<T>, Vec<T>) {
    let mut seen = Ids::default();
    items.into_iter().partition(|item| seen.insert(id(item)))
}

pub(crate) fn id(id: &RecordId) -> Argument {
    argument(id.as_bytes().to_vec(), Type::BYTEA)
}

pub(crate) fn token(token: &Token) -> Vec<Argument> {
    vec![
        id(&token.id),
        argument(column::owner(&token.owner), Type::UUID),
        argument(column::fence(token.fence), Type::INT8),
    ]
}

pub(crate) fn step(step: &RecordStep) -> Vec<Argument> {
    let mut arguments = token(&step.token);
    arguments.extend([
        argument(step.name.as_str().to_owned(), Type::TEXT),
        argument(Blob(step.value.clone()), Type::BYTEA),
        argument(i32::try_from(STEPS_MAX).unwrap_or(i32::MAX), Type::INT4),
        argument(i32::try_from(STEPS_BYTES_MAX).unwrap_or(i32::MAX), Type::INT4),
    ]);
    arguments
}

pub(crate) fn resolve(resolve: &Resolve) -> Vec<Argument> {
    let (verdict, outcome) = match &resolve.verdict {
        Verdict::Executed(outcome) => (0i16, Some(outcome)),
        Verdict::NotExecuted { force: false } => (1, None),
        Verdict::NotExecuted { force: true } => (2, None),
        Verdict::StillUnknown => (3, None),
    };
    let actor = match &resolve.actor {
        Actor::Hook => "hook".to_owned(),
        Actor::Operator(name) => format!("operator:{name}"),
    };
    let mut arguments = vec![
        id(&resolve.id),
        argument(column::fence(resolve.fence), Type::INT8),
        argument(verdict, Type::INT2),
    ];
    arguments.extend(outcome_arguments(outcome));
    // The one text that comes from outside: what the server cannot hold in a text is left out.
    arguments.push(argument(actor.replace('\0', ""), Type::TEXT));
    arguments
}

fn outcome_arguments(outcome: Option<&Outcome>) -> [Argument; 5] {
    let columns = outcome.map(OutcomeColumns::of);
    let part = columns.as_ref();
    [
        argument(part.map(|columns| columns.content_version), Type::INT4),
        argument(part.map(|columns| columns.kept), Type::INT2),
        argument(part.map(|columns| columns.head.clone()), Type::BYTEA),
        argument(part.and_then(|columns| columns.body_sum), Type::INT4),
        argument(columns.and_then(|columns| columns.body).map(Blob), Type::BYTEA),
    ]
}

/// Reads the one row of an answer.
fn one<T>(
    rows: &[Row],
    doing: &'static str,
    read: impl FnOnce(&Row) -> Result<T, CodecError>,
) -> Result<T, StoreError> {
    rows.first().ok_or(STRANGE).and_then(read).map_err(|error| StoreError::undecodable(error, doing))
}

/// The number that a function answers, unless the record is damaged.
fn number(row: &Row, column: &str) -> Result<i16, CodecError> {
    match get(row, column)? {
        DAMAGED => Err(CodecError::Damaged("mark")),
        answer => Ok(answer),
    }
}

pub(crate) fn abandoned(rows: &[Row], doing: &'static str) -> Result<AbandonAnswer, StoreError> {
    one(rows, doing, |row| match number(row, "abandon")? {
        0 => Ok(AbandonAnswer::Abandoned),
        1 => Ok(AbandonAnswer::Fenced),
        _ => Err(STRANGE),
    })
}

pub(crate) fn stepped(rows: &[Row], doing: &'static str) -> Result<StepAnswer, StoreError> {
    one(rows, doing, |row| match number(row, "answer")? {
        0 => Ok(StepAnswer::Recorded),
        1 => Ok(StepAnswer::Already(Bytes::from(get::<Vec<u8>>(row, "already")?))),
        2 => Ok(StepAnswer::Erased),
        3 => Ok(StepAnswer::Full),
        4 => Ok(StepAnswer::Fenced),
        _ => Err(STRANGE),
    })
}

pub(crate) fn erased(rows: &[Row], doing: &'static str) -> Result<EraseAnswer, StoreError> {
    one(rows, doing, |row| match number(row, "erase")? {
        0 => Ok(EraseAnswer::Erased),
        1 => Ok(EraseAnswer::InFlight),
        2 => Ok(EraseAnswer::Absent),
        _ => Err(STRANGE),
    })
}

pub(crate) fn resolved(rows: &[Row], doing: &'static str) -> Result<ResolveAnswer, StoreError> {
    one(rows, doing, |row| match number(row, "answer")? {
        0 => Ok(ResolveAnswer::Resolved),
        1 => {
            column::check_body(get(row, "kept")?, get(row, "body_sum")?, get(row, "body")?)?;
            Ok(ResolveAnswer::Already)
        }
        2 => Ok(ResolveAnswer::NotUnknown(match get::<i16>(row, "state")? {
            0 => StateKind::InFlight,
            1 => StateKind::Completed,
            2 => StateKind::Released,
            3 => StateKind::Unknown,
            _ => return Err(STRANGE),
        })),
        3 => Ok(ResolveAnswer::Stale(column::read_fence(get(row, "fence")?)?)),
        4 => Ok(ResolveAnswer::TooEarly(duration(get(row, "left")?)?)),
        5 => Ok(ResolveAnswer::Contradicted),
        6 => Ok(ResolveAnswer::Absent),
        _ => Err(STRANGE),
    })
}

pub(crate) fn looked_up(rows: &[Row], doing: &'static str) -> Result<Option<Record>, StoreError> {
    let Some(found) = rows.first() else { return Ok(None) };
    let (_, record, now) = row::record(found).map_err(|error| StoreError::undecodable(error, doing))?;
    Ok(view(record.as_ref(), now).map(std::borrow::Cow::into_owned))
}

/// What was swept, and where the next call goes on.
pub(crate) fn swept(rows: &[Row]) -> Result<(Swept, i64), StoreError> {
    one(rows, "sweeping", |row| {
        let swept = Swept {
            removed: count(get(row, "removed")?)?,
            made_unknown: count(get(row, "made_unknown")?)?,
            more: get(row, "more")?,
            ..Swept::default()
        };
        Ok((swept, get(row, "reached")?))
    })
}

pub(crate) fn counted(rows: &[Row]) -> Result<Stats, StoreError> {
    one(rows, "counting records", |row| {
        let number = |column| u64::try_from(get::<i64>(row, column)?).map_err(|_| STRANGE);
        let oldest: Option<i64> = get(row, "oldest_expired")?;
        Ok(Stats {
            in_flight: number("in_flight")?,
            completed: number("completed")?,
            released: number("released")?,
            unknown: number("unknown")?,
            // One whose columns were changed counts by the state that it says it is in.
            unreadable: 0,
            bytes: number("bytes")?,
            oldest_expired: oldest.map(duration).transpose()?,
        })
    })
}

pub(crate) fn secret(rows: &[Row]) -> Result<Secret, StoreError> {
    one(rows, "reading the secret", |row| {
        let bytes: &[u8] = get(row, "keep_secret")?;
        bytes.try_into().map(Secret::new).map_err(|_| CodecError::Damaged("secret"))
    })
}

pub(crate) fn taken(rows: &[Row]) -> Result<usize, StoreError> {
    one(rows, "taking in records", |row| count(get::<i32>(row, "import")?.into()))
}

fn count(number: i64) -> Result<usize, CodecError> {
    usize::try_from(number).map_err(|_| STRANGE)
}

fn duration(millis: i64) -> Result<Duration, CodecError> {
    u64::try_from(millis).map(Duration::from_millis).map_err(|_| STRANGE)
}
