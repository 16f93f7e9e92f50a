//! A server that answers by a script, and remembers the keys it was sent.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

/// What to do with a request.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Does {
    /// Answers with this status, these header lines and this body.
    Answers(u16, &'static str, &'static str),
    /// Reads the request and closes.
    Vanishes,
    /// Reads the request and says nothing, for as long as the caller stays.
    Hangs,
}

#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) url: String,
    keys: Arc<Mutex<Vec<Option<String>>>>,
}

impl Server {
    /// Does one after the other, and the last one for ever.
    pub(crate) fn start(script: Vec<Does>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/charges", listener.local_addr().unwrap());
        let keys: Arc<Mutex<Vec<Option<String>>>> = Arc::default();
        let seen = Arc::clone(&keys);
        thread::spawn(move || {
            for stream in listener.incoming() {
                let stream = stream.unwrap();
                let Some(key) = read_request(&stream) else { continue };
                let number = {
                    let mut seen = seen.lock().unwrap();
                    seen.push(key);
                    seen.len() - 1
                };
                let does = *script.get(number).or(script.last()).unwrap();
                thread::spawn(move || answer(stream, does));
            }
        });
        Self { url, keys }
    }

    /// The keys of all requests so far, as they were written.
    pub(crate) fn keys(&self) -> Vec<Option<String>> {
        self.keys.lock().unwrap().clone()
    }

    /// Checks that `times` requests came, all with one key.
    #[track_caller]
    pub(crate) fn expect_one_key(&self, times: usize) -> String {
        let keys = self.keys();
        assert_eq!(keys.len(), times, "{keys:?}");
        let first = keys[0].clone().unwrap_or_else(|| panic!("no key was sent"));
        assert!(keys.iter().all(|key| key.as_ref() == Some(&first)), "{keys:?}");
        first
    }
}

/// The key of a request, if it has one; `None` if there was no request.
#[expect(clippy::option_option, reason = "no request, one without a key, one with a key")]
fn read_request(stream: &TcpStream) -> Option<Option<String>> {
    let mut reader = BufReader::new(stream);
    let (mut key, mut length) = (None, 0);
    for number in 0.. {
        let mut line = String::new();
        if reader.read_line(&mut line).ok()? == 0 {
            return None;
        }
        let line = line.trim_end();
        if line.is_empty() && number > 0 {
            break;
        }
        if let Some((name, value)) = line.split_once(": ") {
            match name.to_ascii_lowercase().as_str() {
                "idempotency-key" => key = Some(value.to_owned()),
                "content-length" => length = value.parse().unwrap(),
                _ => {}
            }
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    Some(key)
}

fn answer(mut stream: TcpStream, does: Does) {
    match does {
        Does::Answers(status, headers, body) => {
            let text = format!(
                "HTTP/1.1 {status} Told\r\n{headers}Content-Length: {}\r\nConnection: close\r\n\r\n{body}",
                body.len()
            );
            let _ = stream.write_all(text.as_bytes());
        }
        Does::Vanishes => {}
        Does::Hangs => {
            let _ = stream.read(&mut [0]);
        }
    }
}
