//! The HTTP suite against the layer on plain hyper, over the testkit's own store, which keeps real bytes.

use std::sync::Arc;

use onlyonce_core::{Engine, SystemClock};
use onlyonce_http::OnceLayer;
use onlyonce_testkit::http::{Door, HttpFixture, Served, Setup};
use onlyonce_testkit::{Faulty, ReferenceStore};
use tower_layer::Layer;

struct Hyper;

impl HttpFixture for Hyper {
    async fn open(&self, setup: Setup) -> Door {
        let store = Arc::new(Faulty::new(Arc::new(ReferenceStore::new(Arc::new(SystemClock::new())))));
        let engine = Engine::builder(store.clone()).build().await.expect("an engine");
        let layer = OnceLayer::new(engine, setup.rules).expect("rules that work");
        let served = Served::new(layer.layer(setup.application)).await;
        Door { address: served.address(), store: Some(store), keep: Box::new(served) }
    }
}

onlyonce_testkit::http_suite!(Hyper);
