//! How long a long run lasts and where its chance comes from: short in CI, longer when asked, replayable always.

use std::env;
use std::time::{Duration, Instant};

use rand::SeedableRng;
use rand::rngs::SmallRng;

/// A run that goes through seeds until its time is over.
///
/// `ONLYONCE_SOAK_SECONDS` makes it longer, `ONLYONCE_SEED` makes it start at a seed: with both unset it goes through
/// a fixed number of seeds, so that CI does not depend on the speed of the machine.
#[derive(Debug)]
pub struct Soak {
    name: &'static str,
    first: u64,
    next: u64,
    end: Option<Instant>,
    rounds: u64,
}

impl Soak {
    /// A run of `rounds` seeds, or of as many as fit into the time asked for.
    pub fn new(name: &'static str, rounds: u64) -> Self {
        let number = |name: &str| env::var(name).ok().map(|text| text.parse().expect("a whole number"));
        let first = number("ONLYONCE_SEED").unwrap_or(1);
        let end =
            number("ONLYONCE_SOAK_SECONDS").map(|seconds| Instant::now() + Duration::from_secs(seconds));
        Self { name, first, next: first, end, rounds }
    }

    /// The next seed and its random numbers, until the run is over.
    pub fn next_round(&mut self) -> Option<(u64, SmallRng)> {
        let over = match self.end {
            Some(end) => Instant::now() >= end,
            None => self.next - self.first >= self.rounds,
        };
        if over {
            return None;
        }
        let seed = self.next;
        self.next += 1;
        Some((seed, SmallRng::seed_from_u64(seed)))
    }

    /// Whether a longer run than CI's was asked for.
    pub fn is_long(&self) -> bool {
        self.end.is_some()
    }

    /// Says what was run.
    #[expect(clippy::print_stdout, reason = "a long run shows its counts and seeds")]
    pub fn report(&self, counted: u64, what: &str) {
        let (name, first, rounds) = (self.name, self.first, self.next - self.first);
        println!("soak {name}: {rounds} seeds from {first}, {counted} {what}");
    }
}
