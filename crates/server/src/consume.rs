//! The consumer bridge: what a broker delivers is posted to a handler in any language, once for each message.
//!
//! The loop is `onlyonce-inbox`'s, the brokers are `onlyonce-sources`'; here are the request that a message becomes and
//! what follows from its answer.

mod answer;
mod promise;
mod request;

use std::error::Error;
use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use http::Request;
use http_body_util::{BodyExt as _, Limited};
use hyper_util::client::legacy::Client;
use onlyonce_http::Body;
use onlyonce_inbox::{
    Consumer, ConsumerError, Counts, Handled, Handler, HandlerFuture, Source, SourceError, Work,
};
use onlyonce_sources::Options;
use serde_json::json;

use crate::admin::{self, AdminDoor, Showing};
use crate::body::Entire;
use crate::census::{Also, Census};
use crate::config::{CONNECT_WITHIN, ConfigError, ConsumeSettings, Sources, UpstreamHttp, UpstreamUrl};
use crate::listen::ListenAddress;
use crate::metrics::{Metrics, StoreFigures};
use crate::operator::{Naming, Place};
use crate::otlp::Otlp;
use crate::sidecar::{self, StartError, metrics};
use crate::store::{self, OpenError, Tiers};
use crate::sweep::{AtWork, sweeper};
use crate::tls::Trust;
use crate::traces::{Delivered, Traces};
use crate::upstream::{Connector, client, why_no_answer};
use onlyonce_core::sweeper::Sweeper;
use onlyonce_core::{Outcome, RecordId, StoreError};

use request::Target;

/// How long an idle connection to the handler is kept: shorter than servers keep theirs.
const IDLE: Duration = Duration::from_secs(4);
/// The most of a handler's answer that is read. What it says beside its status is for logs only.
const ANSWER_BYTES_MAX: usize = 1 << 20;

/// How long a source may take to say how many messages wait.
const LAG_WITHIN: Duration = Duration::from_secs(2);

/// A consumer that is ready to run.
pub struct Bridge {
    consumer: Consumer,
    source: Arc<dyn Source>,
    tiers: Tiers,
    sweeper: Sweeper,
    promise: String,
    admin: Option<AdminDoor>,
    otlp: Otlp,
}

impl Bridge {
    /// Reads the configuration, opens store and source. Nothing is fetched before [`Bridge::run_until`].
    pub async fn start(sources: &Sources) -> Result<Self, BridgeError> {
        let config = sources.read()?;
        for warning in config.warnings() {
            tracing::warn!("{warning}");
        }
        let settings = config.consume_settings()?;
        let secret = store::secret(&settings.store)?;
        let metrics = metrics(settings.admin.is_some() || settings.otlp.metrics.is_some())?;
        let mut otlp = Otlp::start(&settings.otlp, metrics.as_ref())?;
        let poster = Poster::new(&settings, otlp.traces())
            .map_err(|error| ConfigError::field("consume.handler", error))?;
        let opened = store::open(&settings.store, metrics.as_ref()).await.map_err(|error| match error {
            OpenError::Settings(error) => BridgeError::Config(error),
            OpenError::Store(error) => BridgeError::Store(error),
        })?;
        let options = Options::for_group(settings.name.clone());
        let source: Arc<dyn Source> = onlyonce_sources::open(&settings.source, &options).await?.into();
        let promise = promise::text(&settings, &opened, &*source);
        let mut builder =
            Consumer::builder(settings.name.as_str(), Arc::clone(&source), opened.store, poster)
                .policy(settings.policy)
                .ids(settings.ids)
                .on_missing_id(settings.on_missing_id)
                .on_mismatch(settings.on_mismatch)
                .on_short_retention(settings.on_short_retention)
                .backoff(settings.backoff)
                .concurrency(settings.concurrency)
                .batch_max(settings.batch_max)
                .drain_for(settings.drain_within);
        if let Some(secret) = secret {
            builder = builder.secret(secret);
        }
        if let Some(metrics) = &metrics {
            builder = builder.observer(Arc::<Metrics>::clone(metrics));
        }
        let (consumer, tiers) = (builder.build().await?, opened.tiers);
        let figures = metrics.as_ref().map(|metrics| StoreFigures::new(metrics, None));
        let sweeper = sweeper(consumer.engine(), &settings.store, opened.growth, figures);
        let said = json!({ "promise": promise });
        let shown = config.show();
        let name = config.consumer_name();
        let ground = admin::Ground {
            command: "consume",
            places: vec![Place::new(name, consumer.engine(), Naming::Messages(name.into()))],
            promise: Box::new(move || said.clone()),
            configuration: Box::new(move || shown.clone()),
            warnings: config.warnings().to_vec(),
            sweeping: vec![sweeper.sweeping()],
        };
        let census = metrics.map(|metrics| {
            let engines = vec![(consumer.engine().clone(), tiers.clone())];
            let also = counting(consumer.counts(), Arc::clone(&source));
            Arc::new(Census::new(metrics, engines, &ground.places, false).also(also))
        });
        otlp.send_figures(census.as_ref());
        let admin = sidecar::admin(settings.admin.as_ref(), census, ground)?;
        Ok(Self { consumer, source, tiers, sweeper, promise, admin, otlp })
    }

