//! `PostgreSQL`: one statement to claim, one to complete, each its own transaction; the server groups their syncs.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use onlyonce_bench::machine;
use tokio_postgres::{Client, NoTls, Statement};

use super::server::{self, PAUSE, Server, User};
use super::{Asked, Engine, Purpose};
use crate::Result;
use crate::pair::{FINGERPRINT, Key, OUTCOME_BYTES, Pair};

/// More of them group more syncs, until the processes get in each other's way. Statements on one are pipelined.
const CONNECTIONS: usize = 32;

/// What differs from the server's defaults, and never what makes a commit durable.
const SETTINGS: [&str; 8] = [
    "listen_addresses=",
    "fsync=on",
    "synchronous_commit=on",
    "full_page_writes=on",
    "shared_buffers=1GB",
    "max_wal_size=4GB",
    "checkpoint_timeout=15min",
    "wal_compression=off",
];

const TABLE: &str = "CREATE TABLE IF NOT EXISTS records
    (key bytea PRIMARY KEY, fingerprint bytea NOT NULL, owner bytea NOT NULL, outcome bytea)";
const CLAIM: &str =
    "INSERT INTO records (key, fingerprint, owner) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING";
const COMPLETE: &str = "UPDATE records SET outcome = $3 WHERE key = $1 AND owner = $2 AND outcome IS NULL";
const LOAD: &str = "INSERT INTO records (key, fingerprint, owner, outcome)
    SELECT loaded.key, $1, loaded.owner, loaded.outcome
    FROM unnest($2::bytea[], $3::bytea[], $4::bytea[]) AS loaded (key, owner, outcome)";

pub(super) struct Postgres {
    // ORDER: connections are closed before the server is stopped, which fields in this order are.
    connections: Vec<Connection>,
    next: AtomicUsize,
    server: Server,
}

struct Connection {
    client: Client,
    claim: Statement,
    complete: Statement,
    load: Statement,
}

impl Postgres {
    pub(super) async fn open(folder: &Path, purpose: Purpose) -> Result<Self> {
        let programs = programs()?;
        let user = User::instead_of_root("postgres")?;
        let cluster = folder.join("cluster");
        if !cluster.exists() {
            make(&programs, &cluster, user)?;
        }
        let sockets = server::sockets(user)?;
        let log = folder.join("server.log");
        let mut command = Command::new(programs.join("postgres"));
        command.arg("-D").arg(&cluster).arg("-k").arg(&sockets);
        command.args(SETTINGS.iter().flat_map(|setting| ["-c", setting]));
        if let Some(user) = user {
            user.run(&mut command);
        }
        let mut server = Server::start(&mut command, &log, sockets.clone())?;
        let first = connect_patiently(&sockets, &mut server, &log).await?;
        first.batch_execute(TABLE).await?;
        let mut connections = vec![Connection::prepare(first, purpose).await?];
        while connections.len() < CONNECTIONS {
            connections.push(Connection::prepare(connect(&sockets).await?, purpose).await?);
        }
        Ok(Self { connections, next: AtomicUsize::new(0), server })
    }

    fn connection(&self) -> &Connection {
        &self.connections[self.next.fetch_add(1, Ordering::Relaxed) % self.connections.len()]
    }
}

/// Where the newest server on this machine is.
fn programs() -> Result<PathBuf> {
    let version = |path: &PathBuf| path.file_name()?.to_str()?.parse::<u32>().ok();
    let mut versions: Vec<_> = fs::read_dir("/usr/lib/postgresql")
        .map_err(|error| format!("looking for PostgreSQL in /usr/lib/postgresql: {error}"))?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter_map(|path| Some((version(&path)?, path)))
        .collect();
    versions.sort();
    let (_, newest) = versions.pop().ok_or("no version of PostgreSQL in /usr/lib/postgresql")?;
    Ok(newest.join("bin"))
}

