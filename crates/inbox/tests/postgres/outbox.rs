//! The outbox: events leave if and only if their cause commits, in order by key, however relays come and go.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use onlyonce_inbox::outbox::{PublishFuture, Stepped};
use onlyonce_inbox::{
    Backoff, Event, MessageId, Outbox, Outgoing, PublishError, Published, Publisher, Relay, RelayOptions,
};
use sqlx::Connection as _;
use tokio_postgres::Client;

use crate::stage::{Stage, block_on, client};

type Answer = dyn Fn(&Outgoing) -> Result<Published, PublishError> + Send + Sync;

/// A broker that keeps what it is sent and answers as told.
#[derive(Clone, Default)]
struct Heard {
    sent: Arc<Mutex<Vec<Outgoing>>>,
    answer: Arc<Mutex<Option<Box<Answer>>>>,
}

impl Heard {
    fn answering(
        answer: impl Fn(&Outgoing) -> Result<Published, PublishError> + Send + Sync + 'static,
    ) -> Self {
        let heard = Self::default();
        heard.answers(answer);
        heard
    }

    fn answers(&self, answer: impl Fn(&Outgoing) -> Result<Published, PublishError> + Send + Sync + 'static) {
        *self.answer.lock().unwrap() = Some(Box::new(answer));
    }

    fn bodies(&self) -> Vec<String> {
        self.sent.lock().unwrap().iter().map(body).collect()
    }
}

fn body(event: &Outgoing) -> String {
    String::from_utf8(event.message.body.to_vec()).unwrap()
}

impl Publisher for Heard {
    fn publish<'a>(&'a self, events: &'a [Outgoing]) -> PublishFuture<'a> {
        let answer = self.answer.lock().unwrap();
        let answered = events.iter().map(|event| {
            let result = answer.as_ref().map_or(Ok(Published::Stored), |answer| answer(event));
            if result.is_ok() {
                self.sent.lock().unwrap().push(event.clone());
            }
            result
        });
        let results = answered.collect();
        Box::pin(std::future::ready(results))
    }
}

struct Scene {
    stage: Stage,
    outbox: Outbox,
    client: Client,
    heard: Heard,
}

impl Scene {
    async fn new(heard: Heard) -> Self {
        let stage = Stage::new().await;
        // One turn for a century: no test meets its end.
        let outbox = Outbox::new("public").unwrap().with_turn(Duration::from_hours(876_000)).unwrap();
        let client = stage.client().await;
        client.batch_execute(&outbox.migration()).await.unwrap();
        client.batch_execute(&outbox.migration()).await.unwrap();
        Self { stage, outbox, client, heard }
    }

    fn relay(&self) -> Relay {
        let backoff = Backoff { first: Duration::ZERO, longest: Duration::ZERO };
        let options = RelayOptions { refusals_max: 3, backoff, ..RelayOptions::default() };
        Relay::new(self.outbox.clone(), Arc::new(self.heard.clone())).with_options(options).unwrap()
    }

    async fn step(&self) -> Stepped {
        self.relay().step(&self.client).await.unwrap()
    }

    /// Emits events for one incoming message and commits.
    async fn emit(&self, incoming: &str, events: &[Event]) -> Vec<String> {
        let mut client = self.stage.client().await;
        let mut transaction = client.transaction().await.unwrap();
        let mut emitter = self.outbox.emitter("billing", &MessageId::given(incoming).unwrap());
        let mut ids = Vec::new();
        for event in events {
            ids.push(emitter.emit(&mut transaction, event).await.unwrap());
        }
        transaction.commit().await.unwrap();
        ids
    }

    /// Ends every lease, as time would.
    async fn lapse(&self) {
        let lapse = "UPDATE outbox SET leased_until = clock_timestamp() - interval '1 second' \
                     WHERE leased_until IS NOT NULL";
        self.client.batch_execute(lapse).await.unwrap();
    }
}

fn event(body: &str) -> Event {
    Event::new("payments", body.to_owned())
}