    /// What is promised, in words.
    pub fn promise(&self) -> &str {
        &self.promise
    }

    /// Where the admin side listens, if there is one.
    pub fn admin_address(&self) -> Option<&ListenAddress> {
        self.admin.as_ref().map(AdminDoor::address)
    }

    /// What it does, in numbers.
    pub fn counts(&self) -> Arc<Counts> {
        self.consumer.counts()
    }

    /// Where its messages come from, to be asked how many wait.
    pub fn source(&self) -> Arc<dyn Source> {
        Arc::clone(&self.source)
    }

    /// Handles messages until `stop` resolves, then drains.
    pub async fn run_until(self, stop: impl Future<Output = ()> + Send) -> Result<(), BridgeError> {
        let Self { consumer, tiers, sweeper, admin, otlp, .. } = self;
        let sweeping = AtWork::begin([sweeper]);
        let showing = Showing::begin(admin);
        let stopping = showing.stopping();
        let stop = async move {
            stop.await;
            stopping.cancel();
        };
        let ended = consumer.run(stop).await;
        otlp.end().await;
        showing.end().await;
        sweeping.end().await;
        tiers.log();
        Ok(ended?)
    }
}

/// Counts deliveries, and what waits for one, whenever figures are asked for.
fn counting(counts: Arc<Counts>, source: Arc<dyn Source>) -> Also {
    Box::new(move |metrics| {
        let (counts, source) = (Arc::clone(&counts), Arc::clone(&source));
        Box::pin(async move {
            metrics.messages(&counts.now());
            let lag = tokio::time::timeout(LAG_WITHIN, source.lag()).await;
            metrics.waiting(lag.ok().and_then(Result::ok).flatten());
        })
    })
}

/// Posts messages to one URL. Each is sent once; whether again is for the record to say.
struct Poster(Arc<Post>);

struct Post {
    client: Client<Connector, Body>,
    target: Target,
    within: Duration,
    /// Spans, and whose they are.
    traces: Option<(Arc<Traces>, String)>,
}

impl Poster {
    fn new(settings: &ConsumeSettings, traces: Option<Arc<Traces>>) -> Result<Self, String> {
        let url: &UpstreamUrl = &settings.handler;
        let trust = Trust::in_ca(settings.handler_ca.as_deref());
        let client = client(url, UpstreamHttp::Auto, &trust, CONNECT_WITHIN, IDLE)?;
        let target = Target::new(url, &settings.handler_path)?;
        let traces = traces.map(|traces| (traces, settings.name.clone()));
        Ok(Self(Arc::new(Post { client, target, within: settings.handler_within, traces })))
    }
}

