//! The pages of `docs/recipes`: their links lead somewhere, their configurations are accepted, and their code is code.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use crate::binary::onlyonce;
use crate::service::repository;

/// Every page, with its text.
fn pages() -> Vec<(PathBuf, String)> {
    let pages = fs::read_dir(repository("docs/recipes")).unwrap().map(|page| page.unwrap().path());
    let pages: Vec<_> = pages.map(|page| (page.clone(), fs::read_to_string(page).unwrap())).collect();
    assert!(pages.len() > 9, "{pages:?}");
    pages
}

/// The blocks of `text` whose first line begins with ```` ```HEAD ````: the rest of that line, and what is inside.
fn blocks<'a>(text: &'a str, head: &str) -> Vec<(&'a str, &'a str)> {
    let fence = format!("\n```{head}");
    let parts = text.split(fence.as_str()).skip(1);
    parts
        .map(|part| {
            let (mark, rest) = part.split_once('\n').unwrap();
            (mark.trim(), rest.split_once("\n```").unwrap_or_else(|| panic!("{head}{mark} has no end")).0)
        })
        .collect()
}

#[test]
fn links_lead_to_files_and_every_page_is_in_the_index() {
    let mut linked = BTreeSet::new();
    for (page, text) in pages() {
        for part in text.split("](").skip(1) {
            let target = part.split(')').next().unwrap().split('#').next().unwrap();
            if target.is_empty() || target.contains("://") {
                continue;
            }
            let file = page.parent().unwrap().join(target);
            assert!(file.exists(), "{}: {target} is not there", page.display());
            if page.ends_with("README.md") {
                linked.insert(file.canonicalize().unwrap());
            }
        }
    }
    for (page, _) in pages().iter().filter(|(page, _)| !page.ends_with("README.md")) {
        assert!(linked.contains(&page.canonicalize().unwrap()), "{} is in no index", page.display());
    }
    for example in fs::read_dir(repository("examples")).unwrap() {
        let example = example.unwrap().path().canonicalize().unwrap();
        assert!(linked.iter().any(|file| file.starts_with(&example)), "{} has no recipe", example.display());
    }
}

#[test]
fn every_mistake_is_shown_wrong_and_right() {
    let text = fs::read_to_string(repository("docs/recipes/mistakes.md")).unwrap();
    let mistakes: Vec<_> =
        text.split("\n## ").skip(1).filter(|part| part.starts_with(char::is_numeric)).collect();
    assert_eq!(mistakes.len(), 8);
    for mistake in mistakes {
        let mut marks: Vec<_> =
            blocks(mistake, "python").into_iter().chain(blocks(mistake, "toml")).collect();
        marks.retain(|(_, code)| !code.is_empty());
        assert_eq!([marks[0].0, marks[1].0], ["wrong", "right"], "{mistake}");
    }
}

#[test]
fn python_is_python_and_configurations_are_accepted() {
    let folder = tempfile::tempdir().unwrap();
    let mut checked = 0;
    for (page, text) in pages() {
        for (_, code) in blocks(&text, "python") {
            let parsed = Command::new("python3")
                .args(["-c", "import ast, sys; ast.parse(sys.argv[1])", code])
                .output();
            let parsed = parsed.unwrap();
            assert!(parsed.status.success(), "{}: {code}\n{parsed:?}", page.display());
            checked += 1;
        }
        for (_, toml) in blocks(&text, "toml") {
            let file = folder.path().join("onlyonce.toml");
            fs::write(&file, format!("[proxy]\nupstream = \"http://127.0.0.1:3000\"\n{toml}\n")).unwrap();
            let good = onlyonce(&["config", "check"]).arg(&file).output().unwrap();
            assert!(good.status.success(), "{}: {toml}\n{good:?}", page.display());
            checked += 1;
        }
    }
    assert!(checked > 15, "{checked} blocks were checked");
}
