//! nginx as a plain proxy, with a configuration and a folder of its own: never the machine's service.

use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::Command;

use crate::Result;

const CONFIGURATION: &str = include_str!("nginx.conf");
/// What the sidecar adds to a request unless it is told not to, and `Via`, which it always adds.
const TELLING: &str = "proxy_set_header X-Forwarded-For $remote_addr;
            proxy_set_header X-Forwarded-Proto $scheme;
            proxy_set_header X-Forwarded-Host $http_host;
            proxy_set_header Via \"1.1 nginx-0123456789abcdef\";";

/// Writes the configuration into `folder` and adds what makes nginx use it. Answers where it will listen.
pub(crate) fn prepare(
    command: &mut Command,
    folder: &Path,
    upstream: SocketAddr,
    tells: bool,
) -> Result<SocketAddr> {
    let listen = free_address()?;
    let file = folder.join("nginx.conf");
    let path = folder.to_str().ok_or("nginx needs a folder whose name is text")?;
    if path.contains([' ', ';', '{', '}', '\'', '"', '$', '#']) {
        return Err(format!("nginx cannot use {path}: choose a --folder with a plain name").into());
    }
    fs::write(&file, configuration(path, listen, upstream, tells))?;
    command.arg("-p").arg(folder).arg("-c").arg(file).arg("-e").arg(folder.join("error.log"));
    Ok(listen)
}

fn configuration(folder: &str, listen: SocketAddr, upstream: SocketAddr, tells: bool) -> String {
    CONFIGURATION
        .replace("FOLDER", folder)
        .replace("UPSTREAM", &upstream.to_string())
        .replace("LISTEN", &listen.to_string())
        .replace("TELLING", if tells { TELLING } else { "" })
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
        let text = configuration("some/folder", address(7), address(8), false);
        assert!(text.contains("listen 127.0.0.1:7;") && text.contains("server 127.0.0.1:8;"), "{text}");
        assert!(text.contains("pid some/folder/nginx.pid;"), "{text}");
        assert!(!["FOLDER", "LISTEN", "UPSTREAM", "TELLING"].iter().any(|gap| text.contains(gap)), "{text}");
        assert!(!text.contains("X-Forwarded"), "{text}");
        let telling = configuration("some/folder", address(7), address(8), true);
        assert!(
            ["For", "Proto", "Host"].iter().all(|what| telling.contains(&format!("X-Forwarded-{what} $"))),
            "{telling}"
        );
    }
}
