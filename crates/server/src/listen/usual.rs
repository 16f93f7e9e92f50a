//! Serves the usual requests of an HTTP/1.1 connection: with a short body that is there at once or soon, and nothing in the
//! head that asks for more than an answer. At the first that is not, hyper gets the connection, and keeps it.
//!
//! It is the same wire below and the same service above: what is refused, bounded and promised there holds on both ways.

mod answer;
mod request;

use std::convert::Infallible;
use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::Duration;

use http::{Method, Request, Response};
use hyper::service::Service;
use onlyonce_http::Body;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};
use tokio_util::sync::CancellationToken;

use super::aside::Aside;
use super::received::Received;
use super::wire::Wire;
use crate::body::OnItsWay;
use crate::http1::{Incoming, Sending};
use crate::timer::Timer;
use crate::turn;

/// How long the rest of a body that is not here with its head is waited for.
const REST_WITHIN: Duration = Duration::from_millis(250);

type Answer = OnItsWay<Body>;

/// Serves until the connection ends (`true`), or until a request comes that is hyper's to serve (`false`); all that was
/// read of that is back on the wire.
pub(super) async fn serve<IO, S>(wire: &mut Wire<IO>, service: &mut S, ending: &CancellationToken) -> bool
where
    IO: AsyncRead + AsyncWrite + Unpin,
    S: Service<Request<Received>, Response = Response<Answer>, Error = Infallible>,
{
    let (incoming, sending) = (Incoming::default(), Sending::default());
    let aside = Aside::default();
    let mut connection = Usual { wire, incoming, rest: Timer::default(), sending, aside };
    // One for all requests: to wait for it means to be entered in a list that all connections share.
    let mut ended = pin!(ending.cancelled());
    loop {
        let request = match connection.next(ended.as_mut()).await {
            Ok(request) => request,
            Err(Not::Usual | Not::Whole) => {
                connection.wire.put_back(connection.incoming.bytes());
                return false;
            }
            Err(Not::More) => break,
            Err(Not::Readable) => return true,
        };
        let is_head = *request.method() == Method::HEAD;
        let Some(answer) = connection.answer(service.call(request)).await else { return true };
        let is_last = answer::is_last(&answer) || ending.is_cancelled();
        if !connection.send(answer, is_head, is_last).await {
            return true;
        }
        if is_last {
            break;
        }
    }
    if let Err(error) = connection.wire.shutdown().await {
        tracing::debug!(%error, "a connection did not end well");
    }
    true
}

struct Usual<'a, IO> {
    wire: &'a mut Wire<IO>,
    incoming: Incoming,
    /// How long the rest of a body is waited for.
    rest: Timer,
    sending: Sending<Answer>,
    /// Where a client that goes away while it is answered is heard of.
    aside: Aside,
}

/// Why no request comes next.
enum Not {
    /// One comes that is hyper's.
    Usual,
    /// One comes whose body is not all here.
    Whole,
    /// The connection has ended, is to end, or was silent for too long.
    More,
    /// The connection failed.
    Readable,
}

impl<IO: AsyncRead + AsyncWrite + Unpin> Usual<'_, IO> {
    async fn next(
        &mut self,
        mut ended: Pin<&mut impl Future<Output = ()>>,
    ) -> Result<Request<Received>, Not> {
        if self.incoming.bytes().is_empty() {
            let filled = poll_fn(|cx| match self.incoming.poll_fill(self.wire, cx) {
                Poll::Pending => ended.as_mut().poll(cx).map(|()| Ok(0)),
                filled @ Poll::Ready(_) => filled,
            });
            match filled.await {
                Ok(0) => return Err(Not::More),
                Ok(_) => {}
                // It is told goodbye: a request may be on its way.
                Err(error) if error.kind() == io::ErrorKind::TimedOut => return Err(Not::More),
                Err(error) => {
                    tracing::debug!(%error, "connection ended");
                    return Err(Not::Readable);
                }
            }
        }
        match request::take(&mut self.incoming) {
            Err(Not::Whole) => self.whole().await,
            found => found,
        }
    }

    /// Waits for the rest of a body: many clients send it right after the head, but apart from it. Who takes longer is
    /// hyper's, where bodies have a pace.
    async fn whole(&mut self) -> Result<Request<Received>, Not> {
        self.rest.set(REST_WITHIN);
        loop {
            let has_more = poll_fn(|cx| match self.incoming.poll_fill(self.wire, cx) {
                Poll::Ready(filled) => Poll::Ready(matches!(filled, Ok(1..))),
                Poll::Pending if self.rest.is_over(cx) => Poll::Ready(false),
                Poll::Pending => Poll::Pending,
            });
            if !has_more.await {
                return Err(Not::Whole);
            }
            match request::take(&mut self.incoming) {
                Err(Not::Whole) => {}
                found => return found,
            }
        }
    }

    /// `None` when the client has gone before there was an answer.
    async fn answer<F>(&mut self, answering: F) -> Option<Response<Answer>>
    where
        F: Future<Output = Result<Response<Answer>, Infallible>>,
    {
        let mut answering = pin!(answering);
        self.aside.renew();
        poll_fn(|cx| {
            let begun = turn::begun();
            match answering.as_mut().poll(cx) {
                Poll::Ready(Ok(answer)) => Poll::Ready(Some(answer)),
                // It is about to be sent: a client that has said all it had to say is still heard.
                Poll::Pending if turn::begun() != begun => Poll::Pending,
                Poll::Pending if self.is_deserted(cx) => Poll::Ready(None),
                Poll::Pending => Poll::Pending,
            }
        })
        .await
    }

    /// Sends the answer. `false` when that did not succeed: the connection is of no more use then.
    async fn send(&mut self, answer: Response<Answer>, is_head: bool, is_last: bool) -> bool {
        turn::others_first().await;
        answer::start(&mut self.sending, answer, is_head, is_last);
        let sent = poll_fn(|cx| match self.sending.poll(self.wire, cx) {
            Poll::Ready(Ok(())) => Poll::Ready(true),
            Poll::Ready(Err(error)) => {
                tracing::debug!(%error, "an answer did not leave whole");
                Poll::Ready(false)
            }
            // A stream that has nothing to say for hours would not find out by itself.
            Poll::Pending if self.is_deserted(cx) => Poll::Ready(false),
            Poll::Pending => Poll::Pending,
        })
        .await;
        if !sent {
            // ORDER: what was not sent goes before the connection does; nobody may wait for it.
            self.sending.abandon();
        }
        sent
    }

    /// Whether the client has gone while it is answered. If it sends more instead, that is for later, and nothing is
    /// looked for behind it.
    fn is_deserted(&mut self, cx: &mut Context<'_>) -> bool {
        if !self.incoming.bytes().is_empty() {
            return false;
        }
        let Some(mut cx) = self.aside.called(cx) else { return false };
        matches!(self.incoming.poll_fill(self.wire, &mut cx), Poll::Ready(Ok(0) | Err(_)))
    }
}

#[cfg(test)]
#[path = "usual_tests.rs"]
mod tests;
