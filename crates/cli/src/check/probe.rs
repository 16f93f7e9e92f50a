//! Sends requests and keeps the books: how many were sent, how many were announced, and the bytes for `--verbose`.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use onlyonce::clock::{Clock as _, SystemClock};
use onlyonce::key::derive::random_v4;

use super::answer::Answer;
use super::wire::{Connection, Received, Reply, Silence, Wire};
use crate::failure::Failure;

/// How often a key that is in use is asked for again, and how long the pauses are at most.
pub(crate) const SETTLE_TRIES: u32 = 12;
const SETTLE_PAUSE_MAX: Duration = Duration::from_secs(1);

/// The most bytes of one message that are kept to be shown.
const SHOWN_BYTES_MAX: usize = 4096;

/// What every request of a run has in common.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) key_name: String,
    /// The value of each line of the key's field, as it is written. Usually one.
    pub(crate) keys: Vec<Vec<u8>>,
    pub(crate) content_type: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Request {
    /// The same with these lines of keys.
    pub(crate) fn keys<const N: usize>(&self, keys: [impl Into<Vec<u8>>; N]) -> Self {
        Self { keys: keys.into_iter().map(Into::into).collect(), ..self.clone() }
    }

    /// The same with another body.
    pub(crate) fn body(&self, body: impl Into<Vec<u8>>) -> Self {
        Self { body: body.into(), ..self.clone() }
    }

    /// The same with one more header, or with another value for it.
    pub(crate) fn header(&self, (name, value): &(String, String)) -> Self {
        let mut request = self.clone();
        request.headers.retain(|(known, _)| !known.eq_ignore_ascii_case(name));
        request.headers.push((name.clone(), value.clone()));
        request
    }

    /// The bytes of it, for a connection to `authority`.
    pub(crate) fn bytes(&self, authority: &str) -> Vec<u8> {
        let mut bytes = format!("{} {} HTTP/1.1\r\nHost: {authority}\r\n", self.method, self.path);
        bytes.push_str("User-Agent: onlyonce-check\r\nAccept: */*\r\nConnection: close\r\n");
        for (name, value) in &self.headers {
            bytes.extend([name, ": ", value, "\r\n"]);
        }
        if !self.content_type.is_empty() {
            bytes.extend(["Content-Type: ", &self.content_type, "\r\n"]);
        }
        bytes.extend(["Content-Length: ", &self.body.len().to_string(), "\r\n"]);
        let mut bytes = bytes.into_bytes();
        for key in &self.keys {
            bytes.extend_from_slice(self.key_name.as_bytes());
            bytes.extend_from_slice(b": ");
            bytes.extend_from_slice(key);
            bytes.extend_from_slice(b"\r\n");
        }
        bytes.extend_from_slice(b"\r\n");
        bytes.extend_from_slice(&self.body);
        bytes
    }
}

/// One request and what came back, for people.
#[derive(Debug, Clone, serde::Serialize)]
pub(crate) struct Exchange {
    /// The group of items it was sent for.
    pub(crate) group: &'static str,
    pub(crate) sent: String,
    pub(crate) received: String,
    pub(crate) note: String,
}

/// Sends requests to one endpoint.
#[derive(Debug)]
pub(crate) struct Probe {
    wire: Wire,
    effects: Option<Wire>,
    announced: u32,
    sent: AtomicU32,
    /// `None` when nobody wants to see the bytes.
    exchanges: Option<Mutex<Vec<Exchange>>>,
    group: Mutex<&'static str>,
    clock: SystemClock,
}

impl Probe {
    pub(crate) fn new(wire: Wire, effects: Option<Wire>, announced: u32, keep_bytes: bool) -> Self {
        Self {
            wire,
            effects,
            announced,
            sent: AtomicU32::new(0),
            exchanges: keep_bytes.then(Mutex::default),
            group: Mutex::new("first"),
            clock: SystemClock::new(),
        }
    }

    /// From here on exchanges are for this group.
    pub(crate) fn begin(&self, group: &'static str) {
        if let Ok(mut current) = self.group.lock() {
            *current = group;
        }
    }

    /// How many requests were sent.
    pub(crate) fn sent(&self) -> u32 {
        self.sent.load(Ordering::Relaxed).min(self.announced)
    }

    /// The exchanges kept so far.
    pub(crate) fn exchanges(&self) -> Vec<Exchange> {
        let kept = self.exchanges.as_ref().and_then(|kept| kept.lock().ok());
        kept.map(|kept| kept.clone()).unwrap_or_default()
    }

    /// The path and query of the endpoint.
    pub(crate) fn path(&self) -> String {
        self.wire.target.path.clone()
    }

    /// Another path of the same endpoint.
    pub(crate) fn other_path(&self) -> String {
        self.wire.target.other_path()
    }

    /// Sends one request and reads its answer.
    pub(crate) async fn send(&self, request: &Request) -> Reply {
        self.spend()?;
        let bytes = request.bytes(&self.wire.target.authority);
        let received = self.wire.exchange(&bytes).await;
        self.keep(&bytes, received, "")
    }

