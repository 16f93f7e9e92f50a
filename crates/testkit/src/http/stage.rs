//! What a clause stands on: an application, a door in front of it, and a caller.

use std::any::Any;
use std::fmt;
use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;

use onlyonce_http::Rules;
use tokio::task::JoinHandle;

use super::application::Application;
use super::client::{self, Ask, Got};
use crate::fault::Faulty;

/// Something that puts `Idempotency-Key` semantics in front of an application.
pub trait HttpFixture: Sync {
    /// Opens a new door over a new store.
    fn open(&self, setup: Setup) -> impl Future<Output = Door> + Send;
}

/// What a door is opened with.
#[derive(Debug, Clone)]
pub struct Setup {
    /// The rules of every request.
    pub rules: Rules,
    /// What is behind the door. A layer calls it as a service; a proxy serves it ([`Served`](super::Served)).
    pub application: Application,
}

impl fmt::Debug for Application {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Application({} effects)", self.effects())
    }
}

/// An open door.
pub struct Door {
    /// Where callers reach it.
    pub address: SocketAddr,
    /// The store behind it, to make it fail. Clauses about failing stores are skipped without one.
    pub store: Option<Arc<Faulty>>,
    /// Whatever must live as long as the door.
    pub keep: Box<dyn Any + Send>,
}

/// A door, the application behind it, and callers in front of it.
pub struct Stage {
    /// Behind the door.
    pub application: Application,
    /// The door.
    pub door: Door,
    /// Its rules.
    pub rules: Rules,
}

impl Stage {
    /// A door with `rules`.
    pub async fn new(fixture: &impl HttpFixture, rules: Rules) -> Self {
        let application = Application::default();
        let door = fixture.open(Setup { rules: rules.clone(), application: application.clone() }).await;
        Self { application, door, rules }
    }

    /// A request and its whole answer.
    pub async fn call(&self, ask: Ask) -> Got {
        client::send(self.door.address, ask).await.expect("the door answers").all().await
    }

    /// A request, and the beginning of its answer; then the caller hangs up.
    pub async fn call_up_to(&self, ask: Ask, bytes: usize) -> Got {
        client::send(self.door.address, ask).await.expect("the door answers").up_to(bytes).await
    }

    /// A request on a task of its own. Aborting the task hangs up.
    pub fn start(&self, ask: Ask) -> JoinHandle<Got> {
        let address = self.door.address;
        tokio::spawn(async move { client::send(address, ask).await.expect("the door answers").all().await })
    }

    /// How often the application ran.
    pub fn effects(&self) -> u32 {
        self.application.effects()
    }
}
