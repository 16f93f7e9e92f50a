//! Record ids and owners that look random and are the same on every run.

use onlyonce_core::scope::RECORD_ID_VERSION;
use onlyonce_core::{Owner, RecordId};

/// A sequence of names that never repeats. The generator is splitmix64: a few instructions a word.
pub(crate) struct Names {
    state: u64,
    ids: u64,
}

impl Names {
    pub(crate) const fn new() -> Self {
        Self { state: 20_261_115, ids: 0 }
    }

    /// The next record id. The second byte, by which the memory store picks a shard, counts up: all shards are then
    /// equally full, and a map that grows does so at the same record in all of them.
    pub(crate) fn id(&mut self) -> RecordId {
        let mut bytes = [0; 32];
        for chunk in bytes.chunks_exact_mut(8) {
            chunk.copy_from_slice(&self.word().to_le_bytes());
        }
        bytes[0] = RECORD_ID_VERSION;
        bytes[1] = self.ids.to_le_bytes()[0];
        self.ids += 1;
        RecordId::from_bytes(bytes)
    }

    pub(crate) fn owner(&mut self) -> Owner {
        let mut bytes = [0; 16];
        for chunk in bytes.chunks_exact_mut(8) {
            chunk.copy_from_slice(&self.word().to_le_bytes());
        }
        Owner::from_bytes(bytes)
    }

    fn word(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.state;
        word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ word >> 31
    }
}
