//! The one small file beside the segments: the secret, and a boot number that makes fences grow across restarts.

use std::io;

use onlyonce_core::{Fence, Secret, StoreError, StoreErrorKind};

use crate::io::{Disk, replace};

const NAME: &str = "meta";
const VERSION: u8 = 1;
const BYTES: usize = 1 + 8 + 33 + 4;

/// Fences of one boot: its number in the high bits, a counter in the low ones.
pub(crate) const COUNTER_BITS: u32 = 32;
/// The last boot number whose fences stay below 2^53.
const BOOT_MAX: u64 = (Fence::LIMIT >> COUNTER_BITS) - 1;

/// What the file holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Meta {
    boot: u64,
    pub(crate) secret: Option<Secret>,
}

impl Meta {
    /// Reads the file, counts this boot, and makes that durable before any fence of it can be granted.
    pub(crate) fn next_boot(disk: &dyn Disk) -> Result<Self, StoreError> {
        let mut meta = Self::read(disk)?;
        meta.boot += 1;
        if meta.boot > BOOT_MAX {
            return Err(StoreError::new(
                StoreErrorKind::Unsupported,
                "counting more than two million starts",
            ));
        }
        meta.write(disk).map_err(|error| failed(error, "writing the store's meta file"))?;
        Ok(meta)
    }

    fn read(disk: &dyn Disk) -> Result<Self, StoreError> {
        const DOING: &str = "reading the store's meta file";
        let file = match disk.open(NAME) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                // It is there before the first segment is. Under another secret none of the records would be found.
                let names = disk.names().map_err(|error| failed(error, DOING))?;
                if names.iter().any(|name| name.ends_with(".segment")) {
                    return Err(StoreError::new(StoreErrorKind::Corrupt, DOING)
                        .because("there are segments and no meta file: a copy that was not finished?"));
                }
                return Ok(Self { boot: 0, secret: None });
            }
            Err(error) => return Err(failed(error, DOING)),
        };
        let mut bytes = [0; BYTES + 1];
        let read = file.read_at(0, &mut bytes).map_err(|error| failed(error, DOING))?;
        if bytes[0] > VERSION {
            return Err(StoreError::new(StoreErrorKind::Unsupported, DOING));
        }
        let checksum = crc32c::crc32c(&bytes[..BYTES - 4]).to_le_bytes();
        if read != BYTES || bytes[0] != VERSION || bytes[BYTES - 4..BYTES] != checksum {
            return Err(StoreError::new(StoreErrorKind::Corrupt, DOING));
        }
        let boot = u64::from_le_bytes(bytes[1..9].try_into().expect("eight bytes"));
        let secret = (bytes[9] == 1).then(|| Secret::new(bytes[10..42].try_into().expect("32 bytes")));
        Ok(Self { boot, secret })
    }

    pub(crate) fn write(&self, disk: &dyn Disk) -> io::Result<()> {
        let mut bytes = [0; BYTES];
        bytes[0] = VERSION;
        bytes[1..9].copy_from_slice(&self.boot.to_le_bytes());
        if let Some(secret) = &self.secret {
            bytes[9] = 1;
            bytes[10..42].copy_from_slice(secret.expose());
        }
        let checksum = crc32c::crc32c(&bytes[..BYTES - 4]);
        bytes[BYTES - 4..].copy_from_slice(&checksum.to_le_bytes());
        replace(disk, NAME, &bytes)
    }

    /// The number of this boot.
    pub(crate) const fn boot(&self) -> u64 {
        self.boot
    }

    /// The same with a boot number whose fences are all above `fence`, if ours are not.
    pub(crate) fn above(&self, fence: u64) -> Option<Self> {
        let needed = (fence >> COUNTER_BITS) + 1;
        (needed > self.boot).then(|| Self { boot: needed, secret: self.secret.clone() })
    }

    /// The fence of the `counter`th grant of this boot; `None` once the counter is used up.
    pub(crate) fn fence(&self, counter: u64) -> Option<Fence> {
        if counter >> COUNTER_BITS != 0 {
            return None;
        }
        Fence::new(self.boot << COUNTER_BITS | counter)
    }
}

fn failed(error: io::Error, doing: &'static str) -> StoreError {
    StoreError::new(StoreErrorKind::Unavailable, doing).because(error)
}