#[test]
fn events_leave_if_and_only_if_their_cause_commits() {
    block_on(async {
        let scene = Scene::new(Heard::default()).await;
        let incoming = MessageId::given("m-1").unwrap();
        let mut connection = sqlx::PgConnection::connect(&scene.stage.server.url()).await.unwrap();
        let mut ids = Vec::new();
        for commits in [false, true] {
            let mut transaction = connection.begin().await.unwrap();
            let mut emitter = scene.outbox.emitter("billing", &incoming);
            let written = event("paid").with_header("trace", "t-1");
            ids.push(emitter.emit(&mut transaction, &written).await.unwrap());
            if commits {
                transaction.commit().await.unwrap();
            } else {
                transaction.rollback().await.unwrap();
                assert_eq!(scene.step().await, Stepped::default());
            }
        }
        assert_eq!(ids[0], ids[1], "a rerun makes the same ids");
        assert_eq!(scene.step().await.delivered, 1);
        assert_eq!(scene.step().await.leased, 0, "delivered once");
        let sent = scene.heard.sent.lock().unwrap().remove(0);
        assert_eq!((sent.id.as_str(), sent.topic.as_str()), (ids[0].as_str(), "payments"));
        assert_eq!(sent.message.headers.text("event-id"), Some(ids[0].as_str()));
        assert_eq!(sent.message.headers.text("trace"), Some("t-1"));
        assert_eq!(sent.message.body, "paid");
    });
}

#[test]
fn many_relays_deliver_each_event_once_and_each_key_in_order() {
    block_on(async {
        let scene = Arc::new(Scene::new(Heard::default()).await);
        for number in 0..20 {
            let ordered = |key: &str| event(&format!("{key}/{number:02}")).ordered_by(key);
            let incoming = format!("m-{number}");
            scene.emit(&incoming, &[ordered("a"), ordered("b"), ordered("c"), event("free")]).await;
        }
        let mut relays = tokio::task::JoinSet::new();
        for _ in 0..3 {
            let (scene, client) = (scene.clone(), scene.stage.client().await);
            relays.spawn(async move {
                while scene.outbox.backlog(&client).await.unwrap().open > 0 {
                    scene.relay().step(&client).await.unwrap();
                }
            });
        }
        relays.join_all().await;
        let mut by_key: BTreeMap<Option<String>, Vec<String>> = BTreeMap::new();
        for event in scene.heard.sent.lock().unwrap().iter() {
            by_key.entry(event.order_key.clone()).or_default().push(body(event));
        }
        assert_eq!(by_key.len(), 4);
        for (key, bodies) in by_key {
            assert_eq!(bodies.len(), 20, "{key:?}: each once");
            assert!(bodies.is_sorted(), "{key:?}: {bodies:?}");
        }
    });
}

#[test]
fn a_poison_event_is_parked_with_its_key_and_others_go_on() {
    block_on(async {
        let refuse = |event: &Outgoing| match &event.message.body[..] {
            b"poison" => Err(PublishError::refused("too large")),
            _ => Ok(Published::Stored),
        };
        let scene = Scene::new(Heard::answering(refuse)).await;
        let ids = scene.emit("m-1", &[event("poison").ordered_by("a"), event("after").ordered_by("a")]).await;
        scene.emit("m-2", &[event("other").ordered_by("b"), event("free")]).await;
        let mut parked = 0;
        for _ in 0..5 {
            parked += scene.step().await.parked;
        }
        assert_eq!(parked, 1);
        assert_eq!(scene.heard.bodies(), ["other", "free"]);
        let backlog = scene.outbox.backlog(&scene.client).await.unwrap();
        assert_eq!((backlog.open, backlog.parked), (1, 1), "what comes after it waits");
        let why =
            scene.client.query_one("SELECT parked FROM outbox WHERE parked IS NOT NULL", &[]).await.unwrap();
        assert!(why.get::<_, String>(0).contains("too large"));
        // Mended and told so: in order.
        scene.heard.answers(|_| Ok(Published::Stored));
        assert!(scene.outbox.unpark(&scene.client, &ids[0]).await.unwrap());
        assert!(!scene.outbox.unpark(&scene.client, &ids[0]).await.unwrap());
        while scene.outbox.backlog(&scene.client).await.unwrap().open > 0 {
            scene.step().await;
        }
        assert_eq!(scene.heard.bodies(), ["other", "free", "poison", "after"]);
    });
}

