//! The spans themselves: a request as its caller sees it, and its dispatch to the upstream.

use std::str::FromStr as _;
use std::sync::Arc;

use axum::extract::MatchedPath;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Version};
use onlyonce_core::{Execution, Fence, Recorded};
use onlyonce_http::trace::{TRACEPARENT, TRACESTATE};
use onlyonce_http::{Answered, Dispatch, How, ProblemKind, TraceContext};
use opentelemetry::trace::{
    Span as _, SpanContext, SpanId, SpanKind, Status, TraceContextExt as _, TraceFlags, TraceId, TraceState,
    Tracer as _,
};
use opentelemetry::{Context, KeyValue};
use opentelemetry_sdk::trace::Span;

use super::Traces;
use super::running::Entered;

/// The span that a request is in, for what is done on its behalf.
#[derive(Debug, Clone)]
pub(crate) struct Within(SpanContext);

/// A request on its way to its answer.
pub(crate) struct Asked {
    traces: Arc<Traces>,
    span: Span,
    method: &'static str,
    is_answered: bool,
}

/// A dispatch on its way to its answer.
pub(crate) struct Sent {
    span: Span,
    _running: Option<Entered>,
}

impl Traces {
    /// Begins the span of a request, and notes in the request where it is. `route` is one of a bounded set, if it is known.
    pub(crate) fn asked<B>(self: &Arc<Self>, request: &mut Request<B>, route: Option<&str>) -> Asked {
        let context = follows(request.headers_mut());
        let method = method(request.method());
        let mut attributes = vec![KeyValue::new("http.request.method", method.unwrap_or("_OTHER"))];
        attributes
            .extend(version(request.version()).map(|said| KeyValue::new("network.protocol.version", said)));
        attributes.extend(route.map(|route| KeyValue::new("http.route", route.to_owned())));
        let method = method.unwrap_or("HTTP");
        let builder = self
            .tracer
            .span_builder(named(method, route))
            .with_kind(SpanKind::Server)
            .with_attributes(attributes);
        let span = builder.start_with_context(&self.tracer, &context);
        let within = span.span_context().clone();
        let extensions = request.extensions_mut();
        // For the record, so that replays are linked to this.
        if let Some(context) = trace_context(&within) {
            extensions.insert(context);
        }
        extensions.insert(Within(within));
        Asked { traces: Arc::clone(self), span, method, is_answered: false }
    }

    /// Begins the span of a dispatch of `request`, which says where it is.
    pub(crate) fn sending<B>(&self, request: &Request<B>, host: &str, port: u16) -> Option<Box<Sent>> {
        let Within(within) = request.extensions().get()?;
        let method = method(request.method());
        let mut attributes = vec![
            KeyValue::new("http.request.method", method.unwrap_or("_OTHER")),
            KeyValue::new("server.address", host.to_owned()),
            KeyValue::new("server.port", i64::from(port)),
        ];
        let execution = request.extensions().get::<Execution>();
        attributes.extend(
            execution.map(|execution| KeyValue::new("onlyonce.attempt", i64::from(execution.attempt()))),
        );
        let builder = self
            .tracer
            .span_builder(method.unwrap_or("HTTP"))
            .with_kind(SpanKind::Client)
            .with_attributes(attributes);
        let parent = Context::new().with_remote_span_context(within.clone());
        let span = builder.start_with_context(&self.tracer, &parent);
        let running = execution.map(|execution| self.running.enter(execution.id(), without_state(within)));
        Some(Box::new(Sent { span, _running: running }))
    }
}

impl Asked {
    /// Ends the span with the answer of a service of our own, which knows its routes only afterwards.
    pub(crate) fn served<B>(mut self, response: &Response<B>) {
        self.is_answered = true;
        status(&mut self.span, response.status(), StatusCode::is_server_error);
        if let Some(route) = response.extensions().get::<MatchedPath>() {
            self.span.update_name(named(self.method, Some(route.as_str())));
            self.span.set_attribute(KeyValue::new("http.route", route.as_str().to_owned()));
        }
    }

    /// Ends the span with the answer.
    pub(crate) fn answered<B>(mut self, response: &Response<B>) {
        self.is_answered = true;
        status(&mut self.span, response.status(), StatusCode::is_server_error);
        let Some(answered) = response.extensions().get::<Answered>() else {
            return self.span.set_attribute(KeyValue::new("onlyonce.answer", "passed"));
        };
        self.span.set_attribute(KeyValue::new("onlyonce.answer", how(answered.how)));
        if let How::Ran(recorded) = answered.how {
            self.span.set_attribute(KeyValue::new("onlyonce.recorded", on_record(recorded)));
        }
        if let Some(id) = answered.id {
            // As in logs: enough to find the record, and not the whole id.
            self.span.set_attribute(KeyValue::new("onlyonce.record", id.short()));
        }
        if let Some(fence) = answered.fence.map(Fence::get).and_then(|fence| i64::try_from(fence).ok()) {
            self.span.set_attribute(KeyValue::new("onlyonce.fence", fence));
        }
        if let Some(original) = self.original(answered) {
            self.span.add_link(original, self::original());
        }
    }

