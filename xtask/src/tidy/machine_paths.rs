//! Rule: no file names a folder of somebody's own machine: it would work there and nowhere else.

use super::{Finding, Tree};

/// Written in two parts, so that this file does not break its own rule.
const FOLDERS: [&str; 3] = [concat!("/wo", "rk/"), concat!("/ho", "me/"), concat!("/ro", "ot/")];

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for source in &tree.sources {
        for (line, text) in source.lines() {
            for folder in FOLDERS.iter().filter(|folder| has_path(text, folder)) {
                findings.push(Finding::new(source, line, format!("`{folder}` is a folder of one machine")));
            }
        }
    }
    findings
}

/// Does a path start here? `example.com/home/` and `./root/` are not absolute.
fn has_path(text: &str, folder: &str) -> bool {
    let is_part = |c: char| c.is_alphanumeric() || "._-~*}])/".contains(c);
    text.match_indices(folder).any(|(at, _)| !text[..at].chars().next_back().is_some_and(is_part))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::assert_lines;

    #[test]
    fn a_folder_of_one_machine_is_found() {
        for folder in FOLDERS {
            let bad = format!("fine\npath = \"{folder}x\"\n{folder}y\n");
            assert_lines(check, &Tree::of([("a.toml", &bad)]), &[2, 3]);
            let good = format!("example.com{folder}x\n.{folder}x\n${{BASE}}{folder}x\n");
            assert_lines(check, &Tree::of([("a.toml", &good)]), &[]);
        }
    }
}
