//! Why rules cannot be used. Raised at start-up and on reload, never by a request.

use std::error::Error;
use std::fmt;

use onlyonce_core::{BoxError, EngineError, MisuseError};

/// A rule says something that cannot be done.
#[derive(Debug)]
pub struct RulesError {
    what: String,
    source: Option<BoxError>,
}

impl RulesError {
    /// Says what is wrong.
    pub fn new(what: impl Into<String>) -> Self {
        Self { what: what.into(), source: None }
    }

    /// The same, with the route it is about. The sources stay in the chain.
    pub(crate) fn in_route(self, path: &str) -> Self {
        Self { what: format!("route {path}: {}", self.what), source: self.source }
    }

    pub(crate) fn because(mut self, source: impl Into<BoxError>) -> Self {
        self.source = Some(source.into());
        self
    }
}

impl fmt::Display for RulesError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

impl Error for RulesError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_deref().map(|source| source as &(dyn Error + 'static))
    }
}

impl From<MisuseError> for RulesError {
    fn from(source: MisuseError) -> Self {
        Self::new("a rule is out of its range").because(source)
    }
}

impl From<EngineError> for RulesError {
    fn from(source: EngineError) -> Self {
        Self::new("the engine refuses the rules").because(source)
    }
}
