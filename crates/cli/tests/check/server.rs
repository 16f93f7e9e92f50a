//! A small server that handles keys as it should, and that can be given one defect. The sidecar is not used here on
//! purpose: what judges it must not be judged by it.

use std::collections::HashMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use onlyonce::Key;
use rustls::ServerConfig;
use tokio::net::TcpListener;
use tokio::sync::{oneshot, watch};
use tokio_rustls::TlsAcceptor;

/// What is wrong with the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Defect {
    Nothing,
    /// Not a defect: results carry no id, so that two executions look alike.
    AnswersAlike,
    IgnoresKeys,
    LosesHeaders,
    LosesStatus,
    ChangesBody,
    MarksNothing,
    MarksEverything,
    ComparesNothing,
    ComparesOnlyBodies,
    RefusesMismatchWith409,
    ForgetsOnMismatch,
    DescribesNothing,
    ClaimsOnlyAtTheEnd,
    FailsLosers,
    IsStuckAfterFailure,
    IsStuckAfterRefusal,
    TakesTheFirstLine,
    TakesEmptyForNone,
    TakesAnyText,
    LowersCase,
    CutsKeys,
    RefusesQuotes,
    HasOneScope,
    ForgetsWhenHungUp,
    KeepsTornBodies,
}

use Defect as D;

type Answer = (u16, Vec<(&'static str, String)>, String);

/// What is remembered of a key.
#[derive(Debug, Clone)]
enum Record {
    Running(String),
    Done(String, Answer),
}

#[derive(Debug)]
struct State {
    defect: Defect,
    records: Mutex<HashMap<String, Record>>,
    effects: Mutex<u64>,
    /// Held while a body is on its way, where the key is taken before it: a whole request that comes meanwhile must see
    /// how that one ends, or this server would have a second defect now and then.
    arriving: tokio::sync::Mutex<()>,
    /// How many requests with a key were decided on, by the key as it was written.
    decided: watch::Sender<HashMap<Vec<u8>, u32>>,
}

impl State {
    /// Notes that it is decided what becomes of a request.
    fn decide(&self, headers: &HeaderMap) {
        if let Some(key) = headers.get("idempotency-key") {
            self.decided.send_modify(|decided| *decided.entry(key.as_bytes().to_vec()).or_default() += 1);
        }
    }

    /// Takes a while, and as long as it takes for another request to meet this one: what happens meanwhile must not
    /// depend on the speed of the machine.
    async fn slow(&self, headers: &HeaderMap) {
        // tidy: sleep because slow work is what the caller asked for
        tokio::time::sleep(Duration::from_millis(400)).await;
        if let Some(key) = headers.get("idempotency-key") {
            let mut decided = self.decided.subscribe();
            let met = decided.wait_for(|decided| decided.get(key.as_bytes()).is_some_and(|count| *count > 1));
            // One that hung up may never have come this far: then nobody else comes.
            let _ = tokio::time::timeout(Duration::from_secs(10), met).await;
        }
    }
}

/// A running server; it ends with this value.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    /// Dropped to end it.
    stop: Option<oneshot::Sender<()>>,
    serving: Option<JoinHandle<()>>,
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.stop.take());
        drop(self.serving.take().map(JoinHandle::join));
    }
}

impl Server {
    pub(crate) fn start(defect: Defect) -> Self {
        Self::start_with(defect, None)
    }

    /// Starts one that speaks TLS, and gives back its certificate as PEM.
    pub(crate) fn start_tls(defect: Defect) -> (Self, String) {
        let own = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
        let key = own.signing_key.serialize_der().try_into().unwrap();
        let config = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![own.cert.der().clone()], key)
            .unwrap();
        (Self::start_with(defect, Some(TlsAcceptor::from(Arc::new(config)))), own.cert.pem())
    }

    fn start_with(defect: Defect, tls: Option<TlsAcceptor>) -> Self {
        // One thread, and what comes first is served first: with more, a server that was not scheduled for a while may
        // take a retry before what it repeats.
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let listener = runtime.block_on(TcpListener::bind(("127.0.0.1", 0))).unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::new(State {
            defect,
            records: Mutex::default(),
            effects: Mutex::default(),
            arriving: tokio::sync::Mutex::default(),
            decided: watch::Sender::default(),
        });
        let accepting = async move {
            while let Ok((stream, _)) = listener.accept().await {
                let state = Arc::clone(&state);
                let service = service_fn(move |request| answer(Arc::clone(&state), request));
                let tls = tls.clone();
                tokio::spawn(async move {
                    let mut http = http1::Builder::new();
                    // What was sent counts, also if its caller has gone by the time it is read.
                    http.half_close(defect != D::ForgetsWhenHungUp);
                    // How a connection ends is the caller's business.
                    let _ = match tls {
                        None => http.serve_connection(TokioIo::new(stream), service).await,
                        Some(tls) => match tls.accept(stream).await {
                            Ok(stream) => http.serve_connection(TokioIo::new(stream), service).await,
                            Err(_) => Ok(()),
                        },
                    };
                });
            }
        };
        let (stop, stopped) = oneshot::channel::<()>();
        let serving = thread::spawn(move || {
            runtime.block_on(async {
                tokio::select! {
                    () = accepting => {}
                    _ = stopped => {}
                }
            });
        });
        Self { address, stop: Some(stop), serving: Some(serving) }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/payments", self.address)
    }

    pub(crate) fn effects(&self) -> String {
        format!("http://{}/count", self.address)
    }
}

