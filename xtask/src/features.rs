//! Builds each published crate by itself, and with each of its features by itself.
//!
//! A workspace build adds up the features of all members, which hides a feature that a crate forgot to ask for. Whoever
//! builds what is not published builds the workspace.

use std::process::Command;

use crate::workspace::{Crate, Workspace};
use crate::{Result, process};

/// Checks every published crate without features, then with each feature alone. What is used by no code that is left is an
/// error: clippy takes what is denied for the crate alone, where the compiler's flags would build all it rests on anew.
pub(crate) fn run(workspace: &Workspace) -> Result<()> {
    for package in workspace.crates.iter().filter(|package| package.published) {
        for selection in selections(package) {
            process::run(check(workspace, package).args(selection).args(["--", "-D", "warnings"]))?;
        }
    }
    Ok(())
}

fn check(workspace: &Workspace, package: &Crate) -> Command {
    let mut command = process::cargo(&workspace.root);
    command.args(["clippy", "--quiet", "--no-deps", "--package", &package.name]);
    command
}

/// The arguments of each build: no feature, then one at a time.
fn selections(package: &Crate) -> Vec<Vec<String>> {
    let none = vec!["--no-default-features".to_owned()];
    let one = |feature: &String| vec!["--no-default-features".into(), "--features".into(), feature.clone()];
    std::iter::once(none).chain(package.features.iter().map(one)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_feature_is_built_alone() {
        let package = Crate { features: vec!["a".into(), "b".into()], ..Crate::default() };
        let lines: Vec<_> = selections(&package).iter().map(|selection| selection.join(" ")).collect();
        let none = "--no-default-features";
        assert_eq!(lines, [none.to_owned(), format!("{none} --features a"), format!("{none} --features b")]);
    }
}
