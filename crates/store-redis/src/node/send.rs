//! Sending calls to one server: which connection they take, what they know of the server, and how long they may take.

use std::sync::Arc;

use onlyonce_core::StoreError;
use redis::{Cmd, Pipeline, Value, cmd};
use tokio::time::timeout;

use super::waiting::Turn;
use super::{Live, Node, keeper};
use crate::asked::Call;
use crate::error;

/// One call, and how it must be sent.
#[derive(Clone, Copy)]
pub(crate) struct Sending<'a> {
    pub(crate) call: Call<'a>,
    /// The server takes the slot over, and serves it to those who say that they know.
    pub(crate) is_asking: bool,
    /// How often the server had forgotten the script.
    pub(crate) forgotten: u8,
}

impl<'a> Sending<'a> {
    pub(crate) const fn plainly(call: Call<'a>) -> Self {
        Self { call, is_asking: false, forgotten: 0 }
    }
}

/// What a server answered.
pub(crate) struct Sent {
    /// The connections that were used.
    pub(crate) live: Arc<Live>,
    /// One answer for each call; each may be an error of the server's own.
    pub(crate) values: Vec<Value>,
    /// The answer to what came last.
    pub(crate) last: Option<Value>,
}

impl Node {
    /// Sends one command and gives the server's answer, which may be an error of its own.
    pub(crate) async fn call(&self, call: &Cmd, doing: &'static str) -> Result<Value, StoreError> {
        Ok(self.call_over(Call::Packed(call), doing).await?.1)
    }

    /// The same, and the connections that were used.
    pub(crate) async fn call_over(
        &self,
        call: Call<'_>,
        doing: &'static str,
    ) -> Result<(Arc<Live>, Value), StoreError> {
        let live = self.connected(doing).await?;
        // ORDER: the connection first: it is handed out only after the server was looked at, so that a call that
        // waited for it knows of what was found.
        let command = call.packed(self.situation());
        // What changes a record may carry another call: reading one must not wait for the sync of a write.
        if let Call::For(_) = call
            && let Some(rider) = self.inner.rides.next()
        {
            let value = Box::pin(self.carry(&live, command.into_owned(), rider, doing)).await?;
            return Ok((live, value));
        }
        let mut connection = live.connection();
        let value = self.bounded(&live, doing, connection.send_packed_command(&command)).await?;
        Ok((live, value))
    }

    /// Sends calls together, in order, then `last`, all over one connection.
    pub(crate) async fn send(
        &self,
        sendings: &[Sending<'_>],
        last: Option<&Cmd>,
        doing: &'static str,
    ) -> Result<Sent, StoreError> {
        let live = self.connected(doing).await?;
        let mut values = self.exchange(&live, sendings, last, doing).await?;
        let last = last.and_then(|_| values.pop());
        let mut values = values.into_iter();
        let values = sendings.iter().map(|sending| {
            if sending.is_asking {
                values.next();
            }
            values.next().unwrap_or_default()
        });
        Ok(Sent { values: values.collect(), last, live })
    }

    async fn exchange(
        &self,
        live: &Arc<Live>,
        sendings: &[Sending<'_>],
        last: Option<&Cmd>,
        doing: &'static str,
    ) -> Result<Vec<Value>, StoreError> {
        let mut turn = if last.is_some() { Some(self.waiting(live, doing).await?) } else { None };
        let lent = turn.as_mut().and_then(|turn| turn.connection.take());
        let mut connection = lent.unwrap_or_else(|| live.connection());
        // ORDER: the connection first, as for one call.
        let all = self.packed(sendings, last, doing)?;
        let sent = connection.send_packed_commands(&all, 0, all.len());
        let values = self.bounded(live, doing, sent).await?;
        // One that broke, or that is waited for no longer, is not given back.
        if let Some(turn) = &mut turn {
            turn.connection = Some(connection);
        }
        Ok(values)
    }

    /// A turn on a connection for what is waited for. Nothing was sent yet when there is none.
    async fn waiting<'a>(&self, live: &'a Arc<Live>, doing: &'static str) -> Result<Turn<'a>, StoreError> {
        let open = async {
            let mut turn = live.waiting.turn().await;
            if turn.connection.is_none() {
                let opened = keeper::open(&self.inner, &live.info).await?;
                // ORDER: if the others still answer now, the server did not start again meanwhile, and what was seen
                // of it holds for this connection.
                keeper::ping(&mut live.connections[0].clone()).await?;
                turn.connection = Some(opened);
            }
            Ok::<_, StoreError>(turn)
        };
        let failed = |why: &str| error::unreachable(&format!("no connection to wait on: {why}"), doing);
        match timeout(self.inner.shared.options.timeout, open).await {
            Ok(Ok(turn)) => Ok(turn),
            Ok(Err(failure)) => {
                self.inner.suspected.notify_one();
                Err(failed(&keeper::describe(&failure)))
            }
            Err(_) => Err(failed("all are waiting")),
        }
    }

    fn packed(
        &self,
        sendings: &[Sending<'_>],
        last: Option<&Cmd>,
        doing: &'static str,
    ) -> Result<Pipeline, StoreError> {
        let situation = self.situation();
        let mut all = Pipeline::with_capacity(sendings.len() + 1);
        let mut is_loaded = false;
        for sending in sendings {
            if sending.is_asking {
                all.add_command(cmd("ASKING"));
            }
            let mut call = sending.call.packed(situation).into_owned();
            // They call the same script: the first brings it along. If it is forgotten again meanwhile, each does.
            if sending.forgotten > 1 || sending.forgotten == 1 && !is_loaded {
                let whole = self.inner.shared.scripts.with_text(&call);
                call = whole.ok_or_else(|| error::unreachable("the script was never loaded", doing))?;
                is_loaded = true;
            }
            all.add_command(call);
        }
        if let Some(last) = last {
            all.add_command(last.clone());
        }
        Ok(all)
    }

    /// The connection, or the next one there is within the time of a call.
    async fn connected(&self, doing: &'static str) -> Result<Arc<Live>, StoreError> {
        if let Some(live) = self.live() {
            return Ok(live);
        }
        let mut link = self.inner.link.subscribe();
        let within = self.inner.shared.options.timeout;
        let connected = timeout(within, link.wait_for(|link| link.live.is_some() || link.is_retired)).await;
        if let Ok(Ok(link)) = connected
            && let Some(live) = &link.live
        {
            return Ok(Arc::clone(live));
        }
        let why = self.inner.link.borrow().why.as_ref().map(|(_, why)| Arc::clone(why));
        Err(error::unreachable(why.as_deref().unwrap_or("there is no connection yet"), doing))
    }

    pub(super) async fn bounded<T>(
        &self,
        live: &Arc<Live>,
        doing: &'static str,
        call: impl Future<Output = Result<T, redis::RedisError>>,
    ) -> Result<T, StoreError> {
        match timeout(self.inner.shared.options.timeout, call).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(error)) => {
                self.inner.give_up(live);
                Err(error::lost(error, doing))
            }
            Err(_) => {
                self.inner.suspected.notify_one();
                Err(error::timed_out(doing))
            }
        }
    }
}
