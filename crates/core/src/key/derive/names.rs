//! Judges members by their names: which ones differ between attempts, and which ones hold numbers that only look like
//! times. English names only; it never looks at values.

/// Longer names are not judged: they are data (a URL used as a member name), not names.
const NAME_BYTES_MAX: usize = 64;

/// Names, or ends of names, of what describes the attempt and not the operation.
const VOLATILE: &str = "timestamp, time stamp, ts, nonce, rand, sent at, sent on, sent time, created at, created on, \
    updated at, modified at, requested at, issued at, received at, submitted at, generated at, processed at, \
    queued at, published at, request time, current time, client time, server time, local time, system time, \
    time now, now ms, timestamp ms, request id, req id, trace id, span id, correlation id, invocation id, \
    execution id, attempt id, traceparent, attempt, attempts, attempt number, attempt no, attempt count, retries, \
    retry count, retry number, retry attempt, try count, tries, delivery count";

/// The same, as whole names only: they end many harmless names, such as `pay_now`.
const VOLATILE_ALONE: &str = "now, random, retry, salt";

/// Words that make `retries` or `attempts` a rule, which does not change from attempt to attempt.
const RULE: &str = "max maximum min limit allowed policy";

/// Words for numbers of nine and more digits that are no times.
const QUANTITY: &str = "amount price total subtotal sum cost costs cents minor balance fee tax vat net gross discount \
    credit debit salary budget revenue value usd eur gbp jpy quantity qty count size bytes length weight distance \
    score points units volume offset index limit max min phone mobile tel telephone fax msisdn account iban card pan \
    id ids number no num nr code zip postcode sku ean gtin isbn upc barcode serial version seed reference ref order \
    invoice customer user siren population ssn npi imei";

/// Last words of names that hold a time, whatever stands before them: `order_time`.
const TIME: &str = "at on time date datetime timestamp ts epoch when ms millis";

/// Words for times that somebody chose: the same in every attempt.
const PLANNED: &str = "scheduled schedule appointment departure departs arrival arrives birth born due deadline \
    checkin checkout pickup delivery booking slot valid starts ends";

/// Words for random-looking texts that name, or are computed from, something stored.
const REFERENCE: &str = "id ids ref reference key token hash digest checksum sha1 sha256 sha512 md5 etag fingerprint \
    iban certificate address wallet tx txid commit source method";

/// What a member's name says of its value. Judged once: a list of a thousand items has one name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "four answers that do not exclude each other")]
pub(super) struct Name {
    /// The value differs between attempts.
    pub(super) is_volatile: bool,
    /// A large number is no time.
    pub(super) is_quantity: bool,
    /// A time was chosen by somebody.
    pub(super) is_planned: bool,
    /// A random-looking value names something that is stored elsewhere, or is computed from it.
    pub(super) is_reference: bool,
}

impl Name {
    pub(super) fn new(name: &str) -> Self {
        let words = words_of(name);
        let has = |list: &str| words.iter().any(|word| holds(list, word));
        let ends_with = |phrase: &str| {
            let mut last = words.iter().rev();
            phrase.rsplit(' ').all(|part| last.next().is_some_and(|word| word == part))
        };
        let alone = VOLATILE_ALONE.split(", ").any(|phrase| words == [phrase]);
        Self {
            is_volatile: !has(RULE) && (alone || VOLATILE.split(", ").any(ends_with)),
            is_quantity: has(QUANTITY) && !words.last().is_some_and(|last| holds(TIME, last)),
            is_planned: has(PLANNED),
            // `id` alone is none: the entity is named already, so what else would this be the id of?
            is_reference: has(REFERENCE) && words != ["id"],
        }
    }
}

/// `X-Request-ID`, `requestId` and `request_id` are the same name.
fn words_of(name: &str) -> Vec<String> {
    if name.len() > NAME_BYTES_MAX {
        return Vec::new();
    }
    let mut words = vec![String::new()];
    let mut before = ' ';
    for character in name.chars() {
        let starts_word = character.is_uppercase() && (before.is_lowercase() || before.is_numeric());
        if starts_word || !character.is_alphanumeric() {
            words.push(String::new());
        }
        if let (true, Some(word)) = (character.is_alphanumeric(), words.last_mut()) {
            word.extend(character.to_lowercase());
        }
        before = character;
    }
    words.retain(|word| !word.is_empty());
    words
}

fn holds(list: &str, word: &str) -> bool {
    list.split_whitespace().any(|listed| listed == word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_split_into_words_however_they_are_written() {
        for name in ["X-Request-ID", "xRequestId", "x_request_id", "X REQUEST ID", "x.request.id"] {
            assert_eq!(words_of(name), ["x", "request", "id"], "{name}");
        }
        assert_eq!(words_of("timestamp2Ms"), ["timestamp2", "ms"]);
        assert!(words_of("").is_empty());
        assert!(words_of(&"sent_at".repeat(20)).is_empty());
    }

    #[test]
    fn volatile_names_are_told_from_harmless_ones() {
        let volatile = "timestamp eventTimestamp ts now nonce sent_at sentAt created_at order_created_at X-Request-Id \
            trace_id attempt retryCount retry request_time client_ts";
        for name in volatile.split_whitespace() {
            assert!(Name::new(name).is_volatile, "{name}");
        }
        let harmless = "amount currency pay_now max_retries retry_policy customer_id at time random_drawer parts \
            status items nowhere attempt_limit due_at birthdate id at_sent";
        for name in harmless.split_whitespace() {
            assert!(!Name::new(name).is_volatile, "{name}");
        }
    }

    #[test]
    fn quantities_references_and_plans_are_recognised() {
        for name in ["amount", "amountCents", "total", "phone_number", "account", "order_id", "price"] {
            assert!(Name::new(name).is_quantity, "{name}");
        }
        for name in ["order_time", "account_opened_at", "when", "x", ""] {
            assert!(!Name::new(name).is_quantity, "{name}");
        }
        assert!(Name::new("customer_id").is_reference);
        assert!(Name::new("fileSha256").is_reference);
        assert!(!Name::new("id").is_reference);
        assert!(!Name::new("value").is_reference);
        assert!(Name::new("scheduled_at").is_planned);
        assert!(!Name::new("sent_at").is_planned);
    }
}
