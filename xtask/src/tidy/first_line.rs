//! Rule: the first line of every Rust file says, after `//!`, what the file is for.

use super::{Finding, Tree};

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    tree.rust()
        .filter(|source| {
            !source.text.lines().next().is_some_and(|line| line.len() > 4 && line.starts_with("//! "))
        })
        .map(|source| {
            Finding::new(source, 1, "the first line must start with `//!` and say what the file is for")
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::assert_lines;

    #[test]
    fn a_file_that_does_not_say_what_it_is_for_is_found() {
        assert_lines(check, &Tree::of([("a.rs", "//! Decides who owns a key.\n")]), &[]);
        for bad in ["", "use std::fmt;\n", "\n//! Too late.\n", "//!\n", "/// Not for the file.\n"] {
            assert_lines(check, &Tree::of([("a.rs", bad)]), &[1]);
        }
        assert_lines(check, &Tree::of([("a.md", "# Not Rust\n")]), &[]);
    }
}
