//! Under which conditions a run measured: whoever reads its figures must know them.

use std::time::Duration;

use crate::figures::{median, readable};
use crate::machine;
use crate::measured::FOREIGN_MAX;

/// How a run was made.
#[derive(Debug, Default)]
pub struct Conditions {
    /// How often everything was measured.
    pub rounds: u32,
    /// For how long each time.
    pub window: Duration,
    /// Whether what is measured had a processor for itself.
    pub is_pinned: bool,
    /// The kind of file system of its folder.
    pub file_system: String,
    /// The load average before.
    pub load_before: String,
    /// How long it took in all.
    pub took: Duration,
}

impl Conditions {
    /// As sentences. `more` is about what is measured, `pinned` where it ran; `foreign` is for each measurement the share
    /// of the processors that others used.
    pub fn told(&self, more: &str, pinned: &str, foreign: &[f64]) -> String {
        format!(
            "Median of {} of {} after a warm-up, in another order each time; ratios are those within a round. {more}One \
             worker each; wrk with one thread; {} processors, {}; {}; {:.0} minutes in all. {} CPU is that of the measured \
             process alone.\n",
            self.counted_rounds(),
            readable(self.window),
            machine::processors(),
            if self.is_pinned { pinned } else { "nothing pinned" },
            self.file_system,
            self.took.as_secs_f64() / 60.0,
            self.meanwhile(foreign),
        )
    }

    /// How many rounds, in words.
    pub fn counted_rounds(&self) -> String {
        if self.rounds == 1 { "1 round".to_owned() } else { format!("{} rounds", self.rounds) }
    }

    /// What others did meanwhile, as a sentence: `foreign` is for each measurement their share of the processors.
    pub fn meanwhile(&self, foreign: &[f64]) -> String {
        let worst = foreign.iter().copied().fold(0.0, f64::max);
        let busy = foreign.iter().filter(|share| **share > FOREIGN_MAX).count();
        format!(
            "Others used {:.0} % of the processors meanwhile, {:.0} % at worst, more than {:.0} % in {busy} of {} \
             measurements (load average {} before the run).",
            median(foreign.iter().copied()).unwrap_or_default() * 100.0,
            worst * 100.0,
            FOREIGN_MAX * 100.0,
            foreign.len(),
            self.load_before,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_used_is_told() {
        let conditions = Conditions {
            rounds: 1,
            window: Duration::from_secs(5),
            is_pinned: false,
            file_system: "ext4".into(),
            load_before: "0.10".into(),
            took: Duration::from_mins(2),
        };
        let told = conditions.told("", "each on its own", &[0.02, 0.04, 0.30]);
        assert!(
            told.contains("1 round of 5.0 s") && told.contains("nothing pinned; ext4; 2 minutes"),
            "{told}"
        );
        assert!(
            told.contains("4 % of the processors meanwhile, 30 % at worst, more than 10 % in 1 of 3"),
            "{told}"
        );
    }
}