async fn answer(state: Arc<State>, request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let (status, headers, body) = handle(&state, request).await;
    let mut response = Response::builder().status(status);
    for (name, value) in headers {
        response = response.header(name, value);
    }
    Ok(response.body(Full::new(body.into())).unwrap())
}

async fn handle(state: &Arc<State>, request: Request<Incoming>) -> Answer {
    if request.uri().path() == "/count" {
        return (200, Vec::new(), state.effects.lock().unwrap().to_string());
    }
    let (head, mut incoming) = request.into_parts();
    let arriving = match state.defect {
        D::KeepsTornBodies => Some(state.arriving.lock().await),
        _ => None,
    };
    let torn = claims_early(state, &head.headers);
    let mut body = Vec::new();
    while let Some(frame) = incoming.frame().await {
        match frame {
            Ok(frame) => body.extend_from_slice(frame.data_ref().map_or(&[][..], |bytes| bytes)),
            Err(_) => return (400, Vec::new(), String::new()),
        }
    }
    if let Some(id) = torn {
        state.records.lock().unwrap().remove(&id);
    }
    let key = match key(state.defect, &head.headers) {
        Ok(Some(key)) if state.defect != D::IgnoresKeys => key,
        Ok(_) => {
            drop(arriving);
            state.decide(&head.headers);
            return work(state, &head.headers, &body).await;
        }
        Err(()) => return problem(state.defect, 400, "key-invalid"),
    };
    let caller = head.headers.get(AUTHORIZATION).filter(|_| state.defect != D::HasOneScope);
    let id = format!("{caller:?} {key}");
    let print = match state.defect {
        D::ComparesNothing => String::new(),
        D::ComparesOnlyBodies => format!("{body:?}"),
        _ => format!("{} {} {:?} {body:?}", head.method, head.uri, head.headers.get(CONTENT_TYPE)),
    };
    let claimed = claim(state, &id, &print);
    drop(arriving);
    state.decide(&head.headers);
    if let Some(answer) = claimed {
        return answer;
    }
    // Detached: a caller that hangs up does not stop it.
    let mut guard =
        Forgets { state: Arc::clone(state), id: id.clone(), armed: state.defect == D::ForgetsWhenHungUp };
    let work = run(Arc::clone(state), id, print, head.headers, body);
    let answer =
        if state.defect == D::ForgetsWhenHungUp { work.await } else { tokio::spawn(work).await.unwrap() };
    guard.armed = false;
    answer
}

/// Takes the key before the body is there, if that is the defect: a body that never comes leaves it taken.
fn claims_early(state: &State, headers: &HeaderMap) -> Option<String> {
    let key = key(state.defect, headers).ok()?.filter(|_| state.defect == D::KeepsTornBodies)?;
    let id = format!("{:?} {key}", headers.get(AUTHORIZATION));
    let mut records = state.records.lock().unwrap();
    let is_new = !records.contains_key(&id);
    is_new.then(|| records.insert(id.clone(), Record::Running(String::new())));
    is_new.then_some(id)
}

