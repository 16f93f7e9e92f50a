//! Protocol switches (WebSocket): passed through, once the upstream has agreed, and only where no key can be.
//!
//! The switch is asked for with GET, which is never protected. On any other method `Upgrade` is dropped like every
//! field of a hop, and the request takes the usual way.

use http::header::{CONNECTION, HeaderValue, UPGRADE};
use http::{Method, Request, Response, StatusCode, Version};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use onlyonce_http::Body;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::body::{OnItsWay, Pace, Paced};
use crate::listen::{Connection, InHand, Received};
use crate::upstream::{Upstream, hop};
use std::sync::Arc;

/// Connections that have switched.
#[derive(Clone, Default)]
pub(super) struct Tunnels {
    open: TaskTracker,
    cutting: CancellationToken,
}

/// The protocol that a request may switch to.
pub(super) fn protocol(request: &Request<Received>) -> Option<HeaderValue> {
    if request.method() != Method::GET || request.version() != Version::HTTP_11 {
        return None;
    }
    // Nothing speaks HTTP/2 this way; it is only good for getting requests past a proxy.
    hop::upgrade(request.headers()).filter(|protocol| !protocol.as_bytes().eq_ignore_ascii_case(b"h2c"))
}

impl Tunnels {
    /// Asks the upstream to switch, and connects both sides if it agrees.
    pub(super) async fn open(
        &self,
        upstream: &Upstream,
        mut request: Request<Received>,
        protocol: HeaderValue,
        connection: Arc<Connection>,
        in_hand: InHand,
        pace: Pace,
    ) -> Response<OnItsWay<Body>> {
        let client = hyper::upgrade::on(&mut request);
        let request = request.map(|body| Body::new(Paced::new(body, pace)));
        let upstream = upstream.for_client(Arc::clone(&connection));
        let mut response = match upstream.send_upgrade(request, protocol).await {
            Ok(response) if response.status() == StatusCode::SWITCHING_PROTOCOLS => response,
            Ok(response) => return plain(upstream.answer(response), in_hand),
            Err(response) => return plain(*response, in_hand),
        };
        let server = hyper::upgrade::on(&mut response);
        let agreed = response.headers().get(UPGRADE).cloned();
        let mut answer =
            upstream.answer(response).map(|_| OnItsWay::new(Body::empty(), connection.request()));
        answer.headers_mut().insert(CONNECTION, HeaderValue::from_static("upgrade"));
        if let Some(agreed) = agreed {
            answer.headers_mut().insert(UPGRADE, agreed);
        }
        // ORDER: before the client can know of the switch, so that its first bytes are not taken for a request.
        connection.upgrade();
        let cutting = self.cutting.clone();
        self.open.spawn(async move {
            tokio::select! {
                () = join(client, server) => {}
                () = cutting.cancelled() => {}
            }
            drop(in_hand);
        });
        answer
    }

    /// Cuts all off.
    pub(super) async fn cut(&self) {
        self.cutting.cancel();
        self.open.close();
        self.open.wait().await;
    }
}

async fn join(client: OnUpgrade, server: OnUpgrade) {
    match tokio::try_join!(client, server) {
        Ok((client, server)) => {
            let (mut client, mut server) = (TokioIo::new(client), TokioIo::new(server));
            if let Err(error) = tokio::io::copy_bidirectional(&mut client, &mut server).await {
                tracing::debug!(%error, "a switched connection ended");
            }
        }
        Err(error) => tracing::debug!(%error, "the switch was agreed on but did not happen"),
    }
}

fn plain(response: Response<Body>, in_hand: InHand) -> Response<OnItsWay<Body>> {
    response.map(|body| OnItsWay::new(body, in_hand))
}
