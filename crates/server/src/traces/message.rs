//! The span of a message: from the moment it is handed to its handler to what became of it.

use http::{HeaderMap, StatusCode};
use onlyonce_core::{Outcome, RecordId};
use onlyonce_http::snapshot;
use onlyonce_inbox::{Handled, MESSAGE_OUTCOME, Work};
use opentelemetry::KeyValue;
use opentelemetry::trace::{Span as _, SpanKind, Status, TraceState, Tracer as _};
use opentelemetry_sdk::trace::Span;

use super::Traces;
use super::span::{follows, original, span_context, status, tell, trace_context};

/// What messages leave on record is read as the answer of a handler: a status, and the trace in which it was given.
const _: () = assert!(MESSAGE_OUTCOME == snapshot::CONTENT_VERSION);

/// A message that is being handled.
pub(crate) struct Delivered {
    span: Span,
    answer: Option<StatusCode>,
}

impl Traces {
    /// Begins the span of `work` for the consumer `name`, and tells the handler in `headers`, which hold the context that
    /// the message came with.
    pub(crate) fn delivered(&self, name: &str, work: &Work, headers: &mut HeaderMap) -> Delivered {
        let mut span = self.processing(name, headers);
        span.set_attribute(KeyValue::new("onlyonce.attempt", i64::from(work.attempt())));
        if let Some(execution) = work.execution() {
            span.set_attribute(KeyValue::new("onlyonce.record", execution.id().short()));
        }
        tell(&span, headers);
        Delivered { span, answer: None }
    }

    /// Makes the span of a delivery whose message is done, linked to the trace in which it was. `headers` hold the context
    /// that this one came with.
    pub(crate) fn duplicate(
        &self,
        name: &str,
        headers: &mut HeaderMap,
        record: &RecordId,
        outcome: &Outcome,
    ) {
        let mut span = self.processing(name, headers);
        span.set_attribute(KeyValue::new("onlyonce.record", record.short()));
        span.set_attribute(KeyValue::new("onlyonce.handled", "duplicate"));
        if let Some(trace) = snapshot::trace_of(outcome) {
            span.add_link(span_context(trace, TraceState::default()), original());
        }
        span.end();
    }

    fn processing(&self, name: &str, headers: &mut HeaderMap) -> Span {
        let builder = self
            .tracer
            .span_builder(format!("process {name}"))
            .with_kind(SpanKind::Consumer)
            .with_attributes([
                KeyValue::new("messaging.operation.type", "process"),
                KeyValue::new("messaging.consumer.group.name", name.to_owned()),
            ]);
        builder.start_with_context(&self.tracer, &follows(headers))
    }
}

impl Delivered {
    /// What the handler answered.
    pub(crate) fn answered(&mut self, answer: StatusCode) {
        let is_error = |answer: &StatusCode| answer.is_client_error() || answer.is_server_error();
        status(&mut self.span, answer, is_error);
        self.answer = Some(answer);
    }

    /// Ends the span, and notes it in what is kept, for duplicates to be linked to.
    pub(crate) fn handled(mut self, handled: Handled) -> Handled {
        let fate = match &handled {
            Handled::Done(_) => "done",
            Handled::Retry { .. } => "retried",
            Handled::Unknown { .. } => "unknown",
            Handled::Refused { .. } => "refused",
        };
        if fate != "done" {
            self.span.set_status(Status::error(""));
        }
        self.span.set_attribute(KeyValue::new("onlyonce.handled", fate));
        self.span.end();
        match (handled, self.answer) {
            (Handled::Done(outcome), Some(answer)) => {
                let head = snapshot::head(answer, trace_context(self.span.span_context()));
                // A head of ours is never too long; if it were, the outcome would be kept without it.
                Handled::Done(outcome.clone().with_head(head).unwrap_or(outcome))
            }
            (handled, _) => handled,
        }
    }
}
