//! Events from Kafka, published and delivered more than once: one invoice each, also when the consumer is killed.

use std::process::Command;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use onlyonce_testkit::servers::PostgresServer;
use rdkafka::ClientConfig;
use rdkafka::message::{Header, OwnedHeaders};
use rdkafka::mocking::MockCluster;
use rdkafka::producer::{DefaultProducerContext, FutureProducer, FutureRecord};
use tokio_postgres::NoTls;

use crate::program::Program;

/// librdkafka's cluster, in a thread of its own for as long as the test runs. Its address.
fn cluster() -> String {
    let (tell, told) = channel();
    thread::spawn(move || {
        let cluster = MockCluster::<DefaultProducerContext>::new(1).unwrap();
        for topic in ["orders", "orders.dead-letter"] {
            cluster.create_topic(topic, 1, 1).unwrap();
        }
        tell.send(cluster.bootstrap_servers()).unwrap();
        loop {
            thread::park();
        }
    });
    told.recv().unwrap()
}

async fn publish(producer: &FutureProducer, id: &str, body: &str) {
    let headers = OwnedHeaders::new().insert(Header { key: "event-id", value: Some(id) });
    let record: FutureRecord<'_, str, str> = FutureRecord::to("orders").headers(headers).payload(body);
    producer.send(record, Duration::from_mins(1)).await.unwrap();
}

/// Returns when there is an invoice of `customer`.
async fn wait_for(client: &tokio_postgres::Client, customer: &str) {
    let count = "SELECT count(*) FROM invoices WHERE customer = $1";
    while client.query_one(count, &[&customer]).await.unwrap().get::<_, i64>(0) == 0 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_makes_one_invoice_however_often_it_comes() {
    let server = PostgresServer::start(&[]).unwrap();
    let address = cluster();
    let producer: FutureProducer = ClientConfig::new().set("bootstrap.servers", &address).create().unwrap();
    let consumer = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_kafka-inbox"));
        command.env("DATABASE_URL", server.url());
        // The mock lets a group that changes wait for nearly as long as a member may be silent.
        command.env("SOURCE", format!("kafka://{address}/orders?session_seconds=6"));
        Program::start(&mut command)
    };
    let running = consumer();
    let (client, connection) = tokio_postgres::connect(&server.url(), NoTls).await.unwrap();
    tokio::spawn(connection);
    for _ in 0..3 {
        publish(&producer, "order-1", r#"{"customer": "ann", "amount": 100}"#).await;
    }
    publish(&producer, "order-2", "not JSON").await;
    publish(&producer, "order-3", r#"{"customer": "bob", "amount": 50}"#).await;
    wait_for(&client, "bob").await;
    // Killed, wherever it was: what it did not commit at the broker comes again to the next one.
    drop(running);
    let _running = consumer();
    publish(&producer, "order-1", r#"{"customer": "ann", "amount": 100}"#).await;
    publish(&producer, "order-4", r#"{"customer": "eve", "amount": 70}"#).await;
    wait_for(&client, "eve").await;
    let rows = client.query("SELECT customer, amount FROM invoices ORDER BY customer", &[]).await.unwrap();
    let invoices: Vec<(String, i64)> = rows.iter().map(|row| (row.get(0), row.get(1))).collect();
    assert_eq!(invoices, [("ann".into(), 100), ("bob".into(), 50), ("eve".into(), 70)]);
}
