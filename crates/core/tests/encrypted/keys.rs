//! Which keys read what, and what is read without one.

use std::sync::Arc;
use std::time::Duration;

use onlyonce_core::house::{self, count_callers};
use onlyonce_core::record::{STEPS_MAX, State};
use onlyonce_core::store::encrypted::{Misfit, misfit};
use onlyonce_core::store::{Listing, Page, StoreErrorKind};
use onlyonce_core::transition::{Claim, Complete, CompleteAnswer, Erase};
use onlyonce_core::{Clock as _, Encrypted, Fingerprint, Keyring, Rules, Store as _, UnknownPolicy};
use onlyonce_testkit::fault::Operation;
use onlyonce_testkit::fixture::{LEASE, outcome};
use onlyonce_testkit::{Clocked, Fault, Faulty, Scene, run};

use crate::{Pair, body_of, cause, ring, scene_of};

#[test]
fn an_unknown_key_is_named_and_another_one_of_that_name_is_damage() {
    run(async {
        let pair = Pair::new(ring(&[("k1", 1)]));
        let scene = Scene::new(&pair.clear);
        scene.completed("done").await;
        for (keys, why) in [
            (ring(&[("k2", 1)]), "encrypted with the key `k1`, which is not in the key file"),
            (ring(&[("k1", 2)]), "its key is not the one of that name"),
        ] {
            let lost = pair.with(keys);
            let there = scene_of(&lost, scene.id);
            let claim = there.claim_of(there.owner(), UnknownPolicy::Rerun);
            let error = there.store().claim(&claim).await.expect_err("read without the key");
            assert_eq!(error.kind(), StoreErrorKind::Corrupt);
            assert!(cause(&error).contains(why), "{error:?}");
            // The key stays protected: nothing was changed, and who has it again reads it again.
            scene.expect_replay("done").await;
        }
    });
}

#[test]
fn after_a_rotation_old_records_are_read_and_new_ones_written_with_the_new_key() {
    run(async {
        let pair = Pair::new(ring(&[("old", 1)]));
        let scene = Scene::new(&pair.clear);
        let token = scene.completed("done").await;
        let rotated = pair.with(ring(&[("new", 2), ("old", 1)]));
        let there = scene_of(&rotated, scene.id);
        there.expect_replay("done").await;
        assert_eq!(there.complete(token, "done").await, CompleteAnswer::Already, "other bytes, same outcome");
        assert_eq!(there.complete(token, "another").await, CompleteAnswer::Alarm);
        let batch =
            ["done", "another"].map(|body| Complete { token, outcome: outcome(body), retention: None });
        let answers = there.store().complete_many(&batch).await.unwrap();
        let answers: Vec<_> = answers.into_iter().map(Result::unwrap).collect();
        assert_eq!(answers, [CompleteAnswer::Already, CompleteAnswer::Alarm]);

        let later = Scene::new(&rotated);
        later.completed("later").await;
        let stored = pair.raw(&later.id).await;
        assert!(body_of(&stored).windows(3).any(|window| window == b"new"), "written with the old key");
        assert!(
            scene_of(&pair.clear, later.id).store().lookup(&later.id).await.is_err(),
            "the old key reads it"
        );
    });
}

#[test]
fn keys_can_be_changed_while_the_store_is_in_use() {
    run(async {
        let pair = Pair::new(ring(&[("old", 1)]));
        let store = Arc::new(Encrypted::new(pair.stolen.clone(), ring(&[("old", 1)])));
        let fixture = Clocked::new(store.clone(), pair.clock.clone());
        let scene = Scene::new(&fixture);
        scene.completed("before").await;
        store.rekey(ring(&[("new", 2), ("old", 1)]));
        assert_eq!(store.keys().first().as_str(), "new");
        scene.expect_replay("before").await;
        store.rekey(ring(&[("new", 2)]));
        assert!(store.lookup(&scene.id).await.is_err());
    });
}

#[test]
fn a_record_from_before_encryption_is_read_only_where_that_is_accepted() {
    run(async {
        let pair = Pair::new(ring(&[("k1", 1)]));
        let plain = Clocked::new(pair.stolen.clone(), pair.clock.clone());
        let before = Scene::new(&plain);
        let token = before.completed("before").await;

        let there = scene_of(&pair.clear, before.id);
        let error = there.store().lookup(&before.id).await.expect_err("read although it is not encrypted");
        assert_eq!(error.kind(), StoreErrorKind::Corrupt);
        assert!(cause(&error).contains("store.accept_plain"), "{error:?}");
        assert!(there.store().claim(&there.claim_of(there.owner(), UnknownPolicy::Hold)).await.is_err());

        let migrating = pair.with(ring(&[("k1", 1)]).accepting_plain(true));
        let there = scene_of(&migrating, before.id);
        there.expect_replay("before").await;
        assert_eq!(there.complete(token, "before").await, CompleteAnswer::Already);
        let after = Scene::new(&migrating);
        after.completed("after").await;
        let stored = pair.raw(&after.id).await;
        assert!(body_of(&stored) != "after", "written as it is");
    });
}

