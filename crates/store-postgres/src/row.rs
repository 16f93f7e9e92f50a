//! From the rows that the functions answer to answers and records.

use bytes::Bytes;
use onlyonce_core::record::codec::CodecError;
use onlyonce_core::record::{Completed, Recovery, State};
use onlyonce_core::transition::{
    Answer, Busy, ClaimAnswer, CompleteAnswer, Grant, Held, RecoverGrant, ReleaseAnswer, RenewAnswer, Replay,
};
use onlyonce_core::{Record, RecordId, Retention, Timestamp};
use tokio_postgres::Row;
use tokio_postgres::types::FromSql;
use uuid::Uuid;

use crate::column::{self, OutcomeColumns};

/// What cannot be read is an error and never absence.
pub(crate) const STRANGE: CodecError = CodecError::Damaged("answer");
/// The answer of every function about a record whose mark is not that of its columns.
pub(crate) const DAMAGED: i16 = 9;
/// The answer about a record that another transaction holds and that was not waited for.
const HELD: i64 = 8;

/// A column, by its place or name.
pub(crate) fn get<'r, T: FromSql<'r>>(row: &'r Row, column: &str) -> Result<T, CodecError> {
    row.try_get(column).map_err(|_| STRANGE)
}

/// The columns of an answer, by whichever driver they came.
pub(crate) trait Answered {
    /// A whole number; every number of an answer is of the same type.
    fn number(&self, column: &str) -> Result<Option<i64>, CodecError>;

    /// Bytes.
    fn bytes(&self, column: &str) -> Result<Option<Vec<u8>>, CodecError>;

    /// Texts.
    fn texts(&self, column: &str) -> Result<Option<Vec<String>>, CodecError>;

    /// Bytes, some of which are missing.
    fn blobs(&self, column: &str) -> Result<Option<Vec<Option<Vec<u8>>>>, CodecError>;
}

impl Answered for Row {
    fn number(&self, column: &str) -> Result<Option<i64>, CodecError> {
        get(self, column)
    }

    fn bytes(&self, column: &str) -> Result<Option<Vec<u8>>, CodecError> {
        get(self, column)
    }

    fn texts(&self, column: &str) -> Result<Option<Vec<String>>, CodecError> {
        get(self, column)
    }

    fn blobs(&self, column: &str) -> Result<Option<Vec<Option<Vec<u8>>>>, CodecError> {
        get(self, column)
    }
}

fn number(row: &impl Answered, column: &str) -> Result<i64, CodecError> {
    row.number(column)?.ok_or(STRANGE)
}

/// A number that is a small one in its table.
fn small<T: TryFrom<i64>>(row: &impl Answered, column: &str) -> Result<Option<T>, CodecError> {
    row.number(column)?.map(T::try_from).transpose().map_err(|_| STRANGE)
}

/// Which command an answer is for: its kind, and its place among those of its kind.
pub(crate) fn place_of(row: &impl Answered) -> Result<(i64, usize), CodecError> {
    let item: usize = small(row, "item")?.ok_or(STRANGE)?;
    Ok((number(row, "kind")?, item.checked_sub(1).ok_or(STRANGE)?))
}

/// When a record expires whose body waits for its day to be made.
pub(crate) fn missed_day(row: &impl Answered) -> Option<i64> {
    let is_completion = number(row, "kind").is_ok_and(|kind| kind == 2);
    row.number("until").ok().flatten().filter(|_| is_completion)
}

/// What one command of a batch is answered; `None` when another transaction holds its record.
pub(crate) fn answer(row: &impl Answered) -> Result<Option<Answer>, CodecError> {
    let answer = number(row, "answer")?;
    if answer == HELD {
        return Ok(None);
    }
    if answer == i64::from(DAMAGED) {
        return Err(CodecError::Damaged("mark"));
    }
    let answer = match number(row, "kind")? {
        1 => claim(answer, row).map(Answer::Claim),
        2 => complete(answer, row).map(Answer::Complete),
        3 => match answer {
            0 => Ok(RenewAnswer::Renewed(at(row, "at")?.until(at(row, "until")?))),
            1 => Ok(RenewAnswer::Fenced),
            _ => Err(STRANGE),
        }
        .map(Answer::Renew),
        4 => match answer {
            0 => Ok(ReleaseAnswer::Released),
            1 => Ok(ReleaseAnswer::Fenced),
            _ => Err(STRANGE),
        }
        .map(Answer::Release),
        _ => Err(STRANGE),
    };
    answer.map(Some)
}

