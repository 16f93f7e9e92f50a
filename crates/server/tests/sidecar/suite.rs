//! Every clause of the HTTP suite against the sidecar, over each store that is in this build.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use onlyonce_core::{Clock, Recent, Store, SystemClock, Tiered};
use onlyonce_server::config::{File, Sources};
use onlyonce_server::{ListenAddress, Sidecar};
use onlyonce_testkit::Faulty;
use onlyonce_testkit::http::{Door, Served, Setup};
use onlyonce_testkit::suite::run_all;

/// A sidecar in front of the suite's application, over `store` behind the tier that is in front of every store.
async fn open(setup: Setup, store: Arc<dyn Store>, answer_within: &str, keep: impl Send + 'static) -> Door {
    let upstream = Served::new(setup.application).await;
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let store = Tiered::new(store, Arc::new(Recent::new(Arc::clone(&clock), 1 << 20)), clock);
    let store = Arc::new(Faulty::new(Arc::new(store)));
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

macro_rules! named_clauses {
    ($fixture:expr; $($clause:ident),* $(,)?) => {
        [$((
            stringify!($clause),
            (|| onlyonce_testkit::run(async { onlyonce_testkit::http::clauses::$clause(&$fixture).await })) as fn(),
        )),*]
    };
}

mod over_redis {
    use onlyonce_store_redis::{Options, RedisStore};
    use onlyonce_testkit::http::HttpFixture;
    use onlyonce_testkit::servers::{RedisOptions, RedisServer};

    use super::*;

    static URL: OnceLock<String> = OnceLock::new();
    static OPENED: AtomicUsize = AtomicUsize::new(0);

    struct Sidecar;

    impl HttpFixture for Sidecar {
        async fn open(&self, setup: Setup) -> Door {
            let prefix = format!("s{}", OPENED.fetch_add(1, Ordering::Relaxed));
            let options = Options { prefix, ..Options::default() };
            let store = RedisStore::connect(URL.get().unwrap(), options).await.unwrap();
            open(setup, Arc::new(store), "20s", ()).await
        }
    }

    #[test]
    fn every_clause_holds_over_redis() {
        let server = RedisServer::start(RedisOptions::default()).unwrap();
        URL.set(server.url()).unwrap();
        run_all(&onlyonce_testkit::for_each_http_clause!([named_clauses] Sidecar));
    }
}

mod over_postgres {
    use onlyonce_store_postgres::{Options, PostgresStore, migrate};
    use onlyonce_testkit::http::HttpFixture;
    use onlyonce_testkit::servers::PostgresServer;

    use super::*;

    static URL: OnceLock<String> = OnceLock::new();
    static OPENED: AtomicUsize = AtomicUsize::new(0);

    struct Sidecar;

    impl HttpFixture for Sidecar {
        async fn open(&self, setup: Setup) -> Door {
            let (url, number) = (URL.get().unwrap(), OPENED.fetch_add(1, Ordering::Relaxed));
            let options = Options::from_url(&format!("{url}&schema=s{number}")).unwrap();
            migrate(&options).await.unwrap();
            let store = PostgresStore::open(options).await.unwrap();
            open(setup, Arc::new(store), "20s", ()).await
        }
    }

    #[test]
    fn every_clause_holds_over_postgres() {
        let server = PostgresServer::start(&[]).unwrap();
        URL.set(server.url()).unwrap();
        run_all(&onlyonce_testkit::for_each_http_clause!([named_clauses] Sidecar));
    }
}

mod over_tiers {
    use onlyonce_store_postgres::{Options, PostgresStore, migrate};
    use onlyonce_store_redis::RedisTier;
    use onlyonce_testkit::http::HttpFixture;
    use onlyonce_testkit::servers::{PostgresServer, RedisOptions, RedisServer};

    use super::*;

    static URLS: OnceLock<(String, String)> = OnceLock::new();
    static OPENED: AtomicUsize = AtomicUsize::new(0);

    struct Sidecar;

    impl HttpFixture for Sidecar {
        async fn open(&self, setup: Setup) -> Door {
            let (url, tier) = URLS.get().unwrap();
            let number = OPENED.fetch_add(1, Ordering::Relaxed);
            let options = Options::from_url(&format!("{url}&schema=s{number}")).unwrap();
            migrate(&options).await.unwrap();
            let authority = PostgresStore::open(options).await.unwrap();
            let tier = RedisTier::connect(tier, &onlyonce_store_redis::Options::default()).await.unwrap();
            let store = Tiered::new(Arc::new(authority), Arc::new(tier), Arc::new(SystemClock::new()));
            open(setup, Arc::new(store), "20s", ()).await
        }
    }

    #[test]
    fn every_clause_holds_over_postgres_behind_redis() {
        let server = PostgresServer::start(&[]).unwrap();
        let tier = RedisServer::start(RedisOptions::without_persistence()).unwrap();
        URLS.set((server.url(), tier.url())).unwrap();
        run_all(&onlyonce_testkit::for_each_http_clause!([named_clauses] Sidecar));
    }
}