/// The keys that are noted to have written there.
async fn names(store: &Encrypted) -> Vec<String> {
    store.noted().await.unwrap().names().map(str::to_owned).collect()
}

#[test]
fn keys_that_do_not_fit_the_store_are_told_before_anything_is_read() {
    run(async {
        let pair = Pair::new(ring(&[("k1", 1)]));
        let store = Encrypted::new(pair.stolen.clone(), ring(&[("k1", 1)]));
        let seen = async |keys: Option<&Keyring>| misfit(&*pair.stolen, keys).await.unwrap();
        let of = |name: &str| vec![name.to_owned()];
        assert_eq!(seen(None).await, None, "an empty store fits everybody");
        assert_eq!(seen(Some(&store.keys())).await, None);
        store.note(&store.keys()).await.unwrap();
        assert_eq!(seen(Some(&store.keys())).await, None);
        assert_eq!(seen(None).await, Some(Misfit::NoKeys(of("k1"))));
        assert_eq!(seen(Some(&ring(&[("k2", 2)]))).await, Some(Misfit::OtherKeys(of("k1"))));
        assert_eq!(seen(Some(&ring(&[("k1", 2)]))).await, Some(Misfit::AnotherKey("k1".to_owned())));
        // Rotation: the new key is noted, and the old one may go.
        let (both, new) = (ring(&[("k2", 2), ("k1", 1)]), ring(&[("k2", 2)]));
        assert_eq!(seen(Some(&both)).await, None);
        for _ in 0..2 {
            store.note(&both).await.unwrap();
        }
        assert_eq!(names(&store).await, ["k1", "k2"]);
        assert_eq!(seen(Some(&new)).await, None);
        // Nobody's operation: neither listed nor counted, and readable without the keys that are gone.
        let lost = Encrypted::new(pair.stolen.clone(), new);
        assert_eq!(lost.list(&Listing::default()).await.unwrap(), Page::default());
        assert_eq!(count_callers(&lost).await.unwrap().records(), 0);
    });
}

#[test]
fn keys_are_noted_again_only_when_there_is_something_to_note() {
    run(async {
        let pair = Pair::new(ring(&[("k1", 1)]));
        let store = Encrypted::new(pair.stolen.clone(), ring(&[("k1", 1)]));
        let is_enough = async |keys: &Keyring| store.noted().await.unwrap().is_enough(keys, pair.clock.now());
        let (both, one) = (ring(&[("k2", 2), ("k1", 1)]), store.keys());
        assert!(!is_enough(&one).await, "nothing is noted");
        store.note(&one).await.unwrap();
        assert!(is_enough(&one).await && !is_enough(&both).await);
        let day = Duration::from_hours(24);
        // Whoever starts every six hours writes about once a day, and never lets it go.
        let mut writes = 0;
        for _ in 0..40 {
            pair.clock.advance(day / 4);
            if !is_enough(&one).await {
                store.note(&one).await.unwrap();
                writes += 1;
            }
            assert!(is_enough(&one).await);
        }
        assert!((1..=10).contains(&writes), "{writes}");
        // It goes with the records of a month: for longer it would keep others from going.
        let record = pair.raw(&house::ENCRYPTION).await;
        let State::Released { expires_at } = record.state else { panic!("released, not {record:?}") };
        assert!(pair.clock.now().until(expires_at) <= 31 * day, "{record:?}");
        pair.clock.advance(32 * day);
        assert!(!is_enough(&one).await && names(&store).await.is_empty());
    });
}

#[test]
fn a_damaged_note_keeps_nobody_from_opening_the_store() {
    run(async {
        let pair = Pair::new(ring(&[("k1", 1)]));
        let damaged = Arc::new(Faulty::new(pair.stolen.clone()));
        let store = Encrypted::new(damaged.clone(), ring(&[("k1", 1)]));
        store.note(&store.keys()).await.unwrap();
        for keys in [None, Some(&ring(&[("k2", 2)])), Some(&*store.keys())] {
            assert_eq!(
                misfit(&*damaged, keys).await.unwrap().is_none(),
                keys.is_some_and(|k| k.first().as_str() == "k1")
            );
            // The note, and then also the records that would show whether they are encrypted.
            damaged.next_times(2, Operation::Other, &Fault::Damage);
            assert_eq!(misfit(&*damaged, keys).await.unwrap(), None);
            damaged.heal();
        }
        damaged.next(Operation::Other, Fault::Refuse);
        assert!(misfit(&*damaged, None).await.unwrap_err().is_retryable(), "an outage says nothing");
        damaged.next(Operation::Other, Fault::Damage);
        assert!(
            !store.noted().await.unwrap().is_enough(&store.keys(), pair.clock.now()),
            "not known to be noted"
        );
    });
}

