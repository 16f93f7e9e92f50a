//! What is measured, and how each is started.

use std::net::SocketAddr;
use std::path::PathBuf;

use onlyonce_bench::pins::Pins;
use onlyonce_bench::started::Started;
use onlyonce_bench::starter;
use onlyonce_bench::workplace::Workplace;

use crate::Result;
use crate::arguments::{Arguments, Telling};
use crate::nginx;

/// What is measured. In the order of the tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Subject {
    Nginx,
    Forward,
    Memory,
    Embedded,
    Bare,
    Idempotent,
    Layered,
}

impl Subject {
    pub(crate) const PROXIES: [Self; 4] = [Self::Nginx, Self::Forward, Self::Memory, Self::Embedded];
    pub(crate) const LAYERS: [Self; 3] = [Self::Bare, Self::Idempotent, Self::Layered];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Nginx => "nginx",
            Self::Forward => "bare hyper proxy",
            Self::Memory => "onlyonce, memory:",
            Self::Embedded => "onlyonce, file:",
            Self::Bare => "bare axum handler",
            Self::Idempotent => "axum-idempotent",
            Self::Layered => "onlyonce layer",
        }
    }

    /// Whether it remembers: the others run everything again.
    pub(crate) const fn replays(self) -> bool {
        matches!(self, Self::Memory | Self::Embedded | Self::Idempotent | Self::Layered)
    }

    /// The server of this program that it is, if it is one.
    const fn server(self) -> Option<&'static str> {
        match self {
            Self::Forward => Some("forward"),
            Self::Bare => Some("bare"),
            Self::Idempotent => Some("idempotent"),
            Self::Layered => Some("layered"),
            Self::Nginx | Self::Memory | Self::Embedded => None,
        }
    }
}

/// Starts what is measured.
#[derive(Debug)]
pub(crate) struct Starter<'a> {
    pub(crate) base: starter::Starter<'a>,
    onlyonce: Option<PathBuf>,
    /// The server of this program that the proxies are in front of.
    upstream: &'static str,
    telling: Telling,
}

impl<'a> Starter<'a> {
    pub(crate) fn new(arguments: &Arguments, workplace: &'a Workplace, sidecar: bool) -> Result<Self> {
        let onlyonce = if sidecar { Some(arguments.onlyonce()?) } else { None };
        let base = starter::Starter::new(workplace, Pins::new(arguments.unpinned))?;
        Ok(Self { base, onlyonce, upstream: arguments.upstream.server(), telling: arguments.telling })
    }

    /// Starts what the proxies are in front of.
    pub(crate) fn upstream(&mut self) -> Result<Started> {
        self.base.upstream_by(self.upstream)
    }

    /// Starts `subject`: a proxy in front of `upstream`, a layer without.
    pub(crate) fn subject(&mut self, subject: Subject, upstream: Option<SocketAddr>) -> Result<Started> {
        self.with(subject, upstream, &[])
    }

    /// The same with more arguments.
    pub(crate) fn with(
        &mut self,
        subject: Subject,
        upstream: Option<SocketAddr>,
        more: &[&str],
    ) -> Result<Started> {
        let name = subject.name();
        let folder = self.base.folder(name)?;
        if let Some(server) = subject.server() {
            let mut command = self.base.own(server);
            command.args(more).args(upstream.map(|upstream| upstream.to_string()));
            return self.base.start(name, &mut command, &folder, None);
        }
        let upstream = upstream.ok_or("a proxy needs an upstream")?;
        if subject == Subject::Nginx {
            let mut command = self.base.measured("nginx");
            let address = nginx::prepare(&mut command, &folder, upstream, self.telling == Telling::Both)?;
            return self.base.start(name, command.args(more), &folder, Some(address));
        }
        let store = if subject == Subject::Memory {
            "memory:".to_owned()
        } else {
            format!("file:{}", folder.join("store").display())
        };
        let onlyonce = self.onlyonce.as_ref().ok_or("no sidecar to start")?;
        let mut command = self.base.sidecar(onlyonce, upstream, &store);
        if self.telling == Telling::Neither {
            command.env("ONLYONCE_PROXY_FORWARDED", "off");
        }
        self.base.start(name, command.args(more), &folder, None)
    }
}