fn make(programs: &Path, cluster: &Path, user: Option<User>) -> Result<()> {
    fs::create_dir(cluster)?;
    fs::set_permissions(cluster, fs::Permissions::from_mode(0o700))?;
    let mut command = Command::new(programs.join("initdb"));
    command.arg("-D").arg(cluster).args(["-U", "bench", "-A", "trust", "-E", "UTF8", "--locale=C"]);
    if let Some(user) = user {
        user.own(cluster)?;
        user.run(&mut command);
    }
    machine::output(&mut command)?;
    Ok(())
}

async fn connect(sockets: &Path) -> Result<Client> {
    let mut config = tokio_postgres::Config::new();
    config.host_path(sockets).user("bench").dbname("postgres");
    let (client, connection) = config.connect(NoTls).await?;
    tokio::spawn(async move {
        // A connection that fails answers nobody any more: whoever waits for it says so.
        let _ = connection.await;
    });
    Ok(client)
}

/// Connects as soon as the server answers.
async fn connect_patiently(sockets: &Path, server: &mut Server, log: &Path) -> Result<Client> {
    loop {
        match connect(sockets).await {
            Ok(client) => return Ok(client),
            Err(_) => server.check(log)?,
        }
        tokio::time::sleep(PAUSE).await;
    }
}

impl Connection {
    async fn prepare(client: Client, purpose: Purpose) -> Result<Self> {
        if purpose == Purpose::Load {
            client.batch_execute("SET synchronous_commit = off").await?;
        }
        let claim = client.prepare(CLAIM).await?;
        let complete = client.prepare(COMPLETE).await?;
        let load = client.prepare(LOAD).await?;
        Ok(Self { client, claim, complete, load })
    }
}

impl Engine for Postgres {
    fn claim<'a>(&'a self, pair: &'a Pair) -> Asked<'a, Option<u64>> {
        Box::pin(async move {
            let Connection { client, claim, .. } = self.connection();
            let (key, owner) = (pair.key.as_slice(), pair.owner.as_slice());
            let inserted = client.execute(claim, &[&key, &FINGERPRINT.as_slice(), &owner]).await?;
            Ok((inserted == 1).then_some(0))
        })
    }

    fn complete<'a>(&'a self, pair: &'a Pair, _: u64) -> Asked<'a, ()> {
        Box::pin(async move {
            let Connection { client, complete, .. } = self.connection();
            let (key, owner) = (pair.key.as_slice(), pair.owner.as_slice());
            let updated = client.execute(complete, &[&key, &owner, &&*pair.outcome]).await?;
            (updated == 1).then_some(()).ok_or_else(|| "a claim that was granted is not there".into())
        })
    }

    fn load(&self, pairs: Vec<Pair>) -> Asked<'_, ()> {
        Box::pin(async move {
            let Connection { client, load, .. } = self.connection();
            let keys: Vec<&[u8]> = pairs.iter().map(|pair| pair.key.as_slice()).collect();
            let owners: Vec<&[u8]> = pairs.iter().map(|pair| pair.owner.as_slice()).collect();
            let outcomes: Vec<&[u8]> = pairs.iter().map(|pair| &*pair.outcome).collect();
            client.execute(load, &[&FINGERPRINT.as_slice(), &keys, &owners, &outcomes]).await?;
            Ok(())
        })
    }

    fn count(&self) -> Asked<'_, u64> {
        Box::pin(async move {
            let count = "SELECT count(*) FROM records WHERE octet_length(outcome) = $1";
            let length = i32::try_from(OUTCOME_BYTES)?;
            let count: i64 = self.connection().client.query_one(count, &[&length]).await?.get(0);
            Ok(count.try_into()?)
        })
    }

    fn outcome<'a>(&'a self, key: &'a Key) -> Asked<'a, Option<Bytes>> {
        Box::pin(async move {
            let select = "SELECT outcome FROM records WHERE key = $1";
            let row = self.connection().client.query_opt(select, &[&key.as_slice()]).await?;
            Ok(row.and_then(|row| row.get::<_, Option<Vec<u8>>>(0)).map(Bytes::from))
        })
    }

    fn server(&self) -> Option<u32> {
        Some(self.server.id())
    }
}
