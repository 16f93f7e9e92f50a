//! Connections: opened over TLS, checked before they are used, replaced when they break.

use std::collections::HashMap;
use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;

use rustls::crypto::ring;
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_postgres::config::SslMode;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{AsyncMessage, Client, Row, Statement};
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::check::{self, Facts};
use crate::error::{CallError, OpenError, OpenErrorKind};
use crate::options::Options;

/// A value to be sent, and its type: a pooler cannot be asked for it.
pub(crate) type Argument = (Box<dyn ToSql + Sync + Send>, Type);

/// Opens connections.
pub(crate) struct Connector {
    options: Options,
    tls: MakeRustlsConnect,
}

impl Connector {
    pub(crate) fn new(options: Options) -> Result<Self, OpenError> {
        let tls = MakeRustlsConnect::new(tls(&options)?);
        Ok(Self { options, tls })
    }

    pub(crate) fn options(&self) -> &Options {
        &self.options
    }

    /// A connection to a server that may keep records, and what was found there.
    pub(crate) async fn connect(&self) -> Result<(Connection, Facts), OpenError> {
        let connection = self.connect_unchecked(None).await?;
        // A pooler lets us in although the server behind it is gone.
        let looking = check::facts(&connection.client, &self.options);
        let facts = tokio::time::timeout(self.options.call_within, looking).await.map_err(|_| {
            OpenError::new(OpenErrorKind::Unavailable, "the PostgreSQL server does not answer")
        })??;
        facts.refuse_unsafe()?;
        Ok((connection, facts))
    }

    /// A connection to any server. Its notifications go to `heard`.
    pub(crate) async fn connect_unchecked(
        &self,
        heard: Option<mpsc::Sender<String>>,
    ) -> Result<Connection, OpenError> {
        let unreachable =
            || OpenError::new(OpenErrorKind::Unavailable, "the PostgreSQL server cannot be reached");
        let connecting = self.options.config.connect(self.tls.clone());
        let (client, mut connection) = tokio::time::timeout(self.options.call_within, connecting)
            .await
            .map_err(|_| unreachable().because("it did not answer in time"))?
            .map_err(|error| unreachable().because(error))?;
        let driver = tokio::spawn(async move {
            // A connection that fails answers nobody any more: whoever waits for it says so.
            while let Some(Ok(message)) = poll_fn(|context| connection.poll_message(context)).await {
                if let (AsyncMessage::Notification(notification), Some(heard)) = (message, &heard) {
                    let _ = heard.try_send(notification.payload().to_owned());
                }
            }
        });
        Ok(Connection {
            client,
            driver,
            statements: HashMap::new(),
            pooler: self.options.pooler,
            call_within: self.options.call_within,
        })
    }
}

/// An open connection. It is cut when this is dropped, also in the middle of a call.
pub(crate) struct Connection {
    client: Client,
    driver: JoinHandle<()>,
    /// Prepared once for each text; never behind a pooler, where the next call may reach another session.
    statements: HashMap<Arc<str>, Statement>,
    pooler: bool,
    call_within: Duration,
}

impl Connection {
    /// Calls a function and answers its rows.
    pub(crate) async fn call(
        &mut self,
        text: &Arc<str>,
        arguments: &[Argument],
    ) -> Result<Vec<Row>, CallError> {
        let within = self.call_within;
        match tokio::time::timeout(within, self.call_patiently(text, arguments)).await {
            Ok(result) => result.map_err(CallError::Failed),
            Err(_) => Err(CallError::TimedOut),
        }
    }

    async fn call_patiently(
        &mut self,
        text: &Arc<str>,
        arguments: &[Argument],
    ) -> Result<Vec<Row>, tokio_postgres::Error> {
        if self.pooler {
            let arguments: Vec<(&(dyn ToSql + Sync), Type)> =
                arguments.iter().map(|(value, of)| (&**value as &(dyn ToSql + Sync), of.clone())).collect();
            return self.client.query_typed(text, &arguments).await;
        }
        if !self.statements.contains_key(text) {
            let types: Vec<Type> = arguments.iter().map(|(_, of)| of.clone()).collect();
            let statement = self.client.prepare_typed(text, &types).await?;
            self.statements.insert(Arc::clone(text), statement);
        }
        let values: Vec<&(dyn ToSql + Sync)> =
            arguments.iter().map(|(value, _)| &**value as &(dyn ToSql + Sync)).collect();
        self.client.query(&self.statements[text], &values).await
    }

    pub(crate) fn client(&mut self) -> &mut Client {
        &mut self.client
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.client.is_closed()
    }

    /// Resolves when the connection has ended.
    pub(crate) async fn ended(&mut self) {
        let _ = (&mut self.driver).await;
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

/// Certificates are verified, with the host's name, wherever TLS is spoken.
fn tls(options: &Options) -> Result<ClientConfig, OpenError> {
    let wrong = |problem: String| OpenError::new(OpenErrorKind::Settings, problem);
    let mut roots = RootCertStore::empty();
    if let Some(path) = &options.root_certificates {
        let certificates = CertificateDer::pem_file_iter(path)
            .and_then(Iterator::collect::<Result<Vec<_>, _>>)
            .map_err(|error| wrong(format!("sslrootcert {}: {error}", path.display())))?;
        if roots.add_parsable_certificates(certificates).0 == 0 {
            return Err(wrong(format!("sslrootcert {} holds no certificate", path.display())));
        }
    } else if options.config.get_ssl_mode() != SslMode::Disable {
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    }
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let builder = builder
        .with_safe_default_protocol_versions()
        .map_err(|error| wrong("TLS cannot be set up".to_owned()).because(error))?;
    Ok(builder.with_root_certificates(roots).with_no_client_auth())
}