#[test]
fn more_keys_than_can_be_noted_keep_the_last_of_them_in() {
    run(async {
        let pair = Pair::new(ring(&[("k1", 1)]));
        let store = Encrypted::new(pair.stolen.clone(), ring(&[("k1", 1)]));
        let key = |number: usize| ring(&[(&format!("k{number}"), u8::try_from(number).unwrap())]);
        for number in 1..=STEPS_MAX {
            let seen = misfit(&*pair.stolen, Some(&key(STEPS_MAX + 1))).await.unwrap();
            assert_eq!(seen.is_some(), number > 1, "others have written here");
            store.note(&key(number)).await.unwrap();
        }
        let error = store.note(&key(STEPS_MAX + 1)).await.unwrap_err();
        assert!(cause(&error).contains("more keys"), "{error:?}");
        assert_eq!(names(&store).await.len(), STEPS_MAX);
        // It may be that this one wrote, and could not be noted.
        assert_eq!(misfit(&*pair.stolen, Some(&key(STEPS_MAX + 1))).await.unwrap(), None);
        let another = ring(&[("k1", 2)]);
        let seen = misfit(&*pair.stolen, Some(&another)).await.unwrap();
        assert_eq!(seen, Some(Misfit::AnotherKey("k1".to_owned())), "what is known is still told");
    });
}

#[test]
fn a_process_that_died_while_it_noted_its_key_is_followed_by_the_next() {
    run(async {
        let pair = Pair::new(ring(&[("k1", 1)]));
        let raw = Clocked::new(pair.stolen.clone(), pair.clock.clone());
        let dying = scene_of(&raw, house::ENCRYPTION);
        let claim = Claim {
            fingerprint: Fingerprint::from_parts(Rules::standard(), [0; 32]),
            ..dying.claim_of(dying.owner(), UnknownPolicy::Rerun)
        };
        pair.stolen.claim(&claim).await.unwrap();
        let store = Encrypted::new(pair.stolen.clone(), ring(&[("k1", 1)]));
        store.note(&store.keys()).await.unwrap();
        assert_eq!(names(&store).await, [""; 0], "while it may live it is not hurried");
        dying.advance(LEASE).await;
        store.note(&store.keys()).await.unwrap();
        assert_eq!(names(&store).await, ["k1"]);
    });
}

#[test]
fn a_store_of_plain_records_fits_only_who_accepts_them() {
    run(async {
        let pair = Pair::new(ring(&[("k1", 1)]));
        let plain = Clocked::new(pair.stolen.clone(), pair.clock.clone());
        Scene::new(&plain).granted().await;
        let seen = async |keys: &Keyring| misfit(&*pair.stolen, Some(keys)).await.unwrap();
        assert_eq!(seen(&ring(&[("k1", 1)])).await, None, "a grant says nothing yet");
        Scene::new(&pair.clear).completed("after").await;
        assert_eq!(seen(&ring(&[("k1", 1)])).await, None, "encrypted, by a version that noted no keys");
        Scene::new(&plain).completed("before").await;
        assert_eq!(seen(&ring(&[("k1", 1)])).await, Some(Misfit::Plain));
        assert_eq!(seen(&ring(&[("k1", 1)]).accepting_plain(true)).await, None);
    });
}

#[test]
fn one_record_whose_key_is_lost_hides_no_other_and_can_be_erased() {
    run(async {
        let pair = Pair::new(ring(&[("old", 1)]));
        let lost = Scene::new(&pair.clear);
        lost.completed("before").await;
        let store = Encrypted::new(pair.stolen.clone(), ring(&[("new", 2)]));
        let after = pair.with(ring(&[("new", 2)]));
        let kept = Scene::new(&after);
        kept.completed("after").await;
        let page = store.list(&Listing::default()).await.unwrap();
        assert_eq!(page.records.iter().map(|(id, _)| *id).collect::<Vec<_>>(), [kept.id]);
        let [named] = page.unreadable.as_slice() else { panic!("one, not {page:?}") };
        assert!(named.id == lost.id && named.why.contains("the key `old`"), "{named:?}");
        store.erase(&Erase { id: lost.id }).await.unwrap();
        let page = store.list(&Listing::default()).await.unwrap();
        assert_eq!((page.records.len(), page.unreadable.len()), (2, 0), "there is nothing left to decrypt");
    });
}
