//! Which answers end a call, which are waited for, and for how long.

use std::sync::Arc;
use std::time::Duration;

use onlyonce_client::{CallError, FileJournal, Idempotent, Journal as _, MemoryJournal, Operation, Retries};
use onlyonce_core::{Clock as _, Key, KeyForm};
use onlyonce_testkit::{ManualClock, run};
use reqwest_middleware::{ClientBuilder, ClientWithMiddleware, Error};

use crate::server::{Does, Server};

const OK: Does = Does::Answers(201, "", "done");
const PROBLEM: &str = "Content-Type: application/problem+json\r\n";

fn http() -> reqwest::Client {
    // With all features, TLS is part of the build and needs a provider.
    #[cfg(feature = "tls")]
    let _ = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::new()
}

/// Waits next to nothing between attempts, and gives up on nothing that a loaded machine may do.
fn quick(attempts_max: u32) -> Retries {
    Retries {
        attempts_max,
        first: Duration::from_millis(1),
        longest: Duration::from_millis(2),
        attempt_within: Duration::from_mins(5),
        within: Duration::from_mins(10),
    }
}

fn client(middleware: Idempotent) -> ClientWithMiddleware {
    ClientBuilder::new(http()).with(middleware).build()
}

fn idempotent(attempts_max: u32) -> Idempotent {
    Idempotent::new(Arc::new(MemoryJournal::default())).with_retries(quick(attempts_max))
}

async fn charge(client: &ClientWithMiddleware, server: &Server) -> Result<(u16, String), Error> {
    let operation = Operation::named("order-7/charge").unwrap();
    let answer = client.post(&server.url).body("100").with_extension(operation).send().await?;
    Ok((answer.status().as_u16(), answer.text().await.unwrap()))
}

