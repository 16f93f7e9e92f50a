//! What was found out about one item, and the collection of it.

use serde::Serialize;

use super::items::Item;

/// The judgement on an item, the worst first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Verdict {
    /// The endpoint does what it must not, or does not do what it must.
    Fail,
    /// The answers do not show it; `--effects` or another option would.
    Unknown,
    /// The endpoint refuses safely what it could offer.
    NotSupported,
    /// The item cannot be asked of this endpoint, or not from outside.
    NotApplicable,
    /// As it should be.
    Pass,
}

impl Verdict {
    /// All of them, in the order of a summary.
    pub(crate) const ALL: [Self; 5] =
        [Self::Pass, Self::Fail, Self::NotSupported, Self::NotApplicable, Self::Unknown];

    /// The word for it.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Fail => "fail",
            Self::NotSupported => "not supported",
            Self::NotApplicable => "not applicable",
            Self::Unknown => "unknown",
        }
    }
}

/// A verdict with its one line of reason.
#[derive(Debug, Clone)]
pub(crate) struct Judgement {
    pub(crate) verdict: Verdict,
    pub(crate) why: String,
}

pub(crate) fn pass(why: impl Into<String>) -> Judgement {
    Judgement { verdict: Verdict::Pass, why: why.into() }
}

pub(crate) fn fail(why: impl Into<String>) -> Judgement {
    Judgement { verdict: Verdict::Fail, why: why.into() }
}

pub(crate) fn unknown(why: impl Into<String>) -> Judgement {
    Judgement { verdict: Verdict::Unknown, why: why.into() }
}

pub(crate) fn not_supported(why: impl Into<String>) -> Judgement {
    Judgement { verdict: Verdict::NotSupported, why: why.into() }
}

pub(crate) fn not_applicable(why: impl Into<String>) -> Judgement {
    Judgement { verdict: Verdict::NotApplicable, why: why.into() }
}

/// The longest reason.
const WHY_CHARS_MAX: usize = 400;

/// Everything found so far, one judgement an item.
#[derive(Debug, Default)]
pub(crate) struct Findings(Vec<(&'static Item, Judgement)>);

impl Findings {
    /// Notes a judgement. A second one on the same item counts only if it is worse.
    pub(crate) fn note(&mut self, item: &'static Item, mut judgement: Judgement) {
        // Reasons quote the endpoint, which may be hostile: nothing of it may steer a terminal or flood it.
        judgement.why = judgement.why.chars().filter(|c| !c.is_control()).take(WHY_CHARS_MAX).collect();
        match self.0.iter_mut().find(|(known, _)| known.id == item.id) {
            Some((_, known)) if judgement.verdict < known.verdict => *known = judgement,
            Some(_) => {}
            None => self.0.push((item, judgement)),
        }
    }

    /// The judgement on an item.
    pub(crate) fn of(&self, item: &Item) -> Option<&Judgement> {
        self.0.iter().find(|(known, _)| known.id == item.id).map(|(_, judgement)| judgement)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::items::REPLAY_MARK;

    #[test]
    fn the_worst_judgement_counts_and_its_reason_cannot_steer_a_terminal() {
        let mut findings = Findings::default();
        findings.note(&REPLAY_MARK, pass("first"));
        findings.note(&REPLAY_MARK, fail(format!("\u{1b}[2J\r{}", "x".repeat(1000))));
        findings.note(&REPLAY_MARK, unknown("later"));
        let judgement = findings.of(&REPLAY_MARK).unwrap();
        assert_eq!(judgement.verdict, Verdict::Fail);
        assert!(judgement.why.starts_with("[2Jxxx") && judgement.why.len() == WHY_CHARS_MAX);
    }
}
