//! A service behind the binary: it counts its effects, and can be told to hold its answers back or to drop them.

use std::io::{BufReader, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;

use crate::binary::asked;

#[derive(Debug, Default)]
struct State {
    effects: usize,
    targets: Vec<String>,
    heads: Vec<String>,
    holds: bool,
}

/// A service on a port of its own, for as long as the test runs.
#[derive(Debug, Clone)]
pub(crate) struct Upstream {
    pub(crate) address: SocketAddr,
    state: Arc<(Mutex<State>, Condvar)>,
}

impl Upstream {
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let upstream = Self { address: listener.local_addr().unwrap(), state: Arc::default() };
        let serving = upstream.clone();
        thread::spawn(move || {
            for stream in listener.incoming() {
                let upstream = serving.clone();
                thread::spawn(move || {
                    // The other side ends as it likes; this one is killed in some tests.
                    let _ = upstream.serve(&stream.unwrap());
                });
            }
        });
        upstream
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(crate) fn effects(&self) -> usize {
        self.state.0.lock().unwrap().effects
    }

    pub(crate) fn targets(&self) -> Vec<String> {
        self.state.0.lock().unwrap().targets.clone()
    }

    /// What requests said before their bodies.
    pub(crate) fn heads(&self) -> Vec<String> {
        self.state.0.lock().unwrap().heads.clone()
    }

    /// Whether answers are held back from now on. Effects happen all the same.
    pub(crate) fn hold(&self, holds: bool) {
        self.state.0.lock().unwrap().holds = holds;
        self.state.1.notify_all();
    }

    /// Returns when `count` effects have happened.
    pub(crate) fn wait_for_effects(&self, count: usize) {
        let state = self.state.0.lock().unwrap();
        drop(self.state.1.wait_while(state, |state| state.effects < count).unwrap());
    }

    fn serve(&self, stream: &TcpStream) -> std::io::Result<()> {
        let mut reader = BufReader::new(stream);
        while let Some((head, body)) = asked(&mut reader)? {
            let target = head.split(' ').nth(1).unwrap_or_default().to_owned();
            let number = self.take_effect(&target, head);
            if target.starts_with("/drop")
                || body.windows(5).any(|window| window == b"drop%" || window == b"drop@")
            {
                return Ok(());
            }
            let state = self.state.0.lock().unwrap();
            drop(self.state.1.wait_while(state, |state| state.holds).unwrap());
            let (field, answer) = answer(&target, number);
            let mut stream = stream;
            write!(
                stream,
                "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n{field}Content-Length: {}\r\n\r\n{answer}",
                answer.len()
            )?;
        }
        Ok(())
    }

    fn take_effect(&self, target: &str, head: String) -> usize {
        let mut state = self.state.0.lock().unwrap();
        state.effects += 1;
        state.targets.push(target.to_owned());
        state.heads.push(head);
        let number = state.effects;
        drop(state);
        self.state.1.notify_all();
        number
    }
}

/// One more field of the head, and the body.
fn answer(target: &str, number: usize) -> (&'static str, String) {
    if target.starts_with("/v1/customers") {
        // Enough of Stripe's customer object for Stripe's client to be happy with.
        let customer =
            format!(r#"{{"id": "cus_{number}", "object": "customer", "livemode": false, "metadata": {{}}}}"#);
        return ("", customer);
    }
    if target.starts_with("/hostile") {
        // For whoever shows answers to people.
        let field = "X-Note: <img src=x onerror=window.hacked=1>\r\n";
        return (field, "<script>window.hacked=1</script><img src=x onerror=window.hacked=2>".to_owned());
    }
    ("", format!(r#"{{"effect": {number}}}"#))
}
