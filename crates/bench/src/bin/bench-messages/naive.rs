//! The loop that is usually written: one message at a time, one row for each, then its acknowledgement.
//!
//! As a careful user writes it: statements are prepared, connections are kept, and messages are fetched ahead.

use std::sync::Arc;

use onlyonce_core::transition::{Claim, ClaimAnswer, Complete, Token};
use onlyonce_core::{Fingerprint, Owner, Rules, Secret, Store};
use onlyonce_inbox::consumer::message_policy;
use onlyonce_inbox::source::FETCH_MAX;
use onlyonce_inbox::{Delivery, Handled, MessageId, Settlement, Source};
use tokio_postgres::Client;

use crate::Result;
use crate::effects::Counted;
use crate::ours::{CONSUMER, ID};

const MARK: &str = "INSERT INTO processed_events (consumer, event_id) VALUES ($1, $2) ON CONFLICT DO NOTHING";
const EFFECT: &str = "INSERT INTO effects VALUES ($1, $2)";

/// Handles every delivery by itself until `over`, and acknowledges it by itself.
pub(crate) async fn each(
    source: &dyn Source,
    over: impl Future<Output = ()>,
    mut handle: impl AsyncFnMut(&str, &Delivery) -> Result<()>,
) -> Result<()> {
    let handling = async {
        loop {
            for delivery in source.fetch(FETCH_MAX).await? {
                let id = delivery.message.headers.text(ID).ok_or("a message without an id")?;
                handle(id, &delivery).await?;
                for settled in source.settle(vec![(delivery.tag, Settlement::Ack)]).await? {
                    settled?;
                }
            }
        }
    };
    tokio::select! {
        () = over => {}
        ended = handling => return ended,
    }
    Ok(source.close().await?)
}

/// With a row in `PostgreSQL`.
pub(crate) async fn postgres(
    source: &dyn Source,
    client: &mut Client,
    over: impl Future<Output = ()>,
) -> Result<()> {
    let (mark, effect) = (client.prepare(MARK).await?, client.prepare(EFFECT).await?);
    each(source, over, async |id, delivery| {
        let transaction = client.transaction().await?;
        if transaction.execute(&mark, &[&CONSUMER, &id]).await? == 1 {
            transaction.execute(&effect, &[&id, &&delivery.message.body[..]]).await?;
        }
        Ok(transaction.commit().await?)
    })
    .await
}

/// With a key in Redis.
pub(crate) async fn redis(
    source: &dyn Source,
    url: &str,
    effects: &Counted,
    over: impl Future<Output = ()>,
) -> Result<()> {
    let mut connection = redis::Client::open(url)?.get_multiplexed_async_connection().await?;
    each(source, over, async |id, _| {
        let mut set = redis::cmd("SET");
        set.arg(format!("processed:{id}")).arg(1).arg("NX").arg("EX").arg(30 * 24 * 3600);
        if set.query_async::<Option<String>>(&mut connection).await?.is_some() {
            effects.add(id);
        }
        Ok(())
    })
    .await
}

/// With a claim and a completion in a store.
pub(crate) async fn store(
    source: &dyn Source,
    store: &dyn Store,
    effects: &Counted,
    over: impl Future<Output = ()>,
) -> Result<()> {
    let secret = store.secret(&Secret::random()?).await?;
    let terms = Arc::new(message_policy().terms().clone());
    each(source, over, async |id, delivery| {
        let name = MessageId::given(id).ok_or("a message without an id")?;
        let fingerprint = Fingerprint::builder(&secret, Rules::standard());
        let claim = Claim {
            id: name.for_consumer(CONSUMER).record_id(&secret),
            fingerprint: fingerprint.field("body", &delivery.message.body).finish(),
            owner: Owner::random()?,
            terms: Arc::clone(&terms),
        };
        let ClaimAnswer::Granted(grant) = store.claim(&claim).await? else { return Ok(()) };
        effects.add(id);
        let Handled::Done(outcome) = Handled::done() else { return Ok(()) };
        let token = Token { id: claim.id, owner: claim.owner, fence: grant.fence };
        store.complete(&Complete { token, outcome, retention: None }).await?;
        Ok(())
    })
    .await
}
