//! Records that were poisoned: they fail closed, and split no response.

use std::sync::Arc;

use bytes::Bytes;
use onlyonce_core::record::codec::wire::Writer;
use onlyonce_core::transition::{Actor, Resolve, ResolveAnswer, Verdict};
use onlyonce_core::{Encrypted, KeyId, Keyring, MemoryStore, Outcome, Store as _, SystemClock};
use onlyonce_http::{Answered, Rules, snapshot};
use onlyonce_testkit::run;

use crate::stage::{Stage, ask};

/// A snapshot with a right checksum, whatever is in it.
fn poisoned(name: &[u8], value: &[u8]) -> Bytes {
    let mut writer = Writer::with_capacity(100);
    writer.raw(&[1, 0, 200]);
    writer.number(1);
    writer.bytes(name);
    writer.bytes(value);
    writer.number(0);
    writer.bytes(b"body");
    let checksum = crc32c::crc32c(writer.written()).to_le_bytes();
    writer.raw(&checksum);
    writer.finish().into()
}

/// A stage whose key `k` is on record with this outcome.
async fn with_record(outcome: Outcome) -> Stage {
    let stage = Stage::new(Rules::default(), |_| std::future::ready(Err(crate::stage::Broken(None)))).await;
    let lost = stage.call(ask("k")).await;
    assert_eq!(lost.status, 502);
    let answered = lost.response.extensions().get::<Answered>().copied().unwrap();
    let (id, fence) = (answered.id.unwrap(), answered.fence.unwrap());
    let actor = Actor::Operator("test".into());
    let resolve = Resolve { id, fence, verdict: Verdict::Executed(outcome), actor };
    assert_eq!(Arc::clone(&stage.store).resolve(&resolve).await.unwrap(), ResolveAnswer::Resolved);
    stage
}

#[test]
fn a_whole_record_is_replayed() {
    run(async {
        let kept = Outcome::kept(snapshot::CONTENT_VERSION, poisoned(b"x-fine", b"yes"));
        let stage = with_record(kept).await;
        let got = stage.call(ask("k")).await;
        assert_eq!((got.status, &got.body[..]), (200, &b"body"[..]));
        assert_eq!(got.response.headers()["x-fine"], "yes");
    });
}

#[test]
fn a_header_that_would_split_a_response_is_an_error() {
    run(async {
        for (name, value) in [
            (&b"x-a"[..], &b"1\r\nset-cookie: stolen=1"[..]),
            (b"x-a", b"1\n"),
            (b"x-a", b"1\0"),
            (b"x-a\r\nx-b", b"1"),
            (b"x a", b"1"),
            (b"", b"1"),
        ] {
            let stage = with_record(Outcome::kept(snapshot::CONTENT_VERSION, poisoned(name, value))).await;
            let got = stage.call(ask("k")).await;
            assert_eq!((got.status, got.problem().as_str()), (503, "store-unavailable"));
            let problem: serde_json::Value = serde_json::from_slice(&got.body).unwrap();
            let id = got.response.extensions().get::<Answered>().copied().unwrap().id.unwrap();
            assert_eq!(problem["record"], id.to_string(), "an operator is told which record it is");
            assert_eq!(stage.effects(), 1, "it does not run again");
        }
    });
}

#[test]
fn an_outcome_of_another_door_is_an_error() {
    run(async {
        let stage = with_record(Outcome::kept(1, "42")).await;
        assert_eq!(stage.call(ask("k")).await.problem(), "store-unavailable");
        assert_eq!(stage.effects(), 1);
    });
}

#[test]
fn a_record_whose_key_is_lost_is_named_in_the_answer() {
    run(async {
        let store = Arc::new(MemoryStore::default());
        let ring = |name: &str| Keyring::new([(KeyId::new(name).unwrap(), [7; 32])]).unwrap();
        let encrypted = Arc::new(Encrypted::new(store, ring("old")));
        let clock = Arc::new(SystemClock::new());
        let stage = Stage::over(encrypted.clone(), clock, crate::stage::created, |builder| builder).await;
        assert_eq!(stage.call(ask("k")).await.status, 201);
        encrypted.rekey(ring("new"));
        let got = stage.call(ask("k")).await;
        assert_eq!((got.status, stage.effects()), (503, 1));
        let id = got.response.extensions().get::<Answered>().copied().unwrap().id.unwrap();
        let problem: serde_json::Value = serde_json::from_slice(&got.body).unwrap();
        assert_eq!(problem["record"], id.to_string());
        assert!(encrypted.lookup(&id).await.is_err(), "the id is that of the record");
    });
}
