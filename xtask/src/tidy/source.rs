//! One file as the rules see it: its text, its syntax and its words, and which of its lines are test code.

use std::ops::RangeInclusive;
use std::path::Path;

use proc_macro2::{Delimiter, TokenStream, TokenTree};
use syn::visit::{self, Visit};

use super::{Finding, Tree};

/// A text file. Rust files are parsed once, here, for all rules.
pub(crate) struct Source {
    /// Relative to the repository's root, with `/` between the parts.
    pub(crate) path: String,
    pub(crate) text: String,
    /// The syntax tree of a Rust file, or why it has none.
    pub(crate) syntax: Option<Result<syn::File, syn::Error>>,
    /// The words of a Rust file in order. Comments and the insides of literals are not among them, those inside
    /// macros are.
    pub(crate) tokens: Vec<Token>,
    test_lines: Vec<RangeInclusive<usize>>,
}

/// One word or sign of a Rust file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Token {
    pub(crate) text: String,
    pub(crate) line: usize,
}

/// Rule: every Rust file parses, or else no other rule can see into it.
pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let broken = |source: &Source| match &source.syntax {
        Some(Err(error)) => {
            Some(Finding::new(source, error.span().start().line, format!("does not parse: {error}")))
        }
        _ => None,
    };
    tree.rust().filter_map(broken).collect()
}

impl Source {
    pub(crate) fn new(path: String, text: String) -> Self {
        let mut source = Self { path, text, syntax: None, tokens: Vec::new(), test_lines: Vec::new() };
        if source.is_rust() {
            let syntax = syn::parse_file(&source.text);
            if let Ok(file) = &syntax {
                source.test_lines = TestLines::of(file);
            }
            if let Ok(stream) = source.text.parse::<TokenStream>() {
                flatten(stream, &mut source.tokens);
            }
            source.syntax = Some(syntax);
        }
        source
    }

    pub(crate) fn is_rust(&self) -> bool {
        Path::new(&self.path).extension().is_some_and(|extension| extension == "rs")
    }

    /// The syntax tree, if this is a Rust file that parses.
    pub(crate) fn file(&self) -> Option<&syn::File> {
        self.syntax.as_ref()?.as_ref().ok()
    }

    /// The lines, counted from 1.
    pub(crate) fn lines(&self) -> impl Iterator<Item = (usize, &str)> {
        self.text.lines().enumerate().map(|(index, line)| (index + 1, line))
    }

    /// Is this line compiled for tests only?
    pub(crate) fn is_test(&self, line: usize) -> bool {
        self.is_test_file() || self.test_lines.iter().any(|lines| lines.contains(&line))
    }

    fn is_test_file(&self) -> bool {
        let mut folders = self.path.split('/');
        let file = folders.next_back().unwrap_or_default();
        file == "tests.rs" || file.ends_with("_tests.rs") || folders.any(|folder| folder == "tests")
    }

    /// Is this inside `crates/NAME/src`, for any name but those given?
    pub(crate) fn is_crate_source(&self, except: &[&str]) -> bool {
        let mut parts = self.path.split('/');
        parts.next() == Some("crates")
            && parts.next().is_some_and(|name| !except.contains(&name))
            && parts.next() == Some("src")
    }

    /// The lines on which these words stand one after the other, and the index of the first word of each.
    pub(crate) fn sequences<'a>(&'a self, words: &'a [&str]) -> impl Iterator<Item = (usize, usize)> + 'a {
        self.tokens.windows(words.len()).enumerate().filter_map(move |(index, window)| {
            let same = window.iter().zip(words).all(|(token, word)| token.text == *word);
            same.then(|| (window[0].line, index))
        })
    }
}

impl std::fmt::Debug for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Source({})", self.path)
    }
}

fn flatten(stream: TokenStream, tokens: &mut Vec<Token>) {
    for tree in stream {
        let line = tree.span().start().line;
        match tree {
            TokenTree::Group(group) => {
                let (open, close) = match group.delimiter() {
                    Delimiter::Parenthesis => ("(", ")"),
                    Delimiter::Brace => ("{", "}"),
                    Delimiter::Bracket => ("[", "]"),
                    Delimiter::None => ("", ""),
                };
                tokens.push(Token { text: open.into(), line });
                flatten(group.stream(), tokens);
                tokens.push(Token { text: close.into(), line: group.span_close().end().line });
            }
            TokenTree::Ident(ident) => tokens.push(Token { text: ident.to_string(), line }),
            TokenTree::Punct(punct) => tokens.push(Token { text: punct.as_char().into(), line }),
            TokenTree::Literal(_) => tokens.push(Token { text: "\"\"".into(), line }),
        }
    }
}

