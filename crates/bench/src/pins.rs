//! Which processor does what: what is measured has one for itself.

use std::path::Path;
use std::process::Command;

use crate::machine;

/// Which processors are used for what. Nothing: the kernel chooses.
#[derive(Debug, Clone, Copy)]
pub struct Pins {
    measured: Option<u32>,
    load: Option<u32>,
}

impl Pins {
    /// The first for what is measured and the second for the load, unless `unpinned` or there is only one.
    pub fn new(unpinned: bool) -> Self {
        if unpinned || machine::processors() < 2 {
            Self { measured: None, load: None }
        } else {
            Self { measured: Some(0), load: Some(1) }
        }
    }

    /// A command for what is measured.
    pub fn measured(self, program: impl AsRef<Path>) -> Command {
        pinned(self.measured, program.as_ref())
    }

    /// A command for what the measured one works with.
    pub fn load(self, program: impl AsRef<Path>) -> Command {
        pinned(self.load, program.as_ref())
    }

    /// Whether the kernel does not choose.
    pub const fn are_set(self) -> bool {
        self.measured.is_some()
    }
}

fn pinned(processor: Option<u32>, program: &Path) -> Command {
    let Some(processor) = processor else { return Command::new(program) };
    let mut command = Command::new("taskset");
    command.args(["-c", &processor.to_string()]).arg(program);
    command
}
