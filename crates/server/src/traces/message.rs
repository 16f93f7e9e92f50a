//! The span of a message: from the moment it is handed to its handler to what became of it.

use http::{HeaderMap, StatusCode};
use onlyonce_inbox::{Handled, Work};
use opentelemetry::KeyValue;
use opentelemetry::trace::{Span as _, SpanKind, Status, Tracer as _};
use opentelemetry_sdk::trace::Span;

use super::Traces;
use super::span::{follows, status, tell};

/// A message that is being handled.
pub(crate) struct Delivered(Span);

impl Traces {
    /// Begins the span of `work` for the consumer `name`, and tells the handler in `headers`, which hold the context that
    /// the message came with.
    pub(crate) fn delivered(&self, name: &str, work: &Work, headers: &mut HeaderMap) -> Delivered {
        let mut attributes = vec![
            KeyValue::new("messaging.operation.type", "process"),
            KeyValue::new("messaging.consumer.group.name", name.to_owned()),
            KeyValue::new("onlyonce.attempt", i64::from(work.attempt())),
        ];
        attributes.extend(
            work.execution().map(|execution| KeyValue::new("onlyonce.record", execution.id().short())),
        );
        let builder = self
            .tracer
            .span_builder(format!("process {name}"))
            .with_kind(SpanKind::Consumer)
            .with_attributes(attributes);
        let span = builder.start_with_context(&self.tracer, &follows(headers));
        tell(&span, headers);
        Delivered(span)
    }
}

impl Delivered {
    /// What the handler answered.
    pub(crate) fn answered(&mut self, answer: StatusCode) {
        let is_error = |answer: &StatusCode| answer.is_client_error() || answer.is_server_error();
        status(&mut self.0, answer, is_error);
    }

    /// Ends the span.
    pub(crate) fn handled(mut self, handled: &Handled) {
        let fate = match handled {
            Handled::Done(_) => "done",
            Handled::Retry { .. } => "retried",
            Handled::Unknown { .. } => "unknown",
            Handled::Refused { .. } => "refused",
        };
        if !matches!(handled, Handled::Done(_)) {
            self.0.set_status(Status::error(""));
        }
        self.0.set_attribute(KeyValue::new("onlyonce.handled", fate));
        self.0.end();
    }
}
