//! Where in the bytes of a JSON document the values lie that pointers lead to. Nothing is read that need not be, so that
//! nothing has to be written anew.

use std::collections::HashSet;
use std::ops::Range;

use serde::de::IgnoredAny;

use super::Place;

/// The values that `pointers` lead to, in the order of the document, none within another. `None` when that cannot be told:
/// the document is not JSON, or has two members of one name on the way.
pub(super) fn found(document: &[u8], pointers: &[Vec<Place>]) -> Option<Vec<Range<usize>>> {
    // Whatever is valid is scanned rightly by a reader that only looks for ends.
    serde_json::from_slice::<IgnoredAny>(document).ok()?;
    let mut scan = Scan { text: std::str::from_utf8(document).ok()?, at: 0, found: Vec::new() };
    let pointers: Vec<_> = pointers.iter().map(Vec::as_slice).collect();
    scan.value(&pointers)?;
    Some(scan.found)
}

struct Scan<'t> {
    text: &'t str,
    at: usize,
    found: Vec<Range<usize>>,
}

impl<'t> Scan<'t> {
    /// A value, with what is left of the pointers that lead into it.
    fn value(&mut self, pointers: &[&[Place]]) -> Option<()> {
        let first = self.peek()?;
        let start = self.at;
        if pointers.iter().any(|rest| rest.is_empty()) {
            self.skip()?;
            self.found.push(start..self.at);
            return Some(());
        }
        match first {
            b'{' if !pointers.is_empty() => self.members(pointers),
            b'[' if !pointers.is_empty() => self.elements(pointers),
            _ => self.skip(),
        }
    }

    fn members(&mut self, pointers: &[&[Place]]) -> Option<()> {
        let mut names = HashSet::new();
        self.at += 1;
        while self.peek()? != b'}' {
            let name = self.string()?;
            let name: String = serde_json::from_str(name).ok()?;
            self.expect(b':')?;
            self.value(&within(pointers, |place| *place == name))?;
            // Strict: where two parsers would find the member in two places, it may be left in one of them.
            if !names.insert(name) {
                return None;
            }
            if self.peek()? == b',' {
                self.at += 1;
            }
        }
        self.at += 1;
        Some(())
    }

    fn elements(&mut self, pointers: &[&[Place]]) -> Option<()> {
        let mut number = 0_usize;
        self.at += 1;
        while self.peek()? != b']' {
            self.value(&within(pointers, |place| place.parse() == Ok(number)))?;
            number += 1;
            if self.peek()? == b',' {
                self.at += 1;
            }
        }
        self.at += 1;
        Some(())
    }

    /// Goes past a value, however deep.
    fn skip(&mut self) -> Option<()> {
        let mut depth = 0_usize;
        loop {
            match self.peek()? {
                b'"' => {
                    self.string()?;
                }
                b'{' | b'[' => {
                    depth += 1;
                    self.at += 1;
                }
                b'}' | b']' => {
                    depth = depth.checked_sub(1)?;
                    self.at += 1;
                }
                b',' | b':' => self.at += 1,
                _ => {
                    let rest = &self.bytes()[self.at..];
                    let ends = |byte: &u8| matches!(byte, b',' | b'}' | b']' | b' ' | b'\t' | b'\n' | b'\r');
                    self.at += rest.iter().position(ends).unwrap_or(rest.len());
                }
            }
            if depth == 0 {
                return Some(());
            }
        }
    }

    /// A string with its quotes.
    fn string(&mut self) -> Option<&'t str> {
        let start = self.at;
        self.expect(b'"')?;
        loop {
            match self.bytes().get(self.at)? {
                b'\\' => self.at += 2,
                b'"' => break,
                _ => self.at += 1,
            }
        }
        self.at += 1;
        self.text.get(start..self.at)
    }

    /// The next byte that is not a blank.
    fn peek(&mut self) -> Option<u8> {
        let rest = self.bytes().get(self.at..)?;
        self.at += rest.iter().position(|byte| !matches!(byte, b' ' | b'\t' | b'\n' | b'\r'))?;
        self.bytes().get(self.at).copied()
    }

    fn expect(&mut self, byte: u8) -> Option<()> {
        (self.peek()? == byte).then(|| self.at += 1)
    }

    const fn bytes(&self) -> &'t [u8] {
        self.text.as_bytes()
    }
}

/// What is left of `pointers` within a member or element that `is_it` knows.
fn within<'p>(pointers: &[&'p [Place]], is_it: impl Fn(&str) -> bool) -> Vec<&'p [Place]> {
    let steps = pointers.iter().filter_map(|places| places.split_first());
    let inside = steps.filter(|(place, _)| match place {
        Place::At(name) => is_it(name),
        Place::All => true,
    });
    inside.map(|(_, rest)| rest).collect()
}
