//! The house rules that no compiler checks, one file per rule. A rule that is broken fails the build.
//!
//! Only files that git knows, or would add, are looked at. A rule sees the tree and gives back findings; it never
//! changes a file.

mod banned_words;
mod contract_clauses;
mod dependencies;
mod file_length;
mod first_line;
mod function_length;
mod machine_paths;
mod open_ends;
mod raw_clock;
mod sleeps;
mod source;
mod unused_files;

use std::fmt;
use std::path::PathBuf;
use std::process::Command;

use crate::workspace::{Crate, Workspace};
use crate::{Result, process};

use source::Source;

/// All that a rule may look at.
#[derive(Debug, Default)]
struct Tree {
    /// Every text file, in order of its path.
    sources: Vec<Source>,
    /// Every member of the workspace.
    crates: Vec<Crate>,
}

/// One break of a rule.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Finding {
    path: String,
    line: usize,
    message: String,
}

/// A rule: from the tree to what breaks it.
type Rule = fn(&Tree) -> Vec<Finding>;

const RULES: [Rule; 12] = [
    source::check,
    first_line::check,
    function_length::check,
    file_length::check,
    raw_clock::check,
    sleeps::check,
    banned_words::check,
    dependencies::check,
    contract_clauses::check,
    open_ends::check,
    machine_paths::check,
    unused_files::check,
];

/// `cargo xtask tidy`.
pub(crate) fn run() -> Result<()> {
    check(&Workspace::read()?)
}

/// Checks every rule, prints what breaks one, and fails when something does.
pub(crate) fn check(workspace: &Workspace) -> Result<()> {
    let tree = Tree::read(workspace)?;
    let mut findings: Vec<_> = RULES.iter().flat_map(|rule| rule(&tree)).collect();
    findings.sort();
    for finding in &findings {
        println!("{finding}");
    }
    match (tree.sources.len(), findings.len()) {
        (0, _) => Err("git names no file: nothing was checked".into()),
        (files, 0) => {
            println!("{files} files, {} rules: nothing found", RULES.len());
            Ok(())
        }
        (_, count) => Err(format!("{count} findings").into()),
    }
}

impl Tree {
    fn read(workspace: &Workspace) -> Result<Self> {
        let mut list = Command::new("git");
        list.current_dir(&workspace.root).args([
            "ls-files",
            "-z",
            "--cached",
            "--others",
            "--exclude-standard",
        ]);
        let mut paths: Vec<String> = process::output(&mut list)?
            .split('\0')
            .filter(|path| !path.is_empty())
            .map(str::to_owned)
            .collect();
        paths.sort();
        paths.dedup();
        let mut sources = Vec::new();
        for path in paths {
            let full: PathBuf = workspace.root.join(&path);
            // A file that git still knows but that is gone from the disk, and a symbolic link, have no text.
            if !full.is_file() || full.is_symlink() {
                continue;
            }
            // Golden files and pictures are not text, and no rule reads them.
            if let Ok(text) = String::from_utf8(std::fs::read(&full)?) {
                sources.push(Source::new(path, text));
            }
        }
        Ok(Self { sources, crates: workspace.crates.clone() })
    }

    /// The Rust files.
    fn rust(&self) -> impl Iterator<Item = &Source> {
        self.sources.iter().filter(|source| source.is_rust())
    }

    /// A tree of files that exist only in a test.
    #[cfg(test)]
    fn of<const N: usize>(files: [(&str, &str); N]) -> Self {
        let sources = files.map(|(path, text)| Source::new(path.into(), text.into()));
        Self { sources: sources.into(), crates: Vec::new() }
    }
}

impl Finding {
    fn new(source: &Source, line: usize, message: impl Into<String>) -> Self {
        Self { path: source.path.clone(), line, message: message.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.path, self.line, self.message)
    }
}

/// Asserts that `rule` finds something on exactly these lines of the tree's files.
#[cfg(test)]
fn assert_lines(rule: Rule, tree: &Tree, lines: &[usize]) {
    let mut findings = rule(tree);
    findings.sort();
    let found: Vec<_> = findings.iter().map(|finding| finding.line).collect();
    assert_eq!(found, lines, "{findings:#?}");
}
