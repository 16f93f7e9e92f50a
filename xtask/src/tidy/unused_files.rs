//! Rule: every Rust file under `src` is compiled: some target starts there, or a `mod` line leads to it.

use std::collections::BTreeSet;

use super::{Finding, Tree};

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut reached = BTreeSet::new();
    let mut open: Vec<String> =
        tree.rust().map(|source| source.path.clone()).filter(|path| is_root(path, tree)).collect();
    while let Some(path) = open.pop() {
        let file = tree.rust().find(|source| source.path == path).and_then(|source| source.file());
        if let Some(file) = file.filter(|_| reached.insert(path.clone())) {
            let (folder, _) = path.rsplit_once('/').unwrap_or(("", &path));
            follow(&file.items, folder, &children_folder(&path, tree), &mut open);
        }
    }
    let message = "no `mod` line leads to this file: it is never compiled";
    tree.rust()
        .filter(|source| source.syntax.as_ref().is_some_and(Result::is_ok))
        .filter(|source| is_in_src(&source.path) && !reached.contains(&source.path))
        .map(|source| Finding::new(source, 1, message))
        .collect()
}

fn is_in_src(path: &str) -> bool {
    path.starts_with("xtask/src/") || (path.starts_with("crates/") && path.split('/').nth(2) == Some("src"))
}

/// Does a target start here, as its manifest or cargo's customs say?
fn is_root(path: &str, tree: &Tree) -> bool {
    let by_manifest = tree.crates.iter().any(|package| package.target_files.iter().any(|file| file == path));
    let in_src = path.rsplit_once("/src/").is_some_and(|(_, rest)| matches!(rest, "lib.rs" | "main.rs"));
    let in_bin = path
        .rsplit_once("/src/bin/")
        .is_some_and(|(_, rest)| !rest.contains('/') || rest.split('/').nth(1) == Some("main.rs"));
    by_manifest || in_src || in_bin
}

/// The folder in which the modules declared in this file are looked for.
fn children_folder(path: &str, tree: &Tree) -> String {
    let (folder, file) = path.rsplit_once('/').unwrap_or(("", path));
    if is_root(path, tree) || file == "mod.rs" {
        folder.to_owned()
    } else {
        path.trim_end_matches(".rs").to_owned()
    }
}

/// Adds the files that the `mod` lines among `items` may mean. `file_folder` is where `#[path]` starts from.
fn follow(items: &[syn::Item], file_folder: &str, folder: &str, open: &mut Vec<String>) {
    for item in items {
        let syn::Item::Mod(module) = item else { continue };
        let name = module.ident.to_string();
        let name = name.trim_start_matches("r#");
        match (&module.content, path_attribute(module)) {
            (Some((_, inner)), _) => {
                let inner_folder = format!("{folder}/{name}");
                follow(inner, &inner_folder, &inner_folder, open);
            }
            (None, Some(path)) => open.push(normal(&format!("{file_folder}/{path}"))),
            (None, None) => {
                open.push(format!("{folder}/{name}.rs"));
                open.push(format!("{folder}/{name}/mod.rs"));
            }
        }
    }
}

/// The text of `#[path = "…"]`.
fn path_attribute(module: &syn::ItemMod) -> Option<String> {
    module.attrs.iter().find_map(|attribute| match &attribute.meta {
        syn::Meta::NameValue(pair) if pair.path.is_ident("path") => match &pair.value {
            syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(text), .. }) => Some(text.value()),
            _ => None,
        },
        _ => None,
    })
}

/// The path without `.` and `..`.
fn normal(path: &str) -> String {
    let mut parts = Vec::new();
    for part in path.split('/') {
        match part {
            "." | "" => {}
            ".." => drop(parts.pop()),
            _ => parts.push(part),
        }
    }
    parts.join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unused<const N: usize>(files: [(&str, &str); N]) -> Vec<String> {
        check(&Tree::of(files)).into_iter().map(|finding| finding.path).collect()
    }

    #[test]
    fn files_that_a_mod_line_leads_to_are_accepted() {
        let found = unused([
            (
                "crates/core/src/lib.rs",
                "pub mod key;\nmod inline { mod deep; }\n#[path = \"../x/odd.rs\"]\nmod odd;",
            ),
            ("crates/core/src/key.rs", "mod derive;"),
            ("crates/core/src/key/derive.rs", "#[cfg(test)]\nmod tests;"),
            ("crates/core/src/key/derive/tests.rs", ""),
            ("crates/core/src/inline/deep.rs", ""),
            ("crates/core/src/bin/tool.rs", "mod old;"),
            ("crates/core/src/bin/old/mod.rs", ""),
            ("crates/core/x/odd.rs", ""),
            ("crates/core/tests/not_in_src.rs", ""),
        ]);
        assert_eq!(found, Vec::<String>::new());
    }

    #[test]
    fn a_file_that_nothing_leads_to_is_found() {
        let found = unused([
            ("crates/core/src/lib.rs", "// mod dead;"),
            ("crates/core/src/dead.rs", "mod also;"),
            ("crates/core/src/dead/also.rs", ""),
            ("xtask/src/main.rs", ""),
            ("xtask/src/dead.rs", ""),
        ]);
        assert_eq!(found, ["crates/core/src/dead.rs", "crates/core/src/dead/also.rs", "xtask/src/dead.rs"]);
    }
}
