//! The order in which a request passes through the sidecar, on one screen.
//!
//! ```text
//! accept (cap) ─▶ TLS ─▶ wire (strict heads, every wait bounded) ─▶ hyper ─▶ Front
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
use std::pin::Pin;
use std::sync::Arc;

use http::{Request, Response};
use hyper::body::Incoming;
use onlyonce_core::Fence;
use onlyonce_http::{Answered, Body, OnceLayer, OnceService};
use tower::Service as _;

use self::tunnel::Tunnels;
use crate::body::{OnItsWay, Pace, Paced};
use crate::config::Settings;
use crate::listen::Connection;
use crate::upstream::Upstream;

/// Everything behind hyper. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Front {
    once: OnceService<Upstream>,
    upstream: Upstream,
    tunnels: Tunnels,
    pace: Pace,
}

impl Front {
    pub(crate) fn new(layer: &OnceLayer, upstream: Upstream, settings: &Settings) -> Self {
        Self {
            once: tower::Layer::layer(layer, upstream.clone()),
            upstream,
            tunnels: Tunnels::default(),
            pace: Pace { pause_max: settings.body_pause_max, within: Some(settings.body_within) },
        }
    }

    /// What hyper calls for each request of `connection`.
    pub(crate) fn serve(&self, connection: Arc<Connection>) -> FrontService {
        FrontService { front: self.clone(), connection }
    }

    /// Connections that have switched protocols are cut off.
    pub(crate) async fn cut_tunnels(&self) {
        self.tunnels.cut().await;
    }

    async fn handle(
        mut self,
        request: Request<Incoming>,
        connection: Arc<Connection>,
    ) -> Result<Response<OnItsWay<Body>>, Infallible> {
        let in_hand = connection.request();
        if let Some(refusal) = judge::judge(&request, &self.upstream) {
            return Ok(refusal.map(|body| OnItsWay::new(body, in_hand)));
        }
        if let Some(protocol) = tunnel::protocol(&request) {
            // Boxed: it is seldom, and every other request would carry its room.
            let opening =
                self.tunnels.open(&self.upstream, request, protocol, connection, in_hand, self.pace);
            return Ok(Box::pin(opening).await);
        }
        let mut request = request.map(|body| Paced::new(body, self.pace));
        if let Some(identity) = peer::identity(&connection) {
            request.extensions_mut().insert(identity);
        }
        request.extensions_mut().insert(connection);
        let Ok(response) = self.once.call(request).await;
        note(&response);
        Ok(response.map(|body| OnItsWay::new(body, in_hand)))
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

/// The front, for one connection.
#[derive(Clone)]
pub(crate) struct FrontService {
    front: Front,
    connection: Arc<Connection>,
}

impl hyper::service::Service<Request<Incoming>> for FrontService {
    type Response = Response<OnItsWay<Body>>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        Box::pin(self.front.clone().handle(request, Arc::clone(&self.connection)))
    }
}