/// The answer that needs no work, or `None` when the work is to be done.
fn claim(state: &State, id: &str, print: &str) -> Option<Answer> {
    let mut records = state.records.lock().unwrap();
    match records.get(id).cloned() {
        Some(Record::Running(known) | Record::Done(known, _)) if known != print => {
            if state.defect == D::ForgetsOnMismatch {
                records.remove(id);
            }
            let status = if state.defect == D::RefusesMismatchWith409 { 409 } else { 422 };
            Some(problem(state.defect, status, "key-reused"))
        }
        Some(Record::Running(_)) if state.defect == D::FailsLosers => Some((500, Vec::new(), String::new())),
        Some(Record::Running(_)) => {
            let (status, mut headers, body) = problem(state.defect, 409, "in-flight");
            headers.push(("retry-after", "1".to_owned()));
            Some((status, headers, body))
        }
        Some(Record::Done(_, (mut status, mut headers, mut body))) => {
            match state.defect {
                D::LosesHeaders => headers.retain(|(name, _)| *name != "location"),
                D::LosesStatus => status = 200,
                D::ChangesBody => body.push('\n'),
                _ => {}
            }
            if !matches!(state.defect, D::MarksNothing | D::MarksEverything) {
                headers.push(("idempotency-replayed", "true".to_owned()));
            }
            Some((status, headers, body))
        }
        None => {
            if state.defect != D::ClaimsOnlyAtTheEnd {
                records.insert(id.to_owned(), Record::Running(print.to_owned()));
            }
            None
        }
    }
}

async fn run(state: Arc<State>, id: String, print: String, headers: HeaderMap, body: Vec<u8>) -> Answer {
    let answer = work(&state, &headers, &body).await;
    let mut records = state.records.lock().unwrap();
    match answer.0 {
        500.. if state.defect == D::IsStuckAfterFailure => {}
        400..500 if state.defect == D::IsStuckAfterRefusal => {}
        400.. => drop(records.remove(&id)),
        // Of several that ran, the first is remembered: one that was already replayed must not be replaced.
        _ if state.defect == D::ClaimsOnlyAtTheEnd => {
            records.entry(id).or_insert_with(|| Record::Done(print, answer.clone()));
        }
        _ => drop(records.insert(id, Record::Done(print, answer.clone()))),
    }
    answer
}

async fn work(state: &State, headers: &HeaderMap, body: &[u8]) -> Answer {
    if headers.contains_key("demo-fail") {
        return (500, Vec::new(), String::new());
    }
    let Ok(order) = serde_json::from_slice::<serde_json::Value>(body) else {
        return (400, Vec::new(), "not JSON".to_owned());
    };
    let id = {
        let mut effects = state.effects.lock().unwrap();
        *effects += 1;
        *effects
    };
    if headers.contains_key("demo-slow") {
        state.slow(headers).await;
    }
    if state.defect == D::AnswersAlike {
        return (200, Vec::new(), "done".to_owned());
    }
    let mut fields =
        vec![("location", format!("/payments/{id}")), ("content-type", "application/json".to_owned())];
    if state.defect == D::MarksEverything {
        fields.push(("idempotency-replayed", "true".to_owned()));
    }
    (201, fields, serde_json::json!({ "id": id, "order": order }).to_string())
}

/// The key of a request, none, or one that is refused.
fn key(defect: Defect, headers: &HeaderMap) -> Result<Option<String>, ()> {
    let mut lines = headers.get_all("idempotency-key").iter();
    let (Some(line), second) = (lines.next(), lines.next()) else { return Ok(None) };
    let text = match defect {
        D::TakesAnyText => return Ok(Some(String::from_utf8_lossy(line.as_bytes()).into_owned())),
        D::TakesEmptyForNone if line.is_empty() => return Ok(None),
        D::TakesTheFirstLine => line.to_str().map_err(drop)?,
        _ if second.is_some() => return Err(()),
        _ => line.to_str().map_err(drop)?,
    };
    if defect == D::RefusesQuotes && text.starts_with('"') {
        return Err(());
    }
    if defect == D::CutsKeys && text.len() > 257 {
        return Ok(Some(text.chars().take(255).collect()));
    }
    let key = Key::parse(text).map_err(drop)?;
    Ok(Some(if defect == D::LowersCase { key.as_str().to_lowercase() } else { key.as_str().to_owned() }))
}

fn problem(defect: Defect, status: u16, name: &str) -> Answer {
    if defect == D::DescribesNothing {
        return (status, vec![("content-type", "text/plain".to_owned())], name.to_owned());
    }
    let body = serde_json::json!({ "type": format!("urn:test:{name}"), "title": name, "status": status });
    (status, vec![("content-type", "application/problem+json".to_owned())], body.to_string())
}

/// Frees the key when the work is dropped half way: what a naive server does.
struct Forgets {
    state: Arc<State>,
    id: String,
    armed: bool,
}

impl Drop for Forgets {
    fn drop(&mut self) {
        if self.armed {
            self.state.records.lock().unwrap().remove(&self.id);
        }
    }
}
