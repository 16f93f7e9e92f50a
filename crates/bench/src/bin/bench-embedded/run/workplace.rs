//! The folder of a run, which it alone uses and removes, and the processes that work in it.

use std::fs::{self, File, TryLockError};
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde::de::DeserializeOwned;

use crate::engine::Kind;
use crate::task::Task;
use crate::{Result, machine};

/// File systems on which a sync costs nothing.
const IN_MEMORY: [&str; 2] = ["tmpfs", "ramfs"];
/// What one record takes on average, with what engines need meanwhile and what the rounds add.
const RECORD_BYTES_MAX: u64 = 700;
/// What an engine takes without records: logs, reserves, a new cluster.
const ENGINE_BYTES_MAX: u64 = 1 << 30;

/// The file that says that everything in its folder is ours.
const HOLDER: &str = "holder";

/// A folder of our own. It is emptied before and removed after the run.
pub(super) struct Workplace {
    root: PathBuf,
    _tenure: File,
}

impl Workplace {
    /// Takes `root`, in which an interrupted run may have left something. A folder of somebody else is refused.
    pub(super) fn take(root: &Path) -> Result<Self> {
        fs::create_dir_all(root).map_err(|error| format!("making {}: {error}", root.display()))?;
        let root = root.canonicalize()?;
        if fs::read_dir(&root)?.next().is_some() && !root.join(HOLDER).exists() {
            return Err(format!("{} is not empty: choose a folder of its own", root.display()).into());
        }
        let tenure = File::create(root.join(HOLDER))?;
        match tenure.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(format!("another run uses {}", root.display()).into());
            }
            Err(TryLockError::Error(error)) => return Err(error.into()),
        }
        let workplace = Self { root, _tenure: tenure };
        workplace.clear()?;
        Ok(workplace)
    }

    /// Refuses a folder where the figures would mean nothing, or where there is no room for all engines at once.
    pub(super) fn check(&self, any_disk: bool, engines: usize, records: u64) -> Result<()> {
        let (kind, free) = machine::file_system(&self.root)?;
        if IN_MEMORY.contains(&kind.as_str()) && !any_disk {
            return Err(format!("{} is in memory ({kind}): choose a disk", self.root.display()).into());
        }
        let needed = engines as u64 * (ENGINE_BYTES_MAX + records * RECORD_BYTES_MAX);
        if free < needed && !any_disk {
            return Err(format!(
                "{records} records in {engines} engines may take {} GiB, {} GiB are free: use fewer --records",
                needed >> 30,
                free >> 30
            )
            .into());
        }
        Ok(())
    }

    pub(super) fn file_system(&self) -> Result<String> {
        Ok(machine::file_system(&self.root)?.0)
    }

    pub(super) fn path(&self, kind: Kind, purpose: &str) -> PathBuf {
        self.root.join(format!("{}-{purpose}", kind.name().replace(' ', "-")))
    }

    /// A new, empty folder.
    pub(super) fn folder(&self, kind: Kind, purpose: &str) -> Result<PathBuf> {
        let folder = self.path(kind, purpose);
        fs::create_dir(&folder)?;
        Ok(folder)
    }

    /// Removes the folders, which are all ours: whatever else is there stays.
    fn clear(&self) -> Result<()> {
        for entry in fs::read_dir(&self.root)? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                fs::remove_dir_all(entry.path())?;
            }
        }
        Ok(())
    }
}

impl Drop for Workplace {
    fn drop(&mut self) {
        // What cannot be removed now is removed by the next run.
        let _ = self.clear();
        let _ = fs::remove_file(self.root.join(HOLDER));
        let _ = fs::remove_dir(&self.root);
    }
}

fn start(task: &Task) -> Result<Child> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("worker").arg(serde_json::to_string(task)?);
    Ok(command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?)
}

/// What a worker tells at the end of its task.
pub(super) fn ask<T: DeserializeOwned>(task: &Task) -> Result<T> {
    let output = start(task)?.wait_with_output()?;
    if !output.status.success() {
        return Err(format!("its process failed ({}); see above", output.status).into());
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// Kills a worker that has worked for `patience`, and answers the last number it told.
pub(super) fn kill(task: &Task, patience: Duration) -> Result<u64> {
    let mut child = start(task)?;
    let told = child.stdout.take().ok_or("the worker has no output")?;
    let (mut last, mut begun) = (None, None);
    for line in BufReader::new(told).lines() {
        // The last line may be cut off by the kill.
        if let Ok(number) = line?.parse() {
            last = Some(number);
        }
        if begun.get_or_insert_with(Instant::now).elapsed() > patience {
            child.kill()?;
        }
    }
    child.wait()?;
    last.ok_or_else(|| "its process ended before it told anything; see above".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_of_somebody_else_is_left_alone_and_our_own_is_removed() {
        let root = std::env::temp_dir().join(format!("onlyonce-workplace-{}", std::process::id()));
        fs::create_dir_all(root.join("letters")).unwrap();
        assert!(Workplace::take(&root).is_err());
        assert!(root.join("letters").exists());
        fs::remove_dir(root.join("letters")).unwrap();
        let workplace = Workplace::take(&root).unwrap();
        workplace.folder(Kind::Log, "base").unwrap();
        assert!(Workplace::take(&root).is_err(), "one run at a time");
        drop(workplace);
        assert!(!root.exists());
    }
}
