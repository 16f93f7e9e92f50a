//! Decides whether one value is a hazard, from what it looks like and what it is called. It sees no tree and no place.
//! Its table of tests is in `hazard`, where values come with their places.

use super::chance::{self, UuidSource};
use super::document::Node;
use super::hazard::HazardKind;
use super::moment;
use super::names::Name;

/// The longest text that is looked into, in bytes. Longer ones are contents, and may well mention a time.
const TEXT_BYTES_MAX: usize = 256;

/// Value before name: what is there says more than what it is called.
pub(super) fn judge_scalar(node: &Node, name: Option<Name>) -> Option<HazardKind> {
    let volatile = name.is_some_and(|name| name.is_volatile);
    // A name that says "differs" overrules the parts of it that say "number" or "reference": `request_id`.
    let trusted = name.filter(|_| !volatile);
    let by_value = match node {
        Node::Text(text) => judge_text(text, trusted),
        Node::Integer(text) => text.parse().ok().and_then(|number| judge_number(number, trusted)),
        // `time.time()` gives fractions of seconds. The cast cuts them off and takes what is negative for 0.
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates, as wanted")]
        Node::Float(float) => judge_number(*float as u64, trusted),
        Node::Null => return None,
        Node::Bool(_) | Node::List(_) | Node::Object(_) => None,
    };
    by_value.or(volatile.then_some(HazardKind::VolatileName))
}

fn judge_number(number: u64, name: Option<Name>) -> Option<HazardKind> {
    let harmless = name.is_some_and(|name| name.is_quantity || name.is_planned);
    (!harmless && moment::is_epoch(number)).then_some(HazardKind::Epoch)
}

/// An entity is the name of something stored: random ids of any kind are what one expects there. Times are not.
pub(super) fn judge_entity(text: &str) -> Option<HazardKind> {
    if text.len() > TEXT_BYTES_MAX {
        return None;
    }
    if moment::holds_date_time(text) {
        return Some(HazardKind::DateTime);
    }
    moment::holds_epoch(text).then_some(HazardKind::Epoch)
}

pub(super) fn judge_text(text: &str, name: Option<Name>) -> Option<HazardKind> {
    if text.len() > TEXT_BYTES_MAX {
        return None;
    }
    if moment::holds_date_time(text) {
        return (!name.is_some_and(|name| name.is_planned)).then_some(HazardKind::DateTime);
    }
    // A text that is a number is judged as one; digits within other texts more shyly.
    if let Ok(number) = text.parse() {
        return judge_number(number, name);
    }
    if moment::holds_epoch(text) && !name.is_some_and(|name| name.is_quantity || name.is_planned) {
        return Some(HazardKind::Epoch);
    }
    if name.is_some_and(|name| name.is_reference) {
        return None;
    }
    match chance::fresh_uuid(text) {
        Some(UuidSource::Time) => Some(HazardKind::TimeUuid),
        Some(UuidSource::Chance) => Some(HazardKind::RandomUuid),
        None => chance::is_random(text).then_some(HazardKind::RandomText),
    }
}
