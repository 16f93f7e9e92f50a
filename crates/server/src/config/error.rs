//! Why a configuration is not used, with the place where it is wrong.

use std::error::Error;
use std::fmt;
use std::path::{Path, PathBuf};

use onlyonce_core::BoxError;

use super::nearest::nearest;

/// A configuration that cannot be used.
#[derive(Debug)]
pub struct ConfigError {
    place: Place,
    problem: String,
    source: Option<BoxError>,
}

#[derive(Debug)]
enum Place {
    File { path: PathBuf, line: Option<usize> },
    Variable(String),
    Field(String),
}

impl ConfigError {
    /// The file cannot be read.
    pub(super) fn unreadable(path: &Path, source: std::io::Error) -> Self {
        let place = Place::File { path: path.to_owned(), line: None };
        Self { place, problem: "the file cannot be read".to_owned(), source: Some(source.into()) }
    }

    /// The file's text is not a configuration.
    pub(super) fn file(path: &Path, text: &str, error: &toml::de::Error) -> Self {
        let line = error.span().map(|span| 1 + text[..span.start.min(text.len())].matches('\n').count());
        Self {
            place: Place::File { path: path.to_owned(), line },
            problem: explain(error.message()),
            source: None,
        }
    }

    /// A variable of the environment names nothing, or something else than its value fits.
    pub(super) fn variable(name: &str, problem: &str) -> Self {
        Self { place: Place::Variable(name.to_owned()), problem: explain(problem), source: None }
    }

    /// A field's value cannot be used, wherever it came from.
    pub(crate) fn field(name: impl Into<String>, problem: impl Into<String>) -> Self {
        Self { place: Place::Field(name.into()), problem: problem.into(), source: None }
    }

    /// The file that could not be read at all, and why.
    pub fn unreadable_file(&self) -> Option<(&Path, &std::io::Error)> {
        match (&self.place, &self.source) {
            (Place::File { path, .. }, Some(source)) => Some((path, source.downcast_ref()?)),
            _ => None,
        }
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            Place::File { path, line: Some(line) } => write!(f, "{}, line {line}: ", path.display())?,
            Place::File { path, line: None } => write!(f, "{}: ", path.display())?,
            Place::Variable(name) => write!(f, "environment variable {name}: ")?,
            Place::Field(name) => write!(f, "{name}: ")?,
        }
        f.write_str(&self.problem)
    }
}

impl Error for ConfigError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_deref().map(|source| source as &(dyn Error + 'static))
    }
}

/// Adds the nearest known name to serde's "unknown field `x`, expected one of `a`, `b`".
fn explain(message: &str) -> String {
    let message = message.trim().replace('\n', " ");
    let Some((unknown, known)) = message.split_once(", expected ") else { return message };
    let names = |text: &str| text.split('`').skip(1).step_by(2).map(str::to_owned).collect::<Vec<_>>();
    let Some(given) = names(unknown).pop() else { return message };
    let known = names(known);
    match nearest(&given, known.iter().map(String::as_str)) {
        Some(meant) => format!("{unknown}; did you mean `{meant}`?"),
        None => format!("{unknown}; known here: {}", known.join(", ")),
    }
}
