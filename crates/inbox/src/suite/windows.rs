//! The windows themselves. Each publishes, stops a process where it must, ends it as it must, and counts effects.

use std::sync::Arc;
use std::time::Duration;

use onlyonce_core::{Policy, UnknownPolicy};

use super::process::{Plan, Process};
use super::stops::{Stops, Window};
use super::{Effect, Fixture};
use crate::consumer::{Tally, message_policy};
use crate::message::Message;

/// How many attempts a message has in the suite.
const ATTEMPTS_MAX: u32 = 3;

fn plan(stops: Stops) -> Plan {
    Plan { stops, policy: policy(), store_is_away: false, failures: 0 }
}

fn policy() -> Policy {
    message_policy().attempts_max(ATTEMPTS_MAX)
}

fn message(name: &str) -> Message {
    Message::new(name.to_owned()).with_header("event-id", format!("id of {name}"))
}

/// One window on one fixture.
struct Scene<F, E> {
    fixture: Arc<F>,
    effect: E,
}

impl<F: Fixture, E: Effect> Scene<F, E> {
    async fn new(fixture: Arc<F>, effect: E, name: &str) -> Self {
        fixture.publish(message(name)).await;
        Self { fixture, effect }
    }

    async fn start(&self, plan: Plan) -> Process {
        Process::start(&self.fixture, &self.effect, plan).await
    }

    /// Starts a process, waits until it stops at `window`, and kills it there.
    async fn killed_at(&self, window: Window, policy: Policy) {
        let stops = Stops::at(window);
        let process = self.start(Plan { policy, ..plan(stops.clone()) }).await;
        stops.reached().await;
        process.kill().await;
    }

    /// Lets what a dead or paused process held lapse.
    async fn lapse(&self) {
        self.fixture.pass(self.fixture.lease().get() + Duration::from_millis(1)).await;
    }

    /// Starts a process that works, and ends it when `is_so`.
    async fn finish(&self, is_so: impl Fn(&Tally) -> bool) -> Tally {
        self.finish_by(plan(Stops::default()), is_so).await
    }

    async fn finish_by(&self, plan: Plan, is_so: impl Fn(&Tally) -> bool) -> Tally {
        let process = self.start(plan).await;
        self.until(&process, is_so).await;
        process.end(&*self.fixture).await
    }

    /// Waits until a process has come so far; what waits to be delivered again comes meanwhile.
    async fn until(&self, process: &Process, is_so: impl Fn(&Tally) -> bool) {
        while !is_so(&process.counts()) {
            self.fixture.idle().await;
        }
    }

    async fn count(&self, name: &str) -> usize {
        self.effect.count(name).await
    }
}

fn handled(counts: &Tally) -> bool {
    counts.done + counts.duplicates > 0
}

/// Whether it is known of everything that was fetched what becomes of it.
fn judged(counts: &Tally) -> bool {
    let Tally { done, duplicates, busy, retried, given_back, dead_lettered, .. } = counts;
    let Tally { mismatched, nameless, store_failed, unrecorded, fetched, .. } = counts;
    let known = done + duplicates + busy + retried + given_back + dead_lettered;
    known + mismatched + nameless + store_failed + unrecorded == *fetched
}

/// W0: nothing was claimed, so nothing has to lapse.
pub async fn w0_killed_before_the_claim<F: Fixture, E: Effect>(fixture: Arc<F>, effect: E) {
    let scene = Scene::new(fixture, effect, "w0").await;
    scene.killed_at(Window::W0, policy()).await;
    assert_eq!(scene.count("w0").await, 0);
    scene.finish(handled).await;
    assert_eq!(scene.count("w0").await, 1);
}

/// W1: the claim lapses, and the next attempt has the effect.
pub async fn w1_killed_before_the_effect<F: Fixture, E: Effect>(fixture: Arc<F>, effect: E) {
    let scene = Scene::new(fixture, effect, "w1").await;
    scene.killed_at(Window::W1, policy()).await;
    assert_eq!(scene.count("w1").await, 0);
    scene.lapse().await;
    scene.finish(handled).await;
    assert_eq!(scene.count("w1").await, 1);
}

