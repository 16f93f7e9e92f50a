//! Routes that wait for replicas of Redis, beside routes that do not.

use onlyonce_http::Rules;
use onlyonce_http::rules::{Acknowledgement, Span};
use onlyonce_server::Sidecar;
use onlyonce_server::config::{File, Sources};
use onlyonce_testkit::servers::{RedisOptions, RedisServer};

use crate::stage::{Stage, flags, post};

fn careful(path: &str, replicas: u8, disk: bool) -> Rules {
    let acknowledgement = Acknowledgement { replicas, disk, within: Span::from_secs(1) };
    Rules { path: Some(path.to_owned()), acknowledgement: Some(acknowledgement), ..Rules::default() }
}

fn over(server: &RedisServer, routes: Vec<Rules>) -> impl FnOnce(&mut File) {
    let url = server.url();
    move |flags| {
        flags.store.url = Some(url);
        flags.route = routes;
    }
}

#[tokio::test]
async fn a_route_that_waits_for_a_replica_that_is_not_there_runs_nothing() {
    let server = RedisServer::start(RedisOptions::default()).unwrap();
    let stage = Stage::with(over(&server, vec![careful("/careful", 1, false)])).await;
    let refused = stage.send(post("/careful", "k1", "{}")).await;
    assert_eq!((refused.status, stage.application.effects()), (503, 0), "{refused:?}");
    assert!(refused.body.contains("store-unavailable"), "{refused:?}");
    let answered = stage.send(post("/pay", "k2", "{}")).await;
    assert_eq!((answered.status, stage.application.effects()), (200, 1), "{answered:?}");
}

#[tokio::test]
async fn a_route_that_waits_for_its_replica_is_served() {
    let server = RedisServer::start(RedisOptions::default()).unwrap();
    let replica = RedisServer::start(RedisOptions::default()).unwrap();
    replica.ask(&["REPLICAOF", "127.0.0.1", &server.port().to_string()]).unwrap();
    let stage = Stage::with(over(&server, vec![careful("/careful", 1, false)])).await;
    // Until the replica has joined, nothing is granted.
    let answered = loop {
        let answer = stage.send(post("/careful", "k1", "{}")).await;
        if answer.status == 200 {
            break answer;
        }
        // What was granted and not acknowledged is given back: it never becomes unknown.
        let goes_on = answer.status == 503 || answer.status == 409 && answer.body.contains("in-flight");
        assert!(goes_on, "{answer:?}");
    };
    assert_eq!(stage.application.effects(), 1);
    let replayed = stage.send(post("/careful", "k1", "{}")).await;
    assert_eq!((replayed.status, &replayed.body), (200, &answered.body), "{replayed:?}");
    assert_eq!(replayed.header("idempotency-replayed"), Some("true"));
    assert_eq!(stage.application.effects(), 1);
}

#[tokio::test]
async fn what_the_store_cannot_do_is_refused_at_the_start() {
    let server = RedisServer::start(RedisOptions::default()).unwrap();
    for (change, expected) in [
        (over(&server, vec![careful("/careful", 0, false)]), "by nobody"),
        (over(&server, vec![careful("/careful", 0, true)]), "WAITAOF"),
    ] {
        let mut flags = flags("http://127.0.0.1:9");
        change(&mut flags);
        let sources = Sources { flags, ..Sources::default() };
        let told = format!("{:?}", Sidecar::start(sources).await.err().expect(expected));
        assert!(told.contains(expected) && told.contains("/careful"), "{told}");
    }
    let mut flags = flags("http://127.0.0.1:9");
    flags.route = vec![careful("/careful", 1, false)];
    let told = Sidecar::start(Sources { flags, ..Sources::default() }).await.err().unwrap();
    assert!(format!("{told:?}").contains("no replicas"), "{told:?}");
}
