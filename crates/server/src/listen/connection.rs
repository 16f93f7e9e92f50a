//! What is known of one client connection beyond its bytes: who is at the other end, and whether it waits for us.

use std::net::IpAddr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::HeaderValue;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;

use super::wire::Refusal;
use crate::clock;

/// One connection, shared by its bytes and its requests.
#[derive(Debug)]
pub(crate) struct Connection {
    /// The client's address; `None` on a unix socket.
    pub(crate) peer: Option<IpAddr>,
    /// The same as a header says it.
    pub(crate) peer_text: Option<HeaderValue>,
    /// Whether it is encrypted.
    pub(crate) is_tls: bool,
    /// The client's certificate, in DER, once it was verified.
    certificate: OnceLock<Vec<u8>>,
    requests: AtomicUsize,
    upgraded: AtomicBool,
    refused: AtomicBool,
    quiet_since: Mutex<Instant>,
    /// One of the places under the cap, until it is left.
    place: Mutex<Option<OwnedSemaphorePermit>>,
}

impl Connection {
    pub(crate) fn new(peer: Option<IpAddr>, is_tls: bool) -> Self {
        Self {
            peer,
            peer_text: peer.and_then(|peer| HeaderValue::try_from(peer.to_string()).ok()),
            is_tls,
            certificate: OnceLock::new(),
            requests: AtomicUsize::new(0),
            upgraded: AtomicBool::new(false),
            refused: AtomicBool::new(false),
            quiet_since: Mutex::new(clock::after(Duration::ZERO)),
            place: Mutex::default(),
        }
    }

    /// The same connection, with a place under the cap.
    pub(super) fn with_place(self, place: OwnedSemaphorePermit) -> Self {
        Self { place: Mutex::new(Some(place)), ..self }
    }

    /// It has ended: the next one may come.
    pub(crate) fn leave(&self) {
        drop(self.place.lock().unwrap_or_else(PoisonError::into_inner).take());
    }

    /// The same connection, of a client that showed `certificate`.
    pub(crate) fn with_certificate(self, certificate: Option<Vec<u8>>) -> Self {
        Self { certificate: certificate.map_or_else(OnceLock::new, OnceLock::from), ..self }
    }

    pub(crate) fn certificate(&self) -> Option<&[u8]> {
        self.certificate.get().map(Vec::as_slice)
    }

    /// Counts a request until the answer has left, or nobody waits for it any more.
    pub(crate) fn request(self: &Arc<Self>) -> InHand {
        self.requests.fetch_add(1, Ordering::Relaxed);
        InHand(Arc::clone(self))
    }

    /// How much of `patience` is left before the connection has been quiet for too long.
    pub(crate) fn idle_left(&self, patience: Duration) -> Duration {
        if self.requests.load(Ordering::Relaxed) > 0 {
            return patience;
        }
        let quiet_since = *self.quiet_since.lock().unwrap_or_else(PoisonError::into_inner);
        patience.saturating_sub(quiet_since.elapsed())
    }

    /// Everything that follows is another protocol's.
    pub(crate) fn upgrade(&self) {
        self.upgraded.store(true, Ordering::Release);
    }

    pub(crate) fn is_upgraded(&self) -> bool {
        self.upgraded.load(Ordering::Acquire)
    }

    /// Whether something that the client sent was refused.
    pub(crate) fn has_refused(&self) -> bool {
        self.refused.load(Ordering::Acquire)
    }

    /// What the client sent was refused: nothing more is taken from it.
    pub(crate) fn refused(&self, refusal: Refusal) {
        self.refused.store(true, Ordering::Release);
        // For whoever looks: a flood of nonsense must not become a flood of log lines.
        tracing::debug!(peer = ?self.peer, reason = %refusal, "request refused: framing");
    }
}

/// A request that is being answered.
#[derive(Debug)]
pub(crate) struct InHand(Arc<Connection>);

impl Drop for InHand {
    fn drop(&mut self) {
        *self.0.quiet_since.lock().unwrap_or_else(PoisonError::into_inner) = clock::after(Duration::ZERO);
        self.0.requests.fetch_sub(1, Ordering::Relaxed);
    }
}
