//! The hours in which there is little else to do, in UTC: `22:00-06:00`.

use std::fmt;
use std::str::FromStr;

use crate::clock::Timestamp;
use crate::error::MisuseError;

const MINUTES_A_DAY: u64 = 24 * 60;

/// From one time of the day to another, over midnight where the second is the earlier one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Quiet {
    from: u64,
    to: u64,
}

impl Quiet {
    /// Whether `now` is in these hours.
    pub const fn contains(&self, now: Timestamp) -> bool {
        let minute = now.as_millis() / 60_000 % MINUTES_A_DAY;
        if self.from < self.to {
            self.from <= minute && minute < self.to
        } else {
            self.from <= minute || minute < self.to
        }
    }
}

impl FromStr for Quiet {
    type Err = MisuseError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let hours = text.split_once('-').and_then(|(from, to)| Some((minute(from)?, minute(to)?)));
        match hours {
            Some((from, to)) if from != to => Ok(Self { from, to }),
            Some(_) => Err(MisuseError::new("quiet hours that begin when they end are none")),
            None => Err(MisuseError::new("quiet hours are written as in 22:00-06:00, in UTC")),
        }
    }
}

/// The minute of the day.
fn minute(text: &str) -> Option<u64> {
    let (hour, minute) = text.trim().split_once(':')?;
    let two = |digits: &str| {
        let is_two = digits.len() == 2 && digits.bytes().all(|byte| byte.is_ascii_digit());
        is_two.then(|| digits.parse::<u64>().ok()).flatten()
    };
    let (hour, minute) = (two(hour)?, two(minute)?);
    (hour < 24 && minute < 60).then_some(hour * 60 + minute)
}

impl fmt::Display for Quiet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { from, to } = self;
        write!(f, "{:02}:{:02}-{:02}:{:02}", from / 60, from % 60, to / 60, to % 60)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hours_go_over_midnight_and_end_before_their_end() {
        let at =
            |hour: u64, minute: u64| Timestamp::from_millis(((20_000 * 24 + hour) * 60 + minute) * 60_000);
        let night: Quiet = "22:00-06:30".parse().unwrap();
        for (hour, minute, inside) in
            [(21, 59, false), (22, 0, true), (0, 0, true), (6, 29, true), (6, 30, false), (12, 0, false)]
        {
            assert_eq!(night.contains(at(hour, minute)), inside, "{hour}:{minute}");
        }
        let noon: Quiet = " 11:30 - 13:00 ".parse().unwrap();
        assert!(noon.contains(at(12, 0)) && !noon.contains(at(13, 0)) && !noon.contains(at(3, 0)));
        assert_eq!(noon.to_string(), "11:30-13:00");
        assert_eq!(night.to_string().parse(), Ok(night));
    }

    #[test]
    fn what_are_no_hours_is_refused() {
        for bad in
            ["", "22-06", "22:00", "24:00-06:00", "22:60-06:00", "2:00-6:00", "22:00-22:00", "+2:00-06:00"]
        {
            assert!(bad.parse::<Quiet>().is_err(), "{bad}");
        }
    }
}
