//! What the inner service knows about a request that got no answer: the difference between a retry and a double charge.

use std::error::Error;
use std::fmt;

/// How far a request got that has no answer of the application.
///
/// An inner service says so in one of two ways: it puts the value into the extensions of the response that it makes up
/// (`response.extensions_mut().insert(Dispatch::NothingSent)`), or it fails with an error that has the value among its
/// sources. A failure that says nothing is [`Dispatch::NoAnswer`]: nobody knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Dispatch {
    /// Provably no byte reached the application (refused, unresolvable, TLS failed). The key is released.
    NothingSent,
    /// It was sent, and no answer came in time. The outcome is unknown.
    TimedOut,
    /// It was sent, or may have been, and the answer did not come or broke off. The outcome is unknown.
    NoAnswer,
}

impl Dispatch {
    /// What `error` or one of its sources says.
    pub fn of(error: &(dyn Error + 'static)) -> Self {
        let mut cause = Some(error);
        while let Some(error) = cause {
            if let Some(dispatch) = error.downcast_ref::<Self>() {
                return *dispatch;
            }
            cause = error.source();
        }
        Self::NoAnswer
    }
}

impl fmt::Display for Dispatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NothingSent => "the application could not be reached; nothing was sent",
            Self::TimedOut => "the application did not answer in time",
            Self::NoAnswer => "the application gave no complete answer",
        })
    }
}

impl Error for Dispatch {}
