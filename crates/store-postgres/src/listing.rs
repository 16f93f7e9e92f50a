//! Pages of records for operators.

use std::borrow::Cow;

use onlyonce_core::record::StateKind;
use onlyonce_core::scope::RECORD_ID_VERSION;
use onlyonce_core::store::{Filling, Listing};
use onlyonce_core::transition::view;
use onlyonce_core::{RecordId, StoreError};
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use crate::arrays::argument;
use crate::column;
use crate::connect::Argument;
use crate::row;

/// How many whole records are read at a time: bodies may be large, and a page of them is bounded.
const ROWS_AT_ONCE: usize = 32;

/// How many records to ask for next: at most one more than fits on the page.
pub(crate) fn rows_wanted(page: &Filling<'_>) -> usize {
    (page.room() + 1).min(ROWS_AT_ONCE)
}

/// The arguments of `list` for `rows` records that come after `after`.
pub(crate) fn arguments(listing: &Listing, after: Option<RecordId>, rows: usize) -> Vec<Argument> {
    let ranges = listing.prefix.as_deref().map(ranges);
    let (lows, highs) = match ranges {
        None => (None, None),
        Some(ranges) => {
            let (lows, highs): (Vec<_>, Vec<_>) = ranges.into_iter().unzip();
            (Some(lows), Some(highs))
        }
    };
    let states: Option<Vec<i16>> =
        (!listing.states.is_empty()).then(|| listing.states.iter().copied().map(state).collect());
    let page_size = i32::try_from(rows).unwrap_or(i32::MAX);
    vec![
        argument(after.map(|id| id.as_bytes().to_vec()), Type::BYTEA),
        argument(lows, Type::BYTEA_ARRAY),
        argument(highs, Type::BYTEA_ARRAY),
        argument(states, Type::INT2_ARRAY),
        argument(listing.created_before.map(column::time), Type::INT8),
        argument(page_size, Type::INT4),
    ]
}

const fn state(kind: StateKind) -> i16 {
    match kind {
        StateKind::InFlight => 0,
        StateKind::Completed => 1,
        StateKind::Released => 2,
        StateKind::Unknown => 3,
    }
}

/// From the first id to the last that begins with `digits`, with the version before them or without.
fn ranges(digits: &str) -> Vec<(Vec<u8>, Vec<u8>)> {
    let versioned = format!("{RECORD_ID_VERSION:02x}{digits}");
    [digits, &versioned].into_iter().filter_map(range).collect()
}

fn range(digits: &str) -> Option<(Vec<u8>, Vec<u8>)> {
    let bound = |fill: &str| {
        let text = format!("{digits}{}", fill.repeat(64usize.checked_sub(digits.len())?));
        // What is no hexadecimal text begins no id; capitals do not either.
        let id: RecordId = text.parse().ok().filter(|_| text == text.to_ascii_lowercase())?;
        Some(id.as_bytes().to_vec())
    };
    Some((bound("0")?, bound("f")?))
}

/// Adds to `page` what is asked for among `rows`, of which `wanted` were asked for. `Some` is where to go on reading: the
/// page is not full yet.
pub(crate) fn fill(
    page: &mut Filling<'_>,
    rows: &[Row],
    wanted: usize,
) -> Result<Option<RecordId>, StoreError> {
    const DOING: &str = "listing records";
    let mut last = None;
    for row in rows {
        let unreadable = |error| StoreError::undecodable(error, DOING);
        // A row whose id cannot be read is nobody's that could be named.
        let id = row::get(row, "id").and_then(column::read_id).map_err(unreadable)?;
        let read = match row::record(row) {
            Ok((_, record, now)) => match view(record.as_ref(), now).map(Cow::into_owned) {
                Some(record) => Ok(record),
                None => {
                    last = Some(id);
                    continue;
                }
            },
            Err(error) => Err(unreadable(error)),
        };
        // The scope is in the id, in a way that only the core reads.
        if !page.take(id, read)? {
            return Ok(None);
        }
        last = Some(id);
    }
    Ok(last.filter(|_| rows.len() >= wanted))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_covers_the_ids_that_begin_with_it() {
        let id: RecordId = format!("01ab3{}", "7".repeat(59)).parse().expect("an id");
        for (digits, covers) in
            [("", true), ("0", true), ("01ab3", true), ("ab3", true), ("ab4", false), ("3", false)]
        {
            let is_in = |(low, high): &(Vec<u8>, Vec<u8>)| {
                low.as_slice() <= id.as_bytes().as_slice() && id.as_bytes().as_slice() <= high.as_slice()
            };
            assert_eq!(ranges(digits).iter().any(is_in), covers, "{digits}");
            assert_eq!(id.begins_with(digits), covers, "{digits}");
        }
        assert!(ranges("xyz").is_empty() && ranges("AB").is_empty() && ranges(&"0".repeat(65)).is_empty());
    }
}
