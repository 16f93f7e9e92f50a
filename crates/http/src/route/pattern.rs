//! Which paths a route is for. Paths are compared as they were sent: nothing is decoded or normalised.

use crate::rules::RulesError;

/// A path with `*` for one segment, or for everything below when it is the last.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Pattern {
    segments: Vec<Option<Box<str>>>,
    /// Whether anything may follow.
    open: bool,
}

impl Pattern {
    pub(super) fn new(text: &str) -> Result<Self, RulesError> {
        if text == "*" {
            return Ok(Self { segments: Vec::new(), open: true });
        }
        let Some(path) = text.strip_prefix('/') else {
            return Err(RulesError::new(format!("{text:?} is not a path: it starts with / or is *")));
        };
        if text.contains(['?', '#']) {
            return Err(RulesError::new(format!("{text:?} is not a path: a query is not part of one")));
        }
        let mut segments = Vec::new();
        for segment in path.split('/') {
            if segment.contains('*') && segment != "*" {
                return Err(RulesError::new(format!("{text:?}: * stands for a whole segment")));
            }
            segments.push((segment != "*").then(|| segment.into()));
        }
        let open = segments.pop_if(|last| last.is_none()).is_some();
        Ok(Self { segments, open })
    }

    pub(super) fn matches(&self, path: &str) -> bool {
        if self.open && self.segments.is_empty() {
            return true;
        }
        let mut given = path.strip_prefix('/').unwrap_or(path).split('/');
        for segment in &self.segments {
            match (given.next(), segment) {
                (Some(given), Some(wanted)) if given == &**wanted => {}
                (Some(given), None) if !given.is_empty() => {}
                _ => return false,
            }
        }
        // `/v1/*` is for what is below `/v1`, and for `/v1` itself.
        self.open || given.next().is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stars_stand_for_one_segment_or_for_all_that_follow() {
        for (pattern, path, matches) in [
            ("*", "/anything/at/all", true),
            ("*", "", true),
            ("/*", "/a/b", true),
            ("/v1/payments", "/v1/payments", true),
            ("/v1/payments", "/v1/payments/", false),
            ("/v1/payments", "/v1/payments/7", false),
            ("/v1/payments", "/v1/paymentsX", false),
            ("/v1/payments/*", "/v1/payments/7", true),
            ("/v1/payments/*", "/v1/payments/7/refunds", true),
            ("/v1/payments/*", "/v1/payments", true),
            ("/v1/payments/*", "/v1/paymentsX", false),
            ("/v1/*/refunds", "/v1/7/refunds", true),
            ("/v1/*/refunds", "/v1//refunds", false),
            ("/v1/*/refunds", "/v1/7/8/refunds", false),
            ("/v1/*/refunds/*", "/v1/7/refunds/8/9", true),
        ] {
            assert_eq!(Pattern::new(pattern).unwrap().matches(path), matches, "{pattern} {path}");
        }
        for bad in ["", "v1", "/v1/pay*", "/v1?x=*", "**"] {
            assert!(Pattern::new(bad).is_err(), "{bad}");
        }
    }
}
