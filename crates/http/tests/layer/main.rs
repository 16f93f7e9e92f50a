//! What only the layer can be asked: reports of the inner service, identities, checks before replays, reloads, events.
#![expect(clippy::unwrap_used, reason = "a failed check panics")]

mod disconnects;
mod dispatch;
mod damage;
mod identity;
mod open;
mod reload;
mod rules;
mod seen;
mod stage;