#[test]
fn a_broker_that_is_away_parks_nothing_and_a_duplicate_counts_as_delivered() {
    block_on(async {
        let scene = Scene::new(Heard::answering(|_| Err(PublishError::unavailable("no route")))).await;
        scene.emit("m-1", &[event("paid")]).await;
        for _ in 0..20 {
            let stepped = scene.step().await;
            assert_eq!((stepped.again, stepped.parked), (1, 0));
        }
        // It had stored one of those tries all along.
        scene.heard.answers(|_| Ok(Published::Duplicate));
        let stepped = scene.step().await;
        assert_eq!((stepped.delivered, stepped.duplicates), (1, 1));
        assert_eq!(scene.step().await.leased, 0);
    });
}

#[test]
fn outages_before_it_do_not_count_as_refusals() {
    block_on(async {
        let scene = Scene::new(Heard::answering(|_| Err(PublishError::unavailable("no route")))).await;
        scene.emit("m-1", &[event("paid")]).await;
        for _ in 0..10 {
            assert_eq!(scene.step().await.again, 1);
        }
        scene.heard.answers(|_| Err(PublishError::refused("too large")));
        let mut parked = Vec::new();
        for _ in 0..3 {
            parked.push(scene.step().await.parked);
            scene.heard.answers(|_| Err(PublishError::unavailable("no route")));
            if parked.len() < 3 {
                assert_eq!(scene.step().await.again, 1, "nor does one in between");
            }
            scene.heard.answers(|_| Err(PublishError::refused("too large")));
        }
        assert_eq!(parked, [0, 0, 1], "parked by the third refusal");
    });
}

#[test]
fn a_table_from_before_refusals_were_counted_is_migrated() {
    block_on(async {
        let scene = Scene::new(Heard::default()).await;
        scene.client.batch_execute("ALTER TABLE outbox DROP COLUMN refusals").await.unwrap();
        scene.client.batch_execute(&scene.outbox.migration()).await.unwrap();
        scene.emit("m-1", &[event("paid")]).await;
        assert_eq!(scene.step().await.delivered, 1);
    });
}

#[test]
fn a_relay_that_dies_between_sending_and_marking_is_followed_by_one_that_sends_the_same_id() {
    block_on(async {
        let scene = Scene::new(Heard::default()).await;
        let ids = scene.emit("m-1", &[event("paid")]).await;
        // Sent, and the relay is gone before it hears of it.
        let dying = scene.stage.client().await;
        let kill = "SELECT pg_terminate_backend($1)";
        let pid: i32 = dying.query_one("SELECT pg_backend_pid()", &[]).await.unwrap().get(0);
        let (url, handle) = (scene.stage.server.url(), tokio::runtime::Handle::current());
        scene.heard.answers(move |_| {
            let url = url.clone();
            let handle = handle.clone();
            let killing = std::thread::spawn(move || {
                handle.block_on(async { client(&url).await.query_one(kill, &[&pid]).await.unwrap() });
            });
            killing.join().unwrap();
            Ok(Published::Stored)
        });
        assert!(scene.relay().step(&dying).await.is_err());
        scene.heard.answers(|_| Ok(Published::Stored));
        assert_eq!(scene.step().await.leased, 0, "its lease still holds");
        scene.lapse().await;
        assert_eq!(scene.step().await.delivered, 1);
        let sent = scene.heard.sent.lock().unwrap();
        assert_eq!(sent.iter().map(|event| event.id.as_str()).collect::<Vec<_>>(), [ids[0].as_str(); 2]);
        assert_eq!((sent[0].generation, sent[1].generation), (1, 2));
    });
}

#[test]
fn a_relay_that_was_overtaken_changes_nothing() {
    block_on(async {
        for is_refused in [false, true] {
            let scene = Arc::new(Scene::new(Heard::default()).await);
            scene.emit("m-1", &[event("paid")]).await;
            let options = RelayOptions { refusals_max: 1, ..RelayOptions::default() };
            let slow = Arc::new(Overtaken { scene: scene.clone(), is_refused });
            let relay = Relay::new(scene.outbox.clone(), slow).with_options(options).unwrap();
            let stepped = relay.step(&scene.stage.client().await).await.unwrap();
            assert_eq!((stepped.delivered, stepped.fenced), (0, usize::from(!is_refused)));
            let state = "SELECT generation, parked IS NULL AND delivered_at IS NULL, leased_until IS NOT NULL FROM outbox";
            let row = scene.client.query_one(state, &[]).await.unwrap();
            assert_eq!(
                (row.get::<_, i64>(0), row.get(1), row.get(2)),
                (2, true, true),
                "it is the successor's"
            );
        }
    });
}

