//! Between us and the server: lost replies, hanging servers, forgotten scripts, wake-ups from elsewhere.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use onlyonce_core::transition::{ClaimAnswer, CompleteAnswer};
use onlyonce_core::{Store, StoreErrorKind};
use onlyonce_store_redis::Options;
use onlyonce_testkit::run;
use onlyonce_testkit::servers::RedisOptions;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use crate::stage::{Live, by_another, complete_one, completion, fresh_claim, patient, token_of};

/// A wire to the server that cuts the connection in place of the reply to a request that names a record.
struct Wire {
    /// Bytes of the request whose reply is swallowed.
    victim: Mutex<Option<Vec<u8>>>,
    server: u16,
}

impl Wire {
    async fn lay(live: &Live) -> (Arc<Self>, String) {
        let wire = Arc::new(Self { victim: Mutex::new(None), server: live.server.port() });
        let (laid, listener) = (Arc::clone(&wire), TcpListener::bind("127.0.0.1:0").await.expect("a port"));
        let url = format!("redis://{}", listener.local_addr().expect("an address"));
        let listener = listener.into_std().expect("a listener");
        live.home
            .run(async move {
                let listener = TcpListener::from_std(listener).expect("a listener");
                tokio::spawn(async move {
                    while let Ok((client, _)) = listener.accept().await {
                        tokio::spawn(Arc::clone(&laid).carry(client));
                    }
                });
            })
            .await;
        (wire, url)
    }

    async fn carry(self: Arc<Self>, mut client: TcpStream) {
        let Ok(mut server) = TcpStream::connect(("127.0.0.1", self.server)).await else { return };
        let (mut up, mut down) = (vec![0; 65_536], vec![0; 65_536]);
        let mut is_doomed = false;
        loop {
            tokio::select! {
                read = client.read(&mut up) => match read {
                    Ok(bytes @ 1..) => {
                        is_doomed |= self.is_victim(&up[..bytes]);
                        if server.write_all(&up[..bytes]).await.is_err() {
                            return;
                        }
                    }
                    _ => return,
                },
                read = server.read(&mut down) => match read {
                    // The server has done it, and nobody hears of it.
                    Ok(1..) if is_doomed => return,
                    Ok(bytes @ 1..) => if client.write_all(&down[..bytes]).await.is_err() {
                        return;
                    },
                    _ => return,
                },
            }
        }
    }

    /// Whether this is the request whose reply is to be swallowed; there is one.
    fn is_victim(&self, request: &[u8]) -> bool {
        let named =
            |needle: &mut Vec<u8>| request.windows(needle.len()).any(|part| part == needle.as_slice());
        self.victim.lock().expect("no panic").take_if(named).is_some()
    }

    fn swallow_the_reply_to(&self, id: &onlyonce_core::RecordId) {
        *self.victim.lock().expect("no panic") = Some(id.as_bytes().to_vec());
    }
}

#[test]
fn a_swallowed_reply_is_asked_for_again_without_a_conflict_with_oneself() {
    run(async {
        let live = Live::new(RedisOptions::default(), patient()).await;
        let (wire, url) = Wire::lay(&live).await;
        let store = live.home.connect(&url, patient()).await.expect("a store on the wire");
        for _ in 0..25 {
            let claim = fresh_claim();
            wire.swallow_the_reply_to(&claim.id);
            let error = store.claim(&claim).await.expect_err("the reply was swallowed");
            assert!(error.is_retryable() && error.outcome_unknown(), "{error:?}");
            let token = token_of(&claim, &store.claim(&claim).await.expect("the same owner asks again"));
            wire.swallow_the_reply_to(&claim.id);
            let error = store.complete(&completion(token)).await.expect_err("the reply was swallowed");
            assert!(error.is_retryable() && error.outcome_unknown(), "{error:?}");
            let again = store.complete(&completion(token)).await.expect("the same completion again");
            assert_eq!(again, CompleteAnswer::Already);
        }
        println!("25 claims and 25 completions lost their replies: no conflict with oneself");
        assert_eq!(store.incidents(), onlyonce_store_redis::Incidents::default(), "the server never changed");
    });
}

