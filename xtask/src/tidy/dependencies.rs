//! Rule: crates depend on each other only in the direction of the map in ARCHITECTURE.md.

use super::{Finding, Tree};
use crate::workspace::{Crate, Dependency};

/// The concrete stores. A crate under `crates/` whose folder starts like this is one.
const STORE_PREFIX: &str = "store-";

/// For each published crate, by folder, the published crates it may depend on. `store-*` stands for every store.
const MAY_DEPEND_ON: [(&str, &[&str]); 9] = [
    ("core", &[]),
    ("http", &["core"]),
    ("store-*", &["core"]),
    // With the feature `postgres`: mark and effect in one transaction need the store that is in it.
    ("inbox", &["core", "store-*"]),
    ("sources", &["core", "inbox"]),
    ("client", &["core"]),
    ("testkit", &["core", "http"]),
    ("server", &["core", "http", "store-*", "inbox", "sources"]),
    ("cli", &["core", "http", "store-*", "inbox", "sources", "client", "server"]),
];

/// Unpublished: these may depend on anything, and nothing may depend on them. So may all outside `crates/`.
const UNPUBLISHED: [&str; 2] = ["sim", "bench"];

/// Allowed in the `[dev-dependencies]` of every crate.
const TESTKIT: &str = "testkit";

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    tree.crates.iter().flat_map(|package| check_crate(package, &tree.crates)).collect()
}

fn check_crate(package: &Crate, all: &[Crate]) -> Vec<Finding> {
    let find = |message: String| Finding { path: format!("{}/Cargo.toml", package.folder), line: 1, message };
    let Some(part) = part(package) else {
        let unpublished = format!("{} is not part of the product: it needs `publish = false`", package.name);
        return if package.published { vec![find(unpublished)] } else { Vec::new() };
    };
    let Some((_, allowed)) = MAY_DEPEND_ON.iter().find(|(name, _)| *name == part) else {
        return vec![find(format!(
            "{} is not on the map: add it to xtask's tidy/dependencies.rs",
            package.folder
        ))];
    };
    let wrong = |dependency: &&Dependency| {
        // Crates of others are cargo-deny's business, and a crate may name itself to turn on its own features.
        let Some(target) = all.iter().find(|other| other.name == dependency.name) else { return false };
        let target_part = self::part(target);
        let is_allowed = target_part.is_some_and(|target| allowed.contains(&target));
        let is_testing = dependency.dev && target_part == Some(TESTKIT);
        !(target.name == package.name || is_allowed || is_testing)
    };
    let message = |dependency: &Dependency| {
        format!("{} must not depend on {} (see the map in ARCHITECTURE.md)", package.name, dependency.name)
    };
    package.dependencies.iter().filter(wrong).map(|dependency| find(message(dependency))).collect()
}

/// Which part of the product a crate is, by its folder; `None` when it is none.
fn part(package: &Crate) -> Option<&str> {
    let name = package.folder.strip_prefix("crates/")?;
    match name {
        _ if UNPUBLISHED.contains(&name) => None,
        _ if name.starts_with(STORE_PREFIX) => Some("store-*"),
        _ => Some(name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A workspace of crates named like their folders; a dependency that starts with `dev:` is for tests.
    fn findings(crates: &[(&str, &[&str])]) -> Vec<String> {
        let package = |(folder, dependencies): &(&str, &[&str])| Crate {
            name: (*folder).into(),
            folder: (*folder).into(),
            published: !matches!(*folder, "xtask" | "crates/bench"),
            dependencies: dependencies
                .iter()
                .map(|name| Dependency {
                    name: name.trim_start_matches("dev:").into(),
                    dev: name.starts_with("dev:"),
                })
                .collect(),
            ..Crate::default()
        };
        let tree = Tree { crates: crates.iter().map(package).collect(), ..Tree::default() };
        check(&tree).into_iter().map(|finding| finding.message).collect()
    }

    #[test]
    fn the_map_is_accepted() {
        let crates: &[(&str, &[&str])] = &[
            ("crates/core", &["serde", "dev:crates/testkit", "crates/core"]),
            ("crates/http", &["crates/core"]),
            ("crates/store-redis", &["crates/core", "dev:crates/testkit"]),
            ("crates/testkit", &["crates/core", "crates/http"]),
            ("crates/inbox", &["crates/core", "crates/store-redis"]),
            ("crates/sources", &["crates/core", "crates/inbox"]),
            ("crates/server", &["crates/http", "crates/store-redis"]),
            ("crates/cli", &["crates/server", "crates/store-redis", "crates/core"]),
            ("crates/bench", &["crates/testkit", "crates/store-redis"]),
            ("xtask", &["crates/core"]),
        ];
        assert_eq!(findings(crates), Vec::<String>::new());
    }

    #[test]
    fn an_arrow_that_points_the_other_way_is_found() {
        let wrong: [(&str, &str); 9] = [
            ("crates/core", "crates/http"),
            ("crates/core", "crates/testkit"),
            ("crates/http", "crates/store-redis"),
            ("crates/http", "dev:crates/store-redis"),
            ("crates/inbox", "crates/sources"),
            ("crates/client", "crates/http"),
            ("crates/server", "crates/cli"),
            ("crates/cli", "crates/bench"),
            ("crates/cli", "xtask"),
        ];
        for (from, to) in wrong {
            let target = to.trim_start_matches("dev:");
            let found = findings(&[(from, &[to]), (target, &[])]);
            assert_eq!(found.len(), 1, "{from} -> {to}: {found:?}");
        }
    }

    #[test]
    fn a_crate_that_is_not_on_the_map_is_found() {
        assert_eq!(findings(&[("crates/extras", &[])]).len(), 1);
        assert_eq!(findings(&[("examples/payments", &[])]).len(), 1, "it is published");
    }
}
