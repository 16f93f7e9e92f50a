//! Live events, as server-sent events: from the ring of the process, each reader at its own pace.

use std::fmt::Write as _;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Request, Response};
use http_body::Frame;
use onlyonce_core::BoxError;
use onlyonce_http::{Body, ProblemKind};
use tokio::sync::{OwnedSemaphorePermit, mpsc};

use super::Admin;
use crate::events::{Ring, Seen, Since};
use crate::operator::time;
use crate::refusal::Refusal;

/// How many events go out together.
const TOGETHER_MAX: usize = 100;
/// How many such groups wait for a slow reader; what comes beyond them stays in the ring, or is lost from it.
const GROUPS_MAX: usize = 2;
/// How often a quiet stream says that it is there: also how soon it is known that the reader is not.
const SIGN_OF_LIFE_EVERY: Duration = Duration::from_secs(10);

/// Streams events to one reader. `Last-Event-ID` goes on where it was; `?from=now` leaves out what was before.
pub(super) fn stream<B>(admin: &Arc<Admin>, request: &Request<B>) -> Result<Response<Body>, Refusal> {
    let full = |_| Refusal::for_now(ProblemKind::Overloaded, "too many look on already");
    let place = Arc::clone(&admin.looking_on).try_acquire_owned().map_err(full)?;
    let from_now = match request.uri().query() {
        None | Some("") => false,
        Some("from=now") => true,
        Some(_) => return Err(Refusal::invalid("only `from=now` can be asked of the events")),
    };
    let ring = admin.census.metrics().events();
    let epoch = admin.started_at.as_millis();
    let last = request.headers().get("last-event-id").and_then(|last| last.to_str().ok());
    let after = match last.and_then(|last| last.split_once('-')) {
        Some((of, number)) if of.parse() == Ok(epoch) => number.parse().unwrap_or(0).min(ring.last()),
        None if from_now => ring.last(),
        // A number of an earlier life of the process says nothing now: everything that is there is new.
        _ => 0,
    };
    let (sender, receiver) = mpsc::channel(GROUPS_MAX);
    tokio::spawn(feed(Feed { ring, epoch, after, sender, _place: place }, admin.closing.clone()));
    let mut response = Response::new(Body::new(Frames(receiver)));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    Ok(response)
}

struct Feed {
    ring: Arc<Ring>,
    epoch: u64,
    after: u64,
    sender: mpsc::Sender<Bytes>,
    _place: OwnedSemaphorePermit,
}

/// Sends until the reader is gone or the process closes.
async fn feed(mut feed: Feed, closing: tokio_util::sync::CancellationToken) {
    let mut text = "retry: 1000\n\n".to_owned();
    loop {
        let sent = tokio::select! {
            sent = feed.sender.send(Bytes::from(std::mem::take(&mut text))) => sent,
            () = closing.cancelled() => return,
        };
        if sent.is_err() {
            return;
        }
        tokio::select! {
            () = feed.ring.changed(feed.after) => {}
            () = tokio::time::sleep(SIGN_OF_LIFE_EVERY) => {}
            () = feed.sender.closed() => return,
            () = closing.cancelled() => return,
        }
        text = feed.next();
    }
}

impl Feed {
    /// What there is to say now, if only that we are here.
    fn next(&mut self) -> String {
        let Since { lost, first, events } = self.ring.since(self.after, TOGETHER_MAX);
        let mut text = String::new();
        if lost > 0 {
            let _ = write!(text, "event: lost\ndata: {{\"lost\":{lost}}}\n\n");
        }
        for (number, seen) in (first..).zip(&events) {
            text.push_str(&line(self.epoch, number, *seen));
            self.after = number;
        }
        if text.is_empty() {
            text.push_str(": here\n\n");
        }
        text
    }
}

fn line(epoch: u64, number: u64, seen: Seen) -> String {
    let mut shown = seen.to_json();
    shown["at"] = time(seen.at).into();
    shown["id"] = seen.id.to_string().into();
    format!("id: {epoch}-{number}\nevent: {}\ndata: {shown}\n\n", seen.name)
}

/// A body whose parts come from a channel; it ends with it.
struct Frames(mpsc::Receiver<Bytes>);

impl http_body::Body for Frames {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        self.0.poll_recv(cx).map(|part| part.map(|part| Ok(Frame::data(part))))
    }
}
