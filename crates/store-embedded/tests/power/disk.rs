//! A disk in memory that keeps a log of every operation, so that the power can be cut after any of them.
//!
//! It may do what the contract of [`Disk`] allows and nothing worse: what was synced stays, what was not may be there
//! whole, in part, or not at all, and a failed sync is reported once and never again.

mod file;
mod replay;

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

use onlyonce_store_embedded::io::{Disk, DiskFile};
use rand::rngs::SmallRng;

use self::file::SimFile;
pub(crate) use self::replay::Mode;
use self::replay::Replay;

/// The number of a file: names come and go, what was written stays with the file.
type FileId = usize;

/// Files by name, as they lie on a disk that nothing is on its way to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Image {
    pub(crate) files: BTreeMap<String, Vec<u8>>,
}

impl Image {
    pub(crate) fn bytes(&self) -> usize {
        self.files.values().map(Vec::len).sum()
    }
}

/// Something that was done to the disk.
#[derive(Debug, Clone)]
enum Op {
    Create {
        name: String,
        file: FileId,
    },
    Remove {
        name: String,
    },
    Rename {
        from: String,
        to: String,
        file: FileId,
    },
    SyncFolder,
    Write {
        file: FileId,
        offset: usize,
        bytes: Arc<[u8]>,
    },
    SetLen {
        file: FileId,
        len: usize,
    },
    Sync {
        file: FileId,
    },
    /// A sync that failed: what it was to make durable is not, and no later sync will make it so.
    FailedSync {
        file: FileId,
    },
    FailedSyncFolder,
}

