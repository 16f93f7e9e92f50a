//! Rule: a function fits on a screen: 70 lines, or 100 in test code, from `fn` to the closing brace.

use syn::visit::{self, Visit};

use super::source::Source;
use super::{Finding, Tree};

const LINES_MAX: usize = 70;
const TEST_LINES_MAX: usize = 100;

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for source in tree.rust() {
        let mut functions = Functions { source, findings: &mut findings };
        if let Some(file) = source.file() {
            functions.visit_file(file);
        }
    }
    findings
}

struct Functions<'a> {
    source: &'a Source,
    findings: &'a mut Vec<Finding>,
}

impl Functions<'_> {
    fn measure(&mut self, signature: &syn::Signature, block: &syn::Block) {
        let first = signature.fn_token.span.start().line;
        let lines = block.brace_token.span.close().end().line - first + 1;
        let most = if self.source.is_test(first) { TEST_LINES_MAX } else { LINES_MAX };
        if lines > most {
            let message = format!("`{}` has {lines} lines, at most {most} are allowed", signature.ident);
            self.findings.push(Finding::new(self.source, first, message));
        }
    }
}

impl<'ast> Visit<'ast> for Functions<'_> {
    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        self.measure(&item.sig, &item.block);
        visit::visit_item_fn(self, item);
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        self.measure(&item.sig, &item.block);
        visit::visit_impl_item_fn(self, item);
    }

    fn visit_trait_item_fn(&mut self, item: &'ast syn::TraitItemFn) {
        if let Some(block) = &item.default {
            self.measure(&item.sig, block);
        }
        visit::visit_trait_item_fn(self, item);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::assert_lines;

    /// A function of exactly `lines` lines, after one line of head.
    fn function(lines: usize) -> String {
        format!("//! A.\nfn f() {{\n{}}}\n", "    g();\n".repeat(lines - 2))
    }

    #[test]
    fn a_function_longer_than_a_screen_is_found() {
        assert_lines(check, &Tree::of([("a.rs", &function(70))]), &[]);
        assert_lines(check, &Tree::of([("a.rs", &function(71))]), &[2]);
    }

    #[test]
    fn methods_and_default_bodies_count_too() {
        let body = "g();\n".repeat(70);
        assert_lines(check, &Tree::of([("a.rs", &format!("impl A {{\nfn f() {{\n{body}}}\n}}"))]), &[2]);
        assert_lines(check, &Tree::of([("a.rs", &format!("trait A {{\nfn f() {{\n{body}}}\n}}"))]), &[2]);
    }

    #[test]
    fn tests_may_be_longer_and_macros_are_not_measured() {
        assert_lines(check, &Tree::of([("tests/a.rs", &function(100))]), &[]);
        assert_lines(check, &Tree::of([("tests/a.rs", &function(101))]), &[2]);
        let rules = format!("macro_rules! m {{ () => {{\n{}}} }}", function(200).replace("//! A.", ""));
        assert_lines(check, &Tree::of([("a.rs", &rules)]), &[]);
    }
}
