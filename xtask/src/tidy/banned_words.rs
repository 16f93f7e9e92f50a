//! Rule: one word per idea. Names that we define use the project's words and none of those it gave up.
//!
//! Only names defined here count: what others named (`mutex.lock()`, the methods of a foreign trait) is theirs.

use syn::visit::{self, Visit};

use super::source::Source;
use super::{Finding, Tree};

/// A word that must not be part of a name, nor its plural, and what to say instead.
const WORDS: [(&str, &str); 6] = [
    ("lock", "`claim`, `grant`, `lease` or `guard`"),
    ("cache", "what is kept; only the cache tier of the tiered store is one"),
    ("ttl", "`retention` or `lease`"),
    ("manager", "what it does"),
    ("helper", "what it does"),
    ("util", "what is in it"),
];

/// A word that must not be the whole name: it says nothing.
const WHOLE: &str = "data";

/// Where a word is the right one, and why: a path's beginning, the word, the reason.
const ALLOWED: [(&str, &str, &str); 1] = [(
    "crates/core/src/store/tiered",
    "cache",
    "DESIGN §1 calls the fast tier of the tiered store the cache tier",
)];

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for source in tree.rust() {
        let mut names = Names { source, findings: &mut findings };
        for part in source.path.trim_end_matches(".rs").split('/') {
            names.judge(part, 1);
        }
        if let Some(file) = source.file() {
            names.visit_file(file);
        }
    }
    findings
}

struct Names<'a> {
    source: &'a Source,
    findings: &'a mut Vec<Finding>,
}

impl Names<'_> {
    fn define(&mut self, name: &proc_macro2::Ident) {
        self.judge(&name.to_string(), name.span().start().line);
    }

    fn judge(&mut self, name: &str, line: usize) {
        let name = name.trim_start_matches("r#");
        let words = words(name);
        if words == [WHOLE] {
            self.find(line, format!("`{name}` says nothing: name what it is"));
        }
        for (word, instead) in WORDS {
            let plural = format!("{word}s");
            let banned = words.iter().any(|part| part == word || *part == plural);
            if banned && !self.is_allowed(word) {
                self.find(line, format!("`{name}`: not `{word}`; say {instead}"));
            }
        }
    }

    fn is_allowed(&self, word: &str) -> bool {
        ALLOWED.iter().any(|(path, allowed, _)| self.source.path.starts_with(path) && *allowed == word)
    }

    fn find(&mut self, line: usize, message: String) {
        self.findings.push(Finding::new(self.source, line, message));
    }
}

impl<'ast> Visit<'ast> for Names<'_> {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        match item {
            syn::Item::Const(item) => self.define(&item.ident),
            syn::Item::Enum(item) => self.define(&item.ident),
            syn::Item::Mod(item) => self.define(&item.ident),
            syn::Item::Static(item) => self.define(&item.ident),
            syn::Item::Struct(item) => self.define(&item.ident),
            syn::Item::Trait(item) => self.define(&item.ident),
            syn::Item::Type(item) => self.define(&item.ident),
            syn::Item::Union(item) => self.define(&item.ident),
            syn::Item::Fn(item) => self.define(&item.sig.ident),
            syn::Item::Macro(item) => item.ident.iter().for_each(|name| self.define(name)),
            _ => {}
        }
        visit::visit_item(self, item);
    }

    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        // The names in an implementation of a trait were chosen where the trait is.
        if item.trait_.is_none() {
            for part in &item.items {
                match part {
                    syn::ImplItem::Const(part) => self.define(&part.ident),
                    syn::ImplItem::Fn(part) => self.define(&part.sig.ident),
                    _ => {}
                }
            }
        }
        visit::visit_item_impl(self, item);
    }

    fn visit_trait_item(&mut self, item: &'ast syn::TraitItem) {
        match item {
            syn::TraitItem::Const(item) => self.define(&item.ident),
            syn::TraitItem::Fn(item) => self.define(&item.sig.ident),
            syn::TraitItem::Type(item) => self.define(&item.ident),
            _ => {}
        }
        visit::visit_trait_item(self, item);
    }

    fn visit_field(&mut self, field: &'ast syn::Field) {
        field.ident.iter().for_each(|name| self.define(name));
        visit::visit_field(self, field);
    }

    fn visit_variant(&mut self, variant: &'ast syn::Variant) {
        self.define(&variant.ident);
        visit::visit_variant(self, variant);
    }

    fn visit_pat_ident(&mut self, pattern: &'ast syn::PatIdent) {
        self.define(&pattern.ident);
        visit::visit_pat_ident(self, pattern);
    }

    fn visit_field_pat(&mut self, field: &'ast syn::FieldPat) {
        // `S { name }` repeats a field's name, which was chosen where `S` is.
        if field.colon_token.is_some() {
            visit::visit_field_pat(self, field);
        }
    }

    fn visit_use_rename(&mut self, rename: &'ast syn::UseRename) {
        self.define(&rename.rename);
    }
}

