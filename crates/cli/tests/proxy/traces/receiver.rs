//! A collector in the test itself: it keeps what it is sent, and can be told to fail.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message as _;

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

#[derive(Debug, Default)]
struct State {
    /// Heads and bodies, as they came.
    heads: Vec<String>,
    bodies: Vec<Vec<u8>>,
    tries: usize,
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
        let receiver = Self { address: listener.local_addr().unwrap(), state: Arc::default() };
        let serving = receiver.clone();
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let receiver = serving.clone();
                // The other side ends as it likes.
                thread::spawn(move || drop(receiver.serve(&stream, mood)));
            }
        });
        receiver
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Everything that it was sent.
    pub(crate) fn bodies(&self) -> Vec<Vec<u8>> {
        self.state.0.lock().unwrap().bodies.clone()
    }

    pub(crate) fn heads(&self) -> Vec<String> {
        self.state.0.lock().unwrap().heads.clone()
    }

    /// Returns when somebody has tried to send something `count` times.
    pub(crate) fn wait_for_tries(&self, count: usize) {
        let state = self.state.0.lock().unwrap();
        drop(self.state.1.wait_while(state, |state| state.tries < count).unwrap());
    }

    /// All spans so far.
    pub(crate) fn spans(&self) -> Vec<Span> {
        let requests = self.bodies();
        let requests = requests.iter().map(|body| ExportTraceServiceRequest::decode(&**body).unwrap());
        let resources = requests.flat_map(|request| request.resource_spans);
        resources.flat_map(|resource| resource.scope_spans).flat_map(|scope| scope.spans).collect()
    }

    fn serve(&self, stream: &TcpStream, mood: Mood) -> io::Result<()> {
        let mut reader = BufReader::new(stream);
        loop {
            let (mut head, mut length) = (String::new(), 0);
            loop {
                let mut line = String::new();
                if reader.read_line(&mut line)? == 0 {
                    return Ok(());
                }
                if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                    length = value.trim().parse().unwrap();
                }
                if line == "\r\n" {
                    break;
                }
                head.push_str(&line);
            }
            let mut body = vec![0; length];
            reader.read_exact(&mut body)?;
            let mut state = self.state.0.lock().unwrap();
            state.tries += 1;
            if mood == Mood::Takes {
                state.heads.push(head);
                state.bodies.push(body);
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
    }
}
