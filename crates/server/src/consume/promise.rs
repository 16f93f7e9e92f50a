//! What a consumer promises, in words, for its first lines of output.

use onlyonce_core::UnknownPolicy;
use onlyonce_inbox::{Horizon, OnMissingId, Source};

use crate::config::{ConsumeSettings, without_password};
use crate::promise::survival_of;
use crate::store::{Encryption, Opened};

pub(super) fn text(settings: &ConsumeSettings, opened: &Opened, source: &dyn Source) -> String {
    let terms = settings.policy.terms();
    let unknown = match terms.unknown {
        UnknownPolicy::Rerun => {
            "it is tried again: its effect may exist twice, under the same Idempotency-Key"
        }
        UnknownPolicy::Seal => "it is closed and goes to the dead letters: its effect may exist",
        UnknownPolicy::Hold | UnknownPolicy::Query => "it waits for an operator, in the dead letters",
    };
    let nameless = match settings.on_missing_id {
        OnMissingId::DeadLetter => "to the dead letters",
        OnMissingId::Run => "RUN AT EVERY DELIVERY, unprotected",
    };
    let horizon = match source.horizon() {
        Horizon::Within(horizon) => format!("the source may deliver again for {horizon:?}"),
        Horizon::Unbounded => "the source may deliver again at any time".to_owned(),
    };
    let mut lines = vec![
        format!(
            "Each message is posted to {}{} and acknowledged when its",
            settings.handler, settings.handler_path
        ),
        "outcome is on record. One that was done is never posted again while it is remembered.".to_owned(),
        format!(
            "  store        {} {}",
            without_password(&settings.store.url),
            survival_of(opened.store.durability())
        ),
    ];
    lines.extend(opened.remark.as_ref().map(|remark| format!("               {remark}")));
    let at_rest = opened.encryption.as_ref().map(Encryption::promise);
    lines.extend(at_rest.map(|at_rest| format!("  at rest      {at_rest}")));
    lines.extend([
        format!("  remembered   for {:?} as `{}`; {horizon}", terms.retention.get(), settings.name),
        format!("  no answer    {unknown}"),
        format!("  failures     {} attempts, then to the dead letters", terms.attempts_max),
        format!("  without id   {nameless}"),
    ]);
    lines.join("\n")
}
