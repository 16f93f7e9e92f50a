//! What a grant and an outcome wait for beyond the server's own answer: `WAIT` and `WAITAOF`.

use onlyonce_core::{StoreError, StoreErrorKind};
use redis::{Cmd, Value, cmd};

use crate::error;
use crate::options::Acknowledgement;

/// The command that waits, or `None` where nothing is waited for.
pub(crate) fn command(acknowledgement: Acknowledgement) -> Option<Cmd> {
    match acknowledgement {
        Acknowledgement::None => None,
        Acknowledgement::Replicas { count, within } => {
            let mut wait = cmd("WAIT");
            wait.arg(count).arg(u64::try_from(within.as_millis()).unwrap_or(u64::MAX));
            Some(wait)
        }
        Acknowledgement::Disks { master, replicas, within } => {
            let mut wait = cmd("WAITAOF");
            wait.arg(u8::from(master))
                .arg(replicas)
                .arg(u64::try_from(within.as_millis()).unwrap_or(u64::MAX));
            Some(wait)
        }
    }
}

/// Refuses an answer that too few servers have. The command was run: whoever repeats it waits again.
pub(crate) fn check(
    acknowledgement: Acknowledgement,
    answer: &Value,
    doing: &'static str,
) -> Result<(), StoreError> {
    let wanted: &[u8] = match acknowledgement {
        Acknowledgement::None => return Ok(()),
        Acknowledgement::Replicas { count, .. } => &[count],
        Acknowledgement::Disks { master, replicas, .. } => &[master.into(), replicas],
    };
    let got: Vec<i64> = match answer {
        Value::Int(count) => vec![*count],
        Value::Array(counts) => {
            counts.iter().map(|count| if let Value::Int(count) = count { *count } else { 0 }).collect()
        }
        Value::ServerError(refusal) => return Err(error::refused(refusal, doing).with_unknown_outcome()),
        other => return Err(error::unexpected(other, doing).with_unknown_outcome()),
    };
    if got.len() == wanted.len() && got.iter().zip(wanted).all(|(got, wanted)| *got >= i64::from(*wanted)) {
        return Ok(());
    }
    Err(StoreError::new(StoreErrorKind::Unavailable, doing)
        .because(format!("too few servers acknowledged it in time ({got:?} of {wanted:?})"))
        .with_unknown_outcome())
}
