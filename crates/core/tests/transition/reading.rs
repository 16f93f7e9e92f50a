//! How a record reads at an instant: ABSENT from its expiry on, UNKNOWN from the end of its lease on.

use std::borrow::Cow;

use onlyonce_core::record::{State, StepName};
use onlyonce_core::transition::{
    Abandon, Actor, Answer, Change, Claim, Command, Complete, Erase, Moment, RecordStep, Release, Renew,
    Resolve, Sweep, Token, apply, transition, view,
};
use onlyonce_core::{Lease, Record, StateKind, Timestamp};
use onlyonce_testkit::fixture::{LEASE, RETENTION, UNKNOWN_RETENTION, outcome};

use crate::scene::{
    NOT_EXECUTED, POLICIES, SECOND, START, Scene, THIRD, above, around, claim, executed, first_record, id,
    other_fingerprint,
};

#[test]
fn view_of_nothing_is_nothing() {
    assert_eq!(view(None, START), None);
}

#[test]
fn view_of_a_record_that_is_not_due_is_the_record_itself() {
    for (name, scene, _) in Scene::each() {
        if name != "lapsed" {
            assert!(matches!(view(scene.stored.as_ref(), scene.now), Some(Cow::Borrowed(_))), "{name}");
            assert_eq!(scene.record().kind_at(scene.now), Some(scene.record().kind()), "{name}");
        }
    }
}

#[test]
fn view_of_a_passed_lease_is_unknown_since_its_end() {
    let (scene, _) = Scene::in_flight();
    for (age, passed) in around(LEASE) {
        let now = START + age;
        let kind = if passed { StateKind::Unknown } else { StateKind::InFlight };
        assert_eq!(scene.record().is_lapsed(now), passed);
        assert_eq!(scene.record().kind_at(now), Some(kind));
        let seen = view(scene.stored.as_ref(), now).expect("in flight never expires").into_owned();
        let expected = if passed {
            let expires_at = now + UNKNOWN_RETENTION;
            first_record(State::Unknown { since: START + LEASE, expires_at, recovery: None })
        } else {
            scene.record().clone()
        };
        assert_eq!(seen, expected);
    }
}

#[test]
fn view_of_an_expired_record_is_nothing() {
    let cases = [
        (Scene::completed().0, RETENTION),
        (Scene::released().0, RETENTION),
        (Scene::unknown().0, UNKNOWN_RETENTION),
    ];
    for (scene, retention) in cases {
        for (age, expired) in around(retention) {
            let now = START + age;
            assert_eq!(view(scene.stored.as_ref(), now).is_none(), expired);
            assert_eq!(scene.record().is_expired(now), expired);
            assert_eq!(scene.record().kind_at(now).is_none(), expired);
            assert!(!scene.record().is_lapsed(now));
        }
    }
}

#[test]
fn due_is_the_end_of_the_lease_or_of_the_retention() {
    for (name, scene, _) in Scene::each() {
        let expected = match name {
            "in flight" | "lapsed" => START + LEASE,
            "unknown" | "recovering" | "sealed" => START + UNKNOWN_RETENTION,
            _ => START + RETENTION,
        };
        assert_eq!(scene.record().due_at(), expected, "{name}");
        let expires = !matches!(name, "in flight" | "lapsed");
        assert_eq!(scene.record().expires_at(), expires.then_some(expected), "{name}");
    }
}

#[test]
fn what_lasts_for_ever_is_never_over_before_the_end_of_time() {
    let state = State::Unknown { since: START, expires_at: Timestamp::MAX, recovery: None };
    let record = first_record(state);
    assert!(!record.is_expired(Timestamp::from_millis(u64::MAX - 1)));
    let record = Record { state: State::InFlight { lease_until: Timestamp::MAX }, ..record };
    assert!(!record.is_lapsed(Timestamp::from_millis(u64::MAX - 1)));
}

/// At least one command of every kind.
fn commands(token: Token) -> Vec<Command> {
    let other = Claim { fingerprint: other_fingerprint(), ..claim(THIRD, POLICIES[0]) };
    let claims = POLICIES.map(|policy| Command::Claim(claim(SECOND, policy)));
    let resolve =
        |verdict| Command::Resolve(Resolve { id: id(), fence: token.fence, verdict, actor: Actor::Hook });
    let mut commands = vec![
        Command::Claim(other),
        Command::Renew(Renew { token, lease: Lease::DEFAULT }),
        Command::Complete(Complete { token, outcome: outcome("done"), retention: None }),
        Command::Release(Release { token, keep_fingerprint: false }),
        Command::Abandon(Abandon { token }),
        Command::RecordStep(RecordStep {
            token,
            name: StepName::new("charge").expect("a name"),
            value: "ch_1".into(),
        }),
        resolve(NOT_EXECUTED),
        resolve(executed("found")),
        Command::Erase(Erase { id: id() }),
        Command::Sweep(Sweep { id: id() }),
    ];
    commands.extend(claims);
    commands
}

#[test]
fn transition_says_what_the_command_itself_says() {
    for (name, scene, token) in Scene::each() {
        let stored = scene.stored.as_ref();
        let moment = Moment { now: scene.now, next_fence: above(token, 3) };
        for command in commands(token) {
            let (change, answer) = transition(stored, &command, moment);
            let (expected, same) = match (&command, &answer) {
                (Command::Claim(c), Answer::Claim(a)) => of(apply(stored, c, moment), a),
                (Command::Renew(c), Answer::Renew(a)) => of(apply(stored, c, moment), a),
                (Command::Complete(c), Answer::Complete(a)) => of(apply(stored, c, moment), a),
                (Command::Release(c), Answer::Release(a)) => of(apply(stored, c, moment), a),
                (Command::Abandon(c), Answer::Abandon(a)) => of(apply(stored, c, moment), a),
                (Command::RecordStep(c), Answer::RecordStep(a)) => of(apply(stored, c, moment), a),
                (Command::Resolve(c), Answer::Resolve(a)) => of(apply(stored, c, moment), a),
                (Command::Erase(c), Answer::Erase(a)) => of(apply(stored, c, moment), a),
                (Command::Sweep(c), Answer::Sweep(a)) => of(apply(stored, c, moment), a),
                _ => (Change::Keep, false),
            };
            assert!(same, "{name}: {command:?} was answered {answer:?}");
            assert_eq!(change, expected, "{name}: {command:?}");
        }
    }
}

fn of<A: PartialEq>((change, answer): (Change, A), expected: &A) -> (Change, bool) {
    (change, answer == *expected)
}
