//! What a request looks like: the parts that tell it from another one, as a keyed digest.
//!
//! Method, authority, path, query, content type, content encoding, chosen headers and the body, each with its length. A
//! record keeps the rules it was looked at by, so that a change of configuration does not turn retries into mismatches.

mod json;
mod rules;

use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE, HOST, HeaderMap, HeaderValue};
use http::request::Parts;
use onlyonce_core::{Fingerprint, FingerprintBuilder, Fingerprinted, Rules, Secret};

use crate::limits::Held;
use crate::multipart;
use crate::route::Route;
use crate::rules::BodyMode;

pub use rules::FingerprintRules;

/// A keyed request with its body, until it is run or answered.
///
/// The engine looks at it to compare it; the work takes the head out to run it; if the work never began, the layer takes
/// it back.
pub(crate) struct Asked {
    route: Arc<Route>,
    fingerprint: Fingerprint,
    head: Mutex<Option<Box<Parts>>>,
    pub(crate) body: Bytes,
    pub(crate) trailers: Option<HeaderMap>,
    /// The body takes up room for as long as this lives.
    _held: Held,
}

impl Asked {
    pub(crate) fn new(
        route: &Arc<Route>,
        head: Box<Parts>,
        body: Bytes,
        trailers: Option<HeaderMap>,
        held: Held,
    ) -> Arc<Self> {
        let fingerprint = look(route.engine.secret(), &route.fingerprint, &head, &body);
        let (route, head) = (Arc::clone(route), Mutex::new(Some(head)));
        Arc::new(Self { route, fingerprint, head, body, trailers, _held: held })
    }

    /// The head, once: whoever gets it may run the request.
    pub(crate) fn take(&self) -> Option<Box<Parts>> {
        self.head.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// A copy of the head, for a question about the request; `None` once it runs.
    pub(crate) fn head(&self) -> Option<Parts> {
        self.head.lock().unwrap_or_else(PoisonError::into_inner).as_deref().cloned()
    }
}

impl Fingerprinted for Asked {
    fn fingerprint(&self) -> Fingerprint {
        self.fingerprint.clone()
    }

    fn fingerprint_by(&self, rules: &Rules) -> Option<Fingerprint> {
        let rules = FingerprintRules::read(rules)?;
        let head = self.head.lock().unwrap_or_else(PoisonError::into_inner);
        Some(look(self.route.engine.secret(), &rules, head.as_ref()?, &self.body))
    }
}

/// The fingerprint of a request by `rules`.
pub fn look(secret: &Secret, rules: &FingerprintRules, head: &Parts, body: &Bytes) -> Fingerprint {
    let mut seen = Fingerprint::builder(secret, rules.described().clone());
    seen.add("method", head.method.as_str().as_bytes());
    seen.add("authority", &authority(head));
    seen.add("path", head.uri.path().as_bytes());
    if let Some(query) = head.uri.query() {
        seen.add("query", query.as_bytes());
    }
    let content_type = head.headers.get(CONTENT_TYPE);
    let encoding = head.headers.get(CONTENT_ENCODING);
    if let Some(encoding) = encoding {
        seen.add("content-encoding", encoding.as_bytes());
    }
    for name in rules.headers() {
        for value in head.headers.get_all(name) {
            seen.add("header", name.as_str().as_bytes());
            seen.add("value", value.as_bytes());
        }
    }
    // A body in an encoding is compared as it was sent: decoding it is nothing to do for a stranger.
    let mode = if encoding.is_some() { BodyMode::Raw } else { rules.mode() };
    match mode {
        BodyMode::Raw => raw(&mut seen, content_type, body),
        BodyMode::Json => json::look(&mut seen, rules, content_type, body),
        BodyMode::Multipart => multipart::look(&mut seen, content_type, body),
    }
    seen.finish()
}

/// The body as it is. Also what every other way of looking falls back to: it never makes two requests one.
pub(crate) fn raw(seen: &mut FingerprintBuilder, content_type: Option<&HeaderValue>, body: &Bytes) {
    add_content_type(seen, content_type);
    seen.add("body", body);
}

fn add_content_type(seen: &mut FingerprintBuilder, content_type: Option<&HeaderValue>) {
    if let Some(content_type) = content_type {
        seen.add("content-type", content_type.as_bytes());
    }
}

/// The host the request is for: hosts behind one layer are told apart, in either version of HTTP.
fn authority(head: &Parts) -> std::borrow::Cow<'_, [u8]> {
    let authority = match head.uri.authority() {
        Some(authority) => authority.as_str().as_bytes(),
        None => head.headers.get(HOST).map(HeaderValue::as_bytes).unwrap_or_default(),
    };
    if authority.iter().any(u8::is_ascii_uppercase) {
        authority.to_ascii_lowercase().into()
    } else {
        authority.into()
    }
}
