//! Pages of records for operators.

use std::borrow::Cow;

use onlyonce_core::record::StateKind;
use onlyonce_core::record::codec::CodecError;
use onlyonce_core::scope::RECORD_ID_VERSION;
use onlyonce_core::store::{Listing, Page};
use onlyonce_core::transition::view;
use onlyonce_core::{RecordId, StoreError};
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use crate::arrays::argument;
use crate::column;
use crate::connect::Argument;
use crate::row;

/// The arguments of `list` for what comes after `after`, which is asked for one record more than fit on the page.
pub(crate) fn arguments(listing: &Listing, after: Option<RecordId>) -> Vec<Argument> {
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
    let page_size = i32::try_from(listing.page_size() + 1).unwrap_or(i32::MAX);
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

/// Adds to `page` what is asked for among `rows`. `Some` is where to go on reading: the page is not full yet.
pub(crate) fn fill(page: &mut Page, rows: &[Row], listing: &Listing) -> Result<Option<RecordId>, StoreError> {
    let mut last = None;
    for row in rows {
        let (id, record, now) = row::record(row).map_err(|error| undecodable(row, error))?;
        let seen = view(record.as_ref(), now).map(Cow::into_owned);
        // The scope is in the id, in a way that only the core reads.
        if let Some(record) = seen.filter(|record| listing.wants(&id, record)) {
            if page.records.len() == listing.page_size() {
                page.next = page.records.last().map(|(id, _)| *id);
                return Ok(None);
            }
            page.records.push((id, record));
        }
        last = Some(id);
    }
    Ok(last.filter(|_| rows.len() > listing.page_size()))
}

/// The failure of a page. It names the record, so that someone can look at it and go on after it.
fn undecodable(row: &Row, error: CodecError) -> StoreError {
    let failure = StoreError::undecodable(error, "listing records");
    match row::get(row, "id").and_then(column::read_id) {
        Ok(id) => StoreError::new(failure.kind(), "listing records").because(format!("record {id}: {error}")),
        Err(_) => failure,
    }
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
