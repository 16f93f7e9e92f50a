//! Whose key it is.

use onlyonce_http::Rules;

use super::{ask, is_first, is_problem, is_replay};
use crate::http::{HttpFixture, Stage, Turn};

/// Item 37: the same key and body of two callers are two operations, in every state of the first.
pub async fn h37_two_principals_never_meet(fixture: &impl HttpFixture) {
    let stage = Stage::new(fixture, Rules::default()).await;
    stage.application.answers(Turn::status(201).header("x-secret", "of alice"));
    is_first(&stage.call(ask("k").user("alice")).await, 1);
    stage.application.answers(Turn::status(201));
    let other = stage.call(ask("k").user("bob")).await;
    is_first(&other, 2);
    assert_eq!(other.header("x-secret"), "");
    is_replay(&stage.call(ask("k").user("alice")).await, 1);
    is_replay(&stage.call(ask("k").user("bob")).await, 2);
    // The scheme is the same in either case; the credential is not.
    is_replay(&stage.call(ask("k").set("authorization", "BEARER alice")).await, 1);
    is_first(&stage.call(ask("k").set("authorization", "Bearer ALICE")).await, 3);

    stage.application.hold();
    let running = stage.start(ask("busy").user("alice"));
    stage.application.ran(4).await;
    let meanwhile = stage.start(ask("busy").user("bob"));
    stage.application.ran(5).await;
    stage.application.go_on();
    is_first(&running.await.unwrap(), 4);
    is_first(&meanwhile.await.unwrap(), 5);
}

/// Item 38: neither 409 nor 422 nor a replay tells a stranger that a key is in use.
pub async fn h38_a_guessed_key_is_worth_nothing(fixture: &impl HttpFixture) {
    let stage = Stage::new(fixture, Rules::default()).await;
    is_first(&stage.call(ask("1").user("victim").json("{\"iban\":\"secret\"}")).await, 1);
    stage.application.answers(Turn::vanish());
    stage.call(ask("2").user("victim")).await;
    stage.application.answers(Turn::status(201));
    for (effect, key) in (3..).zip(["1", "2", "3"]) {
        is_first(&stage.call(ask(key).user("thief")).await, effect);
    }
}

/// Cookies may be a session: without a rule that reads them nobody knows whose.
pub async fn d_cookies_without_a_credential_are_refused(fixture: &impl HttpFixture) {
    let stage = Stage::new(fixture, Rules::default()).await;
    let with_cookie = ask("k").without("authorization").set("cookie", "session=alice");
    is_problem(&stage.call(with_cookie).await, 400, "principal-missing");
    let twice = ask("k").add("authorization", "Bearer mallory");
    is_problem(&stage.call(twice).await, 400, "principal-missing");
    assert_eq!(stage.effects(), 0);
}

/// One scope for all who show nothing, apart from all who do.
pub async fn d_no_credential_at_all_shares_one_scope(fixture: &impl HttpFixture) {
    let stage = Stage::new(fixture, Rules::default()).await;
    is_first(&stage.call(ask("k").without("authorization")).await, 1);
    is_replay(&stage.call(ask("k").without("authorization")).await, 1);
    is_first(&stage.call(ask("k")).await, 2);
}

/// Each rule reads its own source.
pub async fn d_principals_come_from_where_the_rule_says(fixture: &impl HttpFixture) {
    let rules = |rule: &str| Rules { principal: Some(rule.parse().unwrap()), ..Rules::default() };
    let stage = Stage::new(fixture, rules("header:x-account")).await;
    is_first(&stage.call(ask("k").set("x-account", "a")).await, 1);
    is_replay(&stage.call(ask("k").set("x-account", "a").user("bob")).await, 1);
    is_first(&stage.call(ask("k").set("x-account", "b")).await, 2);
    is_problem(&stage.call(ask("k")).await, 400, "principal-missing");
    is_problem(
        &stage.call(ask("k").add("x-account", "a").add("x-account", "b")).await,
        400,
        "principal-missing",
    );

    let stage = Stage::new(fixture, rules("cookie:sid")).await;
    let cookie = |text: &str| ask("k").set("cookie", text);
    is_first(&stage.call(cookie("theme=dark; sid=a")).await, 1);
    is_replay(&stage.call(cookie("sid=a; theme=light")).await, 1);
    is_first(&stage.call(cookie("sid=b")).await, 2);
    for bad in ["xsid=a", "sid=", "sid=a; sid=b"] {
        is_problem(&stage.call(cookie(bad)).await, 400, "principal-missing");
    }

    let stage = Stage::new(fixture, rules("shared")).await;
    is_first(&stage.call(ask("k").user("alice")).await, 1);
    is_replay(&stage.call(ask("k").user("bob").set("cookie", "sid=b")).await, 1);
}
