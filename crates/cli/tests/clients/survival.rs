//! The Rust store client: an engine over the service, and `kill -9` of the client, of the service and of the store in
//! turn. One effect each time.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use onlyonce_client::ClaimsClient;
use onlyonce_core::{
    Conflict, Engine, EngineError, Failure, Key, Lease, Policy, Principal, Recorded, Run, Scope, StepError,
    UnknownPolicy,
};
use onlyonce_testkit::servers::{RedisOptions, RedisServer};

use crate::service::{Program, Service, say, stand_still};

/// The client that the tests kill, or whose service they kill. Does nothing unless it is asked to.
#[tokio::test(flavor = "multi_thread")]
async fn child_that_sells() {
    let (Ok(url), Ok(effects)) = (std::env::var("TEST_SELL_URL"), std::env::var("TEST_SELL_EFFECTS")) else {
        return;
    };
    let lease = Duration::from_millis(std::env::var("TEST_SELL_LEASE_MS").unwrap().parse().unwrap());
    let store = loop {
        let client = ClaimsClient::builder(&url).within(Duration::from_secs(20));
        match client.connect().await {
            Ok(store) => break store,
            Err(error) if error.is_retryable() => pause().await,
            Err(error) => panic!("{error:?}"),
        }
    };
    let policy = Policy::default()
        .lease(Lease::new(lease).unwrap())
        .unknown(UnknownPolicy::Rerun)
        .attempts_max(1000)
        // A loaded machine is no service that is away.
        .store_within(Duration::from_secs(30))
        .answer_within(Duration::from_secs(30))
        .remote_owners();
    let engine = Engine::builder(Arc::new(store)).policy(policy).build().await.unwrap();
    loop {
        match sell(&engine, effects.clone().into()).await {
            Ok(Run::Done(done)) if done.recorded == Recorded::Completed => {
                break say("sold", &format!("{} {}", done.value, done.replayed));
            }
            // Of an attempt that was killed, or cut off with its service: asked again until it is over.
            Ok(
                Run::Conflict(Conflict::InFlight { .. } | Conflict::OutcomeUnknown { .. } | Conflict::Fenced)
                | Run::Failed(Failure { error: StepError::Memo(_), .. })
                | Run::Done(_),
            )
            | Err(_) => pause().await,
            Ok(other) => panic!("{other:?}"),
        }
    }
}

/// What the caller of a service does while it is away.
async fn pause() {
    // tidy: sleep because a caller that waits a little is what is tested.
    tokio::time::sleep(Duration::from_millis(20)).await;
}

async fn sell(engine: &Engine, effects: PathBuf) -> Result<Run<usize, StepError<String>>, EngineError> {
    let key = Scope::new("shop", Principal::Shared).key(Key::new("order-7").unwrap());
    let asked = engine.fingerprint().field("amount", b"100").finish();
    let work = |execution: onlyonce_core::Execution| async move {
        let charge = || async { Ok::<_, Failure<String>>(happen(&effects)) };
        let charge = execution.step("charge", charge).await?;
        if std::env::var("TEST_SELL_STANDS").is_ok() {
            say("charged", "");
            tokio::task::spawn_blocking(stand_still).await.unwrap();
        }
        Ok::<_, Failure<StepError<String>>>(charge)
    };
    engine.run(&key, asked, work).await
}

/// The effect: one more line. How many there are now.
fn happen(effects: &Path) -> usize {
    let mut file = OpenOptions::new().create(true).append(true).open(effects).unwrap();
    file.write_all(b"charged\n").unwrap();
    file.sync_all().unwrap();
    count(effects)
}

fn count(effects: &Path) -> usize {
    std::fs::read_to_string(effects).unwrap_or_default().lines().count()
}

struct Stage {
    _folder: tempfile::TempDir,
    effects: PathBuf,
    service: Service,
}

impl Stage {
    fn new(store: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let effects = folder.path().join("effects");
        let store = store.replace("FOLDER", folder.path().to_str().unwrap());
        Self { effects, service: Service::start(&store), _folder: folder }
    }

    fn client(&self, lease_ms: u64, stands: bool) -> Program {
        let (url, effects, lease) =
            (self.service.url(), self.effects.to_str().unwrap(), lease_ms.to_string());
        let mut settings = vec![
            ("TEST_SELL_URL", url.as_str()),
            ("TEST_SELL_EFFECTS", effects),
            ("TEST_SELL_LEASE_MS", &lease),
        ];
        if stands {
            settings.push(("TEST_SELL_STANDS", "1"));
        }
        Program::of_this_binary("survival::child_that_sells", &settings)
    }

    /// Another client gets the same answer from the record.
    fn is_sold_once(&self, mut client: Program) {
        // From the record, if the service was away when the end was told.
        assert!(client.wait_for("sold").starts_with("1 "));
        assert_eq!(self.client(60_000, false).wait_for("sold"), "1 true");
        assert_eq!(count(&self.effects), 1);
    }
}

fn redis() -> (RedisServer, String) {
    let redis = RedisServer::start(RedisOptions::default()).unwrap();
    let url = redis.url();
    (redis, url)
}

#[test]
fn killed_clients_leave_their_work_to_the_next() {
    let (_redis, url) = redis();
    for store in ["file:FOLDER/records", &url] {
        let stage = Stage::new(store);
        // Long enough for a client that is not scheduled for a while, short enough to wait for.
        let mut client = stage.client(10_000, true);
        client.wait_for("charged");
        client.kill();
        stage.is_sold_once(stage.client(60_000, false));
    }
}

#[test]
fn a_killed_service_changes_nothing() {
    let (_redis, url) = redis();
    for store in ["file:FOLDER/records", &url] {
        let mut stage = Stage::new(store);
        let mut client = stage.client(120_000, true);
        client.wait_for("charged");
        stage.service.kill();
        // It is told to go on while nobody is there to be told of the end, and one comes back.
        client.go_on();
        stage.service.start_again();
        stage.is_sold_once(client);
    }
}

#[test]
fn a_killed_store_changes_nothing() {
    let (redis, url) = redis();
    let stage = Stage::new(&url);
    let mut client = stage.client(120_000, true);
    client.wait_for("charged");
    redis.kill();
    client.go_on();
    redis.restart().unwrap();
    stage.is_sold_once(client);
}
