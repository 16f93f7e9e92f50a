//! Colours, for people at a terminal only: never in a pipe, never when `NO_COLOR` is set or the terminal is dumb.

use std::io::IsTerminal;

/// What a piece of text means, not how it looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tone {
    Good,
    Bad,
    Care,
    Quiet,
    Strong,
    Code,
}

/// Paints text, or leaves it alone.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Paint {
    on: bool,
}

impl Paint {
    /// Colours as `stream` can show them and the user wants them.
    pub(crate) fn for_stream(stream: &impl IsTerminal) -> Self {
        let is_set = |name| std::env::var_os(name).is_some_and(|value: std::ffi::OsString| !value.is_empty());
        let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        Self { on: stream.is_terminal() && !is_set("NO_COLOR") && !dumb }
    }

    /// `text` in the colour of `tone`.
    pub(crate) fn paint(self, tone: Tone, text: &str) -> String {
        if !self.on {
            return text.to_owned();
        }
        let code = match tone {
            Tone::Good => "32",
            Tone::Bad => "1;31",
            Tone::Care => "33",
            Tone::Quiet => "2",
            Tone::Strong => "1",
            Tone::Code => "36",
        };
        format!("\u{1b}[{code}m{text}\u{1b}[0m")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_painted_only_when_wanted() {
        assert_eq!(Paint { on: false }.paint(Tone::Bad, "fail"), "fail");
        assert_eq!(Paint { on: true }.paint(Tone::Bad, "fail"), "\u{1b}[1;31mfail\u{1b}[0m");
    }
}
