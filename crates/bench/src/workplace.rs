//! The folder of a run, which it alone uses and removes.

use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};

use crate::{Result, machine};

/// The file that says that everything in its folder is ours.
const HOLDER: &str = "holder";

/// A folder of our own. It is emptied before and removed after the run.
#[derive(Debug)]
pub struct Workplace {
    root: PathBuf,
    _tenure: File,
}

impl Workplace {
    /// Takes `root`, in which an interrupted run may have left something. A folder of somebody else is refused.
    pub fn take(root: &Path) -> Result<Self> {
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

    /// Refuses a folder where the figures would mean nothing because syncs cost nothing there.
    pub fn check_disk(&self) -> Result<()> {
        machine::check_disk(&self.root)
    }

    /// The folder itself, without links.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// How many bytes are free.
    pub fn free_bytes(&self) -> Result<u64> {
        Ok(machine::file_system(&self.root)?.1)
    }

    /// The kind of file system that it is on.
    pub fn file_system(&self) -> Result<String> {
        Ok(machine::file_system(&self.root)?.0)
    }

    /// Where the folder `name` is, if it was made.
    pub fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    /// A new, empty folder.
    pub fn folder(&self, name: &str) -> Result<PathBuf> {
        let folder = self.path(name);
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
        workplace.folder("base").unwrap();
        assert!(Workplace::take(&root).is_err(), "one run at a time");
        drop(workplace);
        assert!(!root.exists());
    }
}