/// While it publishes, its lease ends and another relay leases the event.
struct Overtaken {
    scene: Arc<Scene>,
    is_refused: bool,
}

impl Publisher for Overtaken {
    fn publish<'a>(&'a self, events: &'a [Outgoing]) -> PublishFuture<'a> {
        Box::pin(async move {
            self.scene.lapse().await;
            let leased = "UPDATE outbox SET generation = generation + 1, \
                          leased_until = clock_timestamp() + interval '1 minute'";
            self.scene.client.batch_execute(leased).await.unwrap();
            let refused = || PublishError::refused("too late to say");
            let answer = || if self.is_refused { Err(refused()) } else { Ok(Published::Stored) };
            events.iter().map(|_| answer()).collect()
        })
    }
}

#[test]
fn a_transaction_that_commits_late_is_not_skipped() {
    block_on(async {
        let scene = Scene::new(Heard::default()).await;
        let mut late = scene.stage.client().await;
        let mut transaction = late.transaction().await.unwrap();
        let mut emitter = scene.outbox.emitter("billing", &MessageId::given("late").unwrap());
        emitter.emit(&mut transaction, &event("late")).await.unwrap();
        scene.emit("early", &[event("early")]).await;
        while scene.step().await.leased > 0 {}
        assert_eq!(scene.heard.bodies(), ["early"]);
        transaction.commit().await.unwrap();
        while scene.step().await.leased > 0 {}
        assert_eq!(scene.heard.bodies(), ["early", "late"]);
    });
}

#[test]
fn a_table_is_emptied_when_all_in_it_is_delivered_and_nobody_writes_to_it() {
    block_on(async {
        let mut scene = Scene::new(Heard::default()).await;
        // The table whose turn is next: it holds what was written two turns ago.
        let next = "SELECT ((extract(epoch FROM clock_timestamp())::bigint / (876000::bigint * 3600) + 1) % 3)::smallint";
        let bucket: i16 = scene.client.query_one(next, &[]).await.unwrap().get(0);
        let write = format!("INSERT INTO outbox (bucket, id, topic, body) VALUES ({bucket}, $1, 't', '')");
        scene.client.execute(&write, &[&"one"]).await.unwrap();
        assert!(!scene.outbox.rotate(&mut scene.client).await.unwrap(), "something in it is open");
        assert_eq!(scene.step().await.delivered, 1);
        let mut late = scene.stage.client().await;
        let transaction = late.transaction().await.unwrap();
        transaction.execute(&write, &[&"two"]).await.unwrap();
        assert!(!scene.outbox.rotate(&mut scene.client).await.unwrap(), "somebody writes to it");
        transaction.commit().await.unwrap();
        assert!(!scene.outbox.rotate(&mut scene.client).await.unwrap(), "and it is open now");
        assert_eq!(scene.step().await.delivered, 1);
        assert!(scene.outbox.rotate(&mut scene.client).await.unwrap());
        let left: i64 = scene.client.query_one("SELECT count(*) FROM outbox", &[]).await.unwrap().get(0);
        assert_eq!(left, 0);
        assert!(!scene.outbox.rotate(&mut scene.client).await.unwrap(), "there is nothing to empty");
    });
}

#[test]
fn a_relay_runs_until_it_is_told_to_stop_and_outlives_its_connections() {
    block_on(async {
        let scene = Arc::new(Scene::new(Heard::default()).await);
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let (url, relay) = (scene.stage.server.url(), scene.relay());
        let running = tokio::spawn(async move {
            let connect = || async { Ok::<_, tokio_postgres::Error>(client(&url).await) };
            relay.run(connect, async { drop(stopped.await) }).await;
        });
        for round in 0..3 {
            scene.emit(&format!("m-{round}"), &[event("paid")]).await;
            while scene.outbox.backlog(&scene.client).await.unwrap().open > 0 {
                tokio::task::yield_now().await;
            }
            let kill = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
                        WHERE query LIKE 'WITH open%' AND pid <> pg_backend_pid()";
            scene.client.query(kill, &[]).await.unwrap();
        }
        drop(stop);
        running.await.unwrap();
        assert_eq!(scene.heard.bodies().len(), 3);
    });
}
