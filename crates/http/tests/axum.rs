//! The HTTP suite against the layer inside axum, over the memory store.

use std::sync::Arc;

use axum::Router;
use onlyonce_core::{Engine, MemoryStore};
use onlyonce_http::OnceLayer;
use onlyonce_testkit::Faulty;
use onlyonce_testkit::http::{Door, HttpFixture, Served, Setup};

struct Axum;

impl HttpFixture for Axum {
    async fn open(&self, setup: Setup) -> Door {
        let store = Arc::new(Faulty::new(Arc::new(MemoryStore::default())));
        let engine = Engine::builder(store.clone()).build().await.expect("an engine");
        let layer = OnceLayer::new(engine, setup.rules).expect("rules that work");
        let router: Router = Router::new().fallback_service(setup.application).layer(layer);
        let served = Served::new(router).await;
        Door { address: served.address(), store: Some(store), keep: Box::new(served) }
    }
}

onlyonce_testkit::http_suite!(Axum);
