//! Rule: a file has at most 500 lines of code, or a reason.

use super::{Finding, Tree};

const CODE_LINES_MAX: usize = 500;

/// Files that may be longer, each with the reason why splitting it would make it worse.
const LONG: [(&str, &str); 0] = [];

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    tree.rust()
        .filter(|source| !LONG.iter().any(|(path, _)| *path == source.path))
        .filter_map(|source| {
            let lines = source.lines().filter(|(_, line)| is_code(line)).count();
            let message =
                || format!("{lines} lines of code, more than {CODE_LINES_MAX}: split it, or say why not");
            (lines > CODE_LINES_MAX).then(|| Finding::new(source, 1, message()))
        })
        .collect()
}

/// Blank lines and lines that hold only a comment are free.
fn is_code(line: &str) -> bool {
    let line = line.trim_start();
    !line.is_empty() && !line.starts_with("//")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::assert_lines;

    #[test]
    fn a_file_that_should_be_split_is_found() {
        let code = "const A: u8 = 1;\n\n// Free.\n/// Free.\n";
        assert_lines(check, &Tree::of([("a.rs", &code.repeat(500))]), &[]);
        assert_lines(check, &Tree::of([("a.rs", &code.repeat(501))]), &[1]);
    }
}