/// The words of a name in either style, in lower case: `RecordId`, `record_id` and `RECORD_ID` are `record`, `id`.
fn words(name: &str) -> Vec<String> {
    let chars: Vec<char> = name.chars().collect();
    let mut words = vec![String::new()];
    for (index, &c) in chars.iter().enumerate() {
        let next_is_lower = chars.get(index + 1).is_some_and(|next| next.is_lowercase());
        let starts = c.is_uppercase() && index > 0 && (!chars[index - 1].is_uppercase() || next_is_lower);
        if starts || !c.is_alphanumeric() {
            words.push(String::new());
        }
        if let (true, Some(word)) = (c.is_alphanumeric(), words.last_mut()) {
            word.extend(c.to_lowercase());
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::assert_lines;

    #[test]
    fn names_are_split_into_words() {
        assert_eq!(words("RecordId"), ["record", "id"]);
        assert_eq!(words("_record_id"), ["record", "id"]);
        assert_eq!(words("HTTPCache2"), ["http", "cache2"]);
        assert_eq!(words("WAIT_MS"), ["wait", "ms"]);
    }

    #[test]
    fn a_banned_word_is_found_wherever_a_name_is_defined() {
        for bad in [
            "fn unlock_or_lock() {}",
            "struct KeyManager;",
            "enum E { TtlOver }",
            "mod utils {}",
            "struct S { ttl_ms: u64 }",
            "const LOCKS_MAX: u8 = 1;",
            "trait T { fn lock(&self); }",
            "impl S { fn helper() {} }",
            "fn f() { let cache = 1; }",
            "fn f(data: &[u8]) {}",
            "use a::b as lock;",
            "fn f(x: X) { match x { X { a: ttl } => {} } }",
            "macro_rules! helper { () => {} }",
        ] {
            assert_lines(check, &Tree::of([("a.rs", bad)]), &[1]);
        }
        assert_lines(check, &Tree::of([("src/utils/a.rs", "")]), &[1]);
        assert_lines(check, &Tree::of([("src/lock.rs", "")]), &[1]);
    }

    #[test]
    fn what_others_named_and_longer_words_are_accepted() {
        for good in [
            "fn f(clock: &Clock) { let guard = clock.mutex.lock(); }",
            "fn block() {}",
            "impl Foreign for S { fn lock(&self) {} }",
            "fn f(x: X) { let X { ttl } = x; }",
            "struct DataSize; fn metadata() {}",
            "fn f() { cache::get(); }",
        ] {
            assert_lines(check, &Tree::of([("a.rs", good)]), &[]);
        }
    }

    #[test]
    fn the_fast_tier_may_be_called_what_it_is() {
        let text = "struct S { cache: u8 }";
        assert_lines(check, &Tree::of([("crates/core/src/store/tiered.rs", text)]), &[]);
        assert_lines(check, &Tree::of([("crates/core/src/store/tiered.rs", "fn lock() {}")]), &[1]);
        assert_lines(check, &Tree::of([("crates/core/src/store/memory.rs", text)]), &[1]);
    }
}
