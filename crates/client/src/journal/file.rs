//! A journal in one file that survives `kill -9` of the caller and a power cut: appended and synced before it answers.
//!
//! The end of a write that was cut off is dropped when the file is opened: nothing was sent under it. Any other damage
//! is an error, because a lost key would be a second effect. Lines of operations that are over are removed by writing
//! the file anew, beside the old one, and renaming it.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use onlyonce_core::{Clock, Key, SystemClock};

use super::line::{self, HEADER, Line};
use super::table::{Entry, Table};
use super::{Journal, JournalError, JournalErrorKind, JournalFuture, JournalLimits};

/// How many lines of operations that are over are put up with before the file is written anew.
const OVER_MAX: usize = 1000;

/// Keeps keys in a file. One process at a time.
#[derive(Debug, Clone)]
pub struct FileJournal {
    open: Arc<Mutex<Open>>,
    clock: Arc<dyn Clock>,
}

#[derive(Debug)]
struct Open {
    path: PathBuf,
    file: File,
    /// Where the next line goes: all before it is whole.
    length: u64,
    table: Table,
    lines: usize,
    /// A write failed, and what is in the file is not known. Nothing more is written.
    broken: bool,
    /// Held while the journal is open; never renamed, unlike the file itself.
    _guard: File,
}

impl FileJournal {
    /// Opens the journal at `path`, or begins one.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, JournalError> {
        Self::open_with(path, JournalLimits::default(), Arc::new(SystemClock::new()))
    }

    /// The same with other limits and another clock.
    pub fn open_with(
        path: impl AsRef<Path>,
        limits: JournalLimits,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, JournalError> {
        let open = Open::new(path.as_ref().to_owned(), limits, clock.as_ref())?;
        Ok(Self { open: Arc::new(Mutex::new(open)), clock })
    }

    /// How many operations are not over.
    pub fn operations(&self) -> usize {
        entered(&self.open).table.len()
    }

    /// Runs `change` where it may block. It runs to its end also if the caller goes away.
    async fn change<T: Send + 'static>(
        &self,
        change: impl FnOnce(&mut Open, &dyn Clock) -> Result<T, JournalError> + Send + 'static,
    ) -> Result<T, JournalError> {
        let (open, clock) = (Arc::clone(&self.open), Arc::clone(&self.clock));
        tokio::task::spawn_blocking(move || change(&mut entered(&open), clock.as_ref()))
            .await
            .map_err(|stopped| JournalError::new(JournalErrorKind::Failed).because(stopped))?
    }
}

impl Journal for FileJournal {
    fn key<'a>(&'a self, operation: &'a str, offered: Key) -> JournalFuture<'a, Key> {
        let operation = operation.to_owned();
        Box::pin(self.change(move |open, clock| open.key(operation, offered, clock)))
    }

    fn forget<'a>(&'a self, operation: &'a str) -> JournalFuture<'a, ()> {
        let operation = operation.to_owned();
        Box::pin(self.change(move |open, clock| open.forget(&operation, clock)))
    }
}

impl Open {
    fn new(path: PathBuf, limits: JournalLimits, clock: &dyn Clock) -> Result<Self, JournalError> {
        let guard =
            OpenOptions::new().create(true).truncate(false).write(true).open(beside(&path, ".guard"))?;
        guard.try_lock().map_err(|error| match error {
            TryLockError::WouldBlock => JournalError::new(JournalErrorKind::InUse),
            TryLockError::Error(source) => source.into(),
        })?;
        let mut file = OpenOptions::new().create(true).truncate(false).read(true).write(true).open(&path)?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        let mut table = Table::new(limits);
        let (whole, lines) = read_all(&bytes, &mut table)?;
        let length = u64::try_from(whole).unwrap_or(u64::MAX);
        let mut open = Self { path, file, length, table, lines, broken: false, _guard: guard };
        open.table.drop_old(clock.now());
        if whole == 0 {
            open.append(HEADER.as_bytes())?;
            sync_folder(&open.path)?;
        } else {
            // ORDER: the torn end is gone for good before anything is appended in its place.
            open.file.set_len(open.length)?;
            open.file.sync_all()?;
        }
        Ok(open)
    }