impl Handler for Poster {
    fn handle(&self, work: Work) -> HandlerFuture {
        let post = Arc::clone(&self.0);
        Box::pin(async move { post.send(&work).await })
    }

    fn duplicate(&self, work: &Work, record: &RecordId, outcome: &Outcome) {
        if let Some((traces, name)) = &self.0.traces {
            // The request that it does not become says in which trace it came.
            let mut request = self.0.target.request(work);
            traces.duplicate(name, request.headers_mut(), record, outcome);
        }
    }
}

impl Post {
    async fn send(&self, work: &Work) -> Handled {
        let mut request = self.target.request(work);
        let mut span =
            self.traces.as_ref().map(|(traces, name)| traces.delivered(name, work, request.headers_mut()));
        let handled = self.exchange(request, span.as_mut()).await;
        match span {
            Some(span) => span.handled(handled),
            None => handled,
        }
    }

    async fn exchange(&self, request: Request<Body>, span: Option<&mut Delivered>) -> Handled {
        let answering = async {
            let response = match self.client.request(request).await {
                Ok(response) => response,
                Err(error) => {
                    let (sent_nothing, why) = why_no_answer(&error);
                    // Nothing was sent, so nothing happened.
                    return if sent_nothing { Handled::retry(why) } else { Handled::unknown(why) };
                }
            };
            let (head, body) = response.into_parts();
            let body = Entire::of(body, head.version);
            if let Some(span) = span {
                span.answered(head.status);
            }
            // A success counts when all of it has come: one that breaks off may have been no success.
            match Limited::new(body, ANSWER_BYTES_MAX).collect().await {
                Ok(_) => answer::handled(head.status, &head.headers),
                Err(error) if answer::is_too_long(&*error) => answer::handled(head.status, &head.headers),
                Err(error) => Handled::unknown(format!("the handler's answer broke off: {error}")),
            }
        };
        match tokio::time::timeout(self.within, answering).await {
            Ok(handled) => handled,
            Err(_) => Handled::unknown(format!("the handler gave no answer within {:?}", self.within)),
        }
    }
}

/// Why a consumer did not start, or stopped.
#[derive(Debug)]
#[non_exhaustive]
pub enum BridgeError {
    /// The configuration cannot work.
    Config(ConfigError),
    /// The store cannot be opened.
    Store(StoreError),
    /// The source cannot be opened.
    Source(SourceError),
    /// The consumer cannot start, or cannot go on.
    Consumer(ConsumerError),
    /// The admin side cannot start.
    Admin(StartError),
}

impl fmt::Display for BridgeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Config(error) => error.fmt(f),
            Self::Store(_) => f.write_str("the store cannot be opened"),
            Self::Source(_) => f.write_str("the source cannot be opened"),
            Self::Consumer(error) => error.fmt(f),
            Self::Admin(error) => error.fmt(f),
        }
    }
}

impl Error for BridgeError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Config(error) => error.source(),
            Self::Store(error) => Some(error),
            Self::Source(error) => Some(error),
            Self::Consumer(error) => error.source(),
            Self::Admin(error) => error.source(),
        }
    }
}

impl From<ConfigError> for BridgeError {
    fn from(error: ConfigError) -> Self {
        Self::Config(error)
    }
}

impl From<SourceError> for BridgeError {
    fn from(error: SourceError) -> Self {
        Self::Source(error)
    }
}

impl From<StartError> for BridgeError {
    fn from(error: StartError) -> Self {
        Self::Admin(error)
    }
}

impl From<ConsumerError> for BridgeError {
    fn from(error: ConsumerError) -> Self {
        Self::Consumer(error)
    }
}

#[cfg(test)]
#[path = "consume/exchange_tests.rs"]
mod exchange_tests;
