//! The order in which a request passes through the sidecar, on one screen.
//!
//! ```text
//! accept (cap) ─▶ TLS ─▶ wire (strict heads, every wait bounded) ─▶ usual, or hyper ─▶ Front
//!   ─▶ trace it                    only where a collector is named
//!   ─▶ count it                    a connection with a request is not idle
//!   ─▶ judge                       tunnels, loops, two hosts, early data: refused before anything is read
//!   ─▶ upgrade?  ─▶ tunnel         only requests that can carry no key
//!   ─▶ pace the body               a client that pauses for ever is cut off
//!   ─▶ once                        the layer: key, scope, fingerprint, claim, replay
//!   ─▶ upstream                    hop-by-hop fields, Via, Forwarded; one dispatch, never two
//! ```

mod judge;
mod peer;
mod tunnel;

use std::convert::Infallible;
use std::future::ready;
use std::pin::Pin;
use std::sync::Arc;

use http::{Request, Response};
use onlyonce_core::Fence;
use onlyonce_http::{Answered, Body, Handle, OnceLayer, OnceService};
use tower::{Layer as _, Service as _};

use self::tunnel::Tunnels;
use crate::body::{OnItsWay, Pace, Paced};
use crate::config::Settings;
use crate::listen::{Answers, Connection, Received};
use crate::traces::Traces;
use crate::upstream::Upstream;

/// Everything behind hyper. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Front(Arc<Shared>);

struct Shared {
    layer: OnceLayer,
    upstream: Upstream,
    tunnels: Tunnels,
    pace: Pace,
    fields_max: usize,
    /// Whether `auth_url` is to be told who the client is.
    tells_who: bool,
    /// Spans, and the names of routes for them.
    traces: Option<(Arc<Traces>, Handle)>,
}

impl Front {
    pub(crate) fn new(
        layer: &OnceLayer,
        upstream: Upstream,
        settings: &Settings,
        traces: Option<Arc<Traces>>,
    ) -> Self {
        Self(Arc::new(Shared {
            layer: layer.clone(),
            upstream,
            tunnels: Tunnels::default(),
            pace: Pace { pause_max: settings.body_pause_max, within: Some(settings.body_within) },
            fields_max: settings.door.head.fields_max,
            tells_who: settings.auth_url.is_some(),
            traces: traces.map(|traces| (traces, layer.handle())),
        }))
    }

    /// Connections that have switched protocols are cut off.
    pub(crate) async fn cut_tunnels(&self) {
        self.0.tunnels.cut().await;
    }
}

type Answering = Pin<Box<dyn Future<Output = Result<Response<OnItsWay<Body>>, Infallible>> + Send>>;

impl Shared {
    /// Answers a request. All that can be done with it at once is done at once: a future that carries it is a large one.
    fn handle(
        self: Arc<Self>,
        mut once: OnceService<Upstream>,
        request: Request<Received>,
        connection: Arc<Connection>,
    ) -> Answering {
        let in_hand = connection.request();
        if let Some(refusal) = judge::judge(&request, &self.upstream, self.fields_max) {
            return Box::pin(ready(Ok(refusal.map(|body| OnItsWay::new(body, in_hand)))));
        }
        if let Some(protocol) = tunnel::protocol(&request) {
            return Box::pin(async move {
                let opening =
                    self.tunnels.open(&self.upstream, request, protocol, connection, in_hand, self.pace);
                Ok(opening.await)
            });
        }
        let mut request = request.map(|body| match body.into_whole() {
            Ok(bytes) => Body::from(bytes),
            Err(body) => Body::new(Paced::new(body, self.pace)),
        });
        if let Some(identity) = peer::identity(&connection) {
            request.extensions_mut().insert(identity);
        }
        if self.tells_who {
            request.extensions_mut().insert(connection);
        }
        let answering = once.call(request);
        Box::pin(async move {
            let Ok(response) = answering.await;
            note(&response);
            Ok(response.map(|body| OnItsWay::new(body, in_hand)))
        })
    }

    /// The same with a span around it.
    fn handle_traced(
        self: Arc<Self>,
        (traces, routes): (Arc<Traces>, Handle),
        once: OnceService<Upstream>,
        mut request: Request<Received>,
        connection: Arc<Connection>,
    ) -> Answering {
        let route = routes.route_name(request.uri().path());
        let asked = traces.asked(&mut request, Some(&*route));
        let answering = self.handle(once, request, connection);
        Box::pin(async move {
            let Ok(response) = answering.await;
            asked.answered(&response);
            Ok(response)
        })
    }
}

/// One line for each protected request, for whoever turns debugging on. Never a key: eight digits of the id.
fn note(response: &Response<Body>) {
    if let Some(answered) = response.extensions().get::<Answered>() {
        tracing::debug!(
            status = response.status().as_u16(),
            how = ?answered.how,
            id = answered.id.map(|id| id.short()),
            fence = answered.fence.map(Fence::get),
            "answered"
        );
    }
}

impl Answers for Front {
    type Service = FrontService;

    fn serve(&self, connection: Arc<Connection>) -> FrontService {
        let once = self.0.layer.layer(self.0.upstream.for_client(Arc::clone(&connection)));
        FrontService { front: self.clone(), once, connection }
    }
}

/// The front, for one connection.
#[derive(Clone)]
pub(crate) struct FrontService {
    front: Front,
    /// Knows the client, of whom the upstream is told.
    once: OnceService<Upstream>,
    connection: Arc<Connection>,
}

impl hyper::service::Service<Request<Received>> for FrontService {
    type Response = Response<OnItsWay<Body>>;
    type Error = Infallible;
    type Future = Answering;

    fn call(&self, request: Request<Received>) -> Answering {
        let front = Arc::clone(&self.front.0);
        let (once, connection) = (self.once.clone(), Arc::clone(&self.connection));
        match front.traces.clone() {
            None => front.handle(once, request, connection),
            Some(traces) => front.handle_traced(traces, once, request, connection),
        }
    }
}
