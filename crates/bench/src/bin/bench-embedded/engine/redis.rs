//! Redis with `appendfsync always`: it syncs once for all commands it has read, before it answers them.

mod connection;

use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;

use self::connection::{Connection, Reply};
use super::server::{self, PAUSE, Server};
use super::value::{claimed_value, completed_value, outcome_in};
use super::{Asked, Engine, Purpose};
use crate::Result;
use crate::pair::{Key, Pair};

/// Redis reads 16 KiB from a connection before it syncs: a few make larger groups, more only cost time.
const CONNECTIONS: usize = 4;

pub(super) struct Redis {
    // ORDER: connections are closed before the server is stopped, which fields in this order are.
    connections: Vec<Connection>,
    next: AtomicUsize,
    server: Server,
}

impl Redis {
    pub(super) async fn open(folder: &Path, purpose: Purpose) -> Result<Self> {
        let sockets = server::sockets(None)?;
        let socket = sockets.join("redis");
        let log = folder.join("server.log");
        let mut command = Command::new("redis-server");
        command.args(["--port", "0", "--unixsocket"]).arg(&socket).arg("--dir").arg(folder);
        command.args(["--appendonly", "yes", "--appendfsync"]);
        command.arg(if purpose == Purpose::Load { "no" } else { "always" });
        // A rewrite of the file in the background would only cost it time.
        command.args([
            "--auto-aof-rewrite-percentage",
            "0",
            "--save",
            "",
            "--maxmemory-policy",
            "noeviction",
        ]);
        let mut server = Server::start(&mut command, &log, sockets)?;
        wait_until_loaded(&socket, &mut server, &log).await?;
        let mut connections = Vec::new();
        for _ in 0..CONNECTIONS {
            connections.push(Connection::open(&socket).await?);
        }
        Ok(Self { connections, next: AtomicUsize::new(0), server })
    }

    async fn ask(&self, parts: &[&[u8]]) -> Result<Reply> {
        let next = self.next.fetch_add(1, Ordering::Relaxed) % self.connections.len();
        self.connections[next].ask(parts).await
    }
}

/// Redis refuses commands while it reads its file.
async fn wait_until_loaded(socket: &Path, server: &mut Server, log: &Path) -> Result<()> {
    loop {
        if let Ok(connection) = Connection::open(socket).await
            && connection.ask(&[b"PING"]).await.is_ok()
        {
            return Ok(());
        }
        server.check(log)?;
        tokio::time::sleep(PAUSE).await;
    }
}

fn unexpected(reply: &Reply) -> Box<dyn std::error::Error + Send + Sync> {
    format!("an unexpected answer: {reply:?}").into()
}

impl Engine for Redis {
    fn claim<'a>(&'a self, pair: &'a Pair) -> Asked<'a, Option<u64>> {
        Box::pin(async move {
            match self.ask(&[b"SET", &pair.key, &claimed_value(pair), b"NX"]).await? {
                Reply::Ok => Ok(Some(0)),
                Reply::Nothing => Ok(None),
                other => Err(unexpected(&other)),
            }
        })
    }

    fn complete<'a>(&'a self, pair: &'a Pair, _: u64) -> Asked<'a, ()> {
        Box::pin(async move {
            match self.ask(&[b"SET", &pair.key, &completed_value(pair), b"XX"]).await? {
                Reply::Ok => Ok(()),
                Reply::Nothing => Err("a claim that was granted is not there".into()),
                other => Err(unexpected(&other)),
            }
        })
    }

    fn load(&self, pairs: Vec<Pair>) -> Asked<'_, ()> {
        Box::pin(async move {
            let mut values: Vec<Vec<u8>> = vec![b"MSET".to_vec()];
            for pair in &pairs {
                values.push(pair.key.to_vec());
                values.push(completed_value(pair).to_vec());
            }
            let parts: Vec<_> = values.iter().map(Vec::as_slice).collect();
            match self.ask(&parts).await? {
                Reply::Ok => Ok(()),
                other => Err(unexpected(&other)),
            }
        })
    }

    fn count(&self) -> Asked<'_, u64> {
        Box::pin(async move {
            match self.ask(&[b"DBSIZE"]).await? {
                Reply::Number(count) => Ok(count.try_into()?),
                other => Err(unexpected(&other)),
            }
        })
    }

    fn outcome<'a>(&'a self, key: &'a Key) -> Asked<'a, Option<Bytes>> {
        Box::pin(async move {
            match self.ask(&[b"GET", key]).await? {
                Reply::Bytes(value) => Ok(outcome_in(&value)),
                Reply::Nothing => Ok(None),
                other => Err(unexpected(&other)),
            }
        })
    }

    fn server(&self) -> Option<u32> {
        Some(self.server.id())
    }
}