fn claim(answer: i64, row: &impl Answered) -> Result<ClaimAnswer, CodecError> {
    let fence = || column::read_fence(number(row, "fence")?);
    let attempt = || column::read_attempt(number(row, "attempt")?);
    let steps = || column::read_steps(row.texts("step_names")?, row.blobs("step_values")?);
    let now = at(row, "at")?;
    Ok(match answer {
        0 => ClaimAnswer::Granted(Grant { fence: fence()?, attempt: attempt()?, steps: steps()? }),
        1 => {
            let expires_at = at(row, "until")?;
            let outcome = OutcomeColumns {
                content_version: small(row, "content_version")?.ok_or(STRANGE)?,
                kept: small(row, "kept")?.ok_or(STRANGE)?,
                head: row.bytes("head")?.ok_or(STRANGE)?,
                body_sum: small(row, "body_sum")?,
                body: row.bytes("body")?.map(Bytes::from),
            };
            ClaimAnswer::Replay(Replay {
                outcome: outcome.read()?,
                by: column::read_completed_by(small(row, "completed_by")?)?,
                fence: fence()?,
                attempt: attempt()?,
                age: at(row, "since")?.until(now),
                left: now.until(expires_at),
            })
        }
        2 => ClaimAnswer::Busy(Busy { left: now.until(at(row, "until")?) }),
        3 => ClaimAnswer::Held(Held { fence: fence()?, age: at(row, "since")?.until(now) }),
        4 => {
            let stored = column::read_fingerprint(&row.bytes("fingerprint")?.ok_or(STRANGE)?)?;
            // Whether they are those of the claim is for the caller to see, who knows the claim.
            ClaimAnswer::Mismatch { rules: Some(stored.rules().clone()) }
        }
        5 => ClaimAnswer::Recover(RecoverGrant {
            fence: fence()?,
            attempt: attempt()?,
            quiet_in: now.until(at(row, "until")?),
            steps: steps()?,
        }),
        6 => ClaimAnswer::Fenced,
        _ => return Err(STRANGE),
    })
}

fn complete(answer: i64, row: &impl Answered) -> Result<CompleteAnswer, CodecError> {
    if answer == 2 || answer == 3 {
        column::check_body(small(row, "kept")?, small(row, "body_sum")?, row.bytes("body")?.as_deref())?;
    }
    Ok(match answer {
        0 => CompleteAnswer::Completed,
        1 => CompleteAnswer::Already,
        2 => CompleteAnswer::Late,
        3 => CompleteAnswer::Alarm,
        4 => CompleteAnswer::Fenced,
        _ => return Err(STRANGE),
    })
}

fn at(row: &impl Answered, column: &str) -> Result<Timestamp, CodecError> {
    column::read_time(number(row, column)?)
}

fn time(row: &Row, column: &str) -> Result<Timestamp, CodecError> {
    column::read_time(get(row, column)?)
}

fn outcome(row: &Row) -> Result<OutcomeColumns, CodecError> {
    Ok(OutcomeColumns {
        content_version: get(row, "content_version")?,
        kept: get(row, "kept")?,
        head: get(row, "head")?,
        body_sum: get(row, "body_sum")?,
        body: get::<Option<Vec<u8>>>(row, "body")?.map(Bytes::from),
    })
}

/// A whole record and the time at which it was read; `None` for one that has expired, whose body may be gone.
pub(crate) fn record(row: &Row) -> Result<(RecordId, Option<Record>, Timestamp), CodecError> {
    let id = column::read_id(get(row, "id")?)?;
    if get(row, "damaged")? {
        return Err(CodecError::Damaged("mark"));
    }
    let now = time(row, "now")?;
    let (state, due_at) = (get::<i16>(row, "state")?, time(row, "due_at")?);
    if state != 0 && due_at <= now {
        return Ok((id, None, now));
    }
    let fingerprint: Option<&[u8]> = get(row, "fingerprint")?;
    let record = Record {
        fence: column::read_fence(get(row, "fence")?)?,
        attempt: column::read_attempt(get(row, "attempt")?)?,
        owner: column::read_owner(get(row, "owner")?),
        fingerprint: fingerprint.map(column::read_fingerprint).transpose()?,
        created_at: time(row, "created_at")?,
        granted_at: time(row, "granted_at")?,
        run_until: time(row, "run_until")?,
        retention: retention(row, "retention")?,
        unknown_retention: retention(row, "unknown_retention")?,
        remote: get(row, "remote")?,
        steps: column::read_steps(get(row, "step_names")?, get(row, "step_values")?)?,
        state: read_state(state, due_at, row)?,
    };
    Ok((id, Some(record), now))
}

fn read_state(state: i16, due_at: Timestamp, row: &Row) -> Result<State, CodecError> {
    Ok(match state {
        0 => State::InFlight { lease_until: due_at },
        1 => {
            let late: Option<&[u8]> = get(row, "late")?;
            let late = late.map(|late| OutcomeColumns::from_late(late)?.read()).transpose()?;
            State::Completed(Completed {
                outcome: outcome(row)?.read()?,
                by: column::read_completed_by(get(row, "completed_by")?)?,
                at: time(row, "since")?,
                expires_at: due_at,
                late: late.map(Box::new),
            })
        }
        2 => State::Released { expires_at: due_at },
        3 => {
            let owner: Option<Uuid> = get(row, "recovery_owner")?;
            let recovery = match owner {
                None => None,
                Some(owner) => Some(Recovery {
                    owner: column::read_owner(owner),
                    lease_until: time(row, "recovery_until")?,
                }),
            };
            State::Unknown { since: time(row, "since")?, expires_at: due_at, recovery }
        }
        _ => return Err(CodecError::Damaged("state")),
    })
}

fn retention(row: &Row, column: &str) -> Result<Retention, CodecError> {
    let millis = u64::try_from(get::<i64>(row, column)?).map_err(|_| CodecError::Damaged("retention"))?;
    Retention::new(std::time::Duration::from_millis(millis)).map_err(|_| CodecError::Damaged("retention"))
}
