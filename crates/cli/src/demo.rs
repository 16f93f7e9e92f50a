//! `onlyonce demo`: a payments API, the sidecar in front of it, its dashboard, and what to try. With `--tour` it tries it itself, over
//! real sockets, and says whether every answer was the promised one.
//!
//! The sidecar is a process of its own, so that it can be killed: that is one of the things to try.

mod payments;
mod place;
mod script;
mod sidecar;
mod tour;

use std::ffi::OsString;
use std::net::{Ipv4Addr, SocketAddr};

use clap::Args;
use tokio::net::{TcpListener, TcpSocket};
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::args::exit_codes;
use crate::failure::Failure;
use crate::output;
use place::Place;
use sidecar::Sidecar;

/// Where the sidecar listens if nothing else is asked for, and if nobody else does.
const PORT: u16 = 8080;
/// Likewise its dashboard.
const ADMIN_PORT: u16 = 9090;

/// The exit code when an answer was not the promised one.
const BROKEN: u8 = 1;

/// The exit code of a tour that was interrupted, as shells have it.
const INTERRUPTED: u8 = 130;

/// Start a small payments API with the sidecar in front of it, and show what to try
///
/// Everything is on this machine and goes away when the demo ends: Ctrl-C ends it.
#[derive(Debug, Args)]
#[command(after_help = concat!(
    "\
Examples:
  onlyonce demo
  onlyonce demo --tour
  onlyonce demo --listen 127.0.0.1:9000 --store file:./onlyonce-data

The sidecar reads ONLYONCE_* from the environment, as `onlyonce proxy` does: a setting that changes the promise shows
in the tour.

",
    exit_codes!()
))]
pub(crate) struct DemoArgs {
    /// Where the sidecar listens [default: 127.0.0.1:8080, or a free port if that is taken]
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<SocketAddr>,

    /// Where the dashboard is [default: 127.0.0.1:9090, or a free port if that is taken]
    #[arg(long, value_name = "ADDRESS")]
    admin: Option<SocketAddr>,

    /// Try everything that is shown, explain each answer, and end
    #[arg(long)]
    tour: bool,

    /// The store of the sidecar, as `file:DIR` [default: a folder that is removed at the end]
    #[arg(long, value_name = "URL")]
    store: Option<String>,

    /// Be the sidecar of this process: how the demo starts it, and nothing for people
    #[arg(long, hide = true, value_name = "PROCESS")]
    sidecar_of: Option<i32>,

    /// What the sidecar takes
    #[arg(last = true, hide = true, requires = "sidecar_of")]
    proxy: Vec<OsString>,
}

pub(crate) fn run(args: &DemoArgs) -> Result<(), Failure> {
    if let Some(parent) = args.sidecar_of {
        return Err(sidecar::become_proxy(parent, &args.proxy));
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(system)?;
    runtime.block_on(demo(args))
}

async fn demo(args: &DemoArgs) -> Result<(), Failure> {
    // ORDER: listen for signals before anything is started that would be left behind.
    let mut signals = Signals::new().map_err(system)?;
    let interrupted = || if args.tour { Err(Failure::Told(INTERRUPTED)) } else { Ok(()) };
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.map_err(system)?;
    let upstream = listener.local_addr().map_err(system)?;
    tokio::spawn(payments::serve(listener));
    let (listen, _held) = choose(args.listen, PORT)?;
    let (admin, _also_held) = choose(args.admin, ADMIN_PORT)?;
    let place = Place::new(args.store.as_deref(), upstream, listen, admin)?;
    let mut sidecar = tokio::select! {
        started = Sidecar::start(&place) => started?,
        () = signals.next() => return interrupted(),
    };
    let ended = tokio::select! {
        ended = show(args, &place, &mut sidecar) => ended,
        () = signals.next() => interrupted(),
    };
    sidecar.stop().await;
    ended
}

/// Ctrl-C, and what a supervisor sends.
struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    fn new() -> std::io::Result<Self> {
        Ok(Self { interrupt: signal(SignalKind::interrupt())?, terminate: signal(SignalKind::terminate())? })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}

async fn show(args: &DemoArgs, place: &Place, sidecar: &mut Sidecar) -> Result<(), Failure> {
    output::write_line(&place.describe(sidecar.process()))?;
    if args.tour {
        let kept = tour::run(place, sidecar).await?;
        return if kept { Ok(()) } else { Err(Failure::Told(BROKEN)) };
    }
    output::write_line(&script::describe(place, sidecar.process()))?;
    loop {
        let how = sidecar.ended().await;
        *sidecar = Sidecar::start(place).await?;
        let text = format!(
            "The sidecar ended ({how}). It is back on the same store, as process {}.",
            sidecar.process()
        );
        output::write_line(&text)?;
    }
}

/// The address asked for; else the usual port, else any that is free. It is ours for as long as the socket lives.
fn choose(asked: Option<SocketAddr>, usual: u16) -> Result<(SocketAddr, Option<TcpSocket>), Failure> {
    let usual = SocketAddr::from((Ipv4Addr::LOCALHOST, usual));
    let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let wanted = match asked {
        Some(address) => vec![address],
        None => vec![usual, any],
    };
    // The sidecar starts more than once and must come back where it was: the port is fixed here, not by it.
    let free = std::net::TcpListener::bind(&wanted[..]).and_then(|listener| listener.local_addr());
    let held = free.and_then(|address| Ok((address, hold(address)?)));
    held.map_err(|error| {
        let named: Vec<_> = wanted.iter().map(ToString::to_string).collect();
        Failure::Unavailable(format!("cannot listen on {}: {error}", named.join(" or ")).into())
    })
}

/// Keeps others from being given the port while no sidecar listens on it, where that does not keep the sidecar from it.
fn hold(address: SocketAddr) -> std::io::Result<Option<TcpSocket>> {
    if !cfg!(target_os = "linux") {
        return Ok(None);
    }
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    Ok(Some(socket))
}

fn system(error: std::io::Error) -> Failure {
    Failure::System(Box::new(error))
}
