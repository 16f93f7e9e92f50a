//! The document that describes this API, made from the code that serves it.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::header::CONTENT_TYPE;
use onlyonce_http::ProblemKind;
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::openapi::{ContentBuilder, Ref, RefOr, ResponseBuilder};
use utoipa::{IntoResponses, Modify, OpenApi, ToSchema};

use super::keyed::{claim, holder, operator, record};
use super::remote::{batches, commands, reads};

/// What every endpoint may answer instead: `application/problem+json`.
pub(crate) struct Refusals;

/// The statuses of our refusals, and the kinds behind each.
const REFUSALS: [ProblemKind; 12] = [
    ProblemKind::RequestInvalid,
    ProblemKind::BodyUnreadable,
    ProblemKind::Unauthorized,
    ProblemKind::Forbidden,
    ProblemKind::NotFound,
    ProblemKind::MethodNotAllowed,
    ProblemKind::BodyTooLarge,
    ProblemKind::MediaTypeUnsupported,
    ProblemKind::Quota,
    ProblemKind::RecordUnreadable,
    ProblemKind::StoreUnavailable,
    ProblemKind::Overloaded,
];

impl IntoResponses for Refusals {
    fn responses() -> BTreeMap<String, RefOr<utoipa::openapi::Response>> {
        let mut titles: BTreeMap<String, Vec<&str>> = BTreeMap::new();
        for kind in REFUSALS {
            titles.entry(kind.status().as_u16().to_string()).or_default().push(kind.title());
        }
        let responses = titles.into_iter().map(|(status, titles)| {
            let content = ContentBuilder::new().schema(Some(Ref::from_schema_name("ProblemShown"))).build();
            let response = ResponseBuilder::new()
                .description(titles.join(" / "))
                .content("application/problem+json", content)
                .build();
            (status, response.into())
        });
        responses.collect()
    }
}

/// Why a request got no answer (RFC 9457).
#[derive(ToSchema)]
#[expect(dead_code, reason = "it is only described; onlyonce-http writes it")]
pub(crate) struct ProblemShown {
    /// `urn:onlyonce:error:NAME`; each has a page in `docs/errors/`.
    r#type: String,
    title: String,
    status: u16,
    detail: String,
    /// Whether the same request may get another answer later.
    retryable: bool,
    /// The store's own name for what went wrong.
    code: Option<String>,
    /// Whether a command that failed may have been applied.
    outcome_unknown: Option<bool>,
}

struct Token;

impl Modify for Token {
    fn modify(&self, document: &mut utoipa::openapi::OpenApi) {
        let bearer = HttpBuilder::new().scheme(HttpAuthScheme::Bearer).build();
        let components = document.components.get_or_insert_default();
        components.add_security_scheme("token", SecurityScheme::Http(bearer));
    }
}

#[derive(OpenApi)]
#[openapi(
    info(title = "onlyonce claims API", description = "Ask before you run: claim, renew, complete, release."),
    paths(
        claim::claim, claim::claim_batch,
        record::list, record::show, record::outcome, record::wait,
        holder::renew, holder::complete, holder::release, holder::abandon, holder::record_step,
        operator::resolve, operator::erase,
        reads::about, reads::store_lookup, reads::store_list, reads::store_stats, reads::store_wait,
        batches::store_claim, batches::store_renew, batches::store_complete, batches::store_release,
        commands::store_abandon, commands::store_step, commands::store_resolve, commands::store_erase,
        commands::store_sweep, commands::store_secret, commands::store_import,
        live,
    ),
    components(schemas(ProblemShown)),
    modifiers(&Token)
)]
struct Document;

/// Made once: it does not change while the process runs.
static DOCUMENT: LazyLock<Bytes> = LazyLock::new(|| Document::openapi().to_json().unwrap_or_default().into());

pub(crate) async fn document() -> Response {
    ([(CONTENT_TYPE, "application/json")], DOCUMENT.clone()).into_response()
}

/// Whether the process is there
#[utoipa::path(get, path = "/health/live", tag = "health",
    responses((status = 200, body = String, content_type = "text/plain", description = "It is")))]
pub(crate) async fn live() -> &'static str {
    "live\n"
}
