//! A collector in the test itself: it keeps what it is sent, and can be told to fail.

use std::io::{self, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;

use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message as _;

use crate::binary::asked;

/// Where collectors take spans, and where they take figures.
pub(crate) const SPANS: &str = "/v1/traces";
pub(crate) const FIGURES: &str = "/v1/metrics";

/// What it does with what it is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mood {
    /// Takes it.
    Takes,
    /// Answers with this status, and takes nothing.
    Refuses(u16),
    /// Reads it, and says nothing for ever.
    Hangs,
}

#[derive(Debug)]
struct State {
    mood: Mood,
    /// What it took: heads and bodies, as they came.
    taken: Vec<(String, Vec<u8>)>,
    /// The heads of all that somebody tried to send.
    tried: Vec<String>,
}

/// Whether something was sent to a path that ends like this.
fn is_for(head: &str, path: &str) -> bool {
    head.split(' ').nth(1).is_some_and(|target| target.ends_with(path))
}

/// A collector on a port of its own, for as long as the test runs.
#[derive(Debug, Clone)]
pub(crate) struct Receiver {
    address: SocketAddr,
    state: Arc<(Mutex<State>, Condvar)>,
}

impl Receiver {
    pub(crate) fn start(mood: Mood) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let state = State { mood, taken: Vec::new(), tried: Vec::new() };
        let state = Arc::new((Mutex::new(state), Condvar::new()));
        let receiver = Self { address: listener.local_addr().unwrap(), state };
        let serving = receiver.clone();
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let receiver = serving.clone();
                // The other side ends as it likes.
                thread::spawn(move || drop(receiver.serve(&stream)));
            }
        });
        receiver
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// What it does from now on.
    pub(crate) fn turn(&self, mood: Mood) {
        self.state.0.lock().unwrap().mood = mood;
    }

    /// Everything that it took.
    pub(crate) fn bodies(&self) -> Vec<Vec<u8>> {
        self.state.0.lock().unwrap().taken.iter().map(|(_, body)| body.clone()).collect()
    }

    /// The heads of what it took at `path`.
    pub(crate) fn heads(&self, path: &str) -> Vec<String> {
        self.taken(path).into_iter().map(|(head, _)| head).collect()
    }

    fn taken(&self, path: &str) -> Vec<(String, Vec<u8>)> {
        let state = self.state.0.lock().unwrap();
        state.taken.iter().filter(|(head, _)| is_for(head, path)).cloned().collect()
    }

    /// How often somebody has tried to send something to `path`.
    pub(crate) fn tries(&self, path: &str) -> usize {
        self.state.0.lock().unwrap().tried.iter().filter(|head| is_for(head, path)).count()
    }

    /// Returns when somebody has tried to send something to `path` `count` times.
    pub(crate) fn wait_for_tries(&self, path: &str, count: usize) {
        let tries = |state: &State| state.tried.iter().filter(|head| is_for(head, path)).count();
        let state = self.state.0.lock().unwrap();
        drop(self.state.1.wait_while(state, |state| tries(state) < count).unwrap());
    }

    /// Every message with figures that it took.
    pub(crate) fn figures(&self) -> Vec<ExportMetricsServiceRequest> {
        let taken = self.taken(FIGURES).into_iter();
        taken.map(|(_, body)| ExportMetricsServiceRequest::decode(&*body).unwrap()).collect()
    }

    /// Every message with spans that it took.
    pub(crate) fn traces(&self) -> Vec<ExportTraceServiceRequest> {
        let taken = self.taken(SPANS).into_iter();
        taken.map(|(_, body)| ExportTraceServiceRequest::decode(&*body).unwrap()).collect()
    }

    /// All spans so far.
    pub(crate) fn spans(&self) -> Vec<Span> {
        let requests = self.traces().into_iter();
        let resources = requests.flat_map(|request| request.resource_spans);
        resources.flat_map(|resource| resource.scope_spans).flat_map(|scope| scope.spans).collect()
    }

    fn serve(&self, stream: &TcpStream) -> io::Result<()> {
        let mut reader = BufReader::new(stream);
        while let Some((head, body)) = asked(&mut reader)? {
            let mut state = self.state.0.lock().unwrap();
            let mood = state.mood;
            state.tried.push(head.clone());
            if mood == Mood::Takes {
                state.taken.push((head, body));
            }
            drop(state);
            self.state.1.notify_all();
            let mut stream = stream;
            match mood {
                Mood::Takes => stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")?,
                Mood::Refuses(status) => {
                    write!(stream, "HTTP/1.1 {status} No\r\nContent-Length: 0\r\n\r\n")?;
                }
                // Until the other side has had enough.
                Mood::Hangs => drop(reader.read(&mut [0])?),
            }
        }
        Ok(())
    }
}
