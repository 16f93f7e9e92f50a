//! The caller of the tour: orders go through the sidecar, counts come straight from the payments API.

use std::net::SocketAddr;
use std::time::Duration;

use onlyonce::clock::{Clock as _, SystemClock};
use tokio::time::timeout;

use crate::check::probe::Request;
use crate::check::target::Target;
use crate::check::wire::{Connection, Reply, Wire};
use crate::demo::place::Place;
use crate::failure::Failure;

/// How long an answer may take; longer than anything here is slow on purpose.
const ANSWER_WITHIN: Duration = Duration::from_mins(1);
/// How long the payments API may take to have seen a request, and a key to settle.
const SEEN_WITHIN: Duration = Duration::from_secs(30);
const ASK_AGAIN: Duration = Duration::from_millis(20);

/// One order, as it is sent.
#[derive(Debug, Clone)]
pub(super) struct Order {
    key: &'static str,
    amount: u32,
    headers: Vec<(String, String)>,
}

impl Order {
    pub(super) fn new(key: &'static str, amount: u32) -> Self {
        Self { key, amount, headers: Vec::new() }
    }

    /// The same order with a wish for the payments API.
    pub(super) fn with(&self, name: &str, value: &str) -> Self {
        let mut order = self.clone();
        order.headers.push((name.to_owned(), value.to_owned()));
        order
    }
}

#[derive(Debug)]
pub(super) struct Caller<'a> {
    place: &'a Place,
    sidecar: Wire,
    payments: Wire,
    clock: SystemClock,
}

impl<'a> Caller<'a> {
    pub(super) async fn new(place: &'a Place) -> Result<Self, Failure> {
        Ok(Self {
            place,
            sidecar: wire(place.listen, "/payments").await?,
            payments: wire(place.upstream, "/payments/count").await?,
            clock: SystemClock::new(),
        })
    }

    /// Sends the order and reads the answer.
    pub(super) async fn pay(&self, order: &Order) -> Reply {
        self.sidecar.exchange(&self.bytes(order)).await.reply
    }

    /// Sends the order until it is no longer in flight.
    pub(super) async fn settle(&self, order: &Order) -> Reply {
        let settled = async {
            loop {
                match self.pay(order).await {
                    Ok(answer) if answer.status == 409 => self.clock.sleep(ASK_AGAIN).await,
                    reply => return reply,
                }
            }
        };
        match timeout(SEEN_WITHIN, settled).await {
            Ok(reply) => reply,
            Err(_) => self.pay(order).await,
        }
    }

    /// Sends the order and comes back once the payments API has made the payment; nobody has read an answer.
    pub(super) async fn begin(&self, order: &Order, count: u64) -> Result<Connection, Failure> {
        let connection = self.sidecar.connect().await;
        let mut connection =
            connection.map_err(|silence| Failure::Unavailable(silence.to_string().into()))?;
        connection.send(&self.bytes(order)).await;
        self.count_is(count).await?;
        Ok(connection)
    }

    /// Sends the order and hangs up once the payment is made.
    pub(super) async fn hang_up(&self, order: &Order, count: u64) -> Result<(), Failure> {
        self.begin(order, count).await.map(drop)
    }

    /// How many payments were made.
    pub(super) async fn count(&self) -> Result<u64, Failure> {
        let request = format!(
            "GET {} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n",
            self.payments.target.path, self.payments.target.authority
        );
        let reply = self.payments.exchange(request.as_bytes()).await.reply;
        let answer = reply.map_err(|silence| Failure::Unavailable(silence.to_string().into()))?;
        let count = std::str::from_utf8(&answer.body).ok().and_then(|text| text.parse().ok());
        count.ok_or_else(|| Failure::Refused("the payments API does not tell a number of payments".into()))
    }

    /// Waits until so many payments were made.
    pub(super) async fn count_is(&self, count: u64) -> Result<(), Failure> {
        let reached = async {
            while self.count().await? < count {
                self.clock.sleep(ASK_AGAIN).await;
            }
            Ok(())
        };
        match timeout(SEEN_WITHIN, reached).await {
            Ok(reached) => reached,
            Err(_) => Err(Failure::Unavailable("the payments API was not asked in time".into())),
        }
    }

    fn bytes(&self, order: &Order) -> Vec<u8> {
        let target = &self.sidecar.target;
        let request = Request {
            method: "POST".to_owned(),
            path: target.path.clone(),
            key_name: "Idempotency-Key".to_owned(),
            keys: vec![format!("\"{}\"", self.place.key(order.key)).into_bytes()],
            content_type: "application/json".to_owned(),
            headers: order.headers.clone(),
            body: format!("{{\"amount\": {}}}", order.amount).into_bytes(),
        };
        request.bytes(&target.authority)
    }
}

async fn wire(address: SocketAddr, path: &str) -> Result<Wire, Failure> {
    let target: Target =
        format!("http://{address}{path}").parse().map_err(|error: String| Failure::Refused(error.into()))?;
    Wire::new(target, None, ANSWER_WITHIN).await.map_err(super::super::system)
}
