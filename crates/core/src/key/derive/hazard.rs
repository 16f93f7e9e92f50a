//! Warns of the classic mistakes: a time, a random number or an attempt counter in what should be the same on every
//! retry, and a colon that lets two operations collide.
//!
//! These are guesses from looks and names, kept shy: a guard that cries at every amount is switched off. They never
//! change a key and never refuse one; whoever wants refusal (the CLI's `--strict`) acts on a non-empty answer.

use std::fmt;

use super::document::Node;
use super::judge::{judge_entity, judge_scalar, judge_text};
use super::names::Name;

/// The most hazards that are reported. A list of a thousand times is one mistake.
pub const HAZARDS_MAX: usize = 32;

/// The most values that are looked at. What differs between attempts stands near the top of small objects; a body of
/// half a million numbers is data.
const VALUES_MAX: usize = 10_000;

/// The longest place that is shown, in characters.
const PLACE_CHARS_MAX: usize = 120;

/// Something in the input of a key that is likely to break it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Hazard {
    place: String,
    kind: HazardKind,
}

/// What is likely to go wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum HazardKind {
    /// A date with a time.
    DateTime,
    /// A number that looks like seconds (or milli-, micro-, nanoseconds) since 1970, from 2001 to 2100.
    Epoch,
    /// A UUID that is made from the time: version 1, 6 or 7.
    TimeUuid,
    /// A UUID that is made from chance: version 4.
    RandomUuid,
    /// A text that looks like a random number in hexadecimal or base 64.
    RandomText,
    /// A member with a name like `nonce`, `sent_at` or `attempt`.
    VolatileName,
    /// A colon in entity or action, which the plain form cannot tell from its own colons.
    Colon,
}

impl Hazard {
    /// Where it is: `entity`, `action`, `user`, `operation`, `body`, or a JSON pointer into params or body
    /// (`/metadata/sent_at`). Control characters are escaped and long pointers cut, so that it can be shown.
    pub fn place(&self) -> &str {
        &self.place
    }

    /// What it is.
    pub const fn kind(&self) -> HazardKind {
        self.kind
    }
}

impl HazardKind {
    /// A name for programs. It does not change.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::DateTime => "date-time",
            Self::Epoch => "epoch",
            Self::TimeUuid => "time-uuid",
            Self::RandomUuid => "random-uuid",
            Self::RandomText => "random-text",
            Self::VolatileName => "volatile-name",
            Self::Colon => "colon",
        }
    }
}

impl fmt::Display for Hazard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.place, self.kind)
    }
}

impl fmt::Display for HazardKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::DateTime => {
                "holds a date and time: if it is that of the attempt, every retry gets another key; leave it out"
            }
            Self::Epoch => {
                "looks like a time since 1970: if it is that of the attempt, every retry gets another key; leave it out"
            }
            Self::TimeUuid => {
                "holds a UUID made from the time: if it is made per attempt, every retry gets another key; \
                 leave it out or store it first"
            }
            Self::RandomUuid => {
                "holds a random UUID: if it is made per attempt, every retry gets another key; \
                 leave it out or store it first"
            }
            Self::RandomText => {
                "looks random: if it is made per attempt, every retry gets another key; leave it out or store it first"
            }
            Self::VolatileName => {
                "is named like something that differs between attempts: if it does, every retry gets another key; \
                 leave it out"
            }
            Self::Colon => {
                "holds a colon, so another operation can get the same key (a:b + c is a + b:c); \
                 use the length-prefixed form"
            }
        })
    }
}

/// Hazards of a deterministic key.
pub(super) fn of_derivation(entity: &str, action: &str, params: Option<&Node>, plain: bool) -> Vec<Hazard> {
    let mut walk = Walk::default();
    for (place, text, kind) in
        [("entity", entity, judge_entity(entity)), ("action", action, judge_text(action, None))]
    {
        if plain && text.contains(':') {
            walk.report(place.to_owned(), HazardKind::Colon);
        }
        if let Some(kind) = kind {
            walk.report(place.to_owned(), kind);
        }
    }
    if let Some(params) = params {
        walk.node(params, None);
    }
    walk.found
}

/// Hazards of a body's key.
pub(super) fn of_body(body: &Node) -> Vec<Hazard> {
    let mut walk = Walk::default();
    walk.node(body, None);
    walk.found
}

/// Hazards of a composite key.
pub(super) fn of_composite(user: &str, operation: &str) -> Vec<Hazard> {
    let judged = [("user", judge_entity(user)), ("operation", judge_text(operation, None))];
    judged
        .into_iter()
        .filter_map(|(place, kind)| Some(Hazard { place: place.to_owned(), kind: kind? }))
        .collect()
}

/// Visits every scalar of a tree, in order, and remembers the way to it.
#[derive(Default)]
struct Walk<'a> {
    path: Vec<Step<'a>>,
    seen: usize,
    found: Vec<Hazard>,
}

enum Step<'a> {
    Member(&'a str),
    Item(usize),
}

