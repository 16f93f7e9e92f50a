//! An open file of the simulated disk.

use std::io;

use onlyonce_store_embedded::io::DiskFile;

use super::{FaultOn, FileId, Op, SimDisk, Trouble};

#[derive(Debug)]
pub(super) struct SimFile {
    pub(super) disk: SimDisk,
    pub(super) file: FileId,
}

impl DiskFile for SimFile {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let mut state = self.disk.state();
        let offset = usize::try_from(offset).unwrap();
        let trouble = state.trouble(FaultOn::Write, Some(self.file));
        // A write that fails has written what it could.
        let written = match trouble {
            Some(_) => bytes.len() / 2,
            None => state.room(self.file, offset, bytes.len()),
        };
        state.apply(Op::Write { file: self.file, offset, bytes: bytes[..written].into() });
        match trouble {
            Some(trouble) => Err(trouble.error()),
            None if written < bytes.len() => Err(Trouble::NoRoom.error()),
            None => Ok(()),
        }
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        let state = self.disk.state();
        let bytes = state.files[self.file].get(usize::try_from(offset).unwrap()..).unwrap_or_default();
        let read = bytes.len().min(into.len());
        into[..read].copy_from_slice(&bytes[..read]);
        Ok(read)
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.disk.state().files[self.file].len() as u64)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let len = usize::try_from(len).unwrap();
        self.disk.state().apply(Op::SetLen { file: self.file, len });
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        let mut state = self.disk.state();
        if let Some(trouble) = state.trouble(FaultOn::Sync, Some(self.file)) {
            state.apply(Op::FailedSync { file: self.file });
            return Err(trouble.error());
        }
        state.apply(Op::Sync { file: self.file });
        Ok(())
    }
}
