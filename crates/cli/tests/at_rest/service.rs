//! A service with secrets: it answers every request with the same head and body.

use std::io::{BufReader, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use crate::binary::asked;

/// A service on a port of its own, for as long as the test runs.
#[derive(Debug, Clone)]
pub(crate) struct Service {
    address: SocketAddr,
    effects: Arc<AtomicUsize>,
}

impl Service {
    /// Answers with `fields`, each ended by a line break, and `body`.
    pub(crate) fn start(fields: &str, body: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let service = Self { address: listener.local_addr().unwrap(), effects: Arc::default() };
        let answer = format!("HTTP/1.1 200 OK\r\n{fields}Content-Length: {}\r\n\r\n{body}", body.len());
        let effects = Arc::clone(&service.effects);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (answer, effects) = (answer.clone(), Arc::clone(&effects));
                // The other side ends as it likes.
                thread::spawn(move || drop(serve(&stream, &answer, &effects)));
            }
        });
        service
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(crate) fn effects(&self) -> usize {
        self.effects.load(Ordering::SeqCst)
    }
}

fn serve(stream: &TcpStream, answer: &str, effects: &AtomicUsize) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream);
    while asked(&mut reader)?.is_some() {
        effects.fetch_add(1, Ordering::SeqCst);
        let mut stream = stream;
        stream.write_all(answer.as_bytes())?;
    }
    Ok(())
}
