//! The flags of the admin side, the same for every command that serves.

use std::path::PathBuf;

use clap::Args;
use onlyonce_server::ListenAddress;
use onlyonce_server::config::AdminSection;

/// Where operators ask.
#[derive(Debug, Args)]
#[command(next_help_heading = "Operators")]
pub(crate) struct AdminArgs {
    /// Where health, metrics, the records API and the dashboard are, such as 127.0.0.1:9090. Off loopback `admin.token` must be set too
    #[arg(long, value_name = "ADDRESS")]
    admin: Option<ListenAddress>,

    /// Certificate and chain of the admin side (PEM): it then speaks TLS only
    #[arg(long, value_name = "FILE", requires = "admin_tls_key")]
    admin_tls_certificate: Option<PathBuf>,

    /// Its private key (PEM)
    #[arg(long, value_name = "FILE", requires = "admin_tls_certificate")]
    admin_tls_key: Option<PathBuf>,

    /// Operators must show a certificate signed by one of these (PEM), besides the token
    #[arg(long, value_name = "FILE", requires = "admin_tls_certificate")]
    admin_tls_client_ca: Option<PathBuf>,
}

impl AdminArgs {
    /// The same as settings.
    pub(crate) fn into_section(self) -> AdminSection {
        AdminSection {
            listen: self.admin,
            tls_certificate: self.admin_tls_certificate,
            tls_key: self.admin_tls_key,
            tls_client_ca: self.admin_tls_client_ca,
            ..AdminSection::default()
        }
    }
}