#[test]
fn a_server_that_hangs_is_timed_out_and_the_grant_is_found_when_it_wakes() {
    run(async {
        // Long enough for a busy machine to connect, short enough to wait for once.
        let options = Options { timeout: Duration::from_secs(12), ..patient() };
        let live = Live::new(RedisOptions::default(), options).await;
        let claim = fresh_claim();
        live.server.pause();
        let error = live.store.claim(&claim).await.expect_err("nobody answers");
        assert_eq!(error.kind(), StoreErrorKind::TimedOut, "{error:?}");
        assert!(error.is_retryable() && error.outcome_unknown(), "{error:?}");
        live.server.resume();
        let mut answer = None;
        crate::stage::until("the server answers again", async || {
            answer = live.store.claim(&claim).await.ok();
            answer.is_some()
        })
        .await;
        token_of(&claim, &answer.expect("an answer"));
        let other = live.store.claim(&by_another(&claim)).await.expect("an answer");
        assert!(matches!(other, ClaimAnswer::Busy(_)), "{other:?}");
    });
}

#[test]
fn scripts_that_the_server_forgot_are_loaded_again_under_load() {
    run(async {
        let live = Live::new(RedisOptions::default(), patient()).await;
        let workers: Vec<_> = (0..8)
            .map(|_| {
                let store = Arc::clone(&live.store);
                tokio::spawn(async move {
                    for _ in 0..40 {
                        complete_one(&*store).await;
                        let claims = [fresh_claim(), fresh_claim()];
                        for answer in store.claim_many(&claims).await.expect("a batch") {
                            assert!(matches!(answer, Ok(ClaimAnswer::Granted(_))), "{answer:?}");
                        }
                    }
                })
            })
            .collect();
        let mut flushes = 0;
        while workers.iter().any(|worker| !worker.is_finished()) {
            live.server.ask(&["SCRIPT", "FLUSH"]).expect("SCRIPT FLUSH");
            flushes += 1;
            tokio::task::yield_now().await;
        }
        for worker in workers {
            worker.await.expect("no command failed");
        }
        assert!(flushes > 0);
    });
}

#[test]
fn a_waiter_is_woken_by_a_change_in_another_process() {
    run(async {
        let slow = Options { wake_within: Duration::from_mins(1), ..patient() };
        let live = Live::new(RedisOptions::default(), slow.clone()).await;
        let other = live.home.connect(&live.server.url(), slow).await.expect("a second store");
        for _ in 0..3 {
            let claim = fresh_claim();
            let token = token_of(&claim, &other.claim(&claim).await.expect("a grant"));
            let watches = [live.store.watch(&claim.id).await, live.store.watch(&claim.id).await];
            other.complete(&completion(token)).await.expect("a completion");
            for watch in watches {
                let woken = tokio::time::timeout(Duration::from_secs(50), watch.expect("a watch")).await;
                assert!(woken.is_ok(), "it looked for itself, or not at all");
            }
        }
    });
}

#[test]
fn a_waiter_that_comes_while_another_leaves_is_woken() {
    run(async {
        let slow = Options { wake_within: Duration::from_mins(1), ..patient() };
        let live = Live::new(RedisOptions::default(), slow.clone()).await;
        let other = live.home.connect(&live.server.url(), slow).await.expect("a second store");
        let (mut tokens, mut watches) = (Vec::new(), Vec::new());
        for _ in 0..200 {
            let claim = fresh_claim();
            tokens.push(token_of(&claim, &other.claim(&claim).await.expect("a grant")));
            drop(live.store.watch(&claim.id).await.expect("a watch"));
            watches.push(live.store.watch(&claim.id).await.expect("a watch"));
        }
        for token in tokens {
            other.complete(&completion(token)).await.expect("a completion");
        }
        let all = async {
            for watch in watches {
                watch.await;
            }
        };
        let woken = tokio::time::timeout(Duration::from_secs(50), all).await;
        assert!(woken.is_ok(), "one looked for itself: its subscription was ended by who left before");
        let subscribed = || live.server.ask(&["PUBSUB", "CHANNELS"]).expect("PUBSUB");
        crate::stage::until("the last ones end it", async || subscribed().is_empty()).await;
    });
}

#[test]
fn a_waiter_looks_for_itself_when_nobody_tells() {
    run(async {
        let quick = Options { wake_within: Duration::from_millis(10), ..patient() };
        let live = Live::new(RedisOptions::default(), quick).await;
        live.store.watch(&fresh_claim().id).await.expect("a watch").await;
        // Also without a server: a wait never outlives its bound.
        live.server.kill();
        live.store.watch(&fresh_claim().id).await.expect("a watch").await;
    });
}
