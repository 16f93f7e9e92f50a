//! The promise in force: what holds for the store and the rules that were configured, and what does not.
//!
//! Printed at start-up, so that nobody believes more than is true.

use std::fmt;

use onlyonce_core::Store;
use onlyonce_core::store::Durability;
use onlyonce_http::Rules;
use onlyonce_http::rules::{OnStoreFailure, Profile, Unknown};
use serde::Serialize;

use crate::config::{Config, without_password};
use crate::store::Encryption;

/// What is promised, line by line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Promise {
    /// The store, without a password.
    pub store: String,
    /// What an answered command survives.
    pub survives: Vec<&'static str>,
    /// What it does not.
    pub does_not_survive: Vec<&'static str>,
    /// What is to be known of the store beyond that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub store_remark: Option<String>,
    /// What is encrypted, and with which key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub encryption: Option<String>,
    /// What each policy for unknown outcomes guarantees, with the routes under it.
    pub unknown: Vec<UnderPolicy>,
    /// Routes that run unprotected when the store is away.
    pub fail_open: Vec<String>,
    /// Routes on which nothing is enforced.
    pub shadow: Vec<String>,
    /// Whether replays are authorised anew.
    pub replays_are_authorised: bool,
}

/// The routes under one policy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct UnderPolicy {
    /// `hold`, `seal`, `query` or `rerun`.
    pub policy: String,
    /// What it guarantees.
    pub guarantee: &'static str,
    /// The routes.
    pub routes: Vec<String>,
}

impl Promise {
    /// What `config` promises over `store`, with what there is to remark about it.
    pub fn new(config: &Config, store: &dyn Store, store_remark: Option<String>) -> Self {
        let rules = config.rules();
        let rest = if rules.len() == 1 { "all paths" } else { "all other paths" }.to_owned();
        let (survives, does_not_survive) = survived(store.durability());
        let named = |wanted: &dyn Fn(&Rules) -> bool| {
            rules.iter().filter(|rules| wanted(rules)).map(|rules| route(rules, &rest)).collect::<Vec<_>>()
        };
        let policies = [Unknown::Hold, Unknown::Seal, Unknown::Query, Unknown::Rerun];
        let unknown = policies.into_iter().map(|policy| UnderPolicy {
            policy: policy.to_string(),
            guarantee: guarantee(policy),
            routes: named(&|rules| policy_of(rules) == policy),
        });
        Self {
            store: without_password(config.merged.store.url.as_deref().unwrap_or_default()),
            survives,
            does_not_survive,
            store_remark,
            encryption: None,
            unknown: unknown.filter(|under| !under.routes.is_empty()).collect(),
            fail_open: named(&|rules| rules.on_store_failure == Some(OnStoreFailure::Open)),
            shadow: named(&|rules| rules.shadow == Some(true)),
            replays_are_authorised: config.merged.proxy.auth_url.is_some(),
        }
    }

    /// The same with what is promised about encryption.
    #[must_use]
    pub(crate) fn encrypted(self, encryption: Option<&Encryption>) -> Self {
        Self { encryption: encryption.map(Encryption::promise), ..self }
    }
}

impl fmt::Display for Promise {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "For one caller and key: at most one attempt at a time; a recorded answer never changes while it is"
        )?;
        writeln!(
            f,
            "kept. If nobody can know whether the work happened, that is the answer, and nobody guesses."
        )?;
        writeln!(f, "  store        {} {}", self.store, survival(&self.survives, &self.does_not_survive))?;
        if let Some(remark) = &self.store_remark {
            writeln!(f, "               {remark}")?;
        }
        if let Some(encryption) = &self.encryption {
            writeln!(f, "  at rest      {encryption}")?;
        }
        for under in &self.unknown {
            writeln!(
                f,
                "  unknown      {}: {} ({})",
                under.policy,
                under.guarantee,
                under.routes.join(", ")
            )?;
        }
        match self.fail_open.as_slice() {
            [] => writeln!(
                f,
                "  store away   keyed requests are refused with 503; the upstream is not touched"
            )?,
            open => writeln!(
                f,
                "  store away   RUNS UNPROTECTED, marked Onlyonce-Unprotected: {}",
                open.join(", ")
            )?,
        }
        if !self.shadow.is_empty() {
            writeln!(
                f,
                "  shadow       NOTHING IS ENFORCED, only counted and logged: {}",
                self.shadow.join(", ")
            )?;
        }
        let replays = if self.replays_are_authorised {
            "auth_url is asked before every replay"
        } else {
            "a stored answer is given to whoever shows the same credential; no auth_url checks that it is still valid"
        };
        writeln!(f, "  replays      {replays}")?;
        write!(f, "  errors       a released error response trusts the application to have rolled back")
    }
}

/// What an answered command survives, in words.
pub(crate) fn survival_of(durability: Durability) -> String {
    let (survives, does_not) = survived(durability);
    survival(&survives, &does_not)
}

fn survival(survives: &[&str], does_not: &[&str]) -> String {
    match (survives, does_not) {
        ([], does_not) => {
            format!("protects for as long as this process lives, and survives no {}", does_not.join(", no "))
        }
        (survives, does_not) => {
            format!("survives {}, but not {}", survives.join(" and "), does_not.join(" or "))
        }
    }
}

fn survived(durability: Durability) -> (Vec<&'static str>, Vec<&'static str>) {
    let Durability { process_crash, power_cut, node_loss } = durability;
    let all = [
        (process_crash, "crash of this process"),
        (power_cut, "power cut"),
        (node_loss, "loss of the machine"),
    ];
    let (yes, no): (Vec<_>, Vec<_>) = all.into_iter().partition(|(survived, _)| *survived);
    let names = |list: Vec<(bool, &'static str)>| list.into_iter().map(|(_, name)| name).collect();
    (names(yes), names(no))
}

/// The policy in force: the profile `stripe` seals unless told otherwise.
fn policy_of(rules: &Rules) -> Unknown {
    let of_profile = if rules.profile == Some(Profile::Stripe) { Unknown::Seal } else { Unknown::Hold };
    rules.unknown.unwrap_or(of_profile)
}

const fn guarantee(policy: Unknown) -> &'static str {
    match policy {
        Unknown::Hold => {
            "the work is started at most once as far as the store survives; somebody must find out what happened"
        }
        Unknown::Seal => {
            "the work is started at most once as far as the store survives; retries are told \"indeterminate\""
        }
        Unknown::Query => "once, if the hook that is asked tells the truth",
        Unknown::Rerun => "at least once: after a crash the work is run again",
    }
}

/// The route's path; `rest` for the rules of what no route names.
fn route(rules: &Rules, rest: &str) -> String {
    rules.path.clone().unwrap_or_else(|| rest.to_owned())
}
