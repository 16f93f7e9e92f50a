//! Redis Streams.

use std::time::Duration;

use onlyonce_testkit::servers::{RedisOptions, RedisServer};

use super::{Broker, GROUP, ORDERS};

pub(crate) struct Streams(RedisServer);

impl Broker for Streams {
    fn start() -> Self {
        Self(RedisServer::start(RedisOptions::default()).unwrap())
    }

    fn source(&self, redelivered_after: Duration) -> String {
        let (port, idle) = (self.0.port(), redelivered_after.as_secs());
        format!("redis-stream://127.0.0.1:{port}/{ORDERS}?group={GROUP}&idle_seconds={idle}")
    }

    fn publish(&self, id: &str, body: &str) {
        self.0.ask(&["XADD", ORDERS, "*", "event-id", id, "tenant", "acme", "body", body]).unwrap();
    }

    fn left(&self) -> u64 {
        let groups = self.0.ask(&["XINFO", "GROUPS", ORDERS]).unwrap();
        let lines: Vec<_> = groups.lines().collect();
        let after = |name: &str| lines[lines.iter().position(|line| *line == name).unwrap() + 1];
        ["pending", "lag"].map(|name| after(name).parse::<u64>().unwrap()).iter().sum()
    }

    fn dead_letters(&self) -> String {
        self.0.ask(&["XRANGE", "orders:dead-letter", "-", "+"]).unwrap()
    }
}