/// W2: a transaction that was not committed is gone; an effect elsewhere is there, and is had again under the same key.
pub async fn w2_killed_before_the_mark<F: Fixture, E: Effect>(fixture: Arc<F>, effect: E) {
    let scene = Scene::new(fixture, effect, "w2").await;
    scene.killed_at(Window::W2, policy()).await;
    assert_eq!(scene.count("w2").await, usize::from(!E::TRANSACTIONAL));
    scene.lapse().await;
    scene.finish(handled).await;
    assert_eq!(scene.count("w2").await, if E::TRANSACTIONAL { 1 } else { 2 });
}

/// W2 under `hold`: nothing is run that may have happened; the message is parked where someone finds it.
pub async fn w2_killed_before_the_mark_under_hold<F: Fixture, E: Effect>(fixture: Arc<F>, effect: E) {
    let scene = Scene::new(fixture, effect, "w2h").await;
    let hold = || policy().unknown(UnknownPolicy::Hold);
    scene.killed_at(Window::W2, hold()).await;
    scene.lapse().await;
    let counts = scene
        .finish_by(Plan { policy: hold(), ..plan(Stops::default()) }, |counts| counts.dead_lettered > 0)
        .await;
    assert_eq!((counts.done, counts.duplicates), (0, 0), "never silently acknowledged");
    assert_eq!(scene.count("w2h").await, usize::from(!E::TRANSACTIONAL));
    assert_eq!(scene.fixture.dead_letters().await.len(), 1);
}

/// W3: the next delivery finds the outcome.
pub async fn w3_killed_before_the_acknowledgement<F: Fixture, E: Effect>(fixture: Arc<F>, effect: E) {
    let scene = Scene::new(fixture, effect, "w3").await;
    scene.killed_at(Window::W3, policy()).await;
    assert_eq!(scene.count("w3").await, 1);
    let counts = scene.finish(handled).await;
    assert_eq!((counts.done, counts.duplicates), (0, 1));
    assert_eq!(scene.count("w3").await, 1);
}

/// Z: the one that froze is replaced, then goes on. Its transaction, its completion and its release are refused.
pub async fn z_paused_past_its_lease<F: Fixture, E: Effect>(fixture: Arc<F>, effect: E) {
    let scene = Scene::new(fixture, effect, "z").await;
    let stops = Stops::at(Window::W1);
    let frozen = scene.start(plan(stops.clone())).await;
    stops.reached().await;
    frozen.pause();
    scene.lapse().await;
    scene.fixture.take_away().await;
    let successor = scene.start(plan(Stops::default())).await;
    // The frozen one's source may get the message again in its stead: then it finds its own claim lapsed.
    while successor.counts().done + frozen.counts().done == 0 {
        scene.fixture.idle().await;
    }
    assert_eq!(scene.count("z").await, 1);
    // It goes on before it notices the time: whatever it does now must be refused by what it shows, not by its own clock.
    stops.let_go();
    scene.until(&frozen, judged).await;
    // ORDER: before it is settled. A broker that lost the connection may take that at a second try only, which waits.
    frozen.resume();
    scene.until(&frozen, |counts| counts.settled + counts.gone == counts.fetched).await;
    let (frozen, successor) = (frozen.end(&*scene.fixture).await, successor.end(&*scene.fixture).await);
    assert_eq!(frozen.done + successor.done, 1, "the frozen attempt's completion is refused");
    let expected = scene.count("z").await;
    if E::TRANSACTIONAL {
        assert_eq!(expected, 1, "its transaction is refused");
    } else {
        assert!(expected <= 2, "an effect elsewhere may be had again, under the same key");
    }
    let store = scene.fixture.store().await;
    let records = store.list(&onlyonce_core::store::Listing::default()).await.expect("a listing").records;
    assert_eq!((records.len(), records[0].1.attempt), (1, 2), "the successor's record stands");
}

/// F: a failure leaves no mark; the next attempt has the effect.
pub async fn f_failed_and_tried_again<F: Fixture, E: Effect>(fixture: Arc<F>, effect: E) {
    let scene = Scene::new(fixture, effect, "f").await;
    let counts = scene.finish_by(Plan { failures: 2, ..plan(Stops::default()) }, handled).await;
    assert_eq!((counts.retried, counts.done), (2, 1));
    assert_eq!(scene.count("f").await, 1);
}

