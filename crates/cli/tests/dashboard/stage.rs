//! A proxy with an admin side, a service behind it, and a folder for its store.

use std::net::SocketAddr;

use tempfile::TempDir;

use crate::binary::Proxy;
use crate::upstream::Upstream;

#[derive(Debug)]
pub(crate) struct Stage {
    pub(crate) upstream: Upstream,
    pub(crate) proxy: Proxy,
    pub(crate) admin: SocketAddr,
    _folder: TempDir,
}

impl Stage {
    /// On a store in a folder of its own.
    pub(crate) fn start() -> Self {
        Self::start_with(None, &[])
    }

    pub(crate) fn start_with(store: Option<String>, environment: &[(&str, &str)]) -> Self {
        let (upstream, folder) = (Upstream::start(), tempfile::tempdir().unwrap());
        let store = store.unwrap_or_else(|| format!("file:{}", folder.path().join("store").display()));
        let url = upstream.url();
        let arguments = ["--upstream", &url, "--admin", "127.0.0.1:0", "--store", &store];
        let mut proxy = Proxy::start_with(&arguments, environment);
        let admin = proxy.wait_for_line("admin on ").parse().unwrap();
        Self { upstream, proxy, admin, _folder: folder }
    }

    /// Work whose end nobody knows: it is done, and the answer is lost.
    pub(crate) fn make_unknown(&self, key: &str) {
        assert_eq!(self.proxy.post("/drop", key).0, 502);
    }
}
