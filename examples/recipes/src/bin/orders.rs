//! Orders that are created once with nothing but the database: a unique constraint on what names the order, and an upsert
//! that an old message cannot turn back.
//!
//! `DATABASE_URL=postgres://… cargo run -p recipes --bin orders -- create ann cart-7 100`, as often as you like: one order, the same
//! number. `… -- price apple 120 2` sets a price by version.

use std::env;
use std::error::Error;

use tokio_postgres::{Client, NoTls};

/// `reference` is the customer's own name for the order. The constraint, not a look beforehand, is what makes it unique.
const TABLES: &str = "
    CREATE TABLE IF NOT EXISTS orders (
        id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        customer text NOT NULL, reference text NOT NULL, amount bigint NOT NULL,
        UNIQUE (customer, reference));
    CREATE TABLE IF NOT EXISTS prices (item text PRIMARY KEY, price bigint NOT NULL, version bigint NOT NULL)";
const CREATE: &str = "INSERT INTO orders (customer, reference, amount) VALUES ($1, $2, $3)
    ON CONFLICT (customer, reference) DO NOTHING RETURNING id";
const FIND: &str = "SELECT id, amount FROM orders WHERE customer = $1 AND reference = $2";
const PRICE: &str = "INSERT INTO prices AS p (item, price, version) VALUES ($1, $2, $3)
    ON CONFLICT (item) DO UPDATE SET price = excluded.price, version = excluded.version
    WHERE p.version < excluded.version";

#[tokio::main]
#[expect(clippy::print_stdout, reason = "a program says what came of it")]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = env::var("DATABASE_URL").map_err(|_| "DATABASE_URL is not set")?;
    let (client, connection) = tokio_postgres::connect(&url, NoTls).await?;
    tokio::spawn(connection);
    let arguments: Vec<_> = env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["prepare"] => client.batch_execute(TABLES).await?,
        ["create", customer, reference, amount] => {
            println!("{}", create(&client, customer, reference, amount.parse()?).await?);
        }
        ["price", item, price, version] => {
            let (price, version): (i64, i64) = (price.parse()?, version.parse()?);
            let changed = client.execute(PRICE, &[&item, &price, &version]).await?;
            println!("{}", if changed == 1 { "set" } else { "older than what is there: nothing changed" });
        }
        _ => {
            return Err("orders prepare | create CUSTOMER REFERENCE AMOUNT | price ITEM PRICE VERSION".into());
        }
    }
    Ok(())
}

/// Creates the order, or finds the one that was created under this reference.
async fn create(
    client: &Client,
    customer: &str,
    reference: &str,
    amount: i64,
) -> Result<String, Box<dyn Error>> {
    // One statement: of two at the same moment one waits for the other and then sees its row.
    if let Some(row) = client.query_opt(CREATE, &[&customer, &reference, &amount]).await? {
        return Ok(format!("order {} created", row.get::<_, i64>(0)));
    }
    let row = client.query_one(FIND, &[&customer, &reference]).await?;
    let (order, ordered): (i64, i64) = (row.get(0), row.get(1));
    if ordered != amount {
        return Err(format!(
            "{reference} is order {order} of {ordered}: another one needs another reference"
        )
        .into());
    }
    Ok(format!("order {order} was there"))
}
