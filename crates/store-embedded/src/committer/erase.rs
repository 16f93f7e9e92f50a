//! Erasure on disk: older entries of an erased record are overwritten where they lie.
//!
//! A log that only appends would keep the body until its segment goes. The heads stay, so that the log can still be
//! read; the bodies are overwritten. Killed half way, it leaves some: the command was not answered and is repeated.

use std::collections::HashSet;
use std::io;
use std::sync::Arc;

use onlyonce_core::RecordId;
use onlyonce_core::store::Ids;

use super::group;
use crate::entry::erased_body;
use crate::segment::scan::places_of;
use crate::segment::{Candidate, Place};
use crate::shared::Shared;

/// Overwrites every entry of `erased` but the last, which holds no body any more. One pass over each segment that may
/// have one, however many records are erased together.
pub(super) fn overwrite(shared: &Shared, erased: &Ids) -> io::Result<()> {
    if erased.is_empty() {
        return Ok(());
    }
    let last: HashSet<_> = erased.iter().filter_map(|id| last_entry(shared, id)).collect();
    let concerned: Vec<_> = {
        let catalog = shared.catalog();
        let segments = catalog.segments.values();
        let concerned = segments.filter(|segment| erased.iter().any(|id| segment.candidate(id).is_some()));
        concerned
            .map(|segment| (segment.id, segment.home(), segment.end, Arc::clone(&segment.file)))
            .collect()
    };
    for (segment, home, end, file) in concerned {
        // ORDER: a mark behind what is overwritten, durable before it is: a body that a power cut leaves half
        // overwritten must be taken for damage of that body, and not for a torn tail that takes its neighbours along.
        group::prove(shared, segment)?;
        for (id, offset, body) in places_of(&*file, home, end, erased)?.0 {
            // A grant has no body, and nothing that the last entry does not have too.
            if let Some(body) = body.filter(|_| !last.contains(&Place { segment, offset })) {
                file.write_at(body.start as u64, &erased_body(&id, body.len()))?;
            }
        }
        file.sync()?;
    }
    Ok(())
}

/// The entry that was just written for `id`.
fn last_entry(shared: &Shared, id: &RecordId) -> Option<Place> {
    // It is in an open segment, being the newest. A sealed one may think that it has one, too.
    shared.catalog().segments.values().rev().find_map(|segment| match segment.candidate(id)? {
        Candidate::Here(_, _, place) => Some(place),
        Candidate::Maybe(..) => None,
    })
}