#[test]
fn what_may_pass_is_sent_again_with_the_same_key() {
    run(async {
        let server = Server::start(vec![
            Does::Vanishes,
            Does::Answers(503, "Retry-After: 0\r\n", ""),
            Does::Answers(409, PROBLEM, r#"{"type":"urn:onlyonce:error:in-flight"}"#),
            Does::Answers(409, "", "another server's conflict"),
            Does::Answers(429, "", ""),
            Does::Answers(500, "Idempotency-Replayed: false\r\n", ""),
            OK,
        ]);
        let answer = charge(&client(idempotent(20)), &server).await.unwrap();
        assert_eq!(answer, (201, "done".to_owned()));
        let key = server.expect_one_key(7);
        assert_eq!(key.len(), 36, "a UUID: {key}");
    });
}

#[test]
fn what_will_not_change_is_the_answer() {
    run(async {
        for does in [
            Does::Answers(422, PROBLEM, r#"{"type":"urn:onlyonce:error:key-reused"}"#),
            Does::Answers(400, "", "no"),
            Does::Answers(402, "", "no money"),
            Does::Answers(500, "Idempotency-Replayed: true\r\n", "failed for good"),
            Does::Answers(500, "Idempotent-Replayed: true\r\n", "failed for good"),
            Does::Answers(409, PROBLEM, r#"{"type":"urn:onlyonce:error:outcome-unknown"}"#),
            Does::Answers(501, "", ""),
        ] {
            let Does::Answers(status, _, body) = does else { panic!("all of them answer") };
            let server = Server::start(vec![does, OK]);
            let answer = charge(&client(idempotent(5)), &server).await.unwrap();
            assert_eq!(answer, (status, body.to_owned()), "the caller gets all of it");
            server.expect_one_key(1);
        }
    });
}

#[test]
fn attempts_end_with_the_last_answer_or_the_last_error() {
    run(async {
        let server = Server::start(vec![Does::Answers(503, "", "later")]);
        assert_eq!(charge(&client(idempotent(3)), &server).await.unwrap(), (503, "later".to_owned()));
        server.expect_one_key(3);
        let server = Server::start(vec![Does::Vanishes]);
        assert!(matches!(charge(&client(idempotent(3)), &server).await, Err(Error::Reqwest(_))));
        server.expect_one_key(3);
    });
}

#[test]
fn the_operation_keeps_its_key_across_calls_and_restarts_until_it_is_forgotten() {
    run(async {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal");
        let server = Server::start(vec![Does::Vanishes, Does::Vanishes, OK]);
        for _ in 0..2 {
            let journal = Arc::new(FileJournal::open(&path).unwrap());
            let client = client(Idempotent::new(journal).with_retries(quick(1)));
            assert!(charge(&client, &server).await.is_err());
        }
        let journal = Arc::new(FileJournal::open(&path).unwrap());
        let client = client(Idempotent::new(journal.clone()).with_retries(quick(1)));
        assert_eq!(charge(&client, &server).await.unwrap().0, 201);
        let key = server.expect_one_key(3);
        journal.forget("order-7/charge").await.unwrap();
        charge(&client, &server).await.unwrap();
        assert_ne!(server.keys()[3].as_ref(), Some(&key), "a new operation of the same name");
    });
}

#[test]
fn keys_come_from_the_operation_the_caller_or_the_middleware() {
    run(async {
        let server = Server::start(vec![OK]);
        let client = client(idempotent(1).with_form(KeyForm::Quoted));
        let parent = Key::new("incoming").unwrap();
        for _ in 0..2 {
            let nested = Operation::derived(&parent, "mail").unwrap();
            client.put(&server.url).with_extension(nested).send().await.unwrap();
        }
        client.post(&server.url).header("Idempotency-Key", "mine").send().await.unwrap();
        client.post(&server.url).send().await.unwrap();
        client.patch(&server.url).send().await.unwrap();
        client.get(&server.url).send().await.unwrap();
        client.put(&server.url).send().await.unwrap();
        let keys = server.keys();
        assert_eq!(keys[0], keys[1]);
        assert!(keys[0].as_ref().unwrap().starts_with('"'));
        assert_eq!(keys[2].as_deref(), Some("mine"));
        assert_ne!(keys[3].as_ref().unwrap(), keys[4].as_ref().unwrap());
        assert_eq!(keys[5..], [None, None], "these need no key");
        let both = client.post(&server.url).header("Idempotency-Key", "mine");
        let refused = both.with_extension(Operation::with_key(parent)).send().await.unwrap_err();
        assert!(matches!(call_error(&refused), CallError::TwoKeys));
        assert_eq!(server.keys().len(), 7);
    });
}

#[test]
fn a_body_that_can_be_sent_only_once_is_not_sent_at_all() {
    run(async {
        let server = Server::start(vec![OK]);
        let journal = Arc::new(MemoryJournal::default());
        let client = client(Idempotent::new(journal.clone()).with_retries(quick(3)));
        // Wrapped, it can no longer be copied.
        let once = reqwest::Body::wrap(reqwest::Body::from("100"));
        let asked = client.post(&server.url).body(once).with_extension(Operation::named("a").unwrap());
        assert!(matches!(call_error(&asked.send().await.unwrap_err()), CallError::BodyNotRepeatable));
        assert_eq!(server.keys(), []);
        let offered = Key::new("new").unwrap();
        assert_eq!(journal.key("a", offered.clone()).await.unwrap(), offered, "no key was put on record");
    });
}

#[test]
fn a_server_that_asks_for_time_is_given_it() {
    run(async {
        for after in ["Retry-After: 7\r\n", "Retry-After: Mon, 21 Sep 2026 14:13:27 GMT\r\n"] {
            let clock = Arc::new(ManualClock::default());
            assert_eq!(clock.now().as_millis(), 1_790_000_000_000);
            let server = Server::start(vec![Does::Answers(503, after, ""), OK]);
            let retries = Retries { attempt_within: Duration::from_secs(5), ..quick(5) };
            let client = client(idempotent(5).with_retries(retries).with_clock(clock.clone()));
            let call = tokio::spawn(async move {
                let answer = charge(&client, &server).await.unwrap();
                (answer, server)
            });
            clock.slept_on_for(Duration::from_secs(7)).await;
            clock.advance(Duration::from_millis(7000 - 1));
            tokio::task::yield_now().await;
            assert!(!call.is_finished());
            clock.advance(Duration::from_millis(3));
            let (answer, server) = call.await.unwrap();
            assert_eq!(answer.0, 201);
            server.expect_one_key(2);
        }
    });
}

#[test]
fn the_deadline_ends_attempts_and_waits() {
    run(async {
        // A server that says nothing: the attempt ends, then the whole call.
        let clock = Arc::new(ManualClock::default());
        let server = Server::start(vec![Does::Hangs]);
        let retries = Retries {
            attempt_within: Duration::from_secs(10),
            within: Duration::from_secs(15),
            first: Duration::ZERO,
            ..quick(50)
        };
        let client_of =
            |clock: &Arc<ManualClock>| client(idempotent(1).with_retries(retries).with_clock(clock.clone()));
        let client = client_of(&clock);
        let call = tokio::spawn(async move {
            let error = charge(&client, &server).await.unwrap_err();
            (error, server)
        });
        clock.slept_on_for_exactly(Duration::from_secs(10)).await;
        clock.advance(Duration::from_secs(10));
        clock.slept_on_for_exactly(Duration::from_secs(5)).await;
        clock.advance(Duration::from_secs(5));
        let (error, _server) = call.await.unwrap();
        assert!(matches!(call_error(&error), CallError::TimedOut));
        // A server that asks for more time than there is: its answer is the last.
        let clock = Arc::new(ManualClock::default());
        let server = Server::start(vec![Does::Answers(503, "Retry-After: 15\r\n", "later")]);
        assert_eq!(charge(&client_of(&clock), &server).await.unwrap(), (503, "later".to_owned()));
        server.expect_one_key(1);
    });
}

#[track_caller]
fn call_error(error: &Error) -> &CallError {
    match error {
        Error::Middleware(error) => error.downcast_ref().unwrap(),
        Error::Reqwest(error) => panic!("an error of the network: {error}"),
    }
}
