//! Damage is refused for as long as what it hit may have been meant to last, also by sweeps and by damaged indexes.

use std::time::Duration;

use onlyonce_core::store::SweepBudget;
use onlyonce_core::transition::Terms;
use onlyonce_core::{Store, UnknownPolicy};
use onlyonce_testkit::fixture::any_id;
use onlyonce_testkit::run;

use crate::disk::{Image, SimDisk};
use crate::stage::{DAY, Stage, claim, completed, granted, kept};

/// Where the first entry of a segment lies, behind a mark.
const FIRST: usize = 9;

fn segment_of(image: &Image) -> String {
    image.files.keys().find(|name| name.ends_with(".segment")).unwrap().clone()
}

/// The same with one bit of the first grant flipped.
fn damaged(stage: &Stage) -> Stage {
    let mut image = stage.disk.image();
    let bytes = image.files.get_mut(&segment_of(&image)).unwrap();
    assert_eq!(bytes[FIRST] & 7, 3, "the first entry is a grant");
    bytes[FIRST + 70] ^= 1;
    Stage { disk: SimDisk::holding(image), clock: stage.clock.clone(), options: stage.options }
}

#[test]
fn a_damaged_grant_of_a_sealed_segment_is_refused_also_after_a_sweep() {
    let stage = Stage::new();
    let (id, remote) = (any_id(), || Terms { remote: true, ..kept(DAY) });
    let store = stage.open();
    run(granted(&store, &claim(id, 1, remote())));
    drop(store);
    // The next start seals it.
    drop(stage.open());
    let stage = damaged(&stage);
    let store = stage.open();
    run(async {
        store.sweep(SweepBudget::DEFAULT).await.unwrap();
        let answer = store.claim(&claim(id, 2, remote())).await;
        assert!(answer.is_err(), "granted from damage, while the owner's lease runs: {answer:?}");
    });
}

#[test]
fn a_damaged_grant_is_refused_for_as_long_as_unknown_outcomes_are_kept() {
    let stage = Stage::new();
    let (id, terms) = (any_id(), || kept(Duration::from_secs(30)));
    let store = stage.open();
    run(granted(&store, &claim(id, 1, terms())));
    drop(store);
    let stage = damaged(&stage);
    let store = stage.open();
    run(async {
        for _ in 0..30 {
            store.sweep(SweepBudget::DEFAULT).await.unwrap();
            let answer = store.claim(&claim(id, 2, terms())).await;
            assert!(answer.is_err(), "granted from damage: {answer:?}");
            stage.clock.advance(DAY);
        }
    });
}

#[test]
fn a_damaged_index_beside_a_damaged_entry_brings_no_older_entry_back() {
    let stage = Stage::new();
    let store = stage.open();
    let id = run(completed(&store, kept(DAY)));
    drop(store);
    drop(stage.open());
    let mut image = stage.disk.image();
    let name = segment_of(&image);
    image.files.get_mut(&format!("{name}.index")).unwrap()[0] ^= 1;
    let bytes = image.files.get_mut(&name).unwrap();
    let refers_to_first = |at: &usize| bytes[*at] == 4 && bytes[at + 8..at + 12] == [9, 0, 0, 0];
    let finish = (FIRST..bytes.len() - 12).find(refers_to_first).unwrap();
    bytes[finish + 1] ^= 1;
    let stage = Stage { disk: SimDisk::holding(image), ..stage };
    let store = stage.open();
    let rerun = Terms { unknown: UnknownPolicy::Rerun, ..kept(DAY) };
    let answer = run(async { store.claim(&claim(id, 2, rerun)).await });
    assert!(answer.is_err(), "{answer:?}");
}
