//! One process at a time: whoever opens the folder holds it until it ends, and a second one is told who does.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::path::Path;

use onlyonce_core::{StoreError, StoreErrorKind};

const NAME: &str = "holder";

/// The right to the folder. It ends when this is dropped, or with the process, however that ends.
#[derive(Debug)]
pub(crate) struct Tenure {
    _file: File,
}

impl Tenure {
    /// Takes the folder, or says who has it.
    pub(crate) fn take(folder: &Path) -> Result<Self, StoreError> {
        let failed = |error: io::Error| {
            StoreError::new(StoreErrorKind::Unavailable, "opening the store's folder").because(error)
        };
        let mut options = OpenOptions::new();
        let mut file = options
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(folder.join(NAME))
            .map_err(failed)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut holder = String::new();
                // Only for the message: who cannot be read is still there.
                let _ = file.take(200).read_to_string(&mut holder);
                let holder = if holder.is_empty() { "another process" } else { holder.trim() };
                return Err(StoreError::new(StoreErrorKind::Unavailable, "opening the store's folder")
                    .because(format!(
                        "{holder} has {} open; one process owns a folder at a time",
                        folder.display()
                    )));
            }
            Err(TryLockError::Error(error)) => return Err(failed(error)),
        }
        file.set_len(0).map_err(failed)?;
        writeln!(file, "process {}", std::process::id()).map_err(failed)?;
        Ok(Self { _file: file })
    }
}
