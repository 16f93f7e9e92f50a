//! A port that no other test uses, also while its server is down.

use std::fs::{self, File};
use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::time::Duration;

use onlyonce_core::Owner;

/// How often a server that does not tell by itself is asked.
pub(super) const PAUSE: Duration = Duration::from_millis(20);

/// Below what operating systems hand out for outgoing connections: nobody gets one of these by accident.
const FIRST: u16 = 20_000;
const LAST: u16 = 32_000;

/// A port on the loopback address. It is ours for as long as this lives: the server may end and start again on it.
#[derive(Debug)]
pub struct Port {
    number: u16,
    /// Held while the port is ours; the operating system lets go of it when the process ends.
    _reserved: File,
}

impl Port {
    /// A port that is free, and stays so for other tests on this machine.
    pub fn free() -> io::Result<Self> {
        let folder = std::env::temp_dir().join("onlyonce-test-ports");
        fs::create_dir_all(&folder)?;
        let ports = usize::from(LAST - FIRST);
        let chance = Owner::random().map_err(io::Error::other)?;
        let first = usize::from(u16::from_le_bytes([chance.as_bytes()[0], chance.as_bytes()[1]]));
        for step in 0..ports {
            let number = FIRST + u16::try_from((first + step) % ports).unwrap_or_default();
            let file = File::create(folder.join(number.to_string()))?;
            if file.try_lock().is_ok() && TcpListener::bind((Ipv4Addr::LOCALHOST, number)).is_ok() {
                return Ok(Self { number, _reserved: file });
            }
        }
        Err(io::Error::other("no port is free"))
    }

    /// Its number.
    pub fn get(&self) -> u16 {
        self.number
    }
}
