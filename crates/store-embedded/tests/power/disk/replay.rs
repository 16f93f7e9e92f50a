//! From a log of operations to one of the disks that a power cut may leave.

use std::collections::BTreeMap;

use rand::Rng;
use rand::rngs::SmallRng;

use super::{FileId, Image, Op, put};

/// What is written at once, or not at all.
const SECTOR: usize = 512;

/// What becomes of that which was not synced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// All of it is lost.
    DropUnsynced,
    /// Some operations reach the disk whole, in spite of others before them that do not.
    Subset,
    /// Some sectors of some writes reach the disk; of the rest the old bytes are there, or zeros.
    Torn,
    /// A disk that lies: no sync of a file does anything. To show that the checks notice.
    SyncsAreNoOps,
    /// A disk that lies about names only.
    FolderSyncsAreNoOps,
}

impl Mode {
    /// The ways of an honest disk.
    pub(crate) const HONEST: [Self; 3] = [Self::DropUnsynced, Self::Subset, Self::Torn];
}

/// A disk while its operations are run again.
pub(super) struct Replay<'r> {
    mode: Mode,
    rng: &'r mut SmallRng,
    names: BTreeMap<String, FileId>,
    /// What is durable of each file, and what is on its way.
    files: Vec<(Vec<u8>, Vec<Op>)>,
    /// Names on their way.
    renames: Vec<Op>,
}

impl<'r> Replay<'r> {
    pub(super) fn new(base: &Image, mode: Mode, rng: &'r mut SmallRng) -> Self {
        let mut replay = Self { mode, rng, names: BTreeMap::new(), files: Vec::new(), renames: Vec::new() };
        for (name, bytes) in &base.files {
            replay.names.insert(name.clone(), replay.files.len());
            replay.files.push((bytes.clone(), Vec::new()));
        }
        replay
    }

    pub(super) fn run(&mut self, op: &Op) {
        match op {
            Op::Create { file, .. } => {
                self.files.resize_with((*file + 1).max(self.files.len()), Default::default);
                self.renames.push(op.clone());
            }
            Op::Remove { .. } | Op::Rename { .. } => self.renames.push(op.clone()),
            Op::SyncFolder if self.mode == Mode::FolderSyncsAreNoOps => {}
            Op::SyncFolder => {
                for rename in std::mem::take(&mut self.renames) {
                    self.apply_name(&rename);
                }
            }
            Op::FailedSyncFolder => self.lose_names(),
            Op::Write { file, .. } | Op::SetLen { file, .. } => self.files[*file].1.push(op.clone()),
            Op::Sync { .. } if self.mode == Mode::SyncsAreNoOps => {}
            Op::Sync { file } => {
                let (bytes, pending) = &mut self.files[*file];
                for op in pending.drain(..) {
                    apply(bytes, &op);
                }
            }
            Op::FailedSync { file } => self.lose_bytes(*file),
        }
    }

    /// What is left when the power is cut now.
    pub(super) fn cut(mut self) -> Image {
        self.lose_names();
        for file in 0..self.files.len() {
            self.lose_bytes(file);
        }
        let mut files = BTreeMap::new();
        for (name, file) in self.names {
            files.insert(name, self.files[file].0.clone());
        }
        Image { files }
    }

    fn lose_names(&mut self) {
        for rename in std::mem::take(&mut self.renames) {
            if self.mode != Mode::DropUnsynced && self.rng.random() {
                self.apply_name(&rename);
            }
        }
    }

    fn apply_name(&mut self, op: &Op) {
        match op {
            Op::Create { name, file } => drop(self.names.insert(name.clone(), *file)),
            Op::Remove { name } => drop(self.names.remove(name)),
            Op::Rename { from, to, file } => {
                if self.names.get(from) == Some(file) {
                    self.names.remove(from);
                }
                self.names.insert(to.clone(), *file);
            }
            _ => unreachable!("not about names"),
        }
    }

    fn lose_bytes(&mut self, file: FileId) {
        let (bytes, pending) = &mut self.files[file];
        let durable_len = bytes.len();
        for op in pending.drain(..) {
            match (self.mode, &op) {
                (Mode::DropUnsynced, _) => {}
                (Mode::Torn, Op::Write { offset, bytes: written, .. }) => {
                    tear(bytes, durable_len, *offset, written, self.rng);
                }
                _ if self.rng.random() => apply(bytes, &op),
                _ => {}
            }
        }
    }
}

fn apply(file: &mut Vec<u8>, op: &Op) {
    match op {
        Op::Write { offset, bytes, .. } => put(file, *offset, bytes),
        Op::SetLen { len, .. } => file.resize(*len, 0),
        _ => unreachable!("not about bytes"),
    }
}

/// Writes some sectors of `bytes`. A file that grew may show zeros where nothing was written; what was durable stays.
fn tear(file: &mut Vec<u8>, durable_len: usize, offset: usize, bytes: &[u8], rng: &mut SmallRng) {
    let mut at = offset;
    while at < offset + bytes.len() {
        let end = ((at / SECTOR + 1) * SECTOR).min(offset + bytes.len());
        match rng.random_range(0..5) {
            0..3 => put(file, at, &bytes[at - offset..end - offset]),
            3 if at >= durable_len => put(file, at, &vec![0; end - at]),
            _ => {}
        }
        at = end;
    }
}
