//! From a folder to a catalog: indexes are read, segments without one are scanned, torn tails are cut.
//!
//! Everything here may be killed and started again: it only removes what was never acknowledged or can be made again.

use std::io;
use std::sync::Arc;

use onlyonce_core::record::State;
use onlyonce_core::{Record, RecordId, StateKind, StoreError, StoreErrorKind, Timestamp};

use crate::catalog::{Catalog, Stored};
use crate::frame::{self, Found, HEAD_BYTES};
use crate::io::{Disk, read_exactly};
use crate::segment::scan::scan;
use crate::segment::sealed::SealedIndex;
use crate::segment::{Index, Segment, SegmentId};

/// A folder that was read.
#[derive(Debug)]
pub(crate) struct Recovered {
    pub(crate) catalog: Catalog,
    /// Segments that have no index yet.
    pub(crate) unsealed: Vec<SegmentId>,
}

/// Reads the folder.
pub(crate) fn recover(disk: &dyn Disk, now: Timestamp) -> Result<Recovered, StoreError> {
    read_folder(disk, now).map_err(|error| {
        StoreError::new(StoreErrorKind::Unavailable, "reading the store's folder").because(error)
    })
}

fn read_folder(disk: &dyn Disk, now: Timestamp) -> io::Result<Recovered> {
    let mut recovered = Recovered { catalog: Catalog::default(), unsealed: Vec::new() };
    let names = disk.names()?;
    for name in names.iter().filter(|name| is_leftover(name, &names)) {
        disk.remove(name)?;
    }
    for id in names.iter().filter_map(|name| SegmentId::parse(name)) {
        let segment = match open_sealed(disk, id, &mut recovered.catalog)? {
            Some(segment) => segment,
            None => {
                recovered.unsealed.push(id);
                open_scanned(disk, id, now, &mut recovered.catalog)?
            }
        };
        recovered.catalog.add(segment, false);
    }
    Ok(recovered)
}

/// Files of an interrupted write, and indexes whose segment is gone.
fn is_leftover(name: &str, names: &[String]) -> bool {
    let orphan = name.strip_suffix(".index").is_some_and(|segment| !names.iter().any(|name| name == segment));
    let unfinished = |name: &str| name == "meta" || name.strip_suffix(".index").is_some();
    orphan || name.strip_suffix(".new").is_some_and(unfinished)
}

/// A segment by its index, if that can be believed.
fn open_sealed(disk: &dyn Disk, id: SegmentId, catalog: &mut Catalog) -> io::Result<Option<Segment>> {
    let mut segment = Segment::new(id, disk.open(&id.file_name())?, Timestamp::default());
    let Some((index, facts)) = SealedIndex::open(disk, id.seq, &segment.index_name())? else {
        return Ok(None);
    };
    if segment.file.len()? < facts.end {
        return Ok(None);
    }
    (segment.end, segment.started_at) = (facts.end, facts.started_at);
    (segment.expires_at, segment.lost_some) = (facts.expires_at, facts.lost_some);
    catalog.set_counts(id, facts.counts.map(u64::from));
    segment.index = Index::Sealed(Arc::new(index));
    Ok(Some(segment))
}

/// A segment by its entries. What a power cut left behind the last of them is cut off.
fn open_scanned(
    disk: &dyn Disk,
    id: SegmentId,
    now: Timestamp,
    catalog: &mut Catalog,
) -> io::Result<Segment> {
    let SegmentId { class, seq } = id;
    let file = disk.open(&id.file_name())?;
    let scan = scan(&*file, seq)?;
    if scan.end < file.len()? {
        tracing::info!(seq, end = scan.end, "a torn tail was cut; nothing in it was acknowledged");
        file.set_len(scan.end)?;
    }
    // What was read may still be on its way to the disk: it is acted upon only once it cannot be lost any more.
    file.sync()?;
    let mut segment = Segment::new(id, file, now);
    (segment.end, segment.lost_some) = (scan.end, scan.lost_some);
    if scan.lost_some {
        tracing::error!(
            seq,
            "entries are damaged beyond knowing whose they were: keys not found are refused"
        );
        segment.expires_at = now + class.span() * 8;
    }
    let mut started_at = now;
    for (record_id, place, record) in &scan.entries {
        if let Some(record) = record {
            started_at = started_at.min(record.granted_at);
        } else {
            tracing::error!(seq, id = record_id.short(), "an entry is damaged: its key is refused");
            segment.expires_at = segment.expires_at.max(now + class.span() * 8);
        }
        segment.note(*record_id, *place, record.as_ref());
    }
    segment.started_at = started_at;
    let mut counts = [0; 4];
    if let Index::Open(slots) = &segment.index {
        for kind in slots.values().filter_map(|slot| slot.kind) {
            counts[kind as usize] += 1;
        }
    }
    catalog.set_counts(id, counts);
    Ok(segment)
}

/// What was in flight when the last process ended.
#[derive(Debug, Default)]
pub(crate) struct Unfinished {
    /// Its owner died with the process, so nobody knows how far it got.
    pub(crate) orphans: Vec<(RecordId, Record, Stored)>,
    /// Its owner lives elsewhere and keeps its lease.
    pub(crate) held_elsewhere: Vec<(RecordId, Stored)>,
}

/// Finds what was in flight.
pub(crate) fn unfinished(catalog: &Catalog, now: Timestamp) -> Result<Unfinished, StoreError> {
    let Unfinished { mut orphans, mut held_elsewhere } = Unfinished::default();
    for segment in catalog.segments.values() {
        for id in in_flight_ids(segment)? {
            // A damaged record is refused when it is asked for; it does not keep the store from opening.
            let Ok(Some(stored)) = catalog.lookup(&id).read(&id) else { continue };
            let State::InFlight { lease_until } = stored.record.state else { continue };
            if stored.segment != segment.id {
                continue;
            }
            if stored.record.remote {
                held_elsewhere.push((id, stored));
                continue;
            }
            let state = State::Unknown {
                since: lease_until.min(now),
                expires_at: now + stored.record.unknown_retention.get(),
                recovery: None,
            };
            orphans.push((id, Record { state, ..stored.record.clone() }, stored));
        }
    }
    Ok(Unfinished { orphans, held_elsewhere })
}

fn in_flight_ids(segment: &Segment) -> Result<Vec<RecordId>, StoreError> {
    match &segment.index {
        Index::Open(slots) => {
            let mut ids: Vec<_> = slots
                .iter()
                .filter(|(_, slot)| slot.kind == Some(StateKind::InFlight))
                .map(|(id, _)| *id)
                .collect();
            ids.sort_unstable();
            Ok(ids)
        }
        Index::Sealed(sealed) => {
            let mut ids = Vec::new();
            for place in sealed.in_flight() {
                let head =
                    read_exactly(&*segment.file, place.offset.into(), HEAD_BYTES).map_err(|error| {
                        StoreError::new(StoreErrorKind::Unavailable, "reading the store's folder")
                            .because(error)
                    })?;
                if let Some(Found::Entry { id, .. }) = head.first_chunk().and_then(frame::read_head) {
                    ids.push(id);
                }
            }
            Ok(ids)
        }
    }
}
