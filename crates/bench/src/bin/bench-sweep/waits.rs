//! How long anybody waits for another transaction in `PostgreSQL`, looked at many times a second.

use std::time::Duration;

use tokio_postgres::NoTls;

use crate::Result;

/// How often it is looked: a wait is seen unless it is shorter than this.
pub(crate) const LOOK_EVERY: Duration = Duration::from_millis(20);

const LONGEST: &str = "SELECT coalesce(max(extract(epoch FROM clock_timestamp() - waitstart)), 0)::float8 \
                       FROM pg_locks WHERE NOT granted";

/// Looks until it is dropped.
#[derive(Debug)]
pub(crate) struct Waits {
    longest: tokio::sync::watch::Receiver<Result<Duration>>,
    task: tokio::task::JoinHandle<()>,
}

impl Waits {
    pub(crate) async fn look(url: &str) -> Result<Self> {
        let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
        tokio::spawn(connection);
        let statement = client.prepare(LONGEST).await?;
        let (tell, longest) = tokio::sync::watch::channel(Ok(Duration::ZERO));
        let task = tokio::spawn(async move {
            let mut every = tokio::time::interval(LOOK_EVERY);
            loop {
                every.tick().await;
                match client.query_one(&statement, &[]).await {
                    Ok(row) => {
                        let seen = Duration::from_secs_f64(row.get::<_, f64>(0).max(0.0));
                        tell.send_modify(|longest| {
                            if let Ok(longest) = longest {
                                *longest = seen.max(*longest);
                            }
                        });
                    }
                    Err(error) => return drop(tell.send(Err(error.into()))),
                }
            }
        });
        Ok(Self { longest, task })
    }

    /// The longest wait that was seen.
    pub(crate) fn longest(&self) -> Result<Duration> {
        match &*self.longest.borrow() {
            Ok(longest) => Ok(*longest),
            Err(error) => Err(format!("looking at waits: {error}").into()),
        }
    }
}

impl Drop for Waits {
    fn drop(&mut self) {
        self.task.abort();
    }
}
