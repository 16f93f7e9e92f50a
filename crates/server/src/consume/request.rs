//! The request that a message becomes.
//!
//! Headers of a message are its producer's words, and a producer is not trusted with those of a request: only what
//! describes the body, `CloudEvents` attributes and trace contexts keep their names. All others begin with `message-`.

use http::header::{CONTENT_ENCODING, CONTENT_TYPE, HOST, HeaderName};
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderValue, Method, Request, Uri};
use onlyonce_http::Body;
use onlyonce_http::header::{ONLYONCE_ATTEMPT, ONLYONCE_FENCE};
use onlyonce_inbox::{Message, Work};

use crate::config::UpstreamUrl;

const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
/// Where the message lies at its broker.
const POSITION: HeaderName = HeaderName::from_static("onlyonce-position");
/// What begins the name of every header that is not known here.
const FOREIGN: &str = "message-";
/// In which ways brokers spell the attributes of a cloud event (binary mode). The first is HTTP's.
const CLOUD_EVENT: [&str; 4] = ["ce-", "ce_", "cloudevents:", "cloudevents_"];
/// Names that are kept as they are.
const KEPT: [&str; 4] = ["content-type", "content-encoding", "traceparent", "tracestate"];

/// The most of a message's headers that go along, in bytes and number: most servers take 8 KiB or 100 fields in all.
const HEADERS_BYTES_MAX: usize = 6 * 1024;
const HEADERS_MAX: usize = 64;

/// Where messages are posted.
pub(super) struct Target {
    uri: Uri,
    host: HeaderValue,
}

impl Target {
    pub(super) fn new(url: &UpstreamUrl, path: &PathAndQuery) -> Result<Self, String> {
        let uri = Uri::builder().scheme(url.scheme.clone()).authority(url.authority.clone());
        let uri = uri.path_and_query(path.clone());
        Ok(Self {
            uri: uri.build().map_err(|error| error.to_string())?,
            host: HeaderValue::try_from(url.authority.as_str()).map_err(|error| error.to_string())?,
        })
    }

    pub(super) fn request(&self, work: &Work) -> Request<Body> {
        let mut request = Request::new(Body::from(work.message().body.clone()));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = self.uri.clone();
        let headers = request.headers_mut();
        add_headers(headers, work.message());
        headers.insert(HOST, self.host.clone());
        if let Some(key) = work.id().and_then(|id| HeaderValue::try_from(id.key().as_str()).ok()) {
            headers.insert(IDEMPOTENCY_KEY, key);
        }
        if let Some(execution) = work.execution() {
            headers.insert(ONLYONCE_FENCE, execution.fence().get().into());
        }
        headers.insert(ONLYONCE_ATTEMPT, work.attempt().into());
        if let Some(position) = &work.message().position
            && let Ok(position) = HeaderValue::try_from(position.as_str())
        {
            headers.insert(POSITION, position);
        }
        request
    }
}

fn add_headers(headers: &mut HeaderMap, message: &Message) {
    let mut left = HEADERS_BYTES_MAX;
    for (name, value) in message.headers.iter() {
        // What HTTP cannot carry, or what servers refuse, is left out: the body says what the message says.
        let bytes = FOREIGN.len() + name.len() + value.len();
        if bytes > left || headers.len() >= HEADERS_MAX {
            continue;
        }
        let (Some(name), Ok(value)) = (name_of(name), HeaderValue::from_bytes(value)) else { continue };
        left -= bytes;
        if name == CONTENT_TYPE || name == CONTENT_ENCODING {
            headers.insert(name, value);
        } else {
            headers.append(name, value);
        }
    }
}

/// The name that a header of a message has in a request.
fn name_of(name: &str) -> Option<HeaderName> {
    let name = name.to_ascii_lowercase();
    if KEPT.contains(&name.as_str()) {
        return name.parse().ok();
    }
    let event = CLOUD_EVENT.iter().find_map(|prefix| name.strip_prefix(prefix));
    match event {
        Some(attribute) => format!("ce-{attribute}").parse().ok(),
        None => format!("{FOREIGN}{name}").parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(message: &Message) -> Vec<(String, String)> {
        let mut headers = HeaderMap::new();
        add_headers(&mut headers, message);
        let text = |value: &HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
        headers.iter().map(|(name, value)| (name.to_string(), text(value))).collect()
    }

    #[test]
    fn a_producer_cannot_write_the_head_of_a_request() {
        let message = Message::new("x")
            .with_header("Authorization", "Bearer stolen")
            .with_header("Host", "elsewhere")
            .with_header("content-length", "9")
            .with_header("Transfer-Encoding", "chunked")
            .with_header("Onlyonce-Fence", "1")
            .with_header("Idempotency-Key", "mine")
            .with_header("two\r\nlines", "x")
            .with_header("value", "a\r\nb: c");
        for (name, _) in headers(&message) {
            assert!(name.starts_with(FOREIGN), "{name}");
        }
        assert_eq!(headers(&message).len(), 6, "what cannot be carried is left out");
    }

    #[test]
    fn what_no_server_takes_is_left_out() {
        let large = Message::new("x").with_header("payload", "x".repeat(20_000)).with_header("tenant", "a");
        assert_eq!(headers(&large), [("message-tenant".to_owned(), "a".to_owned())]);
        let many =
            (0..40_000).fold(Message::new("x"), |message, n| message.with_header(format!("h{n}"), "v"));
        assert_eq!(headers(&many).len(), HEADERS_MAX);
    }

    #[test]
    fn events_come_in_binary_mode_however_the_broker_spells_them() {
        for prefix in ["ce-", "ce_", "cloudEvents:", "cloudEvents_"] {
            let message = Message::new("x").with_header(format!("{prefix}Type"), "paid");
            assert_eq!(headers(&message), [("ce-type".to_owned(), "paid".to_owned())]);
        }
    }

    #[test]
    fn what_describes_the_body_and_traces_keep_their_names() {
        let message = Message::new("{}")
            .with_header("Content-Type", "application/json")
            .with_header("traceparent", "00-…")
            .with_header("tenant", "a")
            .with_header("tenant", "b");
        let names: Vec<_> = headers(&message).into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["content-type", "traceparent", "message-tenant", "message-tenant"]);
    }
}
