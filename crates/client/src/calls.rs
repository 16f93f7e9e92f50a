//! A middleware for `reqwest`: one key for each operation, on record before the first send, and sent again with it
//! until there is an answer that will not change.

mod error;

use std::sync::Arc;

use async_trait::async_trait;
use http::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use http::{Extensions, Method};
use onlyonce_core::key::derive::random_v7;
use onlyonce_core::{Clock, Key, KeyForm, SystemClock, Timestamp};
use reqwest::{Request, Response};
use reqwest_middleware::{Middleware, Next};

use crate::journal::Journal;
use crate::operation::{Operation, Source};
use crate::retries::{Retries, Verdict, judge, passes, retry_after};

pub use error::CallError;

/// The longest body of a conflict that is read to learn what kind it is.
const PROBLEM_BYTES_MAX: u64 = 64 * 1024;

/// Gives requests their keys, and sends them again with the same.
///
/// Which requests: those that carry an [`Operation`], and every POST and PATCH. One without an operation gets a key of
/// its own, which lives as long as the call does; one that brings the header keeps its key. All others pass.
///
/// When it stops: at an answer that will not change (2xx, 3xx, most 4xx, 422 among them, and whatever comes from the
/// record, errors too), at a conflict that only somebody can end (`outcome-unknown`), and when attempts or time are
/// used up: then the caller gets the last answer, or the last error. The operation is not over then; the same name
/// sends the same key again, whenever that is.
#[derive(Debug, Clone)]
pub struct Idempotent {
    journal: Arc<dyn Journal>,
    retries: Retries,
    clock: Arc<dyn Clock>,
    header: HeaderName,
    form: KeyForm,
}

impl Idempotent {
    /// Keys are kept in `journal`.
    pub fn new(journal: Arc<dyn Journal>) -> Self {
        Self {
            journal,
            retries: Retries::default(),
            clock: Arc::new(SystemClock::new()),
            header: HeaderName::from_static("idempotency-key"),
            form: KeyForm::QuotedOrBare,
        }
    }

    /// Other retries.
    #[must_use]
    pub const fn with_retries(mut self, retries: Retries) -> Self {
        self.retries = retries;
        self
    }

    /// Another clock.
    #[must_use]
    pub fn with_clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// Another header than `Idempotency-Key`.
    #[must_use]
    pub fn with_header(mut self, header: HeaderName) -> Self {
        self.header = header;
        self
    }

    /// How keys are written: bare where they can be (the default), always quoted, or always bare.
    #[must_use]
    pub const fn with_form(mut self, form: KeyForm) -> Self {
        self.form = form;
        self
    }

    /// The key that the request goes with; `None` when it needs none.
    async fn key(&self, request: &Request, operation: Option<&Operation>) -> Result<Option<Key>, CallError> {
        match operation.map(|operation| &operation.0) {
            Some(_) if request.headers().contains_key(&self.header) => Err(CallError::TwoKeys),
            Some(Source::Key(key)) => Ok(Some(key.clone())),
            Some(Source::Journal(name)) => {
                let offered = random_v7(self.clock.now()).map_err(CallError::Key)?;
                Ok(Some(self.journal.key(name, offered).await.map_err(CallError::Journal)?))
            }
            None if matches!(*request.method(), Method::POST | Method::PATCH) => {
                Ok(Some(random_v7(self.clock.now()).map_err(CallError::Key)?))
            }
            None => Ok(None),
        }
    }

    /// Sends `request` until there is something to tell the caller.
    async fn send(
        &self,
        request: Request,
        extensions: &mut Extensions,
        next: Next<'_>,
    ) -> Result<Response, reqwest_middleware::Error> {
        let deadline = self.clock.now() + self.retries.within;
        let mut number = 1;
        loop {
            let again = request.try_clone().ok_or_else(|| CallError::BodyNotRepeatable.of_middleware())?;
            let sent = self.attempt(again, extensions, next.clone(), deadline).await;
            let now = self.clock.now();
            let (told, after) = match sent {
                Ok((response, false)) => return Ok(response),
                Ok((response, true)) => {
                    let after = retry_after(response.headers(), now);
                    (Ok(response), after)
                }
                Err(error) if is_worth_another_try(&error) => (Err(error), None),
                Err(error) => return Err(error),
            };
            let wait = after.unwrap_or_default() + self.retries.backoff(number, chance()?);
            if number >= self.retries.attempts_max || now + wait >= deadline {
                return told;
            }
            // Read to its end or not, the connection of a refused answer is not waited for.
            drop(told);
            tracing::debug!(number, wait_ms = wait.as_millis(), "a call is made again with the same key");
            self.clock.sleep_until(now + wait).await;
            number += 1;
        }
    }

