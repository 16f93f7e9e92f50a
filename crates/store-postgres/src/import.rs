//! Records of another store as the columns of `import`.

use onlyonce_core::record::State;
use onlyonce_core::{Record, RecordId};
use tokio_postgres::types::{ToSql, Type};
use uuid::Uuid;

use crate::arrays::{Blob, argument};
use crate::batch::Patience;
use crate::column::{self, OutcomeColumns};
use crate::connect::Argument;

/// The columns that depend on the state.
#[derive(Default)]
struct StateColumns {
    state: i16,
    due_at: i64,
    since: Option<i64>,
    recovery: Option<(Uuid, i64)>,
    completed_by: Option<i16>,
    outcome: Option<OutcomeColumns>,
    late: Option<Vec<u8>>,
}

impl StateColumns {
    fn of(state: &State) -> Self {
        match state {
            State::InFlight { lease_until } => Self { due_at: column::time(*lease_until), ..Self::default() },
            State::Completed(completed) => Self {
                state: 1,
                due_at: column::time(completed.expires_at),
                since: Some(column::time(completed.at)),
                completed_by: Some(column::completed_by(completed.by)),
                outcome: Some(OutcomeColumns::of(&completed.outcome)),
                late: completed.late.as_ref().map(|late| OutcomeColumns::of(late).into_late()),
                ..Self::default()
            },
            State::Released { expires_at } => {
                Self { state: 2, due_at: column::time(*expires_at), ..Self::default() }
            }
            State::Unknown { since, expires_at, recovery } => Self {
                state: 3,
                due_at: column::time(*expires_at),
                since: Some(column::time(*since)),
                recovery: recovery
                    .as_ref()
                    .map(|recovery| (column::owner(&recovery.owner), column::time(recovery.lease_until))),
                ..Self::default()
            },
        }
    }
}

/// When those expire whose bodies are too large for their rows.
pub(crate) fn dues_of_large(records: &[(RecordId, Record)]) -> Option<Argument> {
    let states = records.iter().map(|(_, record)| StateColumns::of(&record.state));
    let is_large =
        |state: &StateColumns| state.outcome.as_ref().is_some_and(OutcomeColumns::is_too_large_for_its_row);
    let dues: Vec<i64> = states.filter(is_large).map(|state| state.due_at).collect();
    (!dues.is_empty()).then(|| argument(dues, Type::INT8_ARRAY))
}

/// The arguments of `import`: one array for each column, and all steps one after the other.
pub(crate) fn arguments(records: &[&(RecordId, Record)]) -> Vec<Argument> {
    let states: Vec<_> = records.iter().map(|(_, record)| StateColumns::of(&record.state)).collect();
    let steps = || records.iter().flat_map(|(_, record)| &record.steps);
    let names: Vec<String> = steps().map(|step| step.name.as_str().to_owned()).collect();
    let values: Vec<Option<Blob>> = steps().map(|step| step.value.clone().map(Blob)).collect();
    let outcome = |state: &StateColumns| state.outcome.clone();
    vec![
        each(records, Type::BYTEA_ARRAY, |(id, _)| id.as_bytes().to_vec()),
        each(records, Type::UUID_ARRAY, |(_, record)| column::owner(&record.owner)),
        each(records, Type::INT8_ARRAY, |(_, record)| column::fence(record.fence)),
        each(records, Type::INT8_ARRAY, |(_, record)| i64::from(record.attempt)),
        each(records, Type::INT8_ARRAY, |(_, record)| column::time(record.created_at)),
        each(records, Type::INT8_ARRAY, |(_, record)| column::time(record.granted_at)),
        each(records, Type::INT8_ARRAY, |(_, record)| column::time(record.run_until)),
        each(&states, Type::INT8_ARRAY, |state| state.due_at),
        each(&states, Type::INT8_ARRAY, |state| state.since),
        each(records, Type::INT8_ARRAY, |(_, record)| column::millis(record.retention.get())),
        each(records, Type::INT8_ARRAY, |(_, record)| column::millis(record.unknown_retention.get())),
        each(&states, Type::INT8_ARRAY, |state| state.recovery.map(|(_, until)| until)),
        each(&states, Type::UUID_ARRAY, |state| state.recovery.map(|(owner, _)| owner)),
        each(&states, Type::INT4_ARRAY, |state| outcome(state).map(|outcome| outcome.content_version)),
        each(&states, Type::INT2_ARRAY, |state| state.state),
        each(&states, Type::INT2_ARRAY, |state| state.completed_by),
        each(&states, Type::INT2_ARRAY, |state| outcome(state).map(|outcome| outcome.kept)),
        each(records, Type::BOOL_ARRAY, |(_, record)| record.remote),
        each(records, Type::BYTEA_ARRAY, |(_, record)| record.fingerprint.as_ref().map(column::fingerprint)),
        each(&states, Type::BYTEA_ARRAY, |state| outcome(state).map(|outcome| outcome.head)),
        each(&states, Type::INT4_ARRAY, |state| outcome(state).and_then(|outcome| outcome.body_sum)),
        each(&states, Type::BYTEA_ARRAY, |state| outcome(state).and_then(|outcome| outcome.body).map(Blob)),
        each(&states, Type::BYTEA_ARRAY, |state| state.late.clone()),
        each(records, Type::INT4_ARRAY, |(_, record)| i32::try_from(record.steps.len()).unwrap_or(i32::MAX)),
        argument(names, Type::TEXT_ARRAY),
        argument(values, Type::BYTEA_ARRAY),
        argument(Patience::LONG.millis(), Type::INT4),
    ]
}

fn each<T, V: ToSql + Sync + Send + 'static>(items: &[T], of: Type, value: impl Fn(&T) -> V) -> Argument {
    argument(items.iter().map(value).collect::<Vec<_>>(), of)
}
