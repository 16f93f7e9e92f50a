//! A copy of the store while it is in use: every record that was answered before the copy began is in it.
//!
//! Segments only grow, so the copy takes each up to where it was durable and needs nobody to wait. What is dropped
//! meanwhile can still be read through its open file.

use std::io;
use std::path::Path;

use onlyonce_core::{StoreError, StoreErrorKind};

use crate::io::{Disk, RealDisk};
use crate::shared::Shared;

/// How much is copied at a time.
const CHUNK: usize = 1 << 20;

/// Copies the store into `folder`, which must not hold anything yet. `progress` is told how many bytes are done, and of
/// how many.
pub(crate) fn copy(
    shared: &Shared,
    folder: &Path,
    mut progress: impl FnMut(u64, u64),
) -> Result<(), StoreError> {
    let failed =
        |error: io::Error| StoreError::new(StoreErrorKind::Unavailable, "copying the store").because(error);
    let target = RealDisk::new(folder).map_err(failed)?;
    if !target.names().map_err(failed)?.is_empty() {
        return Err(
            StoreError::new(StoreErrorKind::Misuse, "copying the store").because("the folder is not empty")
        );
    }
    // ORDER: the segments are looked at before the boot number is read, so that the copy's fences are above theirs.
    let segments: Vec<_> = {
        let catalog = shared.catalog();
        catalog.segments.values().map(|segment| (segment.name(), segment.end, segment.file.clone())).collect()
    };
    let total = segments.iter().map(|(_, end, _)| end).sum();
    let mut done = 0;
    for (name, end, file) in segments {
        let copy = target.create(&name).map_err(failed)?;
        let mut at = 0;
        while at < end {
            let len = CHUNK.min(usize::try_from(end - at).unwrap_or(CHUNK));
            let bytes = crate::io::read_exactly(&*file, at, len).map_err(failed)?;
            copy.write_at(at, &bytes).map_err(failed)?;
            at += len as u64;
            done += len as u64;
            progress(done, total);
        }
        copy.sync().map_err(failed)?;
    }
    // Last: a copy that was not finished has no secret, under which none of its records would be found.
    let meta = shared.meta().clone();
    meta.write(&target).map_err(failed)
}
