//! NATS `JetStream`.

use std::time::Duration;

use async_nats::HeaderMap;
use async_nats::jetstream::{self, Context, stream};
use onlyonce_testkit::servers::NatsServer;
use tokio::runtime::Runtime;

use super::{Broker, GROUP, ORDERS, runtime};

pub(crate) struct Nats {
    // ORDER: the client ends before the server does.
    context: Context,
    runtime: Runtime,
    server: NatsServer,
}

impl Broker for Nats {
    fn start() -> Self {
        let (server, runtime) = (NatsServer::start().unwrap(), runtime());
        let context = runtime.block_on(async {
            let context = jetstream::new(async_nats::connect(server.url()).await.unwrap());
            let config = stream::Config { name: ORDERS.into(), ..Default::default() };
            context.create_stream(config).await.unwrap();
            context
        });
        Self { context, runtime, server }
    }

    fn source(&self, redelivered_after: Duration) -> String {
        let wait = redelivered_after.as_secs();
        format!("{}/{ORDERS}?group={GROUP}&ack_wait_seconds={wait}", self.server.url())
    }

    fn publish(&self, id: &str, body: &str) {
        let mut headers = HeaderMap::new();
        headers.insert("event-id", id);
        headers.insert("tenant", "acme");
        let body = body.to_owned().into();
        self.runtime.block_on(async {
            self.context.publish_with_headers(ORDERS, headers, body).await.unwrap().await.unwrap();
        });
    }

    fn left(&self) -> u64 {
        self.runtime.block_on(async {
            let stream = self.context.get_stream(ORDERS).await.unwrap();
            let info = stream.consumer_info(GROUP).await.unwrap();
            info.num_pending + u64::try_from(info.num_ack_pending).unwrap()
        })
    }

    fn dead_letters(&self) -> String {
        self.runtime.block_on(async {
            let stream = self.context.get_stream("orders-dead-letter").await.unwrap();
            let mut letters = Vec::new();
            for sequence in 1..=stream.cached_info().state.last_sequence {
                let letter = stream.get_raw_message(sequence).await.unwrap();
                letters.push(format!("{:?}", letter.headers));
            }
            letters.join("\n")
        })
    }
}
