//! What operators did: lines of JSON in a file that is only ever added to.
//!
//! A command is on disk before it runs, its answer after it. A command without an answer may have run: the process ended in
//! between. Several processes may share a file: each adds under the file's own guard, and numbers go on from what is there.
//!
//! The file is the one that has the name at that moment: one that was moved away (logrotate) or removed is noticed before
//! every line and after it, and the next line begins a new file.

mod lines;

use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use onlyonce_core::RecordId;
use onlyonce_http::ProblemKind;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use self::lines::Lines;
use super::call::By;
use super::shown::{now, time};
use crate::refusal::Refusal;

/// The most characters of a reason.
pub(crate) const WHY_CHARS_MAX: usize = 500;
/// The most characters of a name.
const WHO_CHARS_MAX: usize = 200;
/// The most characters of what was decided.
const WHAT_CHARS_MAX: usize = 300;
/// The most characters of an answer.
const ANSWER_CHARS_MAX: usize = 300;
/// Entries on a page when nobody says how many, and at the most.
const PAGE: usize = 100;
const PAGE_MAX: usize = 1000;

/// How often a line is written anew because its file was removed meanwhile.
const ANEW_MAX: usize = 3;

/// One line of the file: a command, or the answer to one.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Line {
    n: u64,
    at: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    who: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    from: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    action: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    id: Option<String>,
    /// What was decided: a verdict and its fence, or whose records.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    what: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    why: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    answer: Option<String>,
}

/// The audit file. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Audit(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    path: PathBuf,
    /// Opened when it is first needed, and again after it failed.
    open: Mutex<Option<Open>>,
}

#[derive(Debug)]
struct Open {
    file: File,
    /// How far the file is known.
    known: u64,
    last: u64,
    /// Whether it ends in the middle of a line.
    is_torn: bool,
}

/// What a command is about.
#[derive(Debug, Clone)]
pub(super) struct Entry<'a> {
    pub(super) action: &'static str,
    pub(super) id: Option<RecordId>,
    pub(super) what: Option<String>,
    pub(super) by: &'a By,
}

impl Audit {
    /// The audit in the file at `path`. What is there already is looked at, and what cannot be read of it is said.
    pub(crate) fn new(path: PathBuf) -> Self {
        if path.exists() {
            match Lines::open(&path).and_then(Lines::count) {
                Ok(0) => {}
                Ok(damaged) => tracing::warn!(
                    path = %path.display(), damaged, "lines of the audit file cannot be read; it goes on behind them"
                ),
                Err(error) => tracing::warn!(path = %path.display(), %error, "the audit file cannot be read"),
            }
        }
        Self(Arc::new(Shared { path, open: Mutex::new(None) }))
    }

    /// Runs a command between two lines: that it is about to run, and what `told` makes of its answer.
    pub(super) async fn around<T>(
        &self,
        entry: Entry<'_>,
        run: impl Future<Output = T>,
        told: impl FnOnce(&T) -> String,
    ) -> Result<T, Refusal> {
        // ORDER: on disk before anything changes; what cannot be audited does not run.
        let n = self.begin(entry).await?;
        let answer = run.await;
        self.end(n, &told(&answer)).await;
        Ok(answer)
    }

    /// Writes that a command is about to run, and returns its number once that is on disk.
    pub(super) async fn begin(&self, entry: Entry<'_>) -> Result<u64, Refusal> {
        let Entry { action, id, what, by } = entry;
        let line = Line {
            n: 0,
            at: time(now()),
            who: Some(checked("who", by.who.as_deref().unwrap_or("dashboard"), WHO_CHARS_MAX)?),
            from: Some(by.from.clone()),
            action: Some(action.to_owned()),
            id: id.map(|id| id.to_string()),
            what: what.map(|what| what.chars().take(WHAT_CHARS_MAX).collect()),
            why: by.why.as_deref().map(|why| checked("why", why, WHY_CHARS_MAX)).transpose()?,
            answer: None,
        };
        self.add(line).await.map_err(|error| self.refusal(&error))
    }

    /// Writes what became of the command `n`. It has run: that this cannot be written is said in the log.
    pub(super) async fn end(&self, n: u64, answer: &str) {
        let answer = Some(answer.chars().take(ANSWER_CHARS_MAX).collect());
        let (who, from, action, id, what, why) = (None, None, None, None, None, None);
        let line = Line { n, at: time(now()), who, from, action, id, what, why, answer };
        if let Err(error) = self.add(line).await {
            tracing::error!(n, %error, "the answer to an audited command could not be written");
        }
    }

    async fn add(&self, line: Line) -> io::Result<u64> {
        let shared = Arc::clone(&self.0);
        let added = tokio::task::spawn_blocking(move || shared.add(&line)).await;
        added.unwrap_or_else(|error| Err(io::Error::other(error)))
    }

    /// A page of entries, in their order, each with its answer if there is one.
    pub(super) async fn page(&self, after: u64, limit: Option<usize>) -> Result<Value, Refusal> {
        let shared = Arc::clone(&self.0);
        let limit = limit.filter(|limit| *limit > 0).unwrap_or(PAGE).min(PAGE_MAX);
        let page = tokio::task::spawn_blocking(move || shared.page(after, limit)).await;
        page.unwrap_or_else(|error| Err(io::Error::other(error))).map_err(|error| self.refusal(&error))
    }

