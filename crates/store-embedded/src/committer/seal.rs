//! Writes the indexes of segments that take no more entries, beside the committer and not in its way.

use std::sync::Arc;
use std::sync::mpsc::Receiver;

use onlyonce_core::RecordId;

use crate::io::is_failed_sync;
use crate::segment::sealed::SealedIndex;
use crate::segment::{Index, Segment, SegmentId, Slot};
use crate::shared::Shared;

/// Seals segments as they come.
pub(crate) struct Sealer {
    shared: Arc<Shared>,
    to_seal: Receiver<SegmentId>,
}

impl Sealer {
    pub(crate) fn new(shared: Arc<Shared>, to_seal: Receiver<SegmentId>) -> Self {
        Self { shared, to_seal }
    }

    /// Works until the committer is gone.
    pub(crate) fn run(self) {
        while let Ok(id) = self.to_seal.recv() {
            self.seal(id);
        }
    }

    /// A segment that cannot be sealed stays as it is: it costs memory, not records. It may also have been dropped
    /// meanwhile.
    fn seal(&self, id: SegmentId) {
        let Some((facts, slots)) = self.open_segment(id) else { return };
        match SealedIndex::write(&self.shared, &facts, &slots) {
            Ok(index) => {
                let mut catalog = self.shared.catalog_mut();
                catalog.seal(id, Arc::new(index));
                catalog.spare_memory(self.shared.options.memory_bytes_max);
            }
            // A sync that failed here may have been the one to tell of someone else's bytes.
            Err(error) if is_failed_sync(&error) => drop(self.shared.poison("sealing a segment", &error)),
            Err(error) => tracing::warn!(?id, %error, "a segment could not be sealed"),
        }
    }

    /// What is to be written about a segment, copied so that the catalog is free while it is.
    fn open_segment(&self, id: SegmentId) -> Option<(Segment, Vec<(RecordId, Slot)>)> {
        let catalog = self.shared.catalog();
        let segment =
            catalog.segments.get(&id).filter(|segment| !catalog.is_active(id) && !segment.is_going)?;
        let Index::Open(slots) = &segment.index else { return None };
        let slots = slots.iter().map(|(id, slot)| (*id, *slot)).collect();
        let mut facts = Segment::new(id, Arc::clone(&segment.file), segment.started_at);
        (facts.end, facts.expires_at, facts.lost_some) = (segment.end, segment.expires_at, segment.lost_some);
        Some((facts, slots))
    }
}
