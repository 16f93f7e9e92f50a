//! Rule: each numbered clause of the `Store` contract has a test in the suite, and each test a clause.
//!
//! A clause is an item `N. …` under `# Contract` in the documentation of `trait Store`; its tests are the functions
//! `async fn cN_…` in the testkit's suite, all of them listed by `store_suite!`.

use std::collections::BTreeSet;

use syn::visit::{self, Visit};

use super::source::Source;
use super::{Finding, Tree};

const CONTRACT: &str = "crates/core/src/store.rs";
const TESTKIT: &str = "crates/testkit/src/";
const SUITE: &str = "crates/testkit/src/suite";
const MACRO: &str = "store_suite";

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let Some(contract) = tree.sources.iter().find(|source| source.path == CONTRACT) else {
        return vec![missing("there is no store contract")];
    };
    let clauses = clauses(contract);
    if clauses.is_empty() {
        return vec![missing("`trait Store` has no numbered clauses under `# Contract`")];
    }
    let tests: Vec<_> = tree.rust().filter(|source| source.path.starts_with(SUITE)).flat_map(tests).collect();
    let mut findings = Vec::new();
    for (number, line) in &clauses {
        if !tests.iter().any(|test| test.clause == *number) {
            let message = format!("clause {number} has no test `async fn c{number}_…` in the store suite");
            findings.push(Finding::new(contract, *line, message));
        }
    }
    for test in tests.iter().filter(|test| !clauses.iter().any(|(number, _)| *number == test.clause)) {
        findings.push(test.finding(format!("`{}`: the contract has no clause {}", test.name, test.clause)));
    }
    let listed = listed(tree);
    for test in tests.iter().filter(|test| !listed.contains(&test.name)) {
        findings.push(test.finding(format!("`{}` is not listed in `{MACRO}!`: no store runs it", test.name)));
    }
    findings
}

fn missing(message: &str) -> Finding {
    Finding { path: CONTRACT.into(), line: 1, message: message.into() }
}

/// The clauses of the contract: number and line.
fn clauses(contract: &Source) -> Vec<(u32, usize)> {
    let items = contract.file().map(|file| file.items.as_slice()).unwrap_or_default();
    let store = items.iter().find_map(|item| match item {
        syn::Item::Trait(item) if item.ident == "Store" => Some(item),
        _ => None,
    });
    let mut inside = false;
    let mut clauses = Vec::new();
    for attribute in store.map(|store| store.attrs.as_slice()).unwrap_or_default() {
        let Some(text) = doc_text(attribute) else { continue };
        if let Some(heading) = text.trim().strip_prefix("# ") {
            inside = heading.trim() == "Contract";
        }
        let number = text.trim().split_once(". ").and_then(|(number, _)| number.parse().ok());
        if let (true, Some(number)) = (inside, number) {
            clauses.push((number, attribute.pound_token.span.start().line));
        }
    }
    clauses
}

/// The text of one `///` line.
fn doc_text(attribute: &syn::Attribute) -> Option<String> {
    match &attribute.meta {
        syn::Meta::NameValue(pair) if pair.path.is_ident("doc") => match &pair.value {
            syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(text), .. }) => Some(text.value()),
            _ => None,
        },
        _ => None,
    }
}

/// One function of the suite.
struct ClauseTest<'a> {
    clause: u32,
    name: String,
    line: usize,
    source: &'a Source,
}

impl ClauseTest<'_> {
    fn finding(&self, message: String) -> Finding {
        Finding::new(self.source, self.line, message)
    }
}

fn tests(source: &Source) -> Vec<ClauseTest<'_>> {
    let mut tests = ClauseTests { source, tests: Vec::new() };
    if let Some(file) = source.file() {
        tests.visit_file(file);
    }
    tests.tests
}

struct ClauseTests<'a> {
    source: &'a Source,
    tests: Vec<ClauseTest<'a>>,
}

impl<'ast> Visit<'ast> for ClauseTests<'_> {
    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        let name = item.sig.ident.to_string();
        let number =
            name.strip_prefix('c').and_then(|rest| rest.split_once('_')).and_then(|(n, _)| n.parse().ok());
        if let (Some(clause), true) = (number, item.sig.asyncness.is_some()) {
            let line = item.sig.fn_token.span.start().line;
            self.tests.push(ClauseTest { clause, name, line, source: self.source });
        }
        visit::visit_item_fn(self, item);
    }
}

/// Every name inside a macro in the file that defines `store_suite!`.
fn listed(tree: &Tree) -> BTreeSet<String> {
    let testkit = tree.rust().filter(|source| source.path.starts_with(TESTKIT));
    let mut names = BTreeSet::new();
    for source in testkit.filter(|source| source.sequences(&["macro_rules", "!", MACRO]).next().is_some()) {
        for item in source.file().map(|file| file.items.as_slice()).unwrap_or_default() {
            if let syn::Item::Macro(item) = item {
                collect(item.mac.tokens.clone(), &mut names);
            }
        }
    }
    names
}

fn collect(tokens: proc_macro2::TokenStream, names: &mut BTreeSet<String>) {
    for token in tokens {
        match token {
            proc_macro2::TokenTree::Group(group) => collect(group.stream(), names),
            proc_macro2::TokenTree::Ident(name) => {
                names.insert(name.to_string());
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::assert_lines;

    const STORE: &str = "//! S.\n/// Decides.\n///\n/// # Contract\n/// 1. *One owner*: at most one.\n\
                         /// 2. *Fencing*: nothing changes,\n///    not ever.\n/// # Time\n/// 3. Not a clause.\n\
                         pub trait Store {}\n";
    const SUITE_MACRO: &str = "#[macro_export]\nmacro_rules! store_suite { ($s:expr) => { all!($s, [c1_one_owner, c2_stale_owner]); } }\n";

    fn tree(suite: &str) -> Tree {
        Tree::of([
            (CONTRACT, STORE),
            ("crates/testkit/src/suite.rs", SUITE_MACRO),
            ("crates/testkit/src/suite/owner.rs", suite),
        ])
    }

    #[test]
    fn a_contract_whose_clauses_are_all_tested_is_accepted() {
        assert_lines(check, &tree("pub async fn c1_one_owner() {}\npub async fn c2_stale_owner() {}\n"), &[]);
    }

    #[test]
    fn a_clause_without_a_test_is_found_in_the_contract() {
        let tree = tree("pub async fn c1_one_owner() {}\nfn c2_not_async() {}\n");
        assert_lines(check, &tree, &[6]);
        assert_eq!(check(&tree)[0].path, CONTRACT);
    }

    #[test]
    fn a_test_that_no_store_runs_is_found() {
        let suite = "async fn c1_one_owner() {}\nasync fn c2_stale_owner() {}\nasync fn c2_forgotten() {}\n";
        assert_lines(check, &tree(suite), &[3]);
    }

    #[test]
    fn a_test_of_a_clause_that_does_not_exist_is_found() {
        let suite = "async fn c1_one_owner() {}\nasync fn c2_stale_owner() {}\nasync fn c3_more() {}\n";
        // Once for the clause, once because the macro does not list it either.
        assert_lines(check, &tree(suite), &[3, 3]);
    }

    #[test]
    fn no_contract_at_all_is_found() {
        assert_lines(check, &Tree::of([("crates/core/src/lib.rs", "//! A.\n")]), &[1]);
        assert_lines(
            check,
            &Tree::of([(CONTRACT, "//! A.\n/// 1. No heading.\npub trait Store {}\n")]),
            &[1],
        );
    }
}
