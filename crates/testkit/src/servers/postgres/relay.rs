//! A relay in front of a server that can swallow an answer, or hold a question or an answer until it is let go.

use std::io::{self, Read as _, Write as _};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread;
use std::time::Duration;

/// Which way something goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// To the server.
    Asking,
    /// From the server.
    Answering,
}

/// Passes everything on, until it is told otherwise.
#[derive(Debug)]
pub struct Relay {
    passing: Arc<Passing>,
    port: u16,
}

#[derive(Debug)]
struct Passing {
    server: u16,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    asked: usize,
    answered: usize,
    hold: Option<(Way, usize)>,
    is_held: bool,
    swallow: bool,
    swallowed: usize,
    is_closed: bool,
}

impl Relay {
    /// Listens on a port of its own, in front of `server`.
    pub fn start(server: u16) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let port = listener.local_addr()?.port();
        let passing = Arc::new(Passing { server, state: Mutex::default(), changed: Condvar::new() });
        let accepting = Arc::clone(&passing);
        thread::spawn(move || {
            for near in listener.incoming().map_while(Result::ok) {
                if accepting.state().is_closed {
                    break;
                }
                // A server that is down is a connection that is cut.
                let _ = accepting.connect(&near);
            }
        });
        Ok(Self { passing, port })
    }

    /// Its port on the loopback address.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Swallows the next answer and cuts its connection.
    pub fn swallow_next(&self) {
        self.passing.state().swallow = true;
    }

    /// How many answers were swallowed.
    pub fn swallowed(&self) -> usize {
        self.passing.state().swallowed
    }

    /// Holds what is the `number`th question or answer from now on, the first being 1.
    pub fn hold(&self, way: Way, number: usize) {
        let mut state = self.passing.state();
        (state.asked, state.answered) = (0, 0);
        state.hold = Some((way, number));
    }

    /// Waits until something is held; `false` when nothing was within `patience`.
    pub fn wait_until_held(&self, patience: Duration) -> bool {
        let waiting = |state: &mut State| !state.is_held;
        let (state, _) =
            self.passing.changed.wait_timeout_while(self.passing.state(), patience, waiting).unwrap();
        state.is_held
    }

    /// Holds nothing any more. What was held is lost, and its connection is cut.
    pub fn let_go(&self) {
        let mut state = self.passing.state();
        (state.hold, state.is_held) = (None, false);
        drop(state);
        self.passing.changed.notify_all();
    }

    /// How many questions and answers there were since the last [`Relay::hold`].
    pub fn counts(&self) -> (usize, usize) {
        let state = self.passing.state();
        (state.asked, state.answered)
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.passing.state().is_closed = true;
        self.let_go();
        // Whoever accepts notices at the next connection.
        let _ = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port));
    }
}

impl Passing {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    fn connect(self: &Arc<Self>, near: &TcpStream) -> io::Result<()> {
        let far = TcpStream::connect((Ipv4Addr::LOCALHOST, self.server))?;
        near.set_nodelay(true)?;
        far.set_nodelay(true)?;
        for (way, from, to) in [(Way::Asking, near, &far), (Way::Answering, &far, near)] {
            let (passing, from, to) = (Arc::clone(self), from.try_clone()?, to.try_clone()?);
            thread::spawn(move || {
                let _ = passing.pass(way, &from, &to);
                let _ = from.shutdown(Shutdown::Both);
                let _ = to.shutdown(Shutdown::Both);
            });
        }
        Ok(())
    }

    fn pass(&self, way: Way, mut from: &TcpStream, mut to: &TcpStream) -> io::Result<()> {
        let mut buffer = vec![0; 1 << 16];
        loop {
            let read = from.read(&mut buffer)?;
            if read == 0 || !self.may_pass(way, &buffer[..read]) {
                return Ok(());
            }
            to.write_all(&buffer[..read])?;
        }
    }

    /// Whether what goes this way is passed on; returns once it is let go.
    fn may_pass(&self, way: Way, bytes: &[u8]) -> bool {
        let mut state = self.state();
        if way == Way::Answering && std::mem::take(&mut state.swallow) {
            state.swallowed += 1;
            return false;
        }
        if !is_whole(way, bytes) {
            return true;
        }
        let number = match way {
            Way::Asking => {
                state.asked += 1;
                state.asked
            }
            Way::Answering => {
                state.answered += 1;
                state.answered
            }
        };
        if state.hold != Some((way, number)) {
            return true;
        }
        state.is_held = true;
        self.changed.notify_all();
        drop(self.changed.wait_while(state, |state| state.is_held).unwrap());
        false
    }
}

/// Whether a question or an answer ends here: networks may cut them in pieces, of which only the last is counted.
fn is_whole(way: Way, bytes: &[u8]) -> bool {
    match way {
        // A simple query, or `Sync` after the parts of another.
        Way::Asking => bytes.starts_with(b"Q") || bytes.ends_with(b"S\0\0\0\x04"),
        // `ReadyForQuery` and the state of the transaction.
        Way::Answering => bytes
            .strip_suffix(b"I")
            .or_else(|| bytes.strip_suffix(b"T"))
            .is_some_and(|rest| rest.ends_with(b"Z\0\0\0\x05")),
    }
}
