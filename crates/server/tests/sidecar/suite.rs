//! Every clause of the HTTP suite against the sidecar, over each store that is in this build.

use std::sync::Arc;

use onlyonce_core::Store;
use onlyonce_server::config::{File, Sources};
use onlyonce_server::{ListenAddress, Sidecar};
use onlyonce_testkit::Faulty;
use onlyonce_testkit::http::{Door, Served, Setup};

/// A sidecar in front of the suite's application, over `store`.
async fn open(setup: Setup, store: Arc<dyn Store>, answer_within: &str, keep: impl Send + 'static) -> Door {
    let upstream = Served::new(setup.application).await;
    let store = Arc::new(Faulty::new(store));
    let mut flags = File { defaults: setup.rules, ..File::default() };
    crate::stage::be_patient(&mut flags);
    flags.proxy.listen = Some("127.0.0.1:0".parse().unwrap());
    flags.proxy.upstream = Some(format!("http://{}", upstream.address()));
    flags.store.answer_within = Some(answer_within.parse().unwrap());
    let sources = Sources { flags, ..Sources::default() };
    let sidecar = Sidecar::start_over(sources, Some(Arc::clone(&store) as _)).await.unwrap();
    let ListenAddress::Tcp(address) = *sidecar.address() else { unreachable!("TCP") };
    let running = tokio::spawn(sidecar.run_until(std::future::pending()));
    Door { address, store: Some(store), keep: Box::new((upstream, running, keep)) }
}

mod over_memory {
    use onlyonce_core::MemoryStore;
    use onlyonce_testkit::http::HttpFixture;

    use super::*;

    struct Sidecar;

    impl HttpFixture for Sidecar {
        async fn open(&self, setup: Setup) -> Door {
            open(setup, Arc::new(MemoryStore::default()), "2s", ()).await
        }
    }

    onlyonce_testkit::http_suite!(Sidecar);
}

mod over_files {
    use onlyonce_store_embedded::{EmbeddedStore, Options};
    use onlyonce_testkit::http::HttpFixture;

    use super::*;

    struct Sidecar;

    impl HttpFixture for Sidecar {
        async fn open(&self, setup: Setup) -> Door {
            let folder = tempfile::tempdir().unwrap();
            let store = EmbeddedStore::open(folder.path(), Options::default()).unwrap();
            // A loaded disk is no failed store: only a store that is made to fail leaves answers unrecorded here.
            open(setup, Arc::new(store), "20s", folder).await
        }
    }

    onlyonce_testkit::http_suite!(Sidecar);
}
