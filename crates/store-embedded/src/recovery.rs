//! From a folder to a catalog: indexes are read, segments without one are scanned, torn tails are cut.
//!
//! Everything here may be killed and started again: it only removes what was never acknowledged or can be made again.

use std::io;
use std::sync::Arc;

use onlyonce_core::record::State;
use onlyonce_core::{Record, RecordId, StateKind, StoreError, StoreErrorKind, Timestamp};

use crate::catalog::{Catalog, Stored};
use crate::entry;
use crate::io::Disk;
use crate::segment::scan::{Said, scan};
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
    for name in names.iter().filter(|name| name.ends_with(".segment")) {
        let Some((id, started_at)) = SegmentId::parse(name) else {
            // Never "absent" for what could not be read: its records may be anyone's.
            return Err(io::Error::new(
                io::ErrorKind::Unsupported,
                format!("{name} is not a segment of a version that this program reads"),
            ));
        };
        let segment = Segment::new(id, disk.open(name)?, started_at);
        let segment = match open_sealed(disk, segment, &mut recovered.catalog)? {
            Ok(sealed) => sealed,
            Err(segment) => {
                recovered.unsealed.push(id);
                open_scanned(segment, now, &mut recovered.catalog)?
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

/// A segment by its index, if that can be believed; as it was otherwise.
fn open_sealed(
    disk: &dyn Disk,
    mut segment: Segment,
    catalog: &mut Catalog,
) -> io::Result<Result<Segment, Segment>> {
    let Some((index, facts)) = SealedIndex::open(disk, &segment.index_name())? else {
        return Ok(Err(segment));
    };
    if segment.file.len()? < facts.end {
        return Ok(Err(segment));
    }
    (segment.end, segment.expires_at, segment.lost_some) = (facts.end, facts.expires_at, facts.lost_some);
    catalog.set_counts(segment.id, facts.counts.map(u64::from));
    segment.index = Index::Sealed(Arc::new(index));
    Ok(Ok(segment))
}

/// A segment by its entries. What a power cut left behind the last of them is cut off.
fn open_scanned(mut segment: Segment, now: Timestamp, catalog: &mut Catalog) -> io::Result<Segment> {
    let SegmentId { class, seq } = segment.id;
    let file = Arc::clone(&segment.file);
    let scan = scan(&*file, segment.home())?;
    if scan.end < file.len()? {
        if scan.torn {
            tracing::info!(seq, end = scan.end, "a torn tail was cut; nothing in it was acknowledged");
        }
        file.set_len(scan.end)?;
    }
    // What was read may still be on its way to the disk: it is acted upon only once it cannot be lost any more.
    file.sync()?;
    (segment.end, segment.lost_some) = (scan.end, scan.lost_some);
    if scan.lost_some {
        tracing::error!(
            seq,
            "entries are damaged beyond knowing whose they were: keys not found are refused"
        );
        segment.expires_at = now + class.doubt();
    }
    for (record_id, offset, said) in &scan.entries {
        let record = match said {
            Said::Record(record) => Some(&**record),
            Said::Erased => None,
            Said::Damaged => {
                tracing::error!(seq, id = record_id.short(), "an entry is damaged: its key is refused");
                segment.expires_at = segment.expires_at.max(now + class.doubt());
                None
            }
        };
        segment.note(*record_id, *offset, record);
    }
    let mut counts = [0; 4];
    if let Index::Open(slots) = &segment.index {
        for kind in slots.values().filter_map(|slot| slot.kind) {
            counts[kind as usize] += 1;
        }
    }
    catalog.set_counts(segment.id, counts);
    Ok(segment)
}

/// What was in flight when the last process ended.
#[derive(Debug, Default)]
pub(crate) struct Unfinished {
    /// Its owner died with the process, so nobody knows how far it got.
    pub(crate) orphans: Vec<(RecordId, Arc<Record>, Stored)>,
    /// Its owner lives elsewhere and keeps its lease.
    pub(crate) held_elsewhere: Vec<(RecordId, Stored)>,
    /// Segments in which something that was in flight cannot be read. It is refused, and they are kept for that.
    pub(crate) doubtful: Vec<SegmentId>,
}

/// Finds what was in flight.
pub(crate) fn unfinished(catalog: &Catalog, now: Timestamp) -> Result<Unfinished, StoreError> {
    let Unfinished { mut orphans, mut held_elsewhere, mut doubtful } = Unfinished::default();
    for segment in catalog.segments.values() {
        let (ids, all_known) = in_flight_ids(segment)?;
        if !all_known {
            doubtful.push(segment.id);
        }
        for id in ids {
            let stored = match catalog.lookup(&id, None).read(&id) {
                Ok(Some(stored)) => stored,
                Ok(None) => continue,
                // A damaged record is refused when it is asked for; it does not keep the store from opening.
                Err(error) => {
                    tracing::error!(id = id.short(), %error, "a record that was in flight cannot be read");
                    doubtful.push(segment.id);
                    continue;
                }
            };
            let State::InFlight { lease_until } = stored.record.state else { continue };
            if stored.place.segment != segment.id {
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
            orphans.push((id, Arc::new(Record { state, ..Record::clone(&stored.record) }), stored));
        }
    }
    Ok(Unfinished { orphans, held_elsewhere, doubtful })
}

/// Whose records were in flight, and whether that is known of all of them.
fn in_flight_ids(segment: &Segment) -> Result<(Vec<RecordId>, bool), StoreError> {
    match &segment.index {
        Index::Open(slots) => {
            let mut ids: Vec<_> = slots
                .iter()
                .filter(|(_, slot)| slot.kind == Some(StateKind::InFlight))
                .map(|(id, _)| *id)
                .collect();
            ids.sort_unstable();
            Ok((ids, true))
        }
        Index::Sealed(sealed) => {
            let mut ids = Vec::new();
            for offset in sealed.in_flight() {
                let id = entry::id_at(&&*segment.file, segment.home(), *offset as usize);
                let id = id.map_err(|error| {
                    StoreError::new(StoreErrorKind::Unavailable, "reading the store's folder").because(error)
                })?;
                // One of which nobody can tell whose it is is refused when it is asked for.
                ids.extend(id);
            }
            let all_known = ids.len() == sealed.in_flight().len();
            Ok((ids, all_known))
        }
    }
}
