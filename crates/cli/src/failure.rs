//! How a command can fail, and with which exit code. Codes follow sysexits.h where it has one; scripts rely on them.

use std::error::Error;
use std::io::{self, Write as _};
use std::process::ExitCode;

use onlyonce::StoreError;
use onlyonce::key::derive::DeriveError;

use crate::plain::plain_lines;

/// The command line is not understood. Also what clap uses.
pub(crate) const USAGE: u8 = 2;

const STRICT: u8 = 3;
const UNAVAILABLE: u8 = 69;
const REFUSED: u8 = 65;
const UNREADABLE: u8 = 66;
const STORE: u8 = 69;
const SYSTEM: u8 = 71;
const OUTPUT: u8 = 74;
const TAKEN: u8 = 75;

/// Why a command ended without doing what it was asked to.
#[derive(Debug)]
pub(crate) enum Failure {
    /// What was read is refused.
    Refused(Box<dyn Error>),
    /// The input cannot be read.
    Unreadable {
        /// The input, as the user named it.
        name: String,
        source: io::Error,
    },
    /// The store failed.
    Store(Box<StoreError>),
    /// What was asked for needs another command line.
    Usage(String),
    /// A server that is needed cannot be reached.
    Unavailable(Box<dyn Error>),
    /// Another process is at it.
    Taken(String),
    /// The command has said all there is to say: only the exit code is left.
    Told(u8),
    /// The operating system did not give what is needed.
    System(Box<dyn Error>),
    /// The output cannot be written.
    Output(io::Error),
    /// There were warnings, and `--strict` makes them failures.
    Strict { warnings: usize },
}

impl Failure {
    /// Tells the user, in one line on standard error, and gives the exit code.
    pub(crate) fn report(&self) -> ExitCode {
        match self {
            // `onlyonce … | head -1` is a normal way to use us.
            Self::Output(source) if source.kind() == io::ErrorKind::BrokenPipe => return ExitCode::SUCCESS,
            Self::Told(code) => return (*code).into(),
            _ => {}
        }
        let (code, text) = self.told();
        // When standard error is gone too, the exit code is all that is left to say it with.
        let _ = writeln!(io::stderr().lock(), "error: {}", plain_lines(&text));
        code.into()
    }

    /// The exit code, and what went wrong.
    pub(crate) fn told(&self) -> (u8, String) {
        match self {
            Self::Output(source) => (OUTPUT, format!("the output cannot be written: {source}")),
            Self::Told(code) => (*code, "it was told above".to_owned()),
            Self::Usage(text) => (USAGE, text.clone()),
            Self::Taken(text) => (TAKEN, text.clone()),
            Self::Unavailable(error) => (UNAVAILABLE, chain(error.as_ref())),
            Self::Refused(error) => (REFUSED, chain(error.as_ref())),
            Self::Store(error) => (STORE, chain(error.as_ref())),
            Self::System(error) => (SYSTEM, chain(error.as_ref())),
            Self::Unreadable { name, source } => (UNREADABLE, format!("{name} cannot be read: {source}")),
            Self::Strict { warnings } => {
                let noun = if *warnings == 1 { "warning" } else { "warnings" };
                (STRICT, format!("{warnings} {noun}, and --strict was given: no key was printed"))
            }
        }
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        Self::Store(Box::new(error))
    }
}

impl From<DeriveError> for Failure {
    fn from(error: DeriveError) -> Self {
        match error {
            DeriveError::Random(_) => Self::System(Box::new(error)),
            _ => Self::Refused(Box::new(error)),
        }
    }
}

/// An error and its sources, each of which says only its own part.
fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text = format!("{text}: {error}");
        source = error.source();
    }
    text
}