impl<'a> Walk<'a> {
    fn node(&mut self, node: &'a Node, name: Option<Name>) {
        self.seen += 1;
        match node {
            Node::Object(members) => {
                for (member, value) in members {
                    if self.is_full() {
                        return;
                    }
                    self.path.push(Step::Member(member));
                    self.node(value, Some(Name::new(member)));
                    self.path.pop();
                }
            }
            Node::List(items) => {
                for (index, item) in items.iter().enumerate() {
                    if self.is_full() {
                        return;
                    }
                    self.path.push(Step::Item(index));
                    // The items of `sent_at: [...]` are still what `sent_at` says.
                    self.node(item, name);
                    self.path.pop();
                }
            }
            scalar => {
                if let Some(kind) = judge_scalar(scalar, name) {
                    self.report(self.place(), kind);
                }
            }
        }
    }

    fn is_full(&self) -> bool {
        self.found.len() == HAZARDS_MAX || self.seen == VALUES_MAX
    }

    fn report(&mut self, place: String, kind: HazardKind) {
        if self.found.len() < HAZARDS_MAX {
            self.found.push(Hazard { place, kind });
        }
    }

    fn place(&self) -> String {
        if self.path.is_empty() {
            return "body".to_owned();
        }
        let mut place = String::new();
        for step in &self.path {
            place.push('/');
            match step {
                Step::Item(index) => place.push_str(&index.to_string()),
                Step::Member(name) => place.extend(name.chars().take(PLACE_CHARS_MAX).flat_map(shown)),
            }
        }
        match place.char_indices().nth(PLACE_CHARS_MAX) {
            Some((end, _)) => format!("{}…", &place[..end]),
            None => place,
        }
    }
}

/// A character of a name as a JSON pointer writes it, and without what could steer a terminal.
fn shown(character: char) -> impl Iterator<Item = char> {
    let text = match character {
        '~' => "~0".to_owned(),
        '/' => "~1".to_owned(),
        control if control.is_control() => control.escape_default().to_string(),
        other => other.to_string(),
    };
    text.chars().collect::<Vec<_>>().into_iter()
}

#[cfg(test)]
mod tests {
    use HazardKind::*;

    use super::super::document::parse;
    use super::*;

    const V4: &str = "9b2e4c1a-6f3d-4e8b-a7c5-1d2e3f4a5b6c";
    const V7: &str = "018f3a5c-7b2e-7c4d-9e8f-0a1b2c3d4e5f";
    const HEX: &str = "9f86d081884c7d659a2feaa0c55ad015";

    fn found(entity: &str, action: &str, params: &str) -> Vec<(String, HazardKind)> {
        let params = parse(params).unwrap();
        let hazards = of_derivation(entity, action, Some(&params), true);
        hazards.into_iter().map(|hazard| (hazard.place, hazard.kind)).collect()
    }

