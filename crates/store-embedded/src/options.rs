//! What can be chosen about an embedded store.

use onlyonce_core::MisuseError;

/// How safe an answered command is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Sync {
    /// Every answered command survives a power cut. The default.
    #[default]
    Always,
    /// Outcomes survive a power cut, grants need not: a grant that is lost runs again. Only claims under `rerun` are
    /// taken. To be asked for by name.
    Outcome,
    /// Nothing is synced: survives a crash of the process, not of the machine. To be asked for by name.
    None,
}

/// How an embedded store is to behave. Start from the default and change what differs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// What an answered command survives.
    pub sync: Sync,
    /// How large a segment may grow before the next one is begun. Default 64 MiB: large enough that beginning one is
    /// rare, small enough to scan in a fraction of a second.
    pub segment_bytes_max: u64,
    /// How much memory indexes and what is in flight may take. Default 256 MiB. Near it, segments are sealed early, then
    /// the filters of the oldest ones are given up (a lookup then reads the disk), then new claims are refused.
    pub memory_bytes_max: usize,
    /// How much of the disk is set aside for the completions of granted work once it is full. Default 8 MiB.
    pub reserve_bytes: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            sync: Sync::Always,
            segment_bytes_max: 64 << 20,
            memory_bytes_max: 256 << 20,
            reserve_bytes: 8 << 20,
        }
    }
}

impl Options {
    /// Refuses what cannot work.
    pub(crate) const fn check(&self) -> Result<(), MisuseError> {
        if self.segment_bytes_max < 4096 || self.segment_bytes_max > 1 << 30 {
            return Err(MisuseError::new("segment_bytes_max is not between 4 KiB and 1 GiB"));
        }
        if self.memory_bytes_max < 1 << 20 {
            return Err(MisuseError::new("memory_bytes_max is less than 1 MiB"));
        }
        if self.reserve_bytes > 1 << 30 {
            return Err(MisuseError::new("reserve_bytes is more than 1 GiB"));
        }
        Ok(())
    }
}
