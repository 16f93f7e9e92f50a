//! Records as operators see them: never an owner, never a fingerprint, bodies only where they are asked for.

use onlyonce_core::record::{CompletedBy, State, StateKind};
use onlyonce_core::store::Unreadable;
use onlyonce_core::{Clock as _, Record, RecordId, ScopeTag, SystemClock, Timestamp, hex};
use serde_json::{Map, Value, json};

use super::outcome;
use crate::events::Seen;

/// The state of what cannot be read, and the name of why.
const UNREADABLE: &str = "unreadable";

/// What the ids of one principal's records end with.
pub(super) fn scope(tag: ScopeTag) -> String {
    hex::encode(tag.as_bytes())
}

/// What time it is on this machine, for people.
pub(crate) fn now() -> Timestamp {
    SystemClock::new().now()
}

/// A time as RFC 3339 writes it, with milliseconds. What is later than can be written is the last that can.
pub(crate) fn time(at: Timestamp) -> String {
    let millis = i64::try_from(at.as_millis()).unwrap_or(i64::MAX);
    let time = jiff::Timestamp::from_millisecond(millis).unwrap_or(jiff::Timestamp::MAX);
    format!("{time:.3}")
}

/// The state, and for a completed record whether that only means that it was closed.
pub(super) fn state(record: &Record) -> String {
    match &record.state {
        State::Completed(completed) if completed.by == CompletedBy::Seal => "sealed".to_owned(),
        _ => record.kind().to_string(),
    }
}

/// What every list shows of a record.
pub(super) fn record(id: &RecordId, record: &Record) -> Map<String, Value> {
    let mut shown = Map::new();
    let mut put = |name: &str, value: Value| {
        shown.insert(name.to_owned(), value);
    };
    put("id", id.to_string().into());
    put("state", state(record).into());
    put("fence", record.fence.get().into());
    put("attempt", record.attempt.into());
    put("scope", scope(ScopeTag::of(id)).into());
    put("created_at", time(record.created_at).into());
    let (changed_at, lease_until) = match &record.state {
        State::InFlight { lease_until } => (Some(record.granted_at), Some(*lease_until)),
        State::Completed(completed) => (Some(completed.at), None),
        State::Unknown { since, .. } => (Some(*since), None),
        State::Released { .. } => (None, None),
    };
    let times = [
        ("changed_at", changed_at),
        ("lease_until", lease_until),
        ("run_until", (record.kind() == StateKind::Unknown).then_some(record.run_until)),
        ("expires_at", record.expires_at()),
    ];
    for (name, at) in times {
        if let Some(at) = at {
            put(name, time(at).into());
        }
    }
    put("bytes", record.weight().into());
    put("erased", is_erased(record).into());
    shown
}

/// What a list shows of a record that cannot be read: that it is there, and why.
pub(super) fn unreadable(found: &Unreadable) -> Map<String, Value> {
    let mut shown = Map::new();
    shown.insert("id".to_owned(), found.id.to_string().into());
    shown.insert("state".to_owned(), UNREADABLE.into());
    shown.insert("scope".to_owned(), scope(ScopeTag::of(&found.id)).into());
    shown.insert(UNREADABLE.to_owned(), found.why.as_str().into());
    shown
}

/// The same, with what this process saw of it.
pub(super) fn unreadable_whole(found: &Unreadable, seen: &[Seen]) -> Value {
    let mut shown = unreadable(found);
    shown.insert("timeline".into(), in_order(seen.iter().map(|seen| (seen.at, seen.to_json())).collect()));
    Value::Object(shown)
}

/// What was found under `id`.
pub(super) fn found(id: &RecordId, found: &Result<Record, Unreadable>) -> Map<String, Value> {
    match found {
        Ok(stored) => record(id, stored),
        Err(found) => unreadable(found),
    }
}

fn is_erased(record: &Record) -> bool {
    let outcome = matches!(&record.state, State::Completed(completed) if completed.outcome.is_erased());
    outcome || record.steps.iter().any(|step| step.value.is_none())
}

/// All that is shown of one record, with what this process saw of it.
pub(super) fn whole(id: &RecordId, stored: &Record, seen: &[Seen], with_body: bool) -> Value {
    let mut shown = record(id, stored);
    if let State::Completed(completed) = &stored.state {
        let by = match completed.by {
            CompletedBy::Execution => "execution",
            CompletedBy::Seal => "seal",
            CompletedBy::Resolve => "resolve",
        };
        shown.insert("by".into(), by.into());
        shown.insert("outcome".into(), outcome::shown(&completed.outcome, with_body));
        if let Some(late) = &completed.late {
            shown.insert("late".into(), outcome::shown(late, with_body));
        }
    }
    let steps = stored.steps.iter().map(|step| {
        let bytes = step.value.as_ref().map_or(0, bytes::Bytes::len);
        match (&step.value, with_body) {
            (Some(value), true) => {
                json!({ "name": step.name.as_str(), "bytes": bytes, "body": outcome::bytes_shown(value) })
            }
            _ => json!({ "name": step.name.as_str(), "bytes": bytes }),
        }
    });
    shown.insert("steps".into(), steps.collect());
    shown.insert("timeline".into(), timeline(stored, seen));
    Value::Object(shown)
}

/// What the record itself knows of its life, joined with what this process saw, in the order of time.
fn timeline(record: &Record, seen: &[Seen]) -> Value {
    let fence = record.fence.get();
    let mut known = Vec::new();
    if record.created_at != record.granted_at {
        known.push((record.created_at, json!({ "event": "claimed", "attempt": 1 })));
    }
    known.push((record.granted_at, json!({ "event": "granted", "fence": fence, "attempt": record.attempt })));
    match &record.state {
        State::Completed(completed) => {
            let event = match completed.by {
                CompletedBy::Execution => "completed",
                CompletedBy::Seal => "sealed",
                CompletedBy::Resolve => "resolved",
            };
            known.push((completed.at, json!({ "event": event, "fence": fence })));
        }
        State::Unknown { since, .. } => known.push((*since, json!({ "event": "unknown", "fence": fence }))),
        State::InFlight { .. } | State::Released { .. } => {}
    }
    // What was seen tells the same more exactly than what is on record.
    let is_seen = |entry: &Value| {
        seen.iter().any(|seen| entry["event"] == seen.name && entry["fence"] == seen.fence.get())
    };
    known.retain(|(_, entry)| !is_seen(entry));
    known.extend(seen.iter().map(|seen| (seen.at, seen.to_json())));
    in_order(known)
}

fn in_order(mut entries: Vec<(Timestamp, Value)>) -> Value {
    entries.sort_by_key(|(at, _)| *at);
    entries
        .into_iter()
        .map(|(at, mut entry)| {
            entry["at"] = time(at).into();
            entry
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_milliseconds_and_end_where_they_can_be_written() {
        assert_eq!(time(Timestamp::from_millis(1_794_715_740_500)), "2026-11-15T04:09:00.500Z");
        assert_eq!(time(Timestamp::from_millis(0)), "1970-01-01T00:00:00.000Z");
        assert!(time(Timestamp::MAX).starts_with("9999-12-3"), "{}", time(Timestamp::MAX));
    }
}