/// X: nothing runs and nothing is acknowledged while the store is away.
pub async fn x_the_store_is_away<F: Fixture, E: Effect>(fixture: Arc<F>, effect: E) {
    let scene = Scene::new(fixture, effect, "x").await;
    let away = Plan { store_is_away: true, ..plan(Stops::default()) };
    let counts = scene.finish_by(away, |counts| counts.store_failed > 0).await;
    assert_eq!((counts.done, counts.duplicates, counts.dead_lettered), (0, 0, 0));
    assert_eq!(scene.count("x").await, 0);
    scene.finish(handled).await;
    assert_eq!(scene.count("x").await, 1);
}

/// P: a message that kills whoever takes it is parked after as many claims as it has attempts.
pub async fn p_kills_every_process<F: Fixture, E: Effect>(fixture: Arc<F>, effect: E) {
    let scene = Scene::new(fixture, effect, "p").await;
    for _ in 0..ATTEMPTS_MAX {
        scene.killed_at(Window::W1, policy()).await;
        scene.lapse().await;
    }
    let counts = scene.finish(|counts| counts.dead_lettered > 0).await;
    assert_eq!((counts.done, counts.retried), (0, 0), "it did not run again");
    assert_eq!(scene.count("p").await, 0);
    assert_eq!(scene.fixture.dead_letters().await.len(), 1);
}

/// D: published twice, at two positions, under one id.
pub async fn d_published_twice<F: Fixture, E: Effect>(fixture: Arc<F>, effect: E) {
    let scene = Scene::new(fixture, effect, "d").await;
    scene.fixture.publish(message("d")).await;
    let counts = scene.finish(|counts| counts.done + counts.duplicates >= 2).await;
    assert_eq!((counts.done, counts.duplicates), (1, 1));
    assert_eq!(scene.count("d").await, 1);
}

/// K: many processes, one after the other, each killed at a window by chance. None is lost; none is had twice where the
/// effect is transactional.
pub async fn k_killed_again_and_again<F: Fixture, E: Effect>(fixture: Arc<F>, effect: E) {
    let kills = number("ONLYONCE_KILLS").unwrap_or_else(|| fixture.kills());
    killed_again_and_again(fixture, effect, kills).await;
}

/// The same with as many kills as told. `ONLYONCE_SEED` is where chance begins.
#[expect(clippy::print_stdout, reason = "a long run shows its counts and its seed")]
pub async fn killed_again_and_again<F: Fixture, E: Effect>(fixture: Arc<F>, effect: E, kills: u64) {
    let scene = Scene { fixture, effect };
    let name = |number: u64| format!("k{number}");
    // Attempts are not what is tested here.
    let policy = || policy().attempts_max(1000);
    let seed = number("ONLYONCE_SEED").unwrap_or(1);
    let (mut chance, mut killed) = (Chance(seed), [0_u64; 4]);
    for kill in 0..kills {
        // One that is new, so that there is something to stop at, one beside it, and one that was seen before.
        for number in [2 * kill, 2 * kill + 1, chance.below(2 * kill + 1)] {
            scene.fixture.publish(message(&name(number))).await;
        }
        let at = usize::try_from(chance.below(4)).unwrap_or(0);
        killed[at] += 1;
        scene.killed_at([Window::W0, Window::W1, Window::W2, Window::W3][at], policy()).await;
        scene.lapse().await;
    }
    let process = scene.start(Plan { policy: policy(), ..plan(Stops::default()) }).await;
    let mut again = 0;
    for number in 0..2 * kills {
        while scene.count(&name(number)).await == 0 {
            scene.fixture.idle().await;
        }
    }
    process.end(&*scene.fixture).await;
    for number in 0..2 * kills {
        again += scene.count(&name(number)).await - 1;
    }
    let [w0, w1, w2, w3] = killed;
    println!(
        "{kills} kills from seed {seed} (W0 {w0}, W1 {w1}, W2 {w2}, W3 {w3}): {} messages in {} deliveries, 0 lost, \
         {again} effects too many",
        2 * kills,
        3 * kills
    );
    if E::TRANSACTIONAL {
        assert_eq!(again, 0, "none twice");
    }
    assert_eq!(scene.fixture.dead_letters().await.len(), 0);
}

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().and_then(|text| text.parse().ok())
}

/// The same numbers for the same seed: the steps of splitmix64.
struct Chance(u64);

impl Chance {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % end
    }
}
