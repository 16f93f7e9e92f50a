//! What an answer of the application means for its record: keep it, run again, or nobody knows. Pure.

use std::collections::BTreeMap;

use http::{HeaderMap, StatusCode};
use onlyonce_core::Retention;

use crate::header::{ONLYONCE_OUTCOME, ONLYONCE_RETENTION};
use crate::rules::{Profile, RulesError, Span, Verdict};

/// The verdict on every status, made once from a profile and the rules laid over it.
#[derive(Clone, PartialEq, Eq)]
pub struct Classes(Box<[Verdict; STATUSES]>);

const STATUSES: usize = 1000;

impl Classes {
    /// The verdicts of `profile`, changed by `overrides`: `"409"` or `"4xx"` to a verdict. A status beats its class,
    /// and what the rules say about a class beats what the profile says about it, not what it says about a status.
    pub fn new(profile: Profile, overrides: &BTreeMap<String, Verdict>) -> Result<Self, RulesError> {
        let mut verdicts = Box::new([Verdict::Unknown; STATUSES]);
        let (classes, statuses): (Vec<_>, Vec<_>) =
            overrides.iter().partition(|(name, _)| name.ends_with("xx"));
        for (class, verdict) in customary_classes(profile) {
            set_class(&mut verdicts, class, verdict);
        }
        for (name, verdict) in classes {
            set_class(&mut verdicts, class_number(name)?, *verdict);
        }
        for (status, verdict) in customary_statuses(profile) {
            verdicts[usize::from(*status)] = *verdict;
        }
        for (name, verdict) in statuses {
            verdicts[usize::from(status_number(name)?)] = *verdict;
        }
        Ok(Self(verdicts))
    }

    /// The verdict on `status`.
    pub fn of(&self, status: StatusCode) -> Verdict {
        self.0.get(usize::from(status.as_u16())).copied().unwrap_or(Verdict::Unknown)
    }
}

impl std::fmt::Debug for Classes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Classes")
    }
}

const fn customary_classes(profile: Profile) -> [(u16, Verdict); 4] {
    let (errors_4xx, errors_5xx) = match profile {
        Profile::Standard => (Verdict::Release, Verdict::Release),
        Profile::Ietf | Profile::Stripe => (Verdict::Store, Verdict::Store),
    };
    [(2, Verdict::Store), (3, Verdict::Store), (4, errors_4xx), (5, errors_5xx)]
}

const fn customary_statuses(profile: Profile) -> &'static [(u16, Verdict)] {
    use Verdict::{Release, Unknown};
    match profile {
        Profile::Standard => &[(502, Unknown), (504, Unknown)],
        Profile::Ietf => &[
            (401, Release),
            (403, Release),
            (408, Release),
            (425, Release),
            (429, Release),
            (503, Release),
            (502, Unknown),
            (504, Unknown),
        ],
        Profile::Stripe => {
            &[(400, Release), (401, Release), (403, Release), (404, Release), (409, Release), (429, Release)]
        }
    }
}

fn set_class(verdicts: &mut [Verdict; STATUSES], class: u16, verdict: Verdict) {
    // There is no class above 5: whatever an application invents there is an error of its own.
    let end = if class == 5 { 1000 } else { (class + 1) * 100 };
    verdicts[usize::from(class * 100)..usize::from(end)].fill(verdict);
}

fn class_number(name: &str) -> Result<u16, RulesError> {
    match name {
        "2xx" => Ok(2),
        "3xx" => Ok(3),
        "4xx" => Ok(4),
        "5xx" => Ok(5),
        _ => Err(RulesError::new(format!("{name:?} is no class of statuses: 2xx, 3xx, 4xx or 5xx"))),
    }
}

fn status_number(name: &str) -> Result<u16, RulesError> {
    name.parse()
        .ok()
        .filter(|status| (200..=599).contains(status) && name.len() == 3)
        .ok_or_else(|| RulesError::new(format!("{name:?} is neither a status from 200 to 599 nor a class")))
}

/// Whether the next request under a released key must be the same. After a refusal (4xx) a corrected one may use it.
pub(crate) fn keeps_fingerprint(status: StatusCode) -> bool {
    !status.is_client_error()
}

/// What the application says about its own answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Steering {
    pub(crate) outcome: Option<Steer>,
    pub(crate) retention: Option<Retention>,
    /// Whether something was said that is not understood.
    pub(crate) is_odd: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Steer {
    Committed,
    Failed,
    Unknown,
    Discard,
}

impl Steering {
    /// Reads what the application says and takes it out of the answer.
    pub(crate) fn take(headers: &mut HeaderMap) -> Self {
        let mut steering = Self::default();
        if !crate::header::has_ours(headers) {
            return steering;
        }
        match one(headers, &ONLYONCE_OUTCOME) {
            Ok(None) => {}
            Ok(Some("committed")) => steering.outcome = Some(Steer::Committed),
            Ok(Some("failed")) => steering.outcome = Some(Steer::Failed),
            Ok(Some("unknown")) => steering.outcome = Some(Steer::Unknown),
            Ok(Some("discard")) => steering.outcome = Some(Steer::Discard),
            _ => steering.is_odd = true,
        }
        match one(headers, &ONLYONCE_RETENTION) {
            Ok(None) => {}
            Ok(Some(text)) => {
                steering.retention = text.parse().ok().and_then(|Span(span)| Retention::new(span).ok());
                steering.is_odd |= steering.retention.is_none();
            }
            Err(()) => steering.is_odd = true,
        }
        crate::header::strip_steering(headers);
        steering
    }
}

/// The one line of a header, or nothing; more than one line says nothing that could be relied on.
fn one<'a>(headers: &'a HeaderMap, name: &http::HeaderName) -> Result<Option<&'a str>, ()> {
    let mut lines = headers.get_all(name).iter();
    match (lines.next(), lines.next()) {
        (None, _) => Ok(None),
        (Some(line), None) => line.to_str().map(|text| Some(text.trim())).map_err(|_| ()),
        (Some(_), Some(_)) => Err(()),
    }
}