    /// Sends all but the last byte, and gives back what sends it and reads the answer.
    pub(crate) async fn hold(&self, request: &Request) -> Result<Held<'_>, Silence> {
        self.spend()?;
        let bytes = request.bytes(&self.wire.target.authority);
        let mut connection = self.wire.connect().await?;
        let (most, _) = bytes.split_at(bytes.len() - 1);
        connection.send(most).await;
        Ok(Held { probe: self, connection, bytes })
    }

    /// Sends the request, or its head and half of its body, and hangs up after a while without reading.
    pub(crate) async fn hang_up(
        &self,
        request: &Request,
        torn: bool,
        after: Duration,
    ) -> Result<(), Silence> {
        self.spend()?;
        let bytes = request.bytes(&self.wire.target.authority);
        let length = if torn { bytes.len() - request.body.len().div_ceil(2) } else { bytes.len() };
        let mut connection = self.wire.connect().await?;
        connection.send(&bytes[..length]).await;
        self.pause(after).await;
        drop(connection);
        let received = Received { bytes: Vec::new(), reply: Err(Silence::Closed) };
        let note = if torn { "hung up after half the body" } else { "hung up before the answer" };
        let _: Reply = self.keep(&bytes[..length], received, note);
        Ok(())
    }

    /// Sends the request until the key is no longer in use: at most [`SETTLE_TRIES`] times.
    pub(crate) async fn settle(&self, request: &Request) -> Reply {
        let mut pause = Duration::from_millis(50);
        let mut reply = self.send(request).await;
        for _ in 1..SETTLE_TRIES {
            match &reply {
                Ok(answer) if answer.status == 409 => {}
                _ => break,
            }
            self.pause(pause).await;
            pause = (pause * 2).min(SETTLE_PAUSE_MAX);
            reply = self.send(request).await;
        }
        reply
    }

    /// How many effects there were so far, if `--effects` tells.
    pub(crate) async fn effects(&self) -> Result<Option<u64>, Failure> {
        let Some(wire) = &self.effects else { return Ok(None) };
        let target = &wire.target;
        let head = format!(
            "GET {} HTTP/1.1\r\nHost: {}\r\nUser-Agent: onlyonce-check\r\nConnection: close\r\n\r\n",
            target.path, target.authority
        );
        let url = target.url();
        let answer = wire.exchange(head.as_bytes()).await.reply.map_err(|silence| {
            Failure::Unavailable(format!("{url} does not tell the effects: {silence}").into())
        })?;
        let count = std::str::from_utf8(&answer.body).ok().and_then(|text| text.trim().parse().ok());
        match count {
            Some(count) if answer.status == 200 => Ok(Some(count)),
            _ => Err(Failure::Refused(
                format!("{url} answered {} and not with a number of effects", answer.status).into(),
            )),
        }
    }

    pub(crate) async fn pause(&self, duration: Duration) {
        self.clock.sleep(duration).await;
    }

    /// Counts a request, unless all that were announced are sent.
    fn spend(&self) -> Result<(), Silence> {
        let before = self.sent.fetch_add(1, Ordering::Relaxed);
        if before < self.announced { Ok(()) } else { Err(Silence::Spent) }
    }

    fn keep(&self, sent: &[u8], received: Received, note: &str) -> Reply {
        if let Some(mut kept) = self.exchanges.as_ref().and_then(|kept| kept.lock().ok()) {
            let silence = received.reply.as_ref().err().map(ToString::to_string).unwrap_or_default();
            kept.push(Exchange {
                group: self.group.lock().map_or("", |group| *group),
                sent: shown(sent),
                received: shown(&received.bytes),
                note: if note.is_empty() { silence } else { note.to_owned() },
            });
        }
        received.reply
    }
}

/// A request of which only the last byte is missing.
pub(crate) struct Held<'a> {
    probe: &'a Probe,
    connection: Connection,
    bytes: Vec<u8>,
}

impl Held<'_> {
    /// Sends the last byte and reads the answer.
    pub(crate) async fn release(self) -> Reply {
        let received = self.connection.exchange(&self.bytes[self.bytes.len() - 1..]).await;
        self.probe.keep(&self.bytes, received, "")
    }
}

/// A new key, as bare text.
pub(crate) fn fresh_key() -> Result<String, Failure> {
    Ok(random_v4()?.as_str().to_owned())
}

/// The status, or the reason why there is none, for a sentence.
pub(crate) fn told(reply: &Reply) -> String {
    match reply {
        Ok(Answer { status, .. }) => status.to_string(),
        Err(silence) => silence.to_string(),
    }
}

/// Bytes for a terminal: everything that is not plain text is escaped.
fn shown(bytes: &[u8]) -> String {
    let cut = &bytes[..bytes.len().min(SHOWN_BYTES_MAX)];
    let mut text = String::new();
    for &byte in cut {
        match byte {
            b'\n' => text.push('\n'),
            b'\r' => {}
            b'\\' => text.push_str("\\\\"),
            0x20..=0x7e => text.push(byte.into()),
            _ => text.extend(["\\x", &format!("{byte:02x}")]),
        }
    }
    if cut.len() < bytes.len() {
        text.extend(["\n… and ", &(bytes.len() - cut.len()).to_string(), " bytes more"]);
    }
    text
}
