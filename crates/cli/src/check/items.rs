//! What is looked at, item by item. The identifiers are stable: scripts name them in `--only` and read them in JSON.

/// A part of the run. Items of one group share their requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Group {
    First,
    Replay,
    Mismatch,
    Concurrent,
    Keys,
    Scope,
    Errors,
    Disconnect,
}

impl Group {
    /// In the order they run.
    pub(crate) const ALL: [Self; 8] = [
        Self::First,
        Self::Replay,
        Self::Mismatch,
        Self::Concurrent,
        Self::Keys,
        Self::Scope,
        Self::Errors,
        Self::Disconnect,
    ];

    /// Its name in the table and in `--only`.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::First => "first",
            Self::Replay => "replay",
            Self::Mismatch => "mismatch",
            Self::Concurrent => "concurrent",
            Self::Keys => "keys",
            Self::Scope => "scope",
            Self::Errors => "errors",
            Self::Disconnect => "disconnect",
        }
    }
}

/// One thing that is judged.
#[derive(Debug)]
pub(crate) struct Item {
    pub(crate) id: &'static str,
    pub(crate) group: Group,
    /// What is expected, as a sentence.
    pub(crate) title: &'static str,
    /// The points of the draft that it shows (see `draft.rs`); empty for what goes beyond the text.
    pub(crate) points: &'static [u8],
}

/// Declares every item once: the constant that the cases name, and its place in the list.
macro_rules! items {
    ($($name:ident = $id:literal, $group:ident, $points:expr, $title:literal;)*) => {
        $(pub(crate) static $name: Item = Item {
            id: $id, group: Group::$group, title: $title, points: &$points,
        };)*
        /// All items, in the order of the table.
        pub(crate) static ITEMS: &[&Item] = &[$(&$name),*];
    };
}

items! {
    FIRST_EXECUTES = "first-executes", First, [24, 27], "a new key is processed normally";
    OTHER_KEY_EXECUTES = "other-key-executes", First, [27], "the same payload under another key is another operation";
    REPLAY_ONCE = "replay-once", Replay, [23, 26, 28], "a retry does not execute again";
    REPLAY_STATUS = "replay-status", Replay, [28], "a retry gets the same status";
    REPLAY_BODY = "replay-body", Replay, [28], "a retry gets the same body, byte for byte";
    REPLAY_HEADERS = "replay-headers", Replay, [28], "a retry gets the headers that belong to the result";
    REPLAY_STAYS = "replay-stays", Replay, [28], "a second retry gets the same again";
    REPLAY_MARK = "replay-mark", Replay, [], "a replay can be told from a first answer";
    MISMATCH_REFUSED = "mismatch-refused", Mismatch, [15, 16, 25, 31], "the key with another body is neither executed nor answered";
    MISMATCH_STATUS = "mismatch-status", Mismatch, [31], "that refusal is 422";
    MISMATCH_PROBLEM = "mismatch-problem", Mismatch, [31], "that refusal describes the problem";
    MISMATCH_STAYS = "mismatch-stays", Mismatch, [33], "it is refused every time, and the first answer still replays";
    MISMATCH_URI = "mismatch-uri", Mismatch, [37], "the key at another URI is not answered with this result";
    MISMATCH_METHOD = "mismatch-method", Mismatch, [37], "the key with another method is not answered with this result";
    CONCURRENT_ONCE = "concurrent-once", Concurrent, [26, 29], "of many at once, one executes";
    CONCURRENT_ANSWER = "concurrent-answer", Concurrent, [29, 32], "the others get 409, or wait and get the result";
    CONCURRENT_SETTLES = "concurrent-settles", Concurrent, [28, 29], "afterwards a retry gets the result";
    CONFLICT_PROBLEM = "conflict-problem", Concurrent, [32], "a 409 describes the problem";
    CONFLICT_RETRY_AFTER = "conflict-retry-after", Concurrent, [], "a 409 says when to try again";
    CONFLICT_MISMATCH = "conflict-mismatch", Concurrent, [31, 32], "another body is refused also while the first is running";
    KEY_QUOTED = "key-quoted", Keys, [1], "a key in quotes is accepted";
    KEY_BARE_SAME = "key-bare-same", Keys, [1, 3], "the key without quotes is the same key, or refused";
    KEY_PARAMETERS = "key-parameters", Keys, [4], "parameters after the key do not make another key";
    KEY_PRINTABLE = "key-printable", Keys, [2, 36], "every printable character may be in a key";
    KEY_CASE = "key-case", Keys, [24], "keys that differ only in case are two keys";
    KEY_LONG = "key-long", Keys, [35, 36], "a key of 300 characters is refused or kept whole";
    KEY_MISSING = "key-missing", Keys, [30], "a request without a key is refused with 400, or executed";
    KEY_EMPTY = "key-empty", Keys, [7, 36], "an empty key is refused";
    KEY_TWO_LINES = "key-two-lines", Keys, [5, 6], "two header lines are refused: the first does not win";
    KEY_LIST = "key-list", Keys, [3, 5], "a list of keys is refused";
    KEY_CONTROL = "key-control", Keys, [2, 36], "control bytes in a key are refused";
    KEY_NOT_ASCII = "key-not-ascii", Keys, [2, 36], "bytes beyond ASCII in a key are refused";
    KEY_BROKEN = "key-broken", Keys, [2, 6], "broken quotes and bad escapes are refused";
    KEY_PROBLEM = "key-problem", Keys, [30], "a refused key is 400 and describes the problem";
    SCOPE_PRINCIPAL = "scope-principal", Scope, [37, 38], "another caller with the same key learns nothing";
    ERROR_REFUSED = "error-refused", Errors, [28, 33], "after a 4xx the key is not stuck";
    ERROR_FAILED = "error-failed", Errors, [28], "after a 5xx the key is not stuck";
    DISCONNECT_RETRY = "disconnect-retry", Disconnect, [26, 28], "a caller that hung up gets the one result on retry";
    DISCONNECT_TORN = "disconnect-torn", Disconnect, [36], "half a request does not use up the key";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identifiers_are_unique_and_no_group_is_empty() {
        for (at, item) in ITEMS.iter().enumerate() {
            assert!(ITEMS[..at].iter().all(|other| other.id != item.id), "{}", item.id);
            assert!(Group::ALL.iter().all(|group| group.as_str() != item.id), "{}", item.id);
        }
        for group in Group::ALL {
            assert!(ITEMS.iter().any(|item| item.group == group), "{group:?}");
        }
    }
}
