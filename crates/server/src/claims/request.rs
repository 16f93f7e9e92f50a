//! What is taken from a request, in this order: who asks, whether they may, what they name, and only then the body.

use std::sync::Arc;

use axum::extract::{FromRequest, FromRequestParts, Query, RawPathParams, Request};
use axum::http::request::Parts;
use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use http::header::CONTENT_TYPE;
use http_body_util::BodyExt as _;
use onlyonce_core::record::StepName;
use onlyonce_core::{Fence, Owner, Quota, RecordId, hex};
use onlyonce_http::ProblemKind;
use serde::de::DeserializeOwned;
use tokio::sync::OwnedSemaphorePermit;
use tokio_util::sync::CancellationToken;

use super::front::Gone;
use super::namespace::Namespace;
use super::refusal::Refusal;
use super::router::Api;
use super::tokens;

/// A caller who has one of the scopes `ANY`.
pub(crate) struct May<const ANY: u8> {
    pub(crate) namespace: Arc<Namespace>,
    pub(crate) quota: Quota,
}

impl<const ANY: u8> FromRequestParts<Api> for May<ANY> {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, Refusal> {
        let Some(caller) = api.tokens().caller(&parts.headers) else {
            let detail = "send `Authorization: Bearer TOKEN` with a token of this service";
            return Err(Refusal::new(ProblemKind::Unauthorized, detail));
        };
        if caller.scopes & ANY == 0 {
            let detail = format!("this needs one of the scopes: {}", tokens::names(ANY));
            return Err(Refusal::new(ProblemKind::Forbidden, detail));
        }
        let namespace = api.namespaces().get(&caller.namespace);
        let namespace =
            namespace.ok_or_else(|| Refusal::new(ProblemKind::Forbidden, "the namespace is not served"))?;
        Ok(Self { namespace: Arc::clone(namespace), quota: caller.quota })
    }
}

/// Until when the caller is there.
pub(crate) struct StillThere(pub(crate) CancellationToken);

impl<S: Sync> FromRequestParts<S> for StillThere {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Refusal> {
        Ok(Self(parts.extensions.get::<Gone>().map_or_else(CancellationToken::new, |gone| gone.0.clone())))
    }
}

async fn path_part(parts: &mut Parts, name: &str) -> Result<String, Refusal> {
    let params = RawPathParams::from_request_parts(parts, &()).await;
    let params = params.map_err(|error| Refusal::invalid(error.to_string()))?;
    let found = params.iter().find(|(key, _)| *key == name).map(|(_, value)| value.to_owned());
    found.ok_or_else(|| Refusal::invalid(format!("the path names no {name}")))
}

/// The record that the path names.
pub(crate) struct OfRecord(pub(crate) RecordId);

impl<S: Sync> FromRequestParts<S> for OfRecord {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Refusal> {
        record_id(&path_part(parts, "id").await?).map(Self)
    }
}

/// The step that the path names.
pub(crate) struct OfStep(pub(crate) StepName);

impl<S: Sync> FromRequestParts<S> for OfStep {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Refusal> {
        let name = path_part(parts, "name").await?;
        StepName::new(&name).map(Self).map_err(|error| Refusal::invalid(error.to_string()))
    }
}

/// What the query says.
pub(crate) struct Params<T>(pub(crate) T);

impl<T: DeserializeOwned, S: Sync> FromRequestParts<S> for Params<T> {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Refusal> {
        let query = Query::try_from_uri(&parts.uri);
        query.map(|Query(params)| Self(params)).map_err(|error| Refusal::invalid(error.body_text()))
    }
}

/// A body in JSON, and the room it takes until the request is answered.
pub(crate) struct Json<T>(pub(crate) T, pub(crate) Held);

/// The room that a body takes. Dropping it makes room again.
pub(crate) type Held = Option<OwnedSemaphorePermit>;

impl<T: DeserializeOwned> FromRequest<Api> for Json<T> {
    type Rejection = Refusal;

    async fn from_request(request: Request, api: &Api) -> Result<Self, Refusal> {
        if !is_json(request.headers()) {
            return Err(Refusal::new(ProblemKind::MediaTypeUnsupported, "send application/json"));
        }
        let (bytes, held) = whole(request, api).await?;
        Ok(Self(parse(&bytes)?, held))
    }
}

/// A body in JSON, or anything else as it is.
pub(crate) enum Given<T> {
    Json(T, Held),
    Raw(Raw, Held),
}