/// What goes wrong, once.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Fault {
    pub(crate) on: FaultOn,
    /// Which sync or write it is, counted from 0.
    pub(crate) nth: usize,
    pub(crate) trouble: Trouble,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FaultOn {
    /// A sync of a file or of the folder.
    Sync,
    Write,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Trouble {
    Broken,
    NoRoom,
}

impl Trouble {
    fn error(self) -> io::Error {
        match self {
            Self::Broken => io::Error::other("the simulated disk is broken"),
            Self::NoRoom => io::ErrorKind::StorageFull.into(),
        }
    }
}

/// Where a fault struck.
#[derive(Debug, Clone)]
pub(crate) struct Struck {
    /// The file; `None` for the folder.
    pub(crate) name: Option<String>,
    /// Whether it was met while an index was written, which can be made again.
    pub(crate) sealing: bool,
}

#[derive(Default)]
struct State {
    /// What was there, and durable, when the log began.
    base: Image,
    log: Vec<Op>,
    names: BTreeMap<String, FileId>,
    files: Vec<Vec<u8>>,
    capacity: Option<usize>,
    fault: Option<Fault>,
    struck: Option<Struck>,
    syncs: usize,
    writes: usize,
    /// Whether a thread has to wait, and whether it does.
    gate: Gate,
    /// Which.
    held_up: &'static str,
}

/// The thread that writes indexes.
const SEALER: &str = "onlyonce-seal";

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Gate {
    #[default]
    Open,
    Closed,
    /// Closed, and someone waits before it.
    Waited,
}

/// A disk in memory.
#[derive(Clone, Default)]
pub(crate) struct SimDisk {
    state: Arc<Mutex<State>>,
    changed: Arc<Condvar>,
}

impl SimDisk {
    /// A disk on which `image` is durable.
    pub(crate) fn holding(image: Image) -> Self {
        let mut state = State { base: image, ..State::default() };
        for (name, bytes) in &state.base.files {
            state.names.insert(name.clone(), state.files.len());
            state.files.push(bytes.clone());
        }
        Self { state: Arc::new(Mutex::new(state)), changed: Arc::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// How many operations there were.
    pub(crate) fn log_len(&self) -> usize {
        self.state().log.len()
    }

    /// How many syncs there were.
    pub(crate) fn syncs(&self) -> usize {
        self.state().syncs
    }

    /// How many writes there were.
    pub(crate) fn writes(&self) -> usize {
        self.state().writes
    }

    /// What the files hold for whoever reads them now, durable or not.
    pub(crate) fn image(&self) -> Image {
        let state = self.state();
        let files = state.names.iter().map(|(name, file)| (name.clone(), state.files[*file].clone()));
        Image { files: files.collect() }
    }

    /// Lets the disk take no more than `bytes` in all files.
    pub(crate) fn limit(&self, bytes: Option<usize>) {
        self.state().capacity = bytes;
    }

    /// Lets one operation fail.
    pub(crate) fn fail(&self, fault: Fault) {
        self.state().fault = Some(fault);
    }

    /// Makes whoever seals a segment wait before it creates the index, until what is answered goes.
    pub(crate) fn hold_up_sealing(&self) -> HeldUp<'_> {
        self.hold_up(SEALER)
    }

    /// Makes whoever removes segments wait before it does, until what is answered goes.
    pub(crate) fn hold_up_removing(&self) -> HeldUp<'_> {
        self.hold_up("onlyonce-remove")
    }

    fn hold_up(&self, thread: &'static str) -> HeldUp<'_> {
        let mut state = self.state();
        (state.gate, state.held_up) = (Gate::Closed, thread);
        HeldUp(self)
    }

    /// Waits for as long as this thread is held up.
    fn pass_gate(&self) -> MutexGuard<'_, State> {
        let mut state = self.state();
        while state.gate != Gate::Open && std::thread::current().name() == Some(state.held_up) {
            state.gate = Gate::Waited;
            self.changed.notify_all();
            state = self.changed.wait(state).unwrap();
        }
        state
    }

    /// Where the fault struck, if it did.
    pub(crate) fn struck(&self) -> Option<Struck> {
        self.state().struck.clone()
    }

    /// The last of the first `ops` operations, for whoever has to find out what went wrong.
    pub(crate) fn story(&self, ops: usize) -> String {
        let state = self.state();
        let name = |file: &FileId| {
            let created = state.log.iter().rev().find_map(|op| match op {
                Op::Rename { to: name, file: of, .. } | Op::Create { name, file: of } if of == file => {
                    Some(name)
                }
                _ => None,
            });
            created.or_else(|| state.base.files.keys().nth(*file)).cloned().unwrap_or_default()
        };
        let mut story = String::new();
        for (at, op) in state.log[..ops].iter().enumerate().skip(ops.saturating_sub(30)) {
            let what = match op {
                Op::Write { file, offset, bytes } => format!("write {} {offset}+{}", name(file), bytes.len()),
                Op::SetLen { file, len } => format!("set_len {} {len}", name(file)),
                Op::Sync { file } => format!("sync {}", name(file)),
                Op::FailedSync { file } => format!("failed sync {}", name(file)),
                other => format!("{other:?}"),
            };
            story = format!("{story}\n{at}: {what}");
        }
        story
    }

    /// A disk as it may be when the power is cut after the first `ops` operations.
    pub(crate) fn after_power_cut(&self, ops: usize, mode: Mode, rng: &mut SmallRng) -> Self {
        let state = self.state();
        let mut replay = Replay::new(&state.base, mode, rng);
        for op in &state.log[..ops] {
            replay.run(op);
        }
        Self::holding(replay.cut())
    }

    /// The disk as the next process finds it when this one is killed after the first `ops` operations: everything can
    /// be read, and what was not synced can still be lost.
    pub(crate) fn after_kill(&self, ops: usize) -> Self {
        let state = self.state();
        let killed = Self::holding(state.base.clone());
        {
            let mut now = killed.state();
            for op in &state.log[..ops] {
                now.apply(op.clone());
            }
        }
        killed
    }
}

/// A thread has to wait while this is there.
pub(crate) struct HeldUp<'d>(&'d SimDisk);

impl HeldUp<'_> {
    /// Waits until someone waits.
    pub(crate) fn is_felt(&self) {
        let SimDisk { changed, .. } = self.0;
        drop(changed.wait_while(self.0.state(), |state| state.gate != Gate::Waited).unwrap());
    }
}

