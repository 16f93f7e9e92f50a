//! The way of this project: batches in one transaction each where the effect is in `PostgreSQL`, the consumer elsewhere.

use std::sync::Arc;

use onlyonce_core::{BoxError, Store};
use onlyonce_inbox::transactional::BatchFuture;
use onlyonce_inbox::{BatchHandler, Batches, Consumer, Handled, Marks, Message, Source, Work};
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, NoTls, Transaction};

use crate::Result;
use crate::effects::Counted;

/// The consumer's name, for either way.
pub(crate) const CONSUMER: &str = "bench";
/// Where a producer wrote a message's id.
pub(crate) const ID: &str = "event-id";
/// Handlers that run at a time: they have nothing to wait for, so these are what shares a round trip.
const CONCURRENCY: usize = 1000;

/// A connection, driven on this runtime.
pub(crate) async fn connect(url: &str) -> std::result::Result<Client, tokio_postgres::Error> {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
    tokio::spawn(connection);
    Ok(client)
}

/// Consumes in batches until `over`.
pub(crate) async fn batches(
    source: Arc<dyn Source>,
    url: String,
    (batch, lanes): (usize, usize),
    over: impl Future<Output = ()> + Send,
) -> Result<()> {
    let connect = move || {
        let url = url.clone();
        async move { connect(&url).await.map_err(BoxError::from) }
    };
    let batches = Batches::new(CONSUMER, source, Marks::new("public")?, Rows, connect);
    Ok(batches.with_bounds(batch, lanes)?.run(over).await?)
}

/// One row for each message, all in one statement.
struct Rows;

impl BatchHandler for Rows {
    fn handle<'t, 'c>(
        &'t self,
        transaction: &'t mut Transaction<'c>,
        messages: &'t [&'t Message],
    ) -> BatchFuture<'t>
    where
        'c: 't,
    {
        Box::pin(async move {
            let ids: Vec<&str> =
                messages.iter().map(|message| message.headers.text(ID).unwrap_or_default()).collect();
            let bodies: Vec<&[u8]> = messages.iter().map(|message| &message.body[..]).collect();
            let insert = "INSERT INTO effects SELECT * FROM unnest($1::text[], $2::bytea[])";
            let rows: [(&(dyn ToSql + Sync), Type); 2] =
                [(&ids, Type::TEXT_ARRAY), (&bodies, Type::BYTEA_ARRAY)];
            let written = transaction.execute_typed(insert, &rows).await;
            written.map(drop).map_err(|error| Handled::retry(error.to_string()))
        })
    }
}

/// Consumes with claims in `store` until `over`.
pub(crate) async fn consumer(
    source: Arc<dyn Source>,
    store: Arc<dyn Store>,
    effects: Counted,
    over: impl Future<Output = ()> + Send,
) -> Result<()> {
    let handler = move |work: Work| {
        effects.add(work.message().headers.text(ID).unwrap_or_default());
        std::future::ready(Handled::done())
    };
    let consumer = Consumer::builder(CONSUMER, source, store, handler);
    let consumer = consumer.concurrency(CONCURRENCY).batch_max(CONCURRENCY).build().await?;
    Ok(consumer.run(over).await?)
}
