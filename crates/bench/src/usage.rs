//! How busy the processors were, and with whom: a figure means little when others took them meanwhile.

use std::time::{Duration, Instant};

use crate::{Result, machine};

/// How much of the processors was used until now.
#[derive(Debug, Clone, Copy)]
pub struct Used {
    at: Instant,
    by_us: Duration,
    by_all: Duration,
}

/// What happened between two moments.
#[derive(Debug, Clone, Copy)]
pub struct Usage {
    /// How long it took.
    pub time: Duration,
    /// The processor time that we used.
    pub by_us: Duration,
    /// Which share of all processors others used.
    pub foreign: f64,
}

impl Used {
    /// Until now. Ours are this process, its ended children, and those of `running` with their children.
    pub fn now(running: impl IntoIterator<Item = u32>) -> Result<Self> {
        let mut by_us = machine::own_time()?;
        for process in running {
            by_us += machine::processor_time(process)?;
        }
        Ok(Self { at: Instant::now(), by_us, by_all: machine::busy_time() })
    }

    /// What was used since `before`.
    pub fn since(self, before: Self) -> Usage {
        let time = self.at - before.at;
        let by_us = self.by_us.saturating_sub(before.by_us);
        let by_others = self.by_all.saturating_sub(before.by_all).saturating_sub(by_us);
        let all = time * machine::processors();
        Usage { time, by_us, foreign: by_others.as_secs_f64() / all.as_secs_f64().max(f64::MIN_POSITIVE) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_we_used_is_not_counted_as_that_of_others() {
        let (ms, at) = (Duration::from_millis, Instant::now());
        let before = Used { at, by_us: ms(100), by_all: ms(1000) };
        let after = Used { at: at + ms(1000), by_us: ms(400), by_all: ms(1500) };
        let usage = after.since(before);
        assert_eq!((usage.time, usage.by_us), (ms(1000), ms(300)));
        let others = 0.2 / f64::from(machine::processors());
        assert!((usage.foreign - others).abs() < 1e-9, "{usage:?}");
        let rounding = Used { by_all: ms(1100), ..after };
        assert!(rounding.since(before).foreign.abs() < 1e-9, "ticks are rounded: never below nothing");
    }
}