    fn refusal(&self, error: &io::Error) -> Refusal {
        let detail = format!("the audit file {}: {error}", self.0.path.display());
        Refusal::new(ProblemKind::AuditUnavailable, detail)
    }
}

/// Text that fits into a line, and shows as what it is.
pub(super) fn checked(name: &str, text: &str, chars_max: usize) -> Result<String, Refusal> {
    let text = text.trim();
    if text.is_empty() || text.chars().count() > chars_max || text.chars().any(char::is_control) {
        return Err(Refusal::invalid(format!("`{name}` has 1 to {chars_max} characters, without line ends")));
    }
    Ok(text.to_owned())
}

impl Shared {
    fn add(&self, line: &Line) -> io::Result<u64> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        for _ in 0..ANEW_MAX {
            let mut opened = match open.take() {
                Some(opened) if opened.is_at(&self.path) => opened,
                // Numbers go on: the one that is gone may be looked for by its number.
                Some(gone) => Open::new(&self.path, gone.moved_away(&self.path))?,
                None => Open::new(&self.path, 0)?,
            };
            // Left closed if it fails: the next command opens and reads it anew.
            let n = opened.add(line.clone())?;
            // A line in a file that nobody can open any more is written nowhere.
            let is_kept = !opened.is_removed()?;
            *open = Some(opened);
            if is_kept {
                return Ok(n);
            }
        }
        Err(io::Error::other("it is removed as often as it is written"))
    }

    fn page(&self, after: u64, limit: usize) -> io::Result<Value> {
        let mut entries: Vec<Line> = Vec::new();
        let (mut damaged, mut more) = (0, false);
        if self.path.exists() {
            let mut lines = Lines::open(&self.path)?;
            while let Some(line) = lines.next()? {
                if line.action.is_some() && line.n > after {
                    if entries.len() == limit {
                        more = true;
                    } else {
                        entries.push(line);
                    }
                } else if line.answer.is_some()
                    && let Some(entry) = entries.iter_mut().find(|entry| entry.n == line.n)
                {
                    entry.answer = line.answer;
                }
            }
            damaged = lines.damaged();
        }
        let next = if more { entries.last().map(|entry| entry.n) } else { None };
        Ok(json!({ "entries": entries, "next": next, "damaged": damaged }))
    }
}

impl Open {
    /// Opens the file at `path`, in which numbers go on after `last`.
    fn new(path: &Path, last: u64) -> io::Result<Self> {
        let is_new = !path.exists();
        if !is_new && !path.is_file() {
            return Err(io::Error::other("it is not a regular file"));
        }
        let file = OpenOptions::new().read(true).append(true).create(true).mode(0o600).open(path)?;
        if is_new && let Some(folder) = path.parent() {
            let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
            // A file whose name is lost in a power cut is no audit.
            File::open(folder)?.sync_all()?;
        }
        Ok(Self { file, known: 0, last, is_torn: false })
    }

    /// Whether this is still the file of that name.
    fn is_at(&self, path: &Path) -> bool {
        let identity = |found: io::Result<Metadata>| found.map(|found| (found.dev(), found.ino())).ok();
        let there = identity(fs::metadata(path));
        there.is_some() && there == identity(self.file.metadata())
    }

    /// Whether it has no name any more, so that what is written to it is lost.
    fn is_removed(&self) -> io::Result<bool> {
        Ok(self.file.metadata()?.nlink() == 0)
    }

    /// Says what became of it, and what its last number was.
    fn moved_away(&self, path: &Path) -> u64 {
        let (path, last) = (path.display(), self.last);
        if self.is_removed().unwrap_or(true) {
            tracing::error!(%path, last, "THE AUDIT FILE WAS REMOVED, and its lines with it; a new one is begun");
        } else {
            tracing::warn!(%path, last, "the audit file was moved away; a new one is begun");
        }
        last
    }

    /// Adds a line, under the next number if it has none yet, and syncs it.
    fn add(&mut self, mut line: Line) -> io::Result<u64> {
        self.file.lock()?;
        let added = self.catch_up().and_then(|()| {
            if line.n == 0 {
                let next = self.last.checked_add(1);
                line.n = next.ok_or_else(|| io::Error::other("its last number has no next one"))?;
            }
            let mut text = if self.is_torn { "\n".to_owned() } else { String::new() };
            text.push_str(&serde_json::to_string(&line)?);
            text.push('\n');
            self.file.write_all(text.as_bytes())?;
            self.file.sync_data()?;
            self.known += text.len() as u64;
            self.last = self.last.max(line.n);
            self.is_torn = false;
            Ok(line.n)
        });
        let freed = self.file.unlock();
        added.and_then(|n| freed.map(|()| n))
    }

    /// Reads what others have added.
    fn catch_up(&mut self) -> io::Result<()> {
        let length = self.file.metadata()?.len();
        if length == self.known {
            return Ok(());
        }
        // The same file, also when its name is another's by now.
        let from = if length < self.known { 0 } else { self.known };
        let mut lines = Lines::of(self.file.try_clone()?, from)?;
        while let Some(line) = lines.next()? {
            self.last = self.last.max(line.n);
        }
        self.is_torn = lines.is_torn();
        self.known = length;
        Ok(())
    }
}

#[cfg(test)]
#[path = "audit_tests.rs"]
mod tests;
