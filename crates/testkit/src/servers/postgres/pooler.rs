//! A private `PgBouncer` in front of a private server, in transaction mode: a session lasts for one transaction.

use std::io;
use std::path::PathBuf;
use std::process::Command;

use super::{POSTGRES_ROLE, PostgresServer};
use crate::servers::{Port, Process};

/// How many connections to the server its clients share.
const SERVER_CONNECTIONS: usize = 4;

/// One private pooler.
#[derive(Debug)]
pub struct PgBouncer {
    // ORDER: the process ends before its port is given back.
    _process: Process,
    port: Port,
}

impl PgBouncer {
    /// Starts a pooler in front of `server`.
    pub fn start(server: &PostgresServer) -> io::Result<Self> {
        let port = Port::free()?;
        let settings = server.folder().join(format!("pgbouncer-{}.ini", port.get()));
        std::fs::write(
            &settings,
            format!(
                "[databases]\npostgres = host=127.0.0.1 port={} user={POSTGRES_ROLE}\n\
                [pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {}\nunix_socket_dir =\nauth_type = any\n\
                pool_mode = transaction\nmax_client_conn = 500\ndefault_pool_size = {SERVER_CONNECTIONS}\n",
                server.port(),
                port.get(),
            ),
        )?;
        let mut command = Command::new(program());
        command.arg(&settings);
        server.run_as_its_user(&mut command);
        let process = Process::start(command, |line| line.contains("process up"))?;
        Ok(Self { _process: process, port })
    }

    /// The URL of the server's first database by way of the pooler.
    pub fn url(&self, server: &PostgresServer) -> String {
        format!("{}&pooler=transaction", server.url_at(self.port.get()))
    }
}

/// Debian puts it where only root looks.
fn program() -> PathBuf {
    let debian = PathBuf::from("/usr/sbin/pgbouncer");
    if debian.exists() { debian } else { "pgbouncer".into() }
}
