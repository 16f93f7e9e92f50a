//! HTTP/1 connections to the upstream, each driven by the request that has it.
//!
//! What waits in the pool is driven by nobody; whether the upstream has closed it meanwhile shows when it is next used,
//! before anything is written.

use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body::{Frame, SizeHint};
use onlyonce_http::Body;
use tokio::task::unconstrained;
use tokio::time::Instant;

use super::connect::Connector;
use super::line::{Broken, Line};
use crate::clock;
use crate::http1::Remaining;
use crate::turn;

/// How often connections that wait are looked at.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// How long the rest of a request may take when its answer has ended.
const FINISH_WITHIN: Duration = Duration::from_mins(1);

/// Connections that wait for their next request. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Pool(Arc<Shared>);

struct Shared {
    connector: Connector,
    idle_max: Duration,
    waiting: Mutex<Waiting>,
}

#[derive(Default)]
struct Waiting {
    /// The last one that came is the first that goes: the others may grow old.
    lines: Vec<(Box<Line>, Instant)>,
    is_looked_after: bool,
}

/// Why there is no answer.
#[derive(Debug)]
pub(crate) enum Failure {
    /// There is no connection.
    Connect(std::io::Error),
    /// No answer began in time. The request may have been sent.
    TimedOut,
    /// The connection was closed before the first byte of the request was written.
    Unwritten,
    /// It may have been sent.
    Broken(Broken),
}

impl Failure {
    /// Whether it is certain that no byte of the request left.
    pub(crate) const fn sent_nothing(&self) -> bool {
        matches!(self, Self::Connect(_) | Self::Unwritten)
    }

    /// Whether it was the request's own body that broke off: the client's doing, and nothing to blame the upstream for.
    pub(crate) const fn is_of_the_request(&self) -> bool {
        matches!(self, Self::Broken(Broken::Request(_)))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Connect(_) => "no connection",
            Self::TimedOut => "no answer began in time",
            Self::Unwritten => "the connection ended before the request was written",
            Self::Broken(_) => "the connection failed",
        })
    }
}

impl std::error::Error for Failure {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Connect(error) => Some(error),
            Self::TimedOut | Self::Unwritten => None,
            Self::Broken(error) => Some(error),
        }
    }
}

impl Pool {
    pub(crate) fn new(connector: Connector, idle_max: Duration) -> Self {
        Self(Arc::new(Shared { connector, idle_max, waiting: Mutex::default() }))
    }

    /// Sends the request, once. A connection that turns out to be closed before the first byte is replaced.
    pub(crate) async fn send(
        &self,
        request: Box<Request<Body>>,
        within: Duration,
    ) -> Result<Response<Answer>, Failure> {
        turn::others_first().await;
        let now = clock::after(Duration::ZERO);
        let until = clock::later(now, within);
        let mut line = self.line(now, until).await?;
        let Some(exchanged) = line.exchange(*request, until).await else {
            return Err(Failure::TimedOut);
        };
        let response = exchanged.map_err(Failure::Broken)?;
        Ok(response.map(|mut remaining| match line.whole(&mut remaining) {
            Some(bytes) => {
                self.give_back(line);
                Answer::Whole(bytes)
            }
            None => Answer::Coming(Coming { remaining, line: Some(line), pool: self.clone() }),
        }))
    }

    /// An answer has ended: the next request may have the connection, if it is ready for one.
    fn give_back(&self, line: Box<Line>) {
        if line.is_ready() {
            self.0.put(line);
        } else if line.is_ready_soon() {
            // The answer came before the request had left: what is left of it is still sent.
            tokio::spawn(finish(line, Arc::clone(&self.0)));
        }
    }

    /// A connection on which nothing has happened yet that speaks against using it.
    async fn line(&self, now: Instant, until: Instant) -> Result<Box<Line>, Failure> {
        loop {
            let (mut line, has_waited) = match self.0.take(now) {
                Some(line) => (line, true),
                None => (self.connect(until).await?, false),
            };
            // Unconstrained: a task that has done much in one go would else be told that nothing has come.
            let is_stale = unconstrained(poll_fn(|cx| Poll::Ready(line.is_stale(cx)))).await;
            match (is_stale, has_waited) {
                (false, _) => return Ok(line),
                (true, true) => {}
                (true, false) => return Err(Failure::Unwritten),
            }
        }
    }

    // Boxed: it is seldom needed, and every request would carry its room.
    fn connect(&self, until: Instant) -> Pin<Box<dyn Future<Output = Result<Box<Line>, Failure>> + Send>> {
        let connector = self.0.connector.clone();
        Box::pin(async move {
            let connecting = tokio::time::timeout_at(until, connector.connect()).await;
            let stream = connecting.map_err(|_| Failure::TimedOut)?.map_err(Failure::Connect)?;
            Ok(Box::new(Line::new(stream)))
        })
    }
}

impl Shared {
    fn take(&self, now: Instant) -> Option<Box<Line>> {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        // What has waited for too long is about to be closed by the other side, perhaps under our request.
        waiting.lines.pop_if(|(_, until)| *until > now).map(|(line, _)| line)
    }

    fn put(self: &Arc<Self>, line: Box<Line>) {
        let until = clock::after(self.idle_max);
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.lines.push((line, until));
        if !std::mem::replace(&mut waiting.is_looked_after, true) {
            tokio::spawn(look_after(Arc::downgrade(self)));
        }
    }

    /// Drops what has waited too long or was closed. `false` when nothing waits any more.
    fn look(&self) -> bool {
        let now = clock::after(Duration::ZERO);
        let mut cx = Context::from_waker(Waker::noop());
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.lines.retain_mut(|(line, until)| *until > now && !line.is_stale(&mut cx));
        waiting.is_looked_after = !waiting.lines.is_empty();
        waiting.is_looked_after
    }
}

async fn look_after(pool: Weak<Shared>) {
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        match pool.upgrade() {
            Some(pool) if pool.look() => {}
            _ => return,
        }
    }
}

/// Sends the rest of a request whose answer has ended. Its body has a pace of its own; this bounds the whole.
async fn finish(mut line: Box<Line>, pool: Arc<Shared>) {
    let sent = poll_fn(|cx| line.poll_rest(cx));
    if tokio::time::timeout(FINISH_WITHIN, sent).await.is_ok() && line.is_ready() {
        pool.put(line);
    }
}

/// The body of an answer.
pub(crate) enum Answer {
    /// It came with the head.
    Whole(Bytes),
    Coming(Coming),
}

/// The body of an answer that has the connection until it ends.
pub(crate) struct Coming {
    remaining: Remaining,
    /// `None` once the body has ended, or broken off.
    line: Option<Box<Line>>,
    pool: Pool,
}

impl http_body::Body for Coming {
    type Data = Bytes;
    type Error = Broken;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        let this = &mut *self;
        let Some(line) = &mut this.line else { return Poll::Ready(None) };
        let polled = line.poll_body(&mut this.remaining, cx);
        match &polled {
            Poll::Ready(Some(Err(_))) => this.line = None,
            Poll::Ready(_) if this.remaining.is_over() => {
                if let Some(line) = this.line.take() {
                    this.pool.give_back(line);
                }
            }
            _ => {}
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.line.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        match self.remaining {
            Remaining::Sized(left) => SizeHint::with_exact(left),
            Remaining::Chunked(_) | Remaining::UntilClose => SizeHint::default(),
        }
    }
}

#[cfg(test)]
#[path = "pool_tests.rs"]
mod tests;
