//! The sidecar over each store: fresh keys, replays, requests without a key, and all of them together.

use std::process::Command;

use onlyonce_bench::machine;
use onlyonce_bench::pins::Pins;
use onlyonce_bench::wrk::{Caller, Load, Mode, Wrk};
use onlyonce_testkit::servers::{PostgresServer, RedisOptions, RedisServer};

use crate::{Result, Training};

const CONNECTIONS: u32 = 64;
const MODES: [Mode; 4] = [Mode::Fresh, Mode::Replay, Mode::Plain, Mode::Mixed];

pub(crate) fn train(training: &mut Training<'_>) -> Result<()> {
    let Training { onlyonce, workplace, starter, time } = training;
    let mut wrk = Wrk::new(&workplace.folder("wrk")?, Pins::new(true))?;
    let redis = RedisServer::start(RedisOptions::default())?;
    let postgres = PostgresServer::start(&[])?;
    machine::output(Command::new(&*onlyonce).args(["store", "migrate", "--store", &postgres.url()]))?;
    let file = format!("file:{}", workplace.path("records").display());
    let stores = [("memory", "memory:".to_owned()), ("file", file)];
    let servers = [("Redis", redis.url()), ("PostgreSQL", postgres.url())];
    for (name, store) in stores.into_iter().chain(servers) {
        let upstream = starter.upstream()?;
        let folder = starter.folder(name)?;
        let mut command = starter.sidecar(onlyonce, upstream.address(), &store);
        let sidecar = starter.start(name, &mut command, &folder, None)?;
        for mode in MODES {
            eprintln!("{name}: {}", mode.name());
            wrk.renew();
            let load = Load { mode, caller: Caller::Token, connections: CONNECTIONS, time: *time };
            let figures = wrk.run(load, sidecar.address())?;
            // A key that is replayed while it still runs is rightly refused; but it is not refusals that are to be fast.
            let is_refused = figures.refused * 10 > figures.requests;
            if figures.requests == 0 || figures.socket_errors > 0 || is_refused {
                return Err(format!("{name}, {}: {}", mode.name(), figures.faults().join(", ")).into());
            }
        }
    }
    Ok(())
}
