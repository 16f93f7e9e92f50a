//! Everything that was measured.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use onlyonce_bench::figures::{as_float, median};
use onlyonce_bench::machine;

use crate::arguments::Arguments;
use crate::engine::Kind;
use crate::task::{Kept, Loaded, Opened};

/// What a store takes on the disk, and in memory when it was opened.
#[derive(Debug, Clone)]
pub(crate) struct Space {
    pub(crate) disk_bytes: u64,
    pub(crate) opened: Opened,
}

/// How long it takes to open the embedded store again.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Recovery {
    pub(crate) cold: Duration,
    pub(crate) warm: Duration,
    pub(crate) killed: Duration,
    /// How many pairs the killed process had answered. All of them were found again.
    pub(crate) answered: u64,
}

/// Throughput with records that expire and with records that do not.
#[derive(Debug, Clone, Default)]
pub(crate) struct Retained {
    pub(crate) kept: Vec<Kept>,
    pub(crate) expired: Vec<Kept>,
}

#[derive(Debug)]
pub(crate) struct Results {
    pub(crate) records: u64,
    pub(crate) callers: Vec<usize>,
    pub(crate) window: Duration,
    pub(crate) rounds: u32,
    pub(crate) file_system: String,
    pub(crate) load_before: String,
    pub(crate) took: Duration,
    pub(crate) base: BTreeMap<Kind, Space>,
    pub(crate) empty: BTreeMap<Kind, Vec<Opened>>,
    pub(crate) loaded_space: BTreeMap<Kind, (Loaded, Space)>,
    pub(crate) loaded: BTreeMap<Kind, Vec<Opened>>,
    pub(crate) recovery: Option<Recovery>,
    pub(crate) retained: Option<Retained>,
    /// What went wrong with which engine. Its figures are not shown.
    pub(crate) failed: BTreeMap<Kind, String>,
    begun: Instant,
}

impl Results {
    pub(crate) fn new(arguments: &Arguments, file_system: String) -> Self {
        Self {
            records: arguments.records(),
            callers: arguments.callers.clone(),
            window: arguments.window(),
            rounds: arguments.rounds(),
            file_system,
            load_before: machine::load(),
            took: Duration::ZERO,
            base: BTreeMap::new(),
            empty: BTreeMap::new(),
            loaded_space: BTreeMap::new(),
            loaded: BTreeMap::new(),
            recovery: None,
            retained: None,
            failed: BTreeMap::new(),
            begun: Instant::now(),
        }
    }

    /// Nothing more is measured.
    pub(crate) fn end(&mut self) {
        self.took = self.begun.elapsed();
        // A broken engine must not look fast.
        for kind in self.failed.keys() {
            self.empty.remove(kind);
            self.loaded.remove(kind);
            self.loaded_space.remove(kind);
        }
    }

    /// Which share of the processors others used while something was measured: in the middle, and at worst.
    pub(crate) fn foreign(&self) -> (f64, f64) {
        let rounds = self.empty.values().chain(self.loaded.values()).flatten();
        let shares: Vec<_> = rounds.flat_map(|opened| &opened.levels).map(|level| level.foreign).collect();
        let worst = shares.iter().copied().fold(0.0, f64::max);
        (median(shares).unwrap_or_default(), worst)
    }

    /// What one record takes on the disk: what the loaded store takes more than the empty one.
    pub(crate) fn disk_per_record(&self, kind: Kind) -> Option<f64> {
        let (base, (_, loaded)) = (self.base.get(&kind)?, self.loaded_space.get(&kind)?);
        Some(self.per_record(loaded.disk_bytes, base.disk_bytes))
    }

    /// What one record takes in the memory of the process, or of its server, right after opening.
    pub(crate) fn memory_per_record(&self, kind: Kind) -> Option<f64> {
        let (base, (_, loaded)) = (self.base.get(&kind)?, self.loaded_space.get(&kind)?);
        Some(self.per_record(loaded.opened.memory_bytes, base.opened.memory_bytes))
    }

    /// The same as the engine itself says.
    pub(crate) fn own_per_record(&self, kind: Kind) -> Option<f64> {
        let (_, loaded) = self.loaded_space.get(&kind)?;
        Some(self.per_record(loaded.opened.own_bytes?, 0))
    }

    fn per_record(&self, bytes: u64, base: u64) -> f64 {
        as_float(bytes.saturating_sub(base)) / as_float(self.records.max(1))
    }
}
