//! A consumer of Kafka whose effects and marks are one `PostgreSQL` transaction: an event that is delivered again, or that was
//! published twice, has no second effect, whatever crashes.
//!
//! `DATABASE_URL=postgres://… SOURCE=kafka://localhost:9092/orders cargo run -p recipes --features kafka --bin kafka-inbox`.
//! Events are JSON (`{"customer": "ann", "amount": 100}`) and carry their id in the header `event-id`.

use std::env;
use std::sync::Arc;

use onlyonce_core::BoxError;
use onlyonce_inbox::transactional::BatchFuture;
use onlyonce_inbox::{BatchHandler, Batches, Handled, Marks, Message};
use onlyonce_sources::{Options, open};
use serde_json::Value;
use tokio_postgres::{Client, NoTls, Transaction};

const TABLE: &str = "CREATE TABLE IF NOT EXISTS invoices
    (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, customer text NOT NULL, amount bigint NOT NULL)";
const INVOICE: &str = "INSERT INTO invoices (customer, amount) VALUES ($1, $2)";

/// Writes an invoice for each event that is new.
struct Invoices;

impl BatchHandler for Invoices {
    fn handle<'t, 'c>(
        &'t self,
        transaction: &'t mut Transaction<'c>,
        messages: &'t [&'t Message],
    ) -> BatchFuture<'t>
    where
        'c: 't,
    {
        Box::pin(async move {
            for message in messages {
                let order: Value = serde_json::from_slice(&message.body)
                    // It will not get better: to the dead letters.
                    .map_err(|error| Handled::refused(format!("no JSON: {error}")))?;
                let (Some(customer), Some(amount)) = (order["customer"].as_str(), order["amount"].as_i64())
                else {
                    return Err(Handled::refused("no customer, or no amount"));
                };
                let written = transaction.execute(INVOICE, &[&customer, &amount]).await;
                written.map_err(|error| Handled::retry(error.to_string()))?;
            }
            Ok(())
        })
    }
}

#[tokio::main]
#[expect(clippy::print_stdout, reason = "a program says what it is at")]
async fn main() -> Result<(), BoxError> {
    let variable = |name| env::var(name).map_err(|_| format!("{name} is not set"));
    let (database, source) = (variable("DATABASE_URL")?, variable("SOURCE")?);
    let marks = Marks::new("public")?;
    let client = connect(&database).await?;
    client.batch_execute(&marks.migration()).await?;
    client.batch_execute(TABLE).await?;
    let source = open(&source, &Options::for_group("invoices")).await?;

    let connecting = move || {
        let database = database.clone();
        async move { connect(&database).await }
    };
    println!("consuming");
    Batches::new("invoices", Arc::from(source), marks, Invoices, connecting)
        // Ends what it is at, and leaves the rest to the next one.
        .run(async { drop(tokio::signal::ctrl_c().await) })
        .await?;
    Ok(())
}

async fn connect(database: &str) -> Result<Client, BoxError> {
    let (client, connection) = tokio_postgres::connect(database, NoTls).await?;
    tokio::spawn(connection);
    Ok(client)
}
