//! The sidecar: the `onlyonce-http` layer around a pooled client of the service it protects, and nothing else.
//!
//! What idempotency means is decided in the core, what it looks like on the wire in `onlyonce-http`. This crate takes
//! connections, passes requests on, and knows where the configuration is. `stack` shows the way of a request on one
//! screen.
//!
//! ```no_run
//! use onlyonce_server::{Sidecar, Signals, config::{File, Sources}};
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let mut flags = File::default();
//! flags.proxy.upstream = Some("http://127.0.0.1:3000".into());
//! flags.store.url = Some("memory:".into());
//! let sidecar = Sidecar::start(Sources { flags, ..Sources::default() }).await?;
//! sidecar.run(Signals::listen()?).await;
//! # Ok(())
//! # }
//! ```

pub mod config;

mod listen;
mod stack;
mod upstream;
mod http1;
mod body;
mod joined;
mod tls;
mod store;
mod authorise;
mod tokens;
mod bearer;
mod promise;
mod sidecar;
mod consume;
mod claims;
mod reload;
mod drain;
mod sweep;
mod admin;
mod dashboard;
pub mod operator;
mod refusal;
mod events;
mod metrics;
mod census;
mod traces;
mod turn;
mod otlp;
mod logging;
mod timer;
mod clock;

pub use admin::{AdminClient, CallError, EventStream, ServerEvent};
pub use claims::Claims;
pub use consume::{Bridge, BridgeError};
pub use listen::ListenAddress;
pub use logging::start_logging;
pub use promise::{Promise, UnderPolicy};
pub use refusal::Refusal;
pub use sidecar::{Sidecar, Signals, StartError, check};
pub use store::{new_key_line, read_keys};
pub use sweep::sweeper_alone;
pub use tls::{TlsError, Trust};
