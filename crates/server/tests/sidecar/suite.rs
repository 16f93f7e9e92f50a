//! Every clause of the HTTP suite against the sidecar, over each store that is in this build.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread;

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

/// Runs every clause against one server, which takes longer to start than most clauses to run. Names all that failed.
fn run_all(clauses: &[(&str, fn())]) {
    let (next, failed) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    thread::scope(|scope| {
        for _ in 0..CLAUSES_AT_A_TIME {
            scope.spawn(|| {
                while let Some((name, clause)) = clauses.get(next.fetch_add(1, Ordering::Relaxed)) {
                    // What a clause has to say of its failure was printed by its panic.
                    if std::panic::catch_unwind(clause).is_err() {
                        failed.lock().unwrap().push(*name);
                    }
                }
            });
        }
    });
    let failed = failed.into_inner().unwrap();
    assert!(failed.is_empty(), "{} of {} clauses failed: {failed:?}", failed.len(), clauses.len());
}

/// Most of them wait for the server.
const CLAUSES_AT_A_TIME: usize = 4;

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
