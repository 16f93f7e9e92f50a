//! Tells the server what became of deliveries, and waits until it has taken it in.

use std::sync::atomic::Ordering;

use async_nats::Request;
use async_nats::jetstream::context::{PublishError, PublishErrorKind};
use async_nats::jetstream::message::PublishMessage;
use async_nats::jetstream::{self, AckKind, ErrorCode};
use futures_util::future::join_all;
use onlyonce_core::Clock as _;
use onlyonce_inbox::{Extended, Settled, Settlement, SourceError, SourceErrorKind};
use tracing::warn;

use super::{Handle, JetStream, Settings, convert, failed};
use crate::each;

const DOING: &str = "settling deliveries";

impl JetStream {
    /// One result for each, in order.
    pub(super) async fn settle_all(
        &self,
        items: &[(Handle, Settlement)],
    ) -> Vec<Result<Settled, SourceError>> {
        let is_ack = |at: &usize| items[*at].1 == Settlement::Ack && self.is_ours(&items[*at].0);
        let (acks, rest): (Vec<_>, Vec<_>) = (0..items.len()).partition(is_ack);
        let acknowledging = self.acknowledge(acks.iter().map(|at| &items[*at].0).collect());
        let settling = join_all(rest.iter().map(|at| self.settle_one(&items[*at].0, &items[*at].1)));
        let (acknowledged, settled) = tokio::join!(acknowledging, settling);
        let mut results: Vec<_> =
            acks.into_iter().zip(acknowledged).chain(rest.into_iter().zip(settled)).collect();
        results.sort_unstable_by_key(|(at, _)| *at);
        results.into_iter().map(|(_, result)| result).collect()
    }

    /// Acknowledges many with one answer: the server takes in what a connection brings in the order in which it came, so
    /// that its word on the last is its word on all. It is asked for each when there was another connection meanwhile.
    async fn acknowledge(&self, handles: Vec<&Handle>) -> Vec<Result<Settled, SourceError>> {
        let Some((last, others)) = handles.split_last() else { return Vec::new() };
        let connects = || self.client.statistics().connects.load(Ordering::Relaxed);
        let before = connects();
        let told = async {
            for handle in others {
                let reply = reply(handle)?;
                let sent = self.client.publish(reply, AckKind::Ack.into()).await;
                sent.map_err(|error| failed(DOING, error))?;
            }
            self.tell(last, AckKind::Ack).await
        };
        match told.await {
            Ok(()) if connects() == before => {
                for handle in &handles {
                    self.forget(handle);
                }
                handles.iter().map(|_| Ok(Settled::Settled)).collect()
            }
            Ok(()) => join_all(handles.iter().map(|handle| self.settle_one(handle, &Settlement::Ack))).await,
            Err(error) => each(&error, handles.len()),
        }
    }

    /// Tells the server what became of a delivery and waits for its word.
    async fn tell(&self, handle: &Handle, kind: AckKind) -> Result<(), SourceError> {
        let request = Request::new().payload(kind.into()).timeout(Some(self.settings.timeout));
        let told = self.client.send_request(reply(handle)?, request).await;
        told.map(|_| ()).map_err(|error| failed(DOING, error))
    }

    async fn settle_one(&self, handle: &Handle, settlement: &Settlement) -> Result<Settled, SourceError> {
        if !self.is_ours(handle) {
            self.forget(handle);
            return Ok(Settled::Gone);
        }
        let kind = match settlement {
            Settlement::Ack => AckKind::Ack,
            Settlement::Retry { after } if after.is_zero() => AckKind::Nak(None),
            Settlement::Retry { after } => AckKind::Nak(Some(*after)),
            Settlement::DeadLetter { reason } => {
                self.keep_dead_letter(handle, reason).await?;
                AckKind::Term
            }
        };
        self.tell(handle, kind).await?;
        self.forget(handle);
        Ok(Settled::Settled)
    }

    pub(super) async fn extend_one(&self, handle: &Handle) -> Result<Extended, SourceError> {
        let now = self.clock.now();
        if !self.is_ours(handle) {
            self.forget(handle);
            return Ok(Extended::Gone);
        }
        self.tell(handle, AckKind::Progress).await?;
        // From before it was sent: the server counts from when it came.
        handle.since.store(now.as_millis(), Ordering::Relaxed);
        Ok(Extended::Extended)
    }

    async fn keep_dead_letter(&self, handle: &Handle, reason: &str) -> Result<(), SourceError> {
        const DOING: &str = "keeping a dead letter";
        let Settings { group, dead_letter, .. } = &self.settings;
        let payload = handle.message.payload.clone();
        let letter =
            convert::Letter { delivered: &handle.message, reason, group, deliveries: handle.deliveries };
        let largest = self.client.max_payload();
        let room = largest.checked_sub(payload.len());
        let Some((headers, is_whole)) = room.and_then(|room| convert::dead_letter_headers(&letter, room))
        else {
            let why =
                format!("the server takes no more than {largest} bytes, and the message alone has more");
            return Err(SourceError::new(SourceErrorKind::Refused, DOING).because(why));
        };
        if !is_whole {
            let (stream, sequence) = (&self.settings.stream, handle.sequence);
            warn!(%stream, sequence, reason, "a dead letter had no room for all that is known of it");
        }
        let mut sending = PublishMessage::build().payload(payload);
        if !headers.is_empty() {
            sending = sending.headers(headers);
        }
        let kept = self.context.send_publish(dead_letter.clone(), sending).await;
        let kept = kept.map_err(|error| not_kept(DOING, error))?;
        kept.await.map(|_| ()).map_err(|error| not_kept(DOING, error))
    }
}

/// Where the server listens for what became of a delivery.
fn reply(handle: &Handle) -> Result<async_nats::Subject, SourceError> {
    let reply = handle.message.reply.clone();
    reply
        .ok_or_else(|| SourceError::new(SourceErrorKind::Corrupt, DOING).because("a message without a reply"))
}

/// A message that could not be published. Refused: too large for the server or for the stream, or no stream takes it.
fn not_kept(doing: &'static str, error: PublishError) -> SourceError {
    let told = std::error::Error::source(&error).and_then(|told| told.downcast_ref::<jetstream::Error>());
    let is_too_large =
        told.is_some_and(|told| told.error_code() == ErrorCode::STREAM_MESSAGE_EXCEEDS_MAXIMUM);
    let is_refusal =
        matches!(error.kind(), PublishErrorKind::MaxPayloadExceeded | PublishErrorKind::StreamNotFound);
    if is_too_large || is_refusal {
        return SourceError::new(SourceErrorKind::Refused, doing).because(error);
    }
    failed(doing, error)
}
