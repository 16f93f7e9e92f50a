//! nginx as a plain proxy, with a configuration and a folder of its own: never the machine's service.

use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::Command;

use crate::Result;

const CONFIGURATION: &str = include_str!("nginx.conf");

/// Writes the configuration into `folder` and adds what makes nginx use it. Answers where it will listen.
pub(crate) fn prepare(command: &mut Command, folder: &Path, upstream: SocketAddr) -> Result<SocketAddr> {
    let listen = free_address()?;
    let file = folder.join("nginx.conf");
    let path = folder.to_str().ok_or("nginx needs a folder whose name is text")?;
    if path.contains([' ', ';', '{', '}', '\'', '"', '$', '#']) {
        return Err(format!("nginx cannot use {path}: choose a --folder with a plain name").into());
    }
    fs::write(&file, configuration(path, listen, upstream))?;
    command.arg("-p").arg(folder).arg("-c").arg(file).arg("-e").arg(folder.join("error.log"));
    Ok(listen)
}

fn configuration(folder: &str, listen: SocketAddr, upstream: SocketAddr) -> String {
    CONFIGURATION
        .replace("FOLDER", folder)
        .replace("UPSTREAM", &upstream.to_string())
        .replace("LISTEN", &listen.to_string())
}

/// nginx cannot choose a port by itself. Somebody else may take this one meanwhile: then it does not start.
fn free_address() -> Result<SocketAddr> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_configuration_has_no_gaps_left() {
        let address = |port| SocketAddr::from(([127, 0, 0, 1], port));
        let text = configuration("some/folder", address(7), address(8));
        assert!(text.contains("listen 127.0.0.1:7;") && text.contains("server 127.0.0.1:8;"), "{text}");
        assert!(text.contains("pid some/folder/nginx.pid;"), "{text}");
        assert!(!["FOLDER", "LISTEN", "UPSTREAM"].iter().any(|gap| text.contains(gap)), "{text}");
    }
}
