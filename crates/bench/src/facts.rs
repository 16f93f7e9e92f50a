//! What a private server is and how it keeps what it is told, as it says itself.

use std::process::Command;

use onlyonce_testkit::servers::RedisServer;

use crate::{Result, machine};

const POSTGRES: &str = "SELECT 'PostgreSQL ' || current_setting('server_version') || ', fsync ' || \
                        current_setting('fsync') || ', synchronous_commit ' || current_setting('synchronous_commit') || \
                        ', shared_buffers ' || current_setting('shared_buffers') || ', max_wal_size ' || \
                        current_setting('max_wal_size')";

/// Of a Redis or a Valkey.
pub fn redis(server: &RedisServer) -> Result<String> {
    let info = server.ask(&["INFO", "server"])?;
    let field = |name: &str| {
        let value = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        value.map(|value| value.trim().to_owned())
    };
    let product = match field("valkey_version") {
        Some(version) => format!("Valkey {version}"),
        None => format!("Redis {}", field("redis_version").unwrap_or_default()),
    };
    let setting = |name| {
        let answer = server.ask(&["CONFIG", "GET", name]).unwrap_or_default();
        answer.lines().nth(1).unwrap_or_default().to_owned()
    };
    Ok(format!(
        "{product}, save \"{}\", appendonly {}, appendfsync {}",
        setting("save"),
        setting("appendonly"),
        setting("appendfsync")
    ))
}

/// Of the `PostgreSQL` at `url`.
pub fn postgres(url: &str) -> Result<String> {
    Ok(ask_postgres(url, POSTGRES)?.trim().to_owned())
}

/// What the `PostgreSQL` at `url` answers, without headings.
pub fn ask_postgres(url: &str, question: &str) -> Result<String> {
    machine::output(Command::new("psql").args(["-X", "-q", "-A", "-t", "-c", question, url]))
}

/// Adds `more`, each line once.
pub fn remember(lines: &mut Vec<String>, more: impl IntoIterator<Item = String>) {
    for line in more {
        if !lines.contains(&line) {
            lines.push(line);
        }
    }
}
