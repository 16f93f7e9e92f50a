//! Secrets that are planted, and the search for them: as they are, and in every form that programs write bytes in.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

const BASE64: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// A secret. It has characters that some forms escape.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Needle(pub(crate) &'static str);

impl Needle {
    /// The forms it may be found in.
    fn forms(self) -> Vec<(&'static str, Vec<u8>)> {
        let bytes = self.0.as_bytes();
        let hex = bytes.iter().fold(String::new(), |mut text, byte| {
            let _ = write!(text, "{byte:02x}");
            text
        });
        let mut forms = vec![
            ("as it is", bytes.to_vec()),
            ("in URL form", self.0.replace('+', "%2B").replace('/', "%2F").into_bytes()),
            ("in JSON form", self.0.replace('/', "\\/").into_bytes()),
            ("in hexadecimal digits", hex.to_uppercase().into_bytes()),
            ("in hexadecimal digits", hex.into_bytes()),
        ];
        for text in (0..3).map(|at| base64_from(bytes, at)) {
            let for_urls = text.replace('+', "-").replace('/', "_");
            forms.extend([("in base64", text.into_bytes()), ("in base64 for URLs", for_urls.into_bytes())]);
        }
        forms
    }

    /// In which form it is in `hay`, if it is.
    pub(crate) fn found_in(self, hay: &[u8]) -> Option<&'static str> {
        let is_in = |form: &Vec<u8>| memchr::memmem::find(hay, form).is_some();
        self.forms().into_iter().find(|(_, form)| is_in(form)).map(|(name, _)| name)
    }
}

/// What base64 makes of the bytes from `at` on, without what depends on its neighbours.
fn base64_from(bytes: &[u8], at: usize) -> String {
    let mut text = String::new();
    for group in bytes[at..].chunks_exact(3) {
        let bits = group.iter().fold(0_usize, |bits, byte| bits << 8 | usize::from(*byte));
        text.extend([18, 12, 6, 0].map(|shift| char::from(BASE64[bits >> shift & 63])));
    }
    text
}

/// Every file below `folder`, with its name.
pub(crate) fn files(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap().flatten() {
        let path = entry.path();
        if path.is_dir() {
            found.extend(files(&path));
        } else if path.is_file() {
            // A server that still runs removes files meanwhile; one that is gone holds nothing.
            found.extend(fs::read(&path).ok().map(|bytes| (path.display().to_string(), bytes)));
        }
    }
    found
}

#[test]
fn every_form_is_found() {
    let needle = Needle("a+b/secret");
    for hay in [
        "x a+b/secret y",
        "?q=a%2Bb%2Fsecret&",
        "{\"a\":\"a+b\\/secret\"}",
        "00612b622f73656372657400",
        "00612B622F73656372657400",
        // `printf 'a+b/secret' | base64`, and the same after one and two other bytes.
        "YStiL3NlY3JldA==",
        "eGErYi9zZWNyZXQ=",
        "eHhhK2Ivc2VjcmV0",
    ] {
        assert!(needle.found_in(hay.as_bytes()).is_some(), "{hay}");
    }
    assert_eq!(needle.found_in(b"a+b/other secret"), None);
}