    /// The trace of whoever ran it, or is running it.
    fn original(&self, answered: &Answered) -> Option<SpanContext> {
        let runs = || match answered.how {
            How::Refused(ProblemKind::InFlight) => self.traces.running.find(&answered.id?),
            _ => None,
        };
        answered.original.map(|original| span_context(original, TraceState::default())).or_else(runs)
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        if !self.is_answered {
            // The caller has hung up. What runs goes on without them.
            self.span.set_attribute(KeyValue::new("error.type", "caller-gone"));
        }
        self.span.end();
    }
}

impl Sent {
    /// Tells the upstream in which span it is asked.
    pub(crate) fn tell(&self, headers: &mut HeaderMap) {
        tell(&self.span, headers);
    }

    /// Ends the span with what came.
    pub(crate) fn answered<B>(mut self: Box<Self>, response: &Response<B>) {
        match response.extensions().get::<Dispatch>() {
            Some(dispatch) => {
                let why = match dispatch {
                    Dispatch::NothingSent => "nothing-sent",
                    Dispatch::TimedOut => "timed-out",
                    _ => "no-answer",
                };
                self.span.set_attribute(KeyValue::new("error.type", why));
                self.span.set_status(Status::error(""));
            }
            None => {
                let is_error = |status: &StatusCode| status.is_client_error() || status.is_server_error();
                status(&mut self.span, response.status(), is_error);
            }
        }
        self.span.end();
    }
}

/// What a span is a child of, as the headers say. Without a parent they say nothing any more: nobody is to take the state
/// for that of another trace than it was.
pub(super) fn follows(headers: &mut HeaderMap) -> Context {
    let Some(parent) = TraceContext::of(headers) else {
        headers.remove(TRACESTATE);
        return Context::new();
    };
    Context::new().with_remote_span_context(remote(parent, headers))
}

/// Says in `headers` that what follows is in `span`.
pub(super) fn tell(span: &Span, headers: &mut HeaderMap) {
    let context = span.span_context();
    if let Some(value) = trace_context(context).and_then(|context| context.header()) {
        headers.insert(TRACEPARENT, value);
    }
    match HeaderValue::try_from(context.trace_state().header()) {
        Ok(state) if !state.is_empty() => drop(headers.insert(TRACESTATE, state)),
        _ => drop(headers.remove(TRACESTATE)),
    }
}

/// Why a span is linked to another.
pub(super) fn original() -> Vec<KeyValue> {
    vec![KeyValue::new("onlyonce.link", "original")]
}

fn named(method: &str, route: Option<&str>) -> String {
    match route {
        Some(route) => format!("{method} {route}"),
        None => method.to_owned(),
    }
}

pub(super) fn status(span: &mut Span, status: StatusCode, is_error: impl Fn(&StatusCode) -> bool) {
    span.set_attribute(KeyValue::new("http.response.status_code", i64::from(status.as_u16())));
    if is_error(&status) {
        span.set_attribute(KeyValue::new("error.type", status.as_str().to_owned()));
        span.set_status(Status::error(""));
    }
}

/// Methods are the caller's words: those that are not known have no name here.
fn method(method: &Method) -> Option<&'static str> {
    const KNOWN: [&str; 9] = ["GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH"];
    KNOWN.into_iter().find(|known| method.as_str() == *known)
}

fn version(version: Version) -> Option<&'static str> {
    match version {
        Version::HTTP_10 => Some("1.0"),
        Version::HTTP_11 => Some("1.1"),
        Version::HTTP_2 => Some("2"),
        _ => None,
    }
}

const fn how(how: How) -> &'static str {
    match how {
        How::Ran(_) => "ran",
        How::Replayed => "replayed",
        How::Withheld => "withheld",
        How::Refused(kind) => kind.name(),
        How::Unprotected => "unprotected",
        How::Shadow => "shadow",
        _ => "other",
    }
}

const fn on_record(recorded: Recorded) -> &'static str {
    match recorded {
        Recorded::Completed => "completed",
        Recorded::Released => "released",
        Recorded::Abandoned => "abandoned",
        Recorded::Unrecorded => "unrecorded",
        Recorded::Late => "late",
    }
}

/// The caller's span.
fn remote(parent: TraceContext, headers: &HeaderMap) -> SpanContext {
    // Several lines are one list. One that cannot be read is left out; the trace goes on without it.
    let lines = headers.get_all(TRACESTATE).iter().map(HeaderValue::to_str).collect::<Result<Vec<_>, _>>();
    let state = lines.ok().and_then(|lines| TraceState::from_str(&lines.join(",")).ok());
    span_context(parent, state.unwrap_or_default())
}

/// The same without what the caller keeps in its trace: that is passed on to the upstream, and neither kept nor exported. It may be
/// long, and it is the caller's own text.
pub(super) fn without_state(context: &SpanContext) -> SpanContext {
    let (trace_id, span_id, flags) = (context.trace_id(), context.span_id(), context.trace_flags());
    SpanContext::new(trace_id, span_id, flags, context.is_remote(), TraceState::default())
}

pub(super) fn span_context(context: TraceContext, state: TraceState) -> SpanContext {
    let flags = if context.is_sampled() { TraceFlags::SAMPLED } else { TraceFlags::NOT_SAMPLED };
    let (trace_id, span_id) =
        (TraceId::from_bytes(context.trace_id()), SpanId::from_bytes(context.span_id()));
    SpanContext::new(trace_id, span_id, flags, true, state)
}

pub(super) fn trace_context(context: &SpanContext) -> Option<TraceContext> {
    TraceContext::new(context.trace_id().to_bytes(), context.span_id().to_bytes(), context.is_sampled())
}
