//! Unary gRPC calls through the layer, with tonic on both sides.
#![expect(clippy::unwrap_used, reason = "a failed check panics")]

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll};

use onlyonce_core::{Engine, MemoryStore};
use onlyonce_http::{OnceLayer, Rules};
use onlyonce_testkit::run;
use tokio::net::TcpListener;
use tonic::body::Body;
use tonic::codegen::{BoxFuture, Service, http};
use tonic::server::{NamedService, UnaryService};
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Channel, Server};
use tonic::{Code, Request, Response, Status};
use tonic_prost::ProstCodec;

/// `rpc Pay(StringValue) returns (StringValue)`: refuses what it is told to refuse, and counts.
#[derive(Clone, Default)]
struct Payments(Arc<AtomicU32>);

impl NamedService for Payments {
    const NAME: &'static str = "test.Payments";
}

impl UnaryService<String> for Payments {
    type Response = String;
    type Future = BoxFuture<Response<String>, Status>;

    fn call(&mut self, request: Request<String>) -> Self::Future {
        let effect = self.0.fetch_add(1, Ordering::SeqCst) + 1;
        Box::pin(async move {
            match request.into_inner().as_str() {
                "invalid" => Err(Status::invalid_argument("no")),
                "unavailable" => Err(Status::unavailable("later")),
                "late" => Err(Status::deadline_exceeded("who knows")),
                text => Ok(Response::new(format!("{text} {effect}"))),
            }
        })
    }
}

impl<B> Service<http::Request<B>> for Payments
where
    B: tonic::codegen::Body + Send + 'static,
    B::Error: Into<tonic::codegen::StdError> + Send + 'static,
{
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<Self::Response, Infallible>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<B>) -> Self::Future {
        let service = self.clone();
        Box::pin(async move {
            let mut grpc = tonic::server::Grpc::new(ProstCodec::<String, String>::default());
            Ok(grpc.unary(service, request).await)
        })
    }
}

struct Caller(tonic::client::Grpc<Channel>);

impl Caller {
    async fn new(rules: Rules) -> (Self, Arc<AtomicU32>) {
        let engine = Engine::builder(Arc::new(MemoryStore::default())).build().await.unwrap();
        let layer = OnceLayer::new(engine, rules).unwrap();
        let payments = Payments::default();
        let effects = payments.0.clone();
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let serving = Server::builder().layer(layer).add_service(payments);
        tokio::spawn(serving.serve_with_incoming(TcpIncoming::from(listener)));
        let channel = Channel::from_shared(url).unwrap().connect().await.unwrap();
        (Self(tonic::client::Grpc::new(channel)), effects)
    }

    async fn pay(&mut self, key: &str, text: &str) -> Result<Response<String>, Status> {
        self.0.ready().await.unwrap();
        let mut request = Request::new(text.to_owned());
        request.metadata_mut().insert("idempotency-key", key.parse().unwrap());
        request.metadata_mut().insert("authorization", "Bearer alice".parse().unwrap());
        let path = http::uri::PathAndQuery::from_static("/test.Payments/Pay");
        self.0.unary(request, path, ProstCodec::<String, String>::default()).await
    }
}

#[test]
fn a_unary_call_is_run_once_and_replayed_with_its_trailers() {
    run(async {
        let (mut caller, effects) = Caller::new(Rules::default()).await;
        for replayed in ["false", "true", "true"] {
            let answer = caller.pay("k", "pay").await.unwrap();
            assert_eq!(answer.metadata().get("idempotency-replayed").unwrap(), replayed);
            assert_eq!(answer.into_inner(), "pay 1");
        }
        assert_eq!(caller.pay("k2", "pay").await.unwrap().into_inner(), "pay 2");
        assert_eq!(effects.load(Ordering::SeqCst), 2);
    });
}

#[test]
fn refusals_are_grpc_statuses() {
    run(async {
        let (mut caller, effects) = Caller::new(Rules { required: Some(true), ..Rules::default() }).await;
        caller.pay("k", "pay").await.unwrap();
        let reused = caller.pay("k", "other").await.unwrap_err();
        assert_eq!(reused.code(), Code::InvalidArgument);
        assert!(reused.message().starts_with("key-reused: "), "{}", reused.message());
        assert_eq!(caller.pay("\"open", "pay").await.unwrap_err().code(), Code::InvalidArgument);
        assert_eq!(effects.load(Ordering::SeqCst), 1);
    });
}

#[test]
fn grpc_codes_are_classified_as_the_statuses_they_stand_for() {
    run(async {
        let (mut caller, effects) = Caller::new(Rules::default()).await;
        for (times, text, code) in
            [(1, "invalid", Code::InvalidArgument), (3, "unavailable", Code::Unavailable)]
        {
            for again in 0..2 {
                assert_eq!(caller.pay(text, text).await.unwrap_err().code(), code);
                assert_eq!(effects.load(Ordering::SeqCst), times + again, "{text} runs again");
            }
        }
        assert_eq!(caller.pay("late", "late").await.unwrap_err().code(), Code::DeadlineExceeded);
        let unknown = caller.pay("late", "late").await.unwrap_err();
        assert_eq!(unknown.code(), Code::FailedPrecondition);
        assert!(unknown.message().starts_with("outcome-unknown: "), "{}", unknown.message());
        assert_eq!(effects.load(Ordering::SeqCst), 5);
    });
}
