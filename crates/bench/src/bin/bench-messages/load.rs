//! The messages: ids as random as UUIDs, one in ten that was sent before, and bodies of 200 bytes.

use bytes::Bytes;
use onlyonce_bench::spread::mixed;

/// One in so many is a duplicate.
const DUPLICATE_EACH: u64 = 10;
const BODY_BYTES: usize = 200;

/// What is published for one measurement.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Load {
    pub(crate) messages: u64,
}

impl Load {
    /// The ids in the order of publication: a duplicate repeats any that was published before it.
    pub(crate) fn ids(self) -> impl Iterator<Item = String> {
        (0..self.messages).map(|number| id(original(number)))
    }

    /// How many different messages there are.
    pub(crate) const fn distinct(self) -> u64 {
        self.messages - self.messages / DUPLICATE_EACH
    }
}

/// The number of the message that `number` is, which is another one's for a duplicate.
fn original(number: u64) -> u64 {
    if !is_duplicate(number) {
        return number;
    }
    let earlier = mixed(number) % number;
    if is_duplicate(earlier) { earlier - 1 } else { earlier }
}

const fn is_duplicate(number: u64) -> bool {
    number % DUPLICATE_EACH == DUPLICATE_EACH - 1
}

/// As random as a UUID, so that an index has no easy order.
fn id(number: u64) -> String {
    let (high, low) = (mixed(number), mixed(number ^ u64::MAX));
    format!(
        "{:08x}-{:04x}-4{:03x}-a{:03x}-{:012x}",
        high >> 32,
        (high >> 16) & 0xffff,
        high & 0xfff,
        low >> 52,
        low & 0xffff_ffff_ffff
    )
}

/// What a message says.
pub(crate) fn body(id: &str) -> Bytes {
    let text = format!("{{\"order\": \"{id}\", \"amount\": 1999, \"note\": \"");
    let filler = BODY_BYTES.saturating_sub(text.len() + 2);
    Bytes::from(text + &"x".repeat(filler) + "\"}")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn one_in_ten_was_published_before() {
        let load = Load { messages: 5_000 };
        let (mut seen, mut duplicates) = (BTreeSet::new(), 0);
        for id in load.ids() {
            assert_eq!((id.len(), body(&id).len()), (36, BODY_BYTES));
            duplicates += u64::from(!seen.insert(id));
        }
        assert_eq!((duplicates, seen.len()), (500, 4500));
        assert_eq!(load.distinct(), 4500);
    }
}
