//! From a request to what the engine is asked, with every refusal that comes before a claim.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, Request};
use onlyonce_core::{Key, Principal, RecoveryHook, Request as Call};
use uuid::Uuid;

use super::AskedKey;
use super::reply::store_problem;
use crate::body::Body;
use crate::fingerprint::Asked;
use crate::header::{self, NoKey};
use crate::layer::Shared;
use crate::limits::{Held, Read, read, read_now};
use crate::observe::Event;
use crate::principal::{Missing, looks_like_jwt, principal};
use crate::problem::{Problem, ProblemKind};
use crate::route::Route;
use crate::rules::{KeySource, PrincipalRule};

/// When to ask again that found no room: bodies are held for as long as requests take.
const ROOM_RETRY_AFTER: Duration = Duration::from_secs(1);

/// A request whose way was decided before any claim.
pub(super) enum Prepared {
    /// Ask the engine.
    Ask(Arc<Call>, Arc<Asked>),
    /// It has no key and needs none.
    Pass(Box<Request<Body>>),
    /// It is refused. What is left of it is there for shadow mode, unless it broke off.
    Refuse(Box<Problem>, Option<Box<Request<Body>>>),
}

impl Prepared {
    fn refuse(problem: Problem, request: Option<Request<Body>>) -> Self {
        Self::Refuse(Box::new(problem), request.map(Box::new))
    }
}

/// Reads and checks a request by its route's rules. `hook` is whom to ask what became of it, if anybody.
pub(super) async fn prepare(
    shared: &Shared,
    route: &Arc<Route>,
    key: AskedKey,
    head: Box<Parts>,
    body: Body,
    hook: impl FnOnce(&Arc<Asked>) -> Option<Arc<dyn RecoveryHook>>,
) -> Prepared {
    if let Some(problem) = refusal(route, &key) {
        return Prepared::refuse(problem, Some(Request::from_parts(*head, body)));
    }
    let principal = principal(&route.principal, &head, shared.tokens.as_deref());
    let nobody = |missing: Missing| Problem::new(ProblemKind::PrincipalMissing, missing.detail());
    let principal = match (principal, &key) {
        // Without a key it is nobody's business whose it would be, and that shows in the body.
        (Err(missing), AskedKey::Key(_)) => {
            return Prepared::refuse(nobody(missing), Some(Request::from_parts(*head, body)));
        }
        (principal, _) => principal,
    };
    let mut held = shared.room.place();
    let (bytes, trailers) = match whole(route, read_body(body, route.request_bytes_max, &mut held).await) {
        Ok(whole) => whole,
        Err(refused) => {
            let (problem, left) = *refused;
            // ORDER: there is room again before the answer goes out.
            drop(held);
            return Prepared::refuse(problem, left.map(|body| Request::from_parts(*head, body)));
        }
    };
    let rebuild = |head: Box<Parts>| Request::from_parts(*head, Body::whole(bytes.clone(), trailers.clone()));
    let key = match (key, &route.key) {
        (AskedKey::Key(key), _) => key,
        (_, KeySource::Json(pointer)) => match header::key_in_body(&bytes, pointer) {
            Ok(Some(key)) => key,
            Ok(None) if !route.required => {
                shared.observer.event(&route.name, Event::Unkeyed { first: route.is_first_unkeyed() });
                return Prepared::Pass(Box::new(rebuild(head)));
            }
            Ok(None) => return Prepared::refuse(missing(route), Some(rebuild(head))),
            Err(error) => return Prepared::refuse(invalid(&error), Some(rebuild(head))),
        },
        _ => return Prepared::refuse(missing(route), Some(rebuild(head))),
    };
    let principal = match principal {
        Ok(principal) => principal,
        Err(missing) => return Prepared::refuse(nobody(missing), Some(rebuild(head))),
    };
    observe_caller(shared, route, &principal);
    let wait = route.wait_for(header::preferred_wait(&head.headers));
    let scope = route.scope(principal, head.uri.path());
    let secret = route.engine.secret();
    let age = if route.refuse_old_uuidv7 { age(route, &key) } else { None };
    let asked = Asked::new(route, head, bytes, trailers, held);
    let call = Call::shared(secret, scope.into_key(key), Arc::<Asked>::clone(&asked)).with_wait(wait);
    let call = match hook(&asked) {
        Some(hook) => call.recovered_by(hook),
        None => call,
    };
    match age {
        // Boxed: few rules ask for it, and every request would carry its room.
        Some(age) => Box::pin(refuse_if_forgotten(route, call, asked, age)).await,
        None => Prepared::Ask(Arc::new(call), asked),
    }
}

