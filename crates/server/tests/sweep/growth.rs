//! Alarms before refusals, as they come through a whole sidecar.

use std::sync::Arc;
use std::time::Duration;

use onlyonce_core::sweeper::Plan;
use onlyonce_core::sweeper::growth::{Bounds, Growth};
use onlyonce_server::Sidecar;
use onlyonce_server::config::{File, Sources};

use crate::stage::Stage;

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test]
async fn what_grows_is_told_and_what_shrinks_is_told_no_longer() {
    let stage = Stage::new();
    let growth = Arc::new(Growth::new(Bounds { records_max: Some(100), bytes_max: None }));
    let first = stage.begin(1, Plan::default(), Some(growth.clone())).await;
    stage.records(79, 60 * SECOND).await;
    stage.advance(20 * SECOND).await;
    assert_eq!(first.sweeping.now().warnings, Vec::<String>::new());
    stage.records_more(1).await;
    // That one expires and is swept; eighty that live are an alarm.
    crate::stage::take_in(&*stage.store, 5000..5001, stage.clock_now(), 60 * SECOND, false).await;
    stage.advance(20 * SECOND).await;
    let warnings = first.sweeping.now().warnings;
    assert!(warnings.len() == 1 && warnings[0].contains("80 of 100 records"), "{warnings:?}");
    assert!(growth.is_near() && !growth.is_full());
    stage.advance(80 * SECOND).await;
    assert_eq!(first.sweeping.now().warnings, Vec::<String>::new(), "they have expired");
    assert!(!growth.is_near());
}

/// A folder is bounded by the same setting as memory, and a full one answers what it has.
#[tokio::test(flavor = "multi_thread")]
async fn a_full_folder_refuses_what_is_new_with_a_problem() {
    let folder = tempfile::tempdir().unwrap();
    let mut flags = File::default();
    flags.proxy.upstream = Some("http://127.0.0.1:9".to_owned());
    flags.proxy.listen = Some("127.0.0.1:0".parse().unwrap());
    flags.store.url = Some(format!("file:{}", folder.path().display()));
    flags.store.records_max = Some(0);
    let sidecar = Sidecar::start(Sources { flags, ..Sources::default() }).await.unwrap();
    let (engine, sweeping) = (sidecar.engine().clone(), sidecar.sweeping());
    let asked = engine.fingerprint().finish();
    let key = onlyonce_core::Scope::new("n", onlyonce_core::Principal::Shared)
        .key(onlyonce_core::Key::new("k").unwrap());
    let refused = engine
        .run(&key, asked, |_| async { Ok::<_, onlyonce_core::Failure<String>>(1) })
        .await
        .expect_err("nothing fits");
    assert_eq!(refused.kind(), onlyonce_core::EngineErrorKind::Store(onlyonce_core::StoreErrorKind::Full));
    assert!(refused.is_retryable());
    assert!(sweeping.now().warnings[0].contains("new claims are refused"), "{:?}", sweeping.now());
}