    #[test]
    fn what_differs_between_attempts_is_reported_with_its_place() {
        for (params, place, kind) in [
            (r#"{"sent_at": "2026-11-15T04:09:00Z"}"#.to_owned(), "/sent_at", DateTime),
            (r#"{"metadata": {"sent_at": "yesterday"}}"#.to_owned(), "/metadata/sent_at", VolatileName),
            (r#"{"note": "Sun, 15 Nov 2026 04:09:00 GMT"}"#.to_owned(), "/note", DateTime),
            (r#"{"when": 1794715740}"#.to_owned(), "/when", Epoch),
            (r#"{"x": 1794715740123}"#.to_owned(), "/x", Epoch),
            (r#"{"x": 1794715740.5}"#.to_owned(), "/x", Epoch),
            (r#"{"x": "1794715740123456"}"#.to_owned(), "/x", Epoch),
            (r#"{"url": "https://example.com/?ts=1794715740"}"#.to_owned(), "/url", Epoch),
            (r#"{"order_time": 1794715740}"#.to_owned(), "/order_time", Epoch),
            (r#"{"items": [1, {"ts": 5}]}"#.to_owned(), "/items/1/ts", VolatileName),
            (r#"{"timestamp": [1]}"#.to_owned(), "/timestamp/0", VolatileName),
            (r#"{"a/b~c": {"nonce": 7}}"#.to_owned(), "/a~1b~0c/nonce", VolatileName),
            (r#"{"attempt": 2}"#.to_owned(), "/attempt", VolatileName),
            (r#"{"retry": true}"#.to_owned(), "/retry", VolatileName),
            (format!(r#"{{"x": "{V4}"}}"#), "/x", RandomUuid),
            (format!(r#"{{"id": "{V4}"}}"#), "/id", RandomUuid),
            (format!(r#"{{"request_id": "{V4}"}}"#), "/request_id", RandomUuid),
            (format!(r#"{{"x": "{V7}"}}"#), "/x", TimeUuid),
            (format!(r#"{{"x": "{HEX}"}}"#), "/x", RandomText),
            (r#"{"x": "k7Jx2PqLm9Zt4RvB8nWc3Q=="}"#.to_owned(), "/x", RandomText),
        ] {
            assert_eq!(found("order-123", "create", &params), [(place.to_owned(), kind)], "{params}");
        }
    }

    #[test]
    fn what_stays_the_same_is_not_reported() {
        for params in [
            r#"{"currency": "USD", "amount": 100}"#.to_owned(),
            r#"{"amount": 1500000000, "price": 1700000000, "total": 1794715740, "phone": 4915112345}"#
                .to_owned(),
            r#"{"account": "1794715740", "account_number": 1794715740, "order": "1794715740"}"#.to_owned(),
            r#"{"a": 0, "b": -1, "c": 2026, "d": 123456, "e": 1.5, "f": 1e300, "g": -1794715740}"#.to_owned(),
            r#"{"big": 99999999999999999999999999, "ok": true, "nothing": null}"#.to_owned(),
            r#"{"date": "2026-11-15", "month": "2026-11", "opens": "09:30"}"#.to_owned(),
            r#"{"scheduled_at": "2026-11-15T04:09:00Z", "departure": 1794715740, "due": "2026-11-15 04:09"}"#
                .to_owned(),
            r#"{"sent_at": null, "retry": {"max": 3}, "max_retries": 3, "pay_now": true}"#.to_owned(),
            format!(
                r#"{{"customer_id": "{V4}", "productId": "{V7}", "sha256": "{HEX}", "card_token": "{HEX}"}}"#
            ),
            r#"{"payment_method": "pm_1MtwBwLkdIwHu7ix28a3tqPa", "email": "alice@example.com"}"#.to_owned(),
            format!(r#"{{"text": "{} 2026-11-15T04:09:00Z"}}"#, "long ".repeat(60)),
            r#"{"ean": 4006381333931, "iban": "DE89370400440532013000"}"#.to_owned(),
        ] {
            assert_eq!(found("order-123", "create", &params), [], "{params}");
        }
    }

    #[test]
    fn entities_may_be_random_but_not_times() {
        for entity in
            ["order-123", "1234567890", V4, V7, HEX, "invoice-2026-11", "user/42", "k7Jx2PqLm9Zt4RvB8nWc3Q"]
        {
            assert_eq!(found(entity, "create", "{}"), [], "{entity}");
        }
        for (entity, kind) in [
            ("order-2026-11-15T04:09:00Z", DateTime),
            ("order-20261115040900", DateTime),
            ("order-1794715740", Epoch),
            ("order-1794715740123", Epoch),
        ] {
            let kinds: Vec<_> = found(entity, "create", "{}").into_iter().map(|(_, kind)| kind).collect();
            assert!(kinds.contains(&kind), "{entity}: {kinds:?}");
        }
    }

    #[test]
    fn actions_are_neither_random_nor_times() {
        for (action, kind) in [
            (format!("create-{V4}"), RandomUuid),
            (format!("create-{V7}"), TimeUuid),
            (HEX.to_owned(), RandomText),
            ("create-1794715740".to_owned(), Epoch),
        ] {
            assert_eq!(found("order-123", &action, "{}"), [("action".to_owned(), kind)], "{action}");
        }
        assert_eq!(found("order-123", "create_or_update-v2", "{}"), []);
    }

    #[test]
    fn colons_are_reported_in_the_plain_form_only() {
        let colon = |place: &str| (place.to_owned(), Colon);
        assert_eq!(found("a:b", "c", "{}"), [colon("entity")]);
        assert_eq!(found("a", "b:c", "{}"), [colon("action")]);
        assert!(of_derivation("a:b", "c:d", None, false).is_empty());
    }

    #[test]
    fn reports_are_bounded_and_safe_to_show() {
        let many = parse(&format!("[{}]", vec!["1794715740"; 1000].join(","))).unwrap();
        assert_eq!(of_body(&many).len(), HAZARDS_MAX);
        assert_eq!(of_body(&parse("1794715740").unwrap())[0].place(), "body");

        let hostile = parse(r#"{"\u001b[31m\n": {"nonce": 1}}"#).unwrap();
        let shown = of_body(&hostile)[0].to_string();
        assert!(shown.starts_with("/\\u{1b}[31m\\n/nonce is named like"), "{shown}");
        let long = parse(&format!(r#"{{"{}": {{"nonce": 1}}}}"#, "é".repeat(5000))).unwrap();
        assert_eq!(of_body(&long)[0].place().chars().count(), PLACE_CHARS_MAX + 1);
    }

    #[test]
    fn users_are_judged_as_entities_and_operations_as_actions() {
        assert!(of_composite(V4, "transfer").is_empty());
        let hazards = of_composite("alice-1794715740", V4);
        assert_eq!((hazards[0].place(), hazards[0].kind()), ("user", Epoch));
        assert_eq!((hazards[1].place(), hazards[1].kind()), ("operation", RandomUuid));
    }
}
