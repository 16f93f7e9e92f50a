//! How a client of the service is set up: where it is, who asks, how long an answer may take, and over which TLS.

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderValue, Method};
use onlyonce_core::store::Durability;
use onlyonce_core::{Clock, StoreError, StoreErrorKind, SystemClock};
use tokio::runtime::Handle;

use super::answers::ServiceText;
use super::{ClaimsClient, Service};

/// The version of the store door that is spoken here.
const API: u32 = 1;

/// Sets up a [`ClaimsClient`].
#[derive(Debug)]
pub struct ClaimsClientBuilder {
    url: String,
    token: Option<String>,
    within: Duration,
    clock: Arc<dyn Clock>,
    http: Option<reqwest::Client>,
    http2: bool,
    #[cfg(feature = "tls")]
    tls: Tls,
}

#[cfg(feature = "tls")]
#[derive(Debug, Default)]
struct Tls {
    authorities: Option<Vec<u8>>,
    identity: Option<Vec<u8>>,
}

impl ClaimsClientBuilder {
    pub(super) fn new(url: String) -> Self {
        Self {
            url,
            token: None,
            within: Duration::from_secs(10),
            clock: Arc::new(SystemClock::new()),
            http: None,
            http2: false,
            #[cfg(feature = "tls")]
            tls: Tls::default(),
        }
    }

    /// The token to show. It needs the scope `store`.
    #[must_use]
    pub fn token(mut self, token: impl Into<String>) -> Self {
        self.token = Some(token.into());
        self
    }

    /// How long one call may take. 10 s by default: longer than a store that works takes, shorter than a lease.
    #[must_use]
    pub const fn within(mut self, within: Duration) -> Self {
        self.within = within;
        self
    }

    /// Another clock.
    #[must_use]
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// HTTP/2 without asking, also on clear text. Over TLS the better version is agreed on anyway.
    #[must_use]
    pub const fn http2(mut self) -> Self {
        self.http2 = true;
        self
    }

    /// An HTTP client of the application's own, for whatever cannot be set here. It must not follow redirects.
    #[must_use]
    pub fn http(mut self, http: reqwest::Client) -> Self {
        self.http = Some(http);
        self
    }

    /// Trusts only these certificate authorities, in PEM. Those of the system by default.
    #[cfg(feature = "tls")]
    #[must_use]
    pub fn authorities_pem(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.tls.authorities = Some(pem.into());
        self
    }

    /// Shows this certificate, in PEM with its key, to a service that asks for one.
    #[cfg(feature = "tls")]
    #[must_use]
    pub fn identity_pem(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.tls.identity = Some(pem.into());
        self
    }

    /// Asks the service what it is, and what its answers survive.
    pub async fn connect(mut self) -> Result<ClaimsClient, StoreError> {
        let doing = "connecting to the service";
        let misuse = |why: &'static str| StoreError::new(StoreErrorKind::Misuse, doing).because(why);
        let http = match self.http.take() {
            Some(http) => http,
            None => self.build().map_err(|source| {
                StoreError::new(StoreErrorKind::Misuse, doing).because(source.without_url())
            })?,
        };
        let token = match &self.token {
            Some(token) => {
                let mut value = HeaderValue::from_str(&format!("Bearer {token}"))
                    .map_err(|_| misuse("a token is printable ASCII"))?;
                value.set_sensitive(true);
                Some(value)
            }
            None => None,
        };
        let service = Arc::new(Service {
            http,
            home: Handle::current(),
            url: self.url.trim_end_matches('/').to_owned(),
            token,
            within: self.within,
            clock: self.clock,
            durability: Durability::default(),
            request_bytes_max: 0,
            wait_max: Duration::ZERO,
        });
        let told = service.call(Method::GET, "/v1/store", None, service.within).await;
        let told: ServiceText = told.map_err(|trouble| trouble.into_error(doing))?;
        if told.api != API {
            return Err(StoreError::new(StoreErrorKind::Unsupported, doing)
                .because(format!("the service speaks version {} of the store door", told.api)));
        }
        let durability = Durability {
            process_crash: told.durability.process_crash,
            power_cut: told.durability.power_cut,
            node_loss: told.durability.node_loss,
        };
        let (request_bytes_max, wait_max) = (told.request_bytes_max, Duration::from_millis(told.wait_ms_max));
        let service = Service { durability, request_bytes_max, wait_max, ..Service::clone(&service) };
        Ok(ClaimsClient { service: Arc::new(service) })
    }

    fn build(&self) -> Result<reqwest::Client, reqwest::Error> {
        let mut http = reqwest::Client::builder()
            // A redirect would carry the token elsewhere.
            .redirect(reqwest::redirect::Policy::none())
            .tcp_nodelay(true);
        if self.http2 {
            http = http.http2_prior_knowledge();
        }
        #[cfg(feature = "tls")]
        {
            http = self.tls.set_up(http)?;
        }
        http.build()
    }
}

#[cfg(feature = "tls")]
impl Tls {
    fn set_up(&self, mut http: reqwest::ClientBuilder) -> Result<reqwest::ClientBuilder, reqwest::Error> {
        // Only if the application chose none: two providers in one binary are one too many.
        let _ = rustls::crypto::ring::default_provider().install_default();
        if let Some(pem) = &self.authorities {
            http = http.tls_certs_only(reqwest::Certificate::from_pem_bundle(pem)?);
        }
        if let Some(pem) = &self.identity {
            http = http.identity(reqwest::Identity::from_pem(pem)?);
        }
        Ok(http)
    }
}