    fn key(&mut self, operation: String, offered: Key, clock: &dyn Clock) -> Result<Key, JournalError> {
        let now = clock.now();
        if let Some(key) = self.table.get(&operation, now) {
            return Ok(key.clone());
        }
        self.table.make_room(now)?;
        let entry = Entry { key: offered, at: now };
        self.append(&line::write(&operation, Some(&entry)))?;
        let key = entry.key.clone();
        self.table.put(operation, entry);
        self.lines += 1;
        self.compact_if_due(clock);
        Ok(key)
    }

    fn forget(&mut self, operation: &str, clock: &dyn Clock) -> Result<(), JournalError> {
        if self.table.get(operation, clock.now()).is_none() {
            return Ok(());
        }
        self.append(&line::write(operation, None))?;
        self.table.remove(operation);
        self.lines += 1;
        self.compact_if_due(clock);
        Ok(())
    }

    fn append(&mut self, bytes: &[u8]) -> Result<(), JournalError> {
        if self.broken {
            return Err(JournalError::new(JournalErrorKind::Failed)
                .because("an earlier write failed: the journal must be opened again"));
        }
        let written = self
            .file
            .seek(SeekFrom::Start(self.length))
            .and_then(|_| self.file.write_all(bytes))
            .and_then(|()| self.file.sync_data());
        if let Err(source) = written {
            // After a failed sync nobody knows what is on the disk; half a line must not be followed by another.
            self.broken = true;
            return Err(source.into());
        }
        self.length += bytes.len() as u64;
        Ok(())
    }

    /// Writes the file anew when most of it is about operations that are over. If that fails, the old one goes on.
    fn compact_if_due(&mut self, clock: &dyn Clock) {
        if self.lines <= 2 * self.table.len() + OVER_MAX {
            return;
        }
        self.table.drop_old(clock.now());
        match self.write_anew() {
            Ok((file, length)) => {
                (self.file, self.length, self.lines) = (file, length, self.table.len());
            }
            Err(error) => tracing::warn!(%error, "the journal could not be written anew"),
        }
    }

    fn write_anew(&self) -> Result<(File, u64), JournalError> {
        let new = beside(&self.path, ".new");
        let mut bytes = HEADER.as_bytes().to_vec();
        for (operation, entry) in self.table.iter() {
            bytes.extend_from_slice(&line::write(operation, Some(entry)));
        }
        let mut file = OpenOptions::new().create(true).truncate(true).read(true).write(true).open(&new)?;
        file.write_all(&bytes)?;
        file.sync_all()?;
        fs::rename(&new, &self.path)?;
        // Whether or not the rename itself is on the disk yet, both files say the same; the next line needs it there.
        if let Err(error) = sync_folder(&self.path) {
            tracing::warn!(%error, "the folder of the journal could not be synced");
        }
        Ok((file, bytes.len() as u64))
    }
}

/// Reads all lines into `table`: how many bytes are whole, and how many lines.
fn read_all(bytes: &[u8], table: &mut Table) -> Result<(usize, usize), JournalError> {
    let damaged = |why: &'static str| JournalError::new(JournalErrorKind::Damaged).because(why);
    if !bytes.starts_with(HEADER.as_bytes()) {
        // A header that was cut off is a journal that never began.
        let begun = HEADER.as_bytes().starts_with(bytes) || bytes.iter().all(|byte| *byte == 0);
        return if begun { Ok((0, 0)) } else { Err(damaged("it does not begin like a journal")) };
    }
    let (mut whole, mut lines) = (HEADER.len(), 0);
    for line in bytes[HEADER.len()..].split_inclusive(|byte| *byte == b'\n') {
        let is_last = whole + line.len() == bytes.len();
        match line.strip_suffix(b"\n").and_then(line::read) {
            Some(Line::Begun(operation, entry)) => table.put(operation, entry),
            Some(Line::Over(operation)) => drop(table.remove(&operation)),
            // Cut off: without its end, or with pages that never reached the disk. It was never answered.
            None if is_last && (!line.ends_with(b"\n") || line.contains(&0)) => break,
            None => return Err(damaged("a line was changed")),
        }
        (whole, lines) = (whole + line.len(), lines + 1);
    }
    Ok((whole, lines))
}

fn entered(open: &Mutex<Open>) -> MutexGuard<'_, Open> {
    open.lock().unwrap_or_else(PoisonError::into_inner)
}

fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// Makes the name of a new file as durable as the file.
fn sync_folder(path: &Path) -> Result<(), JournalError> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    Ok(File::open(folder)?.sync_all()?)
}
