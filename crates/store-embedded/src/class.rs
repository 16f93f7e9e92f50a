//! Which segments a record belongs to: those of records that live about as long, so that none pins the others.

use std::time::Duration;

use onlyonce_core::Record;
use onlyonce_core::record::State;

/// The longest life in each class. A record goes to the first class that is long enough.
const LIVES: [Duration; 8] = [
    Duration::from_mins(1),
    Duration::from_mins(10),
    Duration::from_hours(1),
    Duration::from_hours(6),
    Duration::from_hours(24),
    Duration::from_hours(7 * 24),
    Duration::from_hours(31 * 24),
    Duration::MAX,
];

/// A class of lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Class(u8);

impl Class {
    pub(crate) const COUNT: usize = LIVES.len();

    pub(crate) fn new(number: u8) -> Option<Self> {
        (usize::from(number) < Self::COUNT).then_some(Self(number))
    }

    pub(crate) const fn number(self) -> u8 {
        self.0
    }

    /// The class of a life of `duration`.
    fn of(duration: Duration) -> Self {
        let at = LIVES.iter().position(|life| duration <= *life).unwrap_or(LIVES.len() - 1);
        Self(u8::try_from(at).unwrap_or(u8::MAX))
    }

    /// The class of `record`, whose last entry was in `before`.
    ///
    /// INVARIANT: a newer entry of a record is never in a shorter class than an older one, so that the older is dropped
    /// first and never comes back to life.
    pub(crate) fn of_record(record: &Record, before: Option<Self>) -> Self {
        let life = match &record.state {
            State::InFlight { .. } | State::Released { .. } => record.retention.get(),
            State::Completed(completed) => completed.at.until(completed.expires_at),
            State::Unknown { .. } => record.unknown_retention.get(),
        };
        Self::of(life).max(before.unwrap_or(Self(0)))
    }

    /// How long damage in a segment of this class is refused: nobody knows what it held, so as long as the class allows,
    /// and at least as long as unknown outcomes usually are.
    pub(crate) fn doubt(self) -> Duration {
        match LIVES[usize::from(self.0)] {
            Duration::MAX => Duration::from_hours(10 * 366 * 24),
            life => life.max(LIVES[LIVES.len() - 2]),
        }
    }

    /// How old a segment of this class may grow before the next one is begun: an eighth of the life, so that a record
    /// is dropped at most an eighth late.
    pub(crate) fn span(self) -> Duration {
        match LIVES[usize::from(self.0)] {
            Duration::MAX => Duration::from_hours(31 * 24),
            life => life / 8,
        }
    }
}
