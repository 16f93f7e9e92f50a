//! The 39 points of draft-ietf-httpapi-idempotency-key-header-07, and what a run from outside can say about each.

use serde::Serialize;

use super::items::{ITEMS, Item};
use super::verdict::{Findings, Verdict};

/// One point of the draft.
struct Point {
    level: &'static str,
    /// Whose duty it is: the client's, the resource's, or the text's own.
    role: &'static str,
    text: &'static str,
}

const fn point(level: &'static str, role: &'static str, text: &'static str) -> Point {
    Point { level, role, text }
}

/// In their order: the first is number 1.
const POINTS: [Point; 39] = [
    point("MUST", "client, resource", "the field is a Structured Field Item whose value is a String"),
    point("derived", "resource", "only printable ASCII; only the escapes \\\" and \\\\"),
    point("derived", "resource", "other types and lists are not Strings"),
    point("derived", "resource", "parameters do not change the key"),
    point("derived", "resource", "repeated field lines are invalid"),
    point("derived", "resource", "a field that cannot be read is an error, not an unprotected execution"),
    point("derived", "resource", "the empty String is below the published minimum"),
    point("MUST", "client", "a key is unique"),
    point("MUST NOT", "client", "a key is not used again with another payload"),
    point("MUST", "text", "the resource owner defines uniqueness"),
    point("MUST", "client", "the client implements it"),
    point("RECOMMENDED", "client", "a UUID or a similar random value"),
    point("MAY", "resource", "time-based keys, so that they can be purged"),
    point("SHOULD", "resource", "an expiry policy is defined and published"),
    point("MAY", "resource", "a fingerprint is used with the key"),
    point("MAY", "resource", "of the whole payload, of chosen parts, or a digest"),
    point("SHOULD", "client", "the published requirements are understood and followed"),
    point("MAY", "client", "any valid value says \"only once\""),
    point("as written", "client", "support is not assumed without knowing of it"),
    point("SHOULD", "client", "a unique key for each request"),
    point("MUST", "text", "an idempotency specification is published"),
    point("MUST", "text", "it includes the expiry policy"),
    point("as written", "resource", "the resource keeps the life cycle of the key"),
    point("SHOULD", "resource", "the key is identified for each request"),
    point("SHOULD", "resource", "the fingerprint is made if one is required"),
    point("SHOULD", "resource", "idempotency is enforced"),
    point("SHOULD", "resource", "a first request is processed normally"),
    point("SHOULD", "resource", "a retry after completion gets the earlier result"),
    point("SHOULD", "resource", "a concurrent retry is a conflict"),
    point("SHOULD", "resource", "a missing key that is required: 400, with a link"),
    point("SHOULD", "resource", "a key with another payload: 422, with a link"),
    point("SHOULD", "resource", "a retry while the first is running: 409, with a description"),
    point(
        "MUST",
        "client, resource",
        "a wrong request is corrected before it is retried, or fails each time",
    ),
    point("SHOULD", "client", "other errors are handled as documented"),
    point("practice", "resource", "the format of keys is fixed and published"),
    point("practice", "resource", "keys are validated before anything is processed"),
    point("practice", "resource", "the key is looked up together with what only the server knows"),
    point("statement", "resource", "a guessed key does not give away a stored answer"),
    point("registration", "text", "the field is called Idempotency-Key"),
];

/// A point with what the items say about it.
#[derive(Debug, Serialize)]
pub(crate) struct PointResult {
    pub(crate) number: u8,
    level: &'static str,
    role: &'static str,
    text: &'static str,
    pub(crate) verdict: Verdict,
    /// The items that show it; none when it cannot be seen from outside.
    items: Vec<&'static str>,
}

/// Every point, with the worst verdict of the items that show it and were looked at.
pub(crate) fn points(findings: &Findings, wanted: &[&'static Item]) -> Vec<PointResult> {
    let result = |(number, point): (u8, &'static Point)| {
        let items: Vec<_> = ITEMS.iter().filter(|item| item.points.contains(&number)).collect();
        // What could not be asked does not take away what was seen.
        let is_wanted = |item: &&&&'static Item| wanted.iter().any(|other| other.id == item.id);
        let judged = items.iter().filter(is_wanted).filter_map(|item| findings.of(item));
        let judged = judged.map(|judgement| judgement.verdict);
        let worst = judged.filter(|verdict| *verdict != Verdict::NotApplicable).min();
        PointResult {
            number,
            level: point.level,
            role: point.role,
            text: point.text,
            verdict: worst.unwrap_or(Verdict::NotApplicable),
            items: items.iter().map(|item| item.id).collect(),
        }
    };
    (1..).zip(&POINTS).map(result).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::items::{REPLAY_BODY, REPLAY_STATUS};
    use crate::check::verdict::{fail, pass};

    #[test]
    fn the_worst_item_decides_a_point() {
        let mut findings = Findings::default();
        findings.note(&REPLAY_STATUS, pass(""));
        assert_eq!(points(&findings, ITEMS)[27].verdict, Verdict::Pass);
        findings.note(&REPLAY_BODY, fail(""));
        assert_eq!(points(&findings, ITEMS)[27].verdict, Verdict::Fail);
        assert_eq!(points(&findings, ITEMS)[9].verdict, Verdict::NotApplicable, "it is a duty of the text");
    }

    #[test]
    fn items_name_points_that_exist() {
        for item in ITEMS {
            for &number in item.points {
                let point = &POINTS[usize::from(number) - 1];
                assert!(
                    point.role.contains("resource"),
                    "{} shows {number}, a duty of the {}",
                    item.id,
                    point.role
                );
            }
        }
    }
}