/// Reads a request's body, in no time where all of it is here.
async fn read_body(body: Body, bytes_max: u64, held: &mut Held) -> Read {
    match read_now(body, bytes_max, Some(held)) {
        Ok(read) => read,
        // Boxed: what is here at once would carry its room.
        Err(body) => Box::pin(read(body, bytes_max, held)).await,
    }
}

/// Why a body is refused, and what is left of it.
type Unread = Box<(Problem, Option<Body>)>;

/// All of a body.
fn whole(route: &Route, read: Read) -> Result<(Bytes, Option<HeaderMap>), Unread> {
    let refused = match read {
        Read::Whole { bytes, trailers } => return Ok((bytes, trailers)),
        Read::Unbounded { front, rest } => (too_large(route), Some(Body::prefixed(front, rest))),
        Read::NoRoom { front, rest } => (no_room(), Some(Body::prefixed(front, rest))),
        Read::Broken(error) => {
            tracing::debug!(%error, "a request body broke off");
            let detail = "It ended before its end, or was malformed. Nothing was started.";
            (Problem::new(ProblemKind::BodyUnreadable, detail), None)
        }
    };
    Err(Box::new(refused))
}

/// The refusals that need nothing but the headers.
fn refusal(route: &Route, key: &AskedKey) -> Option<Problem> {
    match key {
        AskedKey::None => Some(missing(route)),
        AskedKey::Not(error) => Some(invalid(error)),
        AskedKey::Key(_) | AskedKey::InBody => None,
    }
}

fn missing(route: &Route) -> Problem {
    let detail = match &route.key {
        KeySource::Header(name) => format!("Send one in the header {name}, the same on every retry."),
        KeySource::Json(pointer) => format!("Send one in the body at {pointer}, the same on every retry."),
    };
    Problem::new(ProblemKind::KeyMissing, detail)
}

fn invalid(error: &NoKey) -> Problem {
    Problem::new(ProblemKind::KeyInvalid, error.detail())
}

fn too_large(route: &Route) -> Problem {
    let detail =
        format!("With a key, at most {} bytes are taken. Nothing was started.", route.request_bytes_max);
    Problem::new(ProblemKind::BodyTooLarge, detail)
}

fn no_room() -> Problem {
    let detail = "Nothing was started. Ask again with the same key.";
    Problem::new(ProblemKind::Overloaded, detail).retry_after(ROOM_RETRY_AFTER)
}

fn observe_caller(shared: &Shared, route: &Route, principal: &Principal) {
    match (&route.principal, principal) {
        (_, Principal::Anonymous) => {
            shared.observer.event(&route.name, Event::Anonymous { first: route.is_first_anonymous() });
        }
        (PrincipalRule::Authorization, Principal::Named(shown))
            if looks_like_jwt(shown) && route.is_first_changing_token() =>
        {
            shared.observer.event(&route.name, Event::TokenMayChange);
        }
        _ => {}
    }
}

/// How much longer ago than the retention a `UUIDv7` key was made; `None` for younger keys and for other kinds.
fn age(route: &Route, key: &Key) -> Option<Duration> {
    let uuid = Uuid::try_parse(key.as_str()).ok().filter(|uuid| uuid.get_version_num() == 7)?;
    let (seconds, nanos) = uuid.get_timestamp()?.to_unix();
    let made = Duration::new(seconds, nanos);
    let now = Duration::from_millis(route.engine.clock().now().as_millis());
    now.checked_sub(made)?.checked_sub(route.engine.policy().terms().retention.get())
}

/// An old key that is still on record is answered; one that is not would run again what may have run before.
async fn refuse_if_forgotten(route: &Route, call: Call, asked: Arc<Asked>, age: Duration) -> Prepared {
    let id = call.id();
    match route.engine.lookup(&id).await {
        Ok(Some(_)) => Prepared::Ask(Arc::new(call.on_record()), asked),
        Ok(None) => {
            let detail = format!(
                "The key was made {} seconds longer ago than answers are kept, so it cannot be told whether it was \
                 used. Nothing was started.",
                age.as_secs()
            );
            Prepared::refuse(Problem::new(ProblemKind::KeyExpired, detail), taken(&asked))
        }
        Err(error) => Prepared::refuse(store_problem(id, &error), taken(&asked)),
    }
}

/// The request, if the work did not take it.
pub(super) fn taken(asked: &Asked) -> Option<Request<Body>> {
    let body = || Body::whole(asked.body.clone(), asked.trailers.clone());
    asked.take().map(|head| Request::from_parts(*head, body()))
}