impl Drop for HeldUp<'_> {
    fn drop(&mut self) {
        self.0.state().gate = Gate::Open;
        self.0.changed.notify_all();
    }
}

impl fmt::Debug for SimDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state();
        write!(f, "SimDisk({} files, {} operations)", state.names.len(), state.log.len())
    }
}

impl State {
    /// Does an operation that succeeds, and logs it.
    fn apply(&mut self, op: Op) {
        match &op {
            Op::Create { name, file } => {
                self.files.resize_with((*file + 1).max(self.files.len()), Vec::new);
                self.names.insert(name.clone(), *file);
            }
            Op::Remove { name } => drop(self.names.remove(name)),
            Op::Rename { from, to, file } => {
                self.names.remove(from);
                self.names.insert(to.clone(), *file);
            }
            Op::Write { file, offset, bytes } => put(&mut self.files[*file], *offset, bytes),
            Op::SetLen { file, len } => self.files[*file].resize(*len, 0),
            Op::SyncFolder | Op::Sync { .. } | Op::FailedSync { .. } | Op::FailedSyncFolder => {}
        }
        self.log.push(op);
    }

    fn file(&self, name: &str) -> io::Result<FileId> {
        self.names.get(name).copied().ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    /// The trouble that awaits this very sync or write of `file`.
    fn trouble(&mut self, on: FaultOn, file: Option<FileId>) -> Option<Trouble> {
        let count = match on {
            FaultOn::Sync => &mut self.syncs,
            FaultOn::Write => &mut self.writes,
        };
        let nth = *count;
        *count += 1;
        let fault = self.fault.filter(|fault| fault.on == on && fault.nth == nth)?;
        let name = self.names.iter().find(|(_, named)| Some(**named) == file).map(|(name, _)| name.clone());
        self.struck = Some(Struck { name, sealing: std::thread::current().name() == Some(SEALER) });
        Some(fault.trouble)
    }

    /// How many of `wanted` bytes at `offset` of `file` the disk has room for.
    fn room(&self, file: FileId, offset: usize, wanted: usize) -> usize {
        let Some(capacity) = self.capacity else {
            return wanted;
        };
        let used: usize = self.names.values().map(|file| self.files[*file].len()).sum();
        let old = self.files[file].len().saturating_sub(offset);
        wanted.min(old + capacity.saturating_sub(used))
    }
}

/// Writes `bytes` at `offset`, with zeros before it if the file is shorter.
fn put(file: &mut Vec<u8>, offset: usize, bytes: &[u8]) {
    let end = offset + bytes.len();
    file.resize(end.max(file.len()), 0);
    file[offset..end].copy_from_slice(bytes);
}

impl Disk for SimDisk {
    fn create(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        let mut state = self.pass_gate();
        if state.names.contains_key(name) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let file = state.files.len();
        state.apply(Op::Create { name: name.to_owned(), file });
        Ok(Arc::new(SimFile { disk: self.clone(), file }))
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        let file = self.state().file(name)?;
        Ok(Arc::new(SimFile { disk: self.clone(), file }))
    }

    fn names(&self) -> io::Result<Vec<String>> {
        Ok(self.state().names.keys().cloned().collect())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let mut state = self.pass_gate();
        state.file(name)?;
        state.apply(Op::Remove { name: name.to_owned() });
        Ok(())
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut state = self.state();
        let file = state.file(from)?;
        state.apply(Op::Rename { from: from.to_owned(), to: to.to_owned(), file });
        Ok(())
    }

    fn sync_folder(&self) -> io::Result<()> {
        let mut state = self.state();
        if let Some(trouble) = state.trouble(FaultOn::Sync, None) {
            state.apply(Op::FailedSyncFolder);
            return Err(trouble.error());
        }
        state.apply(Op::SyncFolder);
        Ok(())
    }
}