    /// The answer, and whether to ask again.
    async fn attempt(
        &self,
        request: Request,
        extensions: &mut Extensions,
        next: Next<'_>,
        deadline: Timestamp,
    ) -> Result<(Response, bool), reqwest_middleware::Error> {
        let until = deadline.min(self.clock.now() + self.retries.attempt_within);
        tokio::select! {
            biased;
            judged = async { judged(next.run(request, extensions).await?).await } => judged,
            () = self.clock.sleep_until(until) => Err(CallError::TimedOut.of_middleware()),
        }
    }
}

#[async_trait]
impl Middleware for Idempotent {
    async fn handle(
        &self,
        mut request: Request,
        extensions: &mut Extensions,
        next: Next<'_>,
    ) -> Result<Response, reqwest_middleware::Error> {
        let brings_its_own = request.headers().contains_key(&self.header);
        let operation = extensions.get::<Operation>().cloned();
        if operation.is_none() && brings_its_own {
            return self.send(request, extensions, next).await;
        }
        // ORDER: what cannot be sent again is refused before its key is on record.
        let keyed = operation.is_some() || matches!(*request.method(), Method::POST | Method::PATCH);
        if keyed && request.try_clone().is_none() {
            return Err(CallError::BodyNotRepeatable.of_middleware());
        }
        match self.key(&request, operation.as_ref()).await.map_err(CallError::of_middleware)? {
            Some(key) => {
                let written = written(&key, self.form).map_err(CallError::of_middleware)?;
                request.headers_mut().insert(self.header.clone(), written);
                self.send(request, extensions, next).await
            }
            None => next.run(request, extensions).await,
        }
    }
}

/// Whether to ask again, and the answer. That of a conflict may have to be read first.
async fn judged(response: Response) -> Result<(Response, bool), reqwest_middleware::Error> {
    match judge(response.status(), response.headers()) {
        Verdict::Final => Ok((response, false)),
        Verdict::Again => Ok((response, true)),
        Verdict::Conflict if is_short_problem(&response) => {
            let (head, body) = read(response).await?;
            let again = passes(Some(&body));
            Ok((Response::from(http::Response::from_parts(head, body)), again))
        }
        Verdict::Conflict => Ok((response, passes(None))),
    }
}

/// Whether an attempt without an answer may get one the next time. What was never a request does not become one.
fn is_worth_another_try(error: &reqwest_middleware::Error) -> bool {
    match error {
        reqwest_middleware::Error::Reqwest(error) => !(error.is_builder() || error.is_redirect()),
        reqwest_middleware::Error::Middleware(error) => {
            matches!(error.downcast_ref::<CallError>(), Some(CallError::TimedOut))
        }
    }
}

fn is_short_problem(response: &Response) -> bool {
    let kind = response.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim();
    (kind.ends_with("/json") || kind.ends_with("+json"))
        && response.content_length().is_some_and(|length| length <= PROBLEM_BYTES_MAX)
}

async fn read(
    response: Response,
) -> Result<(http::response::Parts, bytes::Bytes), reqwest_middleware::Error> {
    let (mut head, ()) = http::Response::new(()).into_parts();
    head.status = response.status();
    head.version = response.version();
    head.headers = response.headers().clone();
    head.extensions = response.extensions().clone();
    Ok((head, response.bytes().await?))
}

/// The key as the header carries it.
fn written(key: &Key, form: KeyForm) -> Result<HeaderValue, CallError> {
    let text = key.as_str();
    let can_be_bare = Key::parse_as(text, KeyForm::Bare).is_ok_and(|read| read == *key);
    let text = match form {
        KeyForm::Bare if !can_be_bare => return Err(CallError::NotBare),
        KeyForm::QuotedOrBare if can_be_bare => text.to_owned(),
        KeyForm::Bare => text.to_owned(),
        KeyForm::Quoted | KeyForm::QuotedOrBare => {
            format!("\"{}\"", text.replace('\\', r"\\").replace('"', "\\\""))
        }
    };
    let mut value = HeaderValue::from_str(&text).map_err(|_| CallError::NotBare)?;
    // Kept out of logs, and of the compression that a guess could measure.
    value.set_sensitive(true);
    Ok(value)
}

fn chance() -> Result<u64, reqwest_middleware::Error> {
    getrandom::u64().map_err(|source| CallError::Chance(source).of_middleware())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_written_so_that_servers_read_the_same_key() {
        for text in ["order-7", "a b", "a,b", "\"", r"\", r#"a\"b"#, "a;b=c"] {
            let key = Key::new(text).unwrap();
            for form in [KeyForm::Quoted, KeyForm::QuotedOrBare] {
                let value = written(&key, form).unwrap();
                assert_eq!(Key::parse_as(value.to_str().unwrap(), form).unwrap(), key, "{text}");
                assert!(value.is_sensitive());
            }
        }
        assert_eq!(written(&Key::new("order-7").unwrap(), KeyForm::QuotedOrBare).unwrap(), "order-7");
        assert!(matches!(written(&Key::new("a b").unwrap(), KeyForm::Bare), Err(CallError::NotBare)));
    }
}