/// Collects the lines of what is compiled for tests only.
#[derive(Default)]
struct TestLines {
    lines: Vec<RangeInclusive<usize>>,
}

impl TestLines {
    fn of(file: &syn::File) -> Vec<RangeInclusive<usize>> {
        let mut collector = Self::default();
        collector.visit_file(file);
        collector.lines
    }
}

impl<'ast> Visit<'ast> for TestLines {
    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        match (is_for_tests(&item.attrs), &item.content) {
            (true, Some((braces, _))) => {
                self.lines.push(item.mod_token.span.start().line..=braces.span.close().end().line);
            }
            _ => visit::visit_item_mod(self, item),
        }
    }

    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        if is_for_tests(&item.attrs) {
            self.lines.push(item.sig.fn_token.span.start().line..=end(&item.block));
        }
        visit::visit_item_fn(self, item);
    }

    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        if is_for_tests(&item.attrs) {
            self.lines.push(item.impl_token.span.start().line..=item.brace_token.span.close().end().line);
        }
        visit::visit_item_impl(self, item);
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        if is_for_tests(&item.attrs) {
            self.lines.push(item.sig.fn_token.span.start().line..=end(&item.block));
        }
        visit::visit_impl_item_fn(self, item);
    }
}

fn end(block: &syn::Block) -> usize {
    block.brace_token.span.close().end().line
}

/// `#[test]`, `#[tokio::test]` and their like, and `#[cfg(test)]`.
fn is_for_tests(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let name = attribute.path().segments.last().map(|segment| segment.ident.to_string());
        match (name.as_deref(), &attribute.meta) {
            (Some("test"), _) => true,
            (Some("cfg"), syn::Meta::List(list)) => {
                let mut words = Vec::new();
                flatten(list.tokens.clone(), &mut words);
                words.iter().any(|word| word.text == "test") && !words.iter().any(|word| word.text == "not")
            }
            _ => false,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::assert_lines;

    #[test]
    fn a_file_that_does_not_parse_is_found() {
        assert_lines(check, &Tree::of([("a.rs", "//! Good.\nfn good() {}\n")]), &[]);
        assert_lines(check, &Tree::of([("a.rs", "//! Bad.\nfn bad( {}\n")]), &[2]);
        assert_lines(check, &Tree::of([("a.md", "fn not rust(")]), &[]);
    }

    #[test]
    fn test_code_is_told_from_product_code() {
        let text = "fn a() {}\n#[cfg(test)]\nmod tests {\n    fn b() {}\n}\n#[tokio::test]\nasync fn c() {}\n\
                    #[cfg(not(test))]\nfn d() {}\n";
        let source = Source::new("crates/core/src/a.rs".into(), text.into());
        let lines: Vec<_> = (1..=9).filter(|line| source.is_test(*line)).collect();
        assert_eq!(lines, [3, 4, 5, 7]);
        assert!(Source::new("crates/core/tests/a.rs".into(), String::new()).is_test(1));
        assert!(Source::new("crates/core/src/a/tests.rs".into(), String::new()).is_test(1));
    }

    #[test]
    fn words_in_comments_and_literals_are_not_words() {
        let text = "//! a::b\nfn f() { // a::b\n    c!(\"a::b\", a::b);\n}\n";
        let source = Source::new("a.rs".into(), text.into());
        let lines: Vec<_> = source.sequences(&["a", ":", ":", "b"]).map(|(line, _)| line).collect();
        assert_eq!(lines, [3]);
    }

    #[test]
    fn crate_sources_are_told_by_their_path() {
        let is = |path: &str| Source::new(path.into(), String::new()).is_crate_source(&["bench"]);
        assert!(is("crates/core/src/store/memory.rs"));
        assert!(!is("crates/bench/src/main.rs") && !is("crates/core/tests/a.rs") && !is("xtask/src/main.rs"));
    }
}
