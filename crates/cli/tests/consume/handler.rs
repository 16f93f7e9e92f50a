//! A handler in another language, as far as the consumer can see: it notes every request, and answers as the body says.

use std::collections::HashMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;

/// One request.
#[derive(Debug, Clone)]
pub(crate) struct Seen {
    pub(crate) key: String,
    pub(crate) attempt: u32,
    pub(crate) body: String,
    pub(crate) headers: HashMap<String, String>,
}

#[derive(Debug, Default)]
struct State {
    seen: Vec<Seen>,
    holds: bool,
    is_mended: bool,
}

/// A handler on a port of its own, for as long as the test runs.
#[derive(Debug, Clone)]
pub(crate) struct Handler {
    address: SocketAddr,
    state: Arc<(Mutex<State>, Condvar)>,
}

impl Handler {
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let handler = Self { address: listener.local_addr().unwrap(), state: Arc::default() };
        let serving = handler.clone();
        thread::spawn(move || {
            for stream in listener.incoming() {
                let handler = serving.clone();
                thread::spawn(move || {
                    // The consumer is killed in some tests.
                    let _ = handler.serve(&stream.unwrap());
                });
            }
        });
        handler
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/orders", self.address)
    }

    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.state.0.lock().unwrap().seen.clone()
    }

    /// Whether answers are held back from now on.
    pub(crate) fn hold(&self, holds: bool) {
        self.state.0.lock().unwrap().holds = holds;
        self.state.1.notify_all();
    }

    /// From now on it does everything.
    pub(crate) fn mend(&self) {
        self.state.0.lock().unwrap().is_mended = true;
    }

    /// Returns when `count` requests have come.
    pub(crate) fn wait_for(&self, count: usize) {
        let state = self.state.0.lock().unwrap();
        drop(self.state.1.wait_while(state, |state| state.seen.len() < count).unwrap());
    }

    fn serve(&self, stream: &TcpStream) -> std::io::Result<()> {
        let mut reader = BufReader::new(stream);
        loop {
            let mut headers = HashMap::new();
            loop {
                let mut line = String::new();
                if reader.read_line(&mut line)? == 0 {
                    return Ok(());
                }
                if let Some((name, value)) = line.split_once(':') {
                    headers.insert(name.to_ascii_lowercase(), value.trim().to_owned());
                }
                if line == "\r\n" {
                    break;
                }
            }
            let mut body = vec![0; headers["content-length"].parse().unwrap()];
            reader.read_exact(&mut body)?;
            let status = self.note(headers, String::from_utf8(body).unwrap());
            let mut stream = stream;
            write!(stream, "HTTP/1.1 {status} As told\r\nContent-Length: 0\r\n\r\n")?;
        }
    }

    fn note(&self, headers: HashMap<String, String>, body: String) -> u16 {
        let attempt = headers["onlyonce-attempt"].parse().unwrap();
        let key = headers.get("idempotency-key").cloned().unwrap_or_default();
        let mut state = self.state.0.lock().unwrap();
        let status = match body.as_str() {
            _ if state.is_mended => 200,
            "refuse" => 422,
            "fail once" if attempt == 1 => 500,
            "always fail" => 503,
            _ => 200,
        };
        state.seen.push(Seen { key, attempt, body, headers });
        self.state.1.notify_all();
        drop(self.state.1.wait_while(state, |state| state.holds).unwrap());
        status
    }
}
