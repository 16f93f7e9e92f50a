//! What the tour saw, line by line, and whether all of it was as promised.

use serde_json::Value;

use crate::check::wire::Reply;
use crate::failure::Failure;
use crate::output;
use crate::paint::{Paint, Tone};

/// The most characters of a body that are shown.
const BODY_CHARS_MAX: usize = 90;

/// Fields worth showing, where they are there.
const SHOWN: [&str; 4] =
    ["idempotency-replayed", "idempotent-replayed", "retry-after", "onlyonce-unrecorded"];

pub(super) struct Notes {
    paint: Paint,
    promises: usize,
    broken: usize,
}

impl Notes {
    pub(super) fn new(paint: Paint) -> Self {
        Self { paint, promises: 0, broken: 0 }
    }

    /// Shows an answer in one line.
    pub(super) fn saw(&self, what: &str, reply: &Reply) -> Result<(), Failure> {
        let text = match reply {
            Err(silence) => silence.to_string(),
            Ok(answer) => {
                let mut parts = vec![answer.status.to_string()];
                let shown = SHOWN.iter().filter_map(|name| Some(format!("{name}: {}", answer.header(name)?)));
                parts.extend(shown);
                parts.push(body(&answer.body));
                parts.join("  ")
            }
        };
        output::write_line(&format!("     {} {}", self.paint.paint(Tone::Quiet, &format!("{what} →")), text))
    }

    /// Notes whether a promise was kept.
    pub(super) fn promise(&mut self, kept: bool, what: &str) -> Result<(), Failure> {
        self.promises += 1;
        let line = if kept {
            self.paint.paint(Tone::Good, &format!("✓ {what}"))
        } else {
            self.broken += 1;
            self.paint.paint(Tone::Bad, &format!("✗ NOT as promised: {what}"))
        };
        output::write_line(&format!("     {line}"))
    }

    /// Sums up. Was all as promised?
    pub(super) fn finish(&self) -> Result<bool, Failure> {
        let kept = self.promises - self.broken;
        let text = format!("{kept} of {} promises were kept.", self.promises);
        let tone = if self.broken == 0 { Tone::Good } else { Tone::Bad };
        output::write_line(&format!("\n  {}", self.paint.paint(tone, &text)))?;
        Ok(self.broken == 0)
    }
}

/// The body in one line: of a problem its type and detail, of anything else its beginning.
fn body(bytes: &[u8]) -> String {
    let problem: Option<Value> = serde_json::from_slice(bytes).ok();
    let member = |name: &str| problem.as_ref()?.get(name)?.as_str().map(ToOwned::to_owned);
    let text = match (member("type"), member("title")) {
        (Some(kind), Some(title)) => format!("{kind}: {title}"),
        _ => String::from_utf8_lossy(bytes).into_owned(),
    };
    let mut shown: String = text.chars().filter(|c| !c.is_control()).take(BODY_CHARS_MAX).collect();
    if text.chars().count() > BODY_CHARS_MAX {
        shown.push('…');
    }
    shown
}
