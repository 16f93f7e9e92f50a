//! How large the next batch is and how long the pause before it: by how long the last one took.

use std::time::Duration;

use crate::store::SweepBudget;

/// What a batch should take at the most: not much more than one request, because some requests wait for it.
const BATCH_TAKES: Duration = Duration::from_millis(20);
/// The pause is this many times as long as the batch before it: sweeping takes a fifth of the time at the most.
const PAUSE_TIMES: u32 = 4;
/// The longest pause, unless one is asked for that is longer: a store that stalled once is not left alone for hours.
const PAUSE_MAX: Duration = Duration::from_secs(2);
/// Fewer would cost more for the asking than for the removing.
const BATCH_MIN: usize = 100;

/// Sets batches and pauses.
#[derive(Debug)]
pub struct Pace {
    most: usize,
    batch: usize,
    pause: Duration,
}

impl Pace {
    /// Begins with a quarter of `most`, and is never faster than `pause`.
    pub fn new(most: SweepBudget, pause: Duration) -> Self {
        let most = most.get();
        Self { most, batch: (most / 4).max(BATCH_MIN).min(most), pause }
    }

    /// How many records the next batch touches.
    pub fn batch(&self) -> SweepBudget {
        SweepBudget::new(self.batch).unwrap_or(SweepBudget::DEFAULT)
    }

    /// The pause after a batch that took this long. The next is half as large if that was too long, and a little larger if
    /// it was short.
    pub fn after(&mut self, took: Duration) -> Duration {
        if took > BATCH_TAKES {
            self.batch = (self.batch / 2).max(BATCH_MIN);
        } else if took < BATCH_TAKES / 2 {
            self.batch += self.batch.div_ceil(4);
        }
        self.batch = self.batch.min(self.most);
        (took * PAUSE_TIMES).min(PAUSE_MAX).max(self.pause)
    }
}

/// About `duration`: a quarter more or less by chance, so that processes that began together do not go on together.
pub fn jittered(duration: Duration) -> Duration {
    let mut bytes = [0; 4];
    // Without random bytes everything goes on as well, only in step.
    let chance = match getrandom::fill(&mut bytes) {
        Ok(()) => f64::from(u32::from_le_bytes(bytes)) / f64::from(u32::MAX),
        Err(_) => 0.5,
    };
    duration.mul_f64(0.75 + chance / 2.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn the_pause_grows_with_what_a_batch_took_and_batches_shrink() {
        let mut pace = Pace::new(SweepBudget::new(1000).unwrap(), 10 * MS);
        assert_eq!(pace.batch().get(), 250);
        assert_eq!(pace.after(MS), 10 * MS, "never shorter than asked for");
        assert_eq!(pace.batch().get(), 313);
        assert_eq!(pace.after(15 * MS), 60 * MS);
        assert_eq!(pace.batch().get(), 313, "just right");
        assert_eq!(pace.after(100 * MS), 400 * MS);
        assert_eq!(pace.batch().get(), 156);
        assert_eq!(pace.after(Duration::from_hours(1)), PAUSE_MAX);
        for _ in 0..10 {
            pace.after(100 * MS);
        }
        assert_eq!(pace.batch().get(), BATCH_MIN);
        for _ in 0..100 {
            pace.after(Duration::ZERO);
        }
        assert_eq!(pace.batch().get(), 1000, "as large as it may be, and no larger");
    }

    #[test]
    fn a_small_budget_stays_small() {
        let mut pace = Pace::new(SweepBudget::new(1).unwrap(), Duration::ZERO);
        for took in [Duration::ZERO, 100 * MS, Duration::ZERO] {
            pace.after(took);
            assert_eq!(pace.batch().get(), 1);
        }
    }

    #[test]
    fn chance_moves_a_wait_by_a_quarter_at_the_most() {
        let waits: Vec<_> = (0..100).map(|_| jittered(100 * MS)).collect();
        assert!(waits.iter().all(|wait| (75 * MS..=125 * MS).contains(wait)), "{waits:?}");
        assert!(waits.iter().any(|wait| *wait != waits[0]), "all alike");
    }
}
