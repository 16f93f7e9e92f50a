//! HTTP/1 connections to the upstream, each driven by the request that has it.
//!
//! A connection has no task of its own: sending on it wakes nobody, and what arrives on it wakes the request's own
//! task. What waits in the pool is driven by nobody; whether the upstream has closed it meanwhile shows when it is next
//! used, before anything is written.

use std::fmt;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body::{Body as _, Frame, SizeHint};
use hyper::body::Incoming;
use hyper::client::conn::TrySendError;
use hyper::client::conn::http1::{self, SendRequest};
use onlyonce_http::Body;
use tokio::task::unconstrained;
use tokio::time::Instant;

use super::connect::{Connector, Stream};
use crate::clock;
use crate::timer::Timer;

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
    /// The request was handed back before its first byte was written.
    Unwritten(hyper::Error),
    /// It may have been sent.
    Broken(hyper::Error),
}

impl Failure {
    /// Whether it is certain that no byte of the request left.
    pub(crate) const fn sent_nothing(&self) -> bool {
        matches!(self, Self::Connect(_) | Self::Unwritten(_))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Connect(_) => "no connection",
            Self::TimedOut => "no answer began in time",
            Self::Unwritten(_) => "the connection ended before the request was written",
            Self::Broken(_) => "the connection failed",
        })
    }
}

impl std::error::Error for Failure {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Connect(error) => Some(error),
            Self::TimedOut => None,
            Self::Unwritten(error) | Self::Broken(error) => Some(error),
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
        mut request: Request<Body>,
        within: Duration,
    ) -> Result<Response<Answer>, Failure> {
        let until = clock::after(within);
        loop {
            let (mut line, has_waited) = match self.0.take() {
                Some(line) => (line, true),
                None => (self.connect(until).await?, false),
            };
            let Some(exchanged) = line.exchange(request, until).await else {
                return Err(Failure::TimedOut);
            };
            match exchanged {
                Ok(response) => {
                    let (parts, body) = response.into_parts();
                    let mut answer = Answer { body, line: Some(line), pool: self.clone() };
                    if answer.body.is_end_stream() {
                        poll_fn(|cx| {
                            answer.give_back(cx);
                            Poll::Ready(())
                        })
                        .await;
                    }
                    return Ok(Response::from_parts(parts, answer));
                }
                Err(mut failed) => match failed.take_message() {
                    Some(unwritten) if has_waited => request = unwritten,
                    Some(_) => return Err(Failure::Unwritten(failed.into_error())),
                    None => return Err(Failure::Broken(failed.into_error())),
                },
            }
        }
    }

    // Boxed: it is seldom needed, and every request would carry its room.
    fn connect(&self, until: Instant) -> Pin<Box<dyn Future<Output = Result<Box<Line>, Failure>> + Send>> {
        let connector = self.0.connector.clone();
        Box::pin(async move {
            let connecting = tokio::time::timeout_at(until, connector.connect()).await;
            let stream = connecting.map_err(|_| Failure::TimedOut)?.map_err(Failure::Connect)?;
            let (sender, connection) = http1::handshake(stream).await.map_err(Failure::Unwritten)?;
            Ok(Box::new(Line { sender, connection: Some(connection), patience: Timer::default() }))
        })
    }
}

impl Shared {
    fn take(&self) -> Option<Box<Line>> {
        let now = clock::after(Duration::ZERO);
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
        waiting.lines.retain_mut(|(line, until)| {
            line.drive(&mut cx);
            *until > now && line.is_open()
        });
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
    let sent = poll_fn(|cx| {
        line.drive(cx);
        if line.is_open() && !line.sender.is_ready() { Poll::Pending } else { Poll::Ready(()) }
    });
    if tokio::time::timeout(FINISH_WITHIN, sent).await.is_ok() && line.is_open() {
        pool.put(line);
    }
}

/// One connection.
struct Line {
    sender: SendRequest<Body>,
    /// `None` once it has ended.
    connection: Option<http1::Connection<Stream, Body>>,
    /// How long an answer is waited for. Here, so that one entry in the runtime's timer serves many requests.
    patience: Timer,
}

impl Line {
    /// Reads and writes what can be.
    fn drive(&mut self, cx: &mut Context<'_>) {
        if let Some(connection) = &mut self.connection
            && Pin::new(connection).poll(cx).is_ready()
        {
            // How it ended is told to whoever waits for an answer or a body.
            self.connection = None;
        }
    }

    const fn is_open(&self) -> bool {
        self.connection.is_some()
    }

    /// `None` when no answer has begun in time.
    async fn exchange(
        &mut self,
        request: Request<Body>,
        until: Instant,
    ) -> Option<Result<Response<Incoming>, TrySendError<Request<Body>>>> {
        self.patience.set_until(until);
        // Unconstrained: it would else be told to come again later, by a waker that is nobody's.
        let mut answer = pin!(unconstrained(self.sender.try_send_request(request)));
        poll_fn(|cx| {
            self.drive(cx);
            // The answer comes only out of the connection, which was just asked: nobody else needs to wake us.
            match answer.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                Poll::Ready(answer) => Poll::Ready(Some(answer)),
                Poll::Pending if self.patience.is_over(cx) => Poll::Ready(None),
                Poll::Pending => Poll::Pending,
            }
        })
        .await
    }
}

/// The body of an answer, which has the connection until it ends.
pub(crate) struct Answer {
    body: Incoming,
    line: Option<Box<Line>>,
    pool: Pool,
}

impl Answer {
    /// The body has ended: the next request may have the connection, if it is ready for one.
    fn give_back(&mut self, cx: &mut Context<'_>) {
        if let Some(mut line) = self.line.take() {
            line.drive(cx);
            match line.is_open() {
                true if line.sender.is_ready() => self.pool.0.put(line),
                // The answer came before the request had left: what is left of it is still sent.
                true => drop(tokio::spawn(finish(line, Arc::clone(&self.pool.0)))),
                false => {}
            }
        }
    }

    fn poll_body(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let polled = Pin::new(&mut self.body).poll_frame(cx);
        match &mut self.line {
            Some(line) if polled.is_pending() => {
                // It was asked for now, so it can be read now.
                line.drive(cx);
                Pin::new(&mut self.body).poll_frame(cx)
            }
            _ => polled,
        }
    }
}

impl fmt::Debug for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Answer")
    }
}

impl http_body::Body for Answer {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let polled = self.poll_body(cx);
        match &polled {
            Poll::Ready(None) => self.give_back(cx),
            Poll::Ready(Some(Ok(_))) if self.body.is_end_stream() => self.give_back(cx),
            Poll::Ready(Some(Err(_))) => self.line = None,
            _ => {}
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
#[path = "pool_tests.rs"]
mod tests;
