//! The collector, spoken to in OTLP over HTTP with our own client. What it answers decides whether spans are sent again.

use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HOST, HeaderMap, HeaderValue, USER_AGENT};
use http::{Method, Request, StatusCode, Uri};
use http_body_util::{BodyExt as _, Limited};
use hyper_util::client::legacy::Client;
use onlyonce_http::Body;
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use opentelemetry_proto::transform::common::tonic::ResourceAttributesWithSchema;
use opentelemetry_proto::transform::trace::tonic::group_spans_by_resource_and_scope;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::SpanData;
use prost::Message as _;

use crate::config::{TraceSettings, UpstreamHttp};
use crate::tls::Trust;
use crate::upstream::{Connector, client, why_no_answer};

const CONNECT_WITHIN: Duration = Duration::from_secs(5);
/// How long one export may take.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);
const IDLE: Duration = Duration::from_secs(4);
/// The most of an answer that is read.
const ANSWER_BYTES_MAX: usize = 64 * 1024;

/// One collector.
pub(super) struct Collector {
    client: Client<Connector, Body>,
    uri: Uri,
    headers: HeaderMap,
    resource: ResourceAttributesWithSchema,
}

/// Why spans were not taken.
#[derive(Debug)]
pub(super) struct Trouble {
    pub(super) why: String,
    /// Whether the same may be taken later.
    pub(super) may_pass: bool,
}

impl Collector {
    pub(super) fn new(settings: &TraceSettings, resource: &Resource) -> Result<Self, String> {
        let url = &settings.url;
        let client =
            client(url, UpstreamHttp::Auto, &Trust::in_ca(settings.ca.as_deref()), CONNECT_WITHIN, IDLE)?;
        let uri = Uri::builder().scheme(url.scheme.clone()).authority(url.authority.clone());
        let uri = uri.path_and_query(url.prefix.as_str()).build().map_err(|error| error.to_string())?;
        let mut headers = settings.headers.clone();
        let host = HeaderValue::try_from(url.authority.as_str()).map_err(|error| error.to_string())?;
        headers.insert(HOST, host);
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/x-protobuf"));
        let agent = concat!("onlyonce/", env!("CARGO_PKG_VERSION"));
        headers.entry(USER_AGENT).or_insert(HeaderValue::from_static(agent));
        Ok(Self { client, uri, headers, resource: resource.into() })
    }

    pub(super) fn encode(&self, batch: Vec<SpanData>) -> Bytes {
        let resource_spans = group_spans_by_resource_and_scope(batch, &self.resource);
        ExportTraceServiceRequest { resource_spans }.encode_to_vec().into()
    }

    /// Sends spans: how many of them the collector did not want.
    pub(super) async fn post(&self, spans: Bytes) -> Result<u64, Trouble> {
        match tokio::time::timeout(ANSWER_WITHIN, self.exchange(spans)).await {
            Ok(answer) => answer,
            Err(_) => Err(Trouble { why: "no answer in time".to_owned(), may_pass: true }),
        }
    }

    async fn exchange(&self, spans: Bytes) -> Result<u64, Trouble> {
        let mut request = Request::new(Body::from(spans));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = self.uri.clone();
        request.headers_mut().clone_from(&self.headers);
        let response = self.client.request(request).await.map_err(|error| {
            let (_, why) = why_no_answer(&error);
            Trouble { why, may_pass: true }
        })?;
        let (head, body) = response.into_parts();
        if !head.status.is_success() {
            return Err(Trouble {
                why: format!("it answered {}", head.status),
                may_pass: may_pass(head.status),
            });
        }
        // Read to its end, so that the connection can be used again. What cannot be read was taken all the same.
        let answer = Limited::new(body, ANSWER_BYTES_MAX).collect().await.ok();
        let answer = answer.and_then(|answer| ExportTraceServiceResponse::decode(answer.to_bytes()).ok());
        let rejected = answer.and_then(|answer| answer.partial_success).map_or(0, |part| part.rejected_spans);
        Ok(u64::try_from(rejected).unwrap_or(0))
    }
}

/// The answers that OTLP says are for now and not for good.
const fn may_pass(status: StatusCode) -> bool {
    matches!(status.as_u16(), 429 | 502 | 503 | 504)
}