/// A body that is not JSON, with what came in its headers.
pub(crate) struct Raw {
    pub(crate) content_type: String,
    pub(crate) headers: HeaderMap,
    pub(crate) bytes: Bytes,
}

impl<T: DeserializeOwned> FromRequest<Api> for Given<T> {
    type Rejection = Refusal;

    async fn from_request(request: Request, api: &Api) -> Result<Self, Refusal> {
        if is_json(request.headers()) {
            let Json(value, held) = Json::from_request(request, api).await?;
            return Ok(Self::Json(value, held));
        }
        let headers = request.headers().clone();
        let content_type = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).map(str::to_owned);
        let content_type =
            content_type.ok_or_else(|| Refusal::invalid("the content type is not readable"))?;
        let (bytes, held) = whole(request, api).await?;
        Ok(Self::Raw(Raw { content_type, headers, bytes }, held))
    }
}

impl Raw {
    /// The text of a header that a raw body needs.
    pub(crate) fn header(&self, name: &str) -> Result<&str, Refusal> {
        let value = self.headers.get(name).and_then(|value| value.to_str().ok());
        value.ok_or_else(|| Refusal::invalid(format!("a body that is not JSON needs the header {name}")))
    }

    /// Who reports.
    pub(crate) fn grant(&self) -> Result<(Owner, Fence), Refusal> {
        let number = self.header("onlyonce-fence")?.parse::<u64>();
        let number = number.map_err(|_| Refusal::invalid("Onlyonce-Fence is not a number"))?;
        Ok((owner(self.header("onlyonce-owner")?)?, fence(number)?))
    }
}

/// Whether the body says that it is JSON, or says nothing.
fn is_json(headers: &HeaderMap) -> bool {
    let Some(value) = headers.get(CONTENT_TYPE) else { return true };
    let kind = value.to_str().ok().and_then(|value| value.split(';').next()).map(str::trim);
    kind.is_some_and(|kind| kind.eq_ignore_ascii_case("application/json"))
}

/// The whole body, if there is room for it.
async fn whole(request: Request, api: &Api) -> Result<(Bytes, Held), Refusal> {
    let too_large = || {
        let detail = format!("a request has at most {} bytes", api.settings().request_bytes_max);
        Refusal::new(ProblemKind::BodyTooLarge, detail)
    };
    let mut body = request.into_body();
    let (mut first, mut rest, mut held): (Option<Bytes>, BytesMut, Held) = (None, BytesMut::new(), None);
    let mut length = 0;
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| Refusal::new(ProblemKind::BodyUnreadable, error.to_string()))?;
        let Ok(part) = frame.into_data() else { continue };
        length += part.len();
        if length > api.settings().request_bytes_max {
            return Err(too_large());
        }
        let more = api.room(part.len())?;
        match (&mut held, more) {
            (Some(held), Some(more)) => held.merge(more),
            (held, more) => *held = held.take().or(more),
        }
        match &first {
            None if rest.is_empty() => first = Some(part),
            Some(_) | None => {
                if let Some(first) = first.take() {
                    rest.extend_from_slice(&first);
                }
                rest.extend_from_slice(&part);
            }
        }
    }
    Ok((first.unwrap_or_else(|| rest.freeze()), held))
}

fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Refusal> {
    // Where it went wrong, not what stands there: it may be anybody's.
    serde_json::from_slice(bytes).map_err(|error| Refusal::invalid(error.to_string()))
}

/// An id as text.
pub(crate) fn record_id(text: &str) -> Result<RecordId, Refusal> {
    text.parse().map_err(|_| Refusal::invalid("an id has 64 hexadecimal digits"))
}

/// An owner as text. Dashes do not count, so that a UUID can be one.
pub(crate) fn owner(text: &str) -> Result<Owner, Refusal> {
    let digits: String = text.chars().filter(|digit| *digit != '-').collect();
    let bytes = hex::decode(&digits).and_then(|bytes| bytes.try_into().ok());
    bytes.map(Owner::from_bytes).ok_or_else(|| Refusal::invalid("`owner` is not 32 hexadecimal digits"))
}

/// A fence as a number.
pub(crate) fn fence(number: u64) -> Result<Fence, Refusal> {
    Fence::new(number).ok_or_else(|| Refusal::invalid("`fence` is 2^53 or more"))
}
