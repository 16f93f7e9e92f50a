//! Records of another store: taken in as they are, above no grant of ours.

use std::io;
use std::sync::Arc;

use onlyonce_core::store::Imported;
use onlyonce_core::transition::view;
use onlyonce_core::{Record, RecordId, StoreError};

use super::Committer;
use super::group::Group;

impl Committer {
    pub(super) fn import(&mut self, records: Vec<(RecordId, Record)>) -> Result<Imported, StoreError> {
        self.shared.check()?;
        let now = self.shared.clock.now();
        let mut group = Group::default();
        let mut imported = Imported::default();
        let mut highest = 0;
        for (id, record) in records {
            let stored = self.shared.read(&id, None)?;
            let in_use = view(stored.as_ref().map(|stored| &*stored.record), now).is_some();
            if in_use || group.has(&id) || record.is_expired(now) {
                imported.left += 1;
                continue;
            }
            highest = highest.max(record.fence.get());
            imported.taken += 1;
            group.put_from_elsewhere(id, Arc::new(record), stored);
        }
        // ORDER: fences grow above the highest one taken in, durably, before it is.
        self.raise_fences(highest).map_err(|error| self.shared.poison("raising the fences", &error))?;
        self.commit(group).map_err(|failed| failed.error(&self.shared, "taking in records"))?;
        Ok(imported)
    }

    pub(super) fn raise_fences(&mut self, highest: u64) -> io::Result<()> {
        let mut meta = self.shared.meta();
        if let Some(raised) = meta.above(highest) {
            self.shared.in_folder(|disk| raised.write(disk))?;
            *meta = raised;
        }
        Ok(())
    }
}
