//! The whole of what the store asks of a disk, as one small trait, so that a simulator can own it and cut the power.
//!
//! Names are plain file names in one folder. Nothing here knows what the bytes mean.

mod real;

use std::error::Error;
use std::fmt;
use std::io;
use std::sync::Arc;

pub use real::RealDisk;

/// A folder of files.
///
/// # Contract
/// 1. What a file held at its last `sync` survives a power cut; what was written since may be there whole, in part, or
///    not at all.
/// 2. A created, removed or renamed name survives a power cut only after `sync_folder`.
/// 3. A failed `sync` says nothing about what survives: the caller must not go on.
pub trait Disk: fmt::Debug + Send + Sync + 'static {
    /// Makes an empty file. Fails if the name is taken.
    fn create(&self, name: &str) -> io::Result<Arc<dyn DiskFile>>;

    /// Opens a file.
    fn open(&self, name: &str) -> io::Result<Arc<dyn DiskFile>>;

    /// The names of all files, in any order.
    fn names(&self) -> io::Result<Vec<String>>;

    /// Removes a file.
    fn remove(&self, name: &str) -> io::Result<()>;

    /// Gives a file another name, in place of whatever had it.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;

    /// Makes the names durable.
    fn sync_folder(&self) -> io::Result<()>;
}

/// An open file. Positions are given with every call: there is no cursor to get wrong.
#[expect(clippy::len_without_is_empty, reason = "a length on disk is asked for, an emptiness is not")]
pub trait DiskFile: fmt::Debug + Send + Sync + 'static {
    /// Writes all of `bytes` at `offset`.
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()>;

    /// Reads up to the length of `into` from `offset`; less only at the end of the file.
    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<usize>;

    /// How long the file is.
    fn len(&self) -> io::Result<u64>;

    /// Cuts the file, or extends it with zeros.
    fn set_len(&self, len: u64) -> io::Result<()>;

    /// Makes what was written durable.
    fn sync(&self) -> io::Result<()>;

    /// Whether it surely has no name any more, here or elsewhere: a backup may be another name of the same file.
    fn is_nameless(&self) -> bool {
        false
    }
}

/// Reads exactly `len` bytes from `offset`, or fails with `UnexpectedEof`.
pub(crate) fn read_exactly(file: &dyn DiskFile, offset: u64, len: usize) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; len];
    let read = file.read_at(offset, &mut bytes)?;
    if read < len {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(bytes)
}

/// A sync that failed. Also when it found no room: nobody knows what it left, so it is never "full" to be tried again.
#[derive(Debug)]
struct SyncFailed(io::Error);

impl fmt::Display for SyncFailed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "syncing failed: {}", self.0)
    }
}

impl Error for SyncFailed {}

/// Says of an error that it is a sync's.
pub(crate) fn failed_sync(error: io::Error) -> io::Error {
    io::Error::other(SyncFailed(error))
}

/// Whether an error is that of a sync, after which nobody may go on.
pub(crate) fn is_failed_sync(error: &io::Error) -> bool {
    error.get_ref().and_then(|inner| inner.downcast_ref::<SyncFailed>()).is_some()
}

/// Writes a small file so that after a power cut either the old one or the new one is there, whole.
pub(crate) fn replace(disk: &dyn Disk, name: &str, bytes: &[u8]) -> io::Result<()> {
    write_new(disk, name, bytes)?;
    put_in_place(disk, name)
}

/// Writes the file that is to be put in place, durably.
pub(crate) fn write_new(disk: &dyn Disk, name: &str, bytes: &[u8]) -> io::Result<()> {
    let temporary = format!("{name}.new");
    match disk.remove(&temporary) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let file = disk.create(&temporary)?;
    file.write_at(0, bytes)?;
    // ORDER: the bytes are durable before the name is; a name that survives without its bytes would be an empty file.
    file.sync().map_err(failed_sync)
}

/// Puts a file that was written in place of the one that was there.
pub(crate) fn put_in_place(disk: &dyn Disk, name: &str) -> io::Result<()> {
    disk.rename(&format!("{name}.new"), name)?;
    disk.sync_folder().map_err(failed_sync)
}
