//! `Idempotency-Key` semantics for HTTP: what the words mean on the wire, and a tower layer that enforces them.
//!
//! The sidecar is this layer around a client, and nothing else. This crate knows status codes and headers; it never
//! names a store and never claims by itself: every protected request goes through
//! [`Engine::perform`](onlyonce_core::Engine::perform).
//!
//! The modules are declared in the order in which a request flows through them:
//!
//! ```text
//! request ─▶ route (rules) ─▶ header ─▶ principal ─▶ body, bounded ─▶ fingerprint ─▶ engine ─┬▶ classify ─▶ snapshot ─▶ response
//!                                                                                           ├▶ replay
//!                                                                                           └▶ problem
//! ```

pub mod rules;
pub mod route;
pub mod header;
pub mod principal;
pub mod body;
mod limits;
mod percent;
pub mod fingerprint;
pub mod multipart;
pub mod dispatch;
pub mod trace;
pub mod classify;
pub mod snapshot;
pub mod redact;
mod replay;
pub mod problem;
pub mod observe;
pub mod layer;
pub mod service;

pub use body::Body;
pub use dispatch::Dispatch;
pub use layer::{Acknowledging, Handle, LayerBuilder, OnceLayer, ReplayCheck};
pub use observe::{Answered, Event, How, Observer};
pub use principal::Identity;
pub use problem::{Problem, ProblemKind};
pub use rules::{Rules, RulesError};
pub use service::{OnceFuture, OnceService};
pub use trace::TraceContext;
