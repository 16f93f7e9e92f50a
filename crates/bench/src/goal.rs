//! Goals: what must be reached, what was measured, and whether that is enough.

use std::fmt::{self, Write as _};

/// A goal, what was measured, and whether that is enough.
#[derive(Debug, PartialEq)]
pub struct Goal {
    /// What must be reached.
    pub name: String,
    /// What was.
    pub measured: String,
    /// Whether that is enough.
    pub verdict: Verdict,
}

/// Whether a goal is met.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Verdict {
    /// It is.
    Met,
    /// It is not.
    NotMet,
    /// The one that it is compared with used only this share of its processor: something else was the limit, and then
    /// all are equally fast.
    Undecided(&'static str, f64),
    /// Others used this share of the processors while one of the two was measured.
    Disturbed(f64),
}

impl Verdict {
    /// Met or not.
    pub fn of(met: bool) -> Self {
        if met { Self::Met } else { Self::NotMet }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Met => f.write_str("yes"),
            Self::NotMet => f.write_str("**NOT met**"),
            Self::Undecided(other, busy) => {
                write!(
                    f,
                    "**UNDECIDED**: {other} was only {:.0} % busy, so it was not the limit",
                    busy * 100.0
                )
            }
            Self::Disturbed(foreign) => {
                write!(f, "**UNDECIDED**: others used {:.0} % of the processors", foreign * 100.0)
            }
        }
    }
}

/// The goals as a table; nothing when there are none.
pub fn table(goals: &[Goal]) -> String {
    if goals.is_empty() {
        return String::new();
    }
    let mut table = String::from("\n**Goals**\n\n| goal | measured | met |\n|---|---:|---|\n");
    for Goal { name, measured, verdict } in goals {
        let _ = writeln!(table, "| {name} | {measured} | {verdict} |");
    }
    table
}
