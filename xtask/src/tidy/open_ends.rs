//! Rule: a note about work that is left names its issue (`#12`), or else nobody will ever find it.

use super::{Finding, Tree};

/// Written in two parts, so that this file does not break its own rule.
const MARKS: [&str; 2] = [concat!("TO", "DO"), concat!("FIX", "ME")];

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for source in &tree.sources {
        for (line, text) in source.lines() {
            for mark in MARKS.iter().filter(|mark| has_mark(text, mark) && !has_issue(text)) {
                findings.push(Finding::new(
                    source,
                    line,
                    format!("a {mark} without its issue number (`#12`)"),
                ));
            }
        }
    }
    findings
}

/// Does the mark stand there as a word? Between backticks it is only talked about.
fn has_mark(text: &str, mark: &str) -> bool {
    let is_part = |c: char| c.is_alphanumeric() || c == '_' || c == '`';
    text.match_indices(mark).any(|(at, _)| {
        !text[..at].chars().next_back().is_some_and(is_part)
            && !text[at + mark.len()..].chars().next().is_some_and(is_part)
    })
}

fn has_issue(text: &str) -> bool {
    text.match_indices('#').any(|(at, _)| text[at + 1..].starts_with(|c: char| c.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::assert_lines;

    #[test]
    fn a_note_without_an_issue_is_found() {
        for mark in MARKS {
            let bad = format!("fine\n// {mark}: later\n<!-- {mark} -->\n# {mark}\n");
            assert_lines(check, &Tree::of([("docs/a.md", &bad)]), &[2, 3, 4]);
            let good = format!("// {mark}(#12): later\nthe word `{mark}`\n{mark}S and X{mark}\n");
            assert_lines(check, &Tree::of([("a.rs", &good)]), &[]);
        }
    }
}
