//! Where a server is: at an address, or wherever the Sentinels say that the master is.

use std::time::Duration;

use onlyonce_core::StoreError;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, ConnectionInfo, Value, cmd};

use crate::error;
use crate::target::moved_to;

const DOING: &str = "asking the Sentinels for the master";

/// Where a server is.
#[derive(Debug, Clone)]
pub(crate) enum Place {
    At(ConnectionInfo),
    Led { sentinels: Vec<ConnectionInfo>, name: String, like: ConnectionInfo },
}

impl Place {
    /// The address to connect to now. Sentinels are asked each time: the master may be another one.
    pub(super) async fn find(&self, within: Duration) -> Result<ConnectionInfo, StoreError> {
        let (sentinels, name, like) = match self {
            Self::At(info) => return Ok(info.clone()),
            Self::Led { sentinels, name, like } => (sentinels, name, like),
        };
        let mut answers = Vec::new();
        for sentinel in sentinels {
            match ask(sentinel, name, within).await {
                Ok((host, port)) => return Ok(moved_to(like, &host, port)),
                Err(why) => answers.push(format!("{}: {why}", sentinel.addr())),
            }
        }
        Err(error::unreachable(
            &format!("no Sentinel named a master `{name}` ({})", answers.join("; ")),
            DOING,
        ))
    }
}

async fn ask(sentinel: &ConnectionInfo, name: &str, within: Duration) -> Result<(String, u16), String> {
    let mut connection = super::connect_once(sentinel, within).await?;
    let mut question = cmd("SENTINEL");
    question.arg("get-master-addr-by-name").arg(name);
    match connection.send_packed_command(&question).await.map_err(|error| error.to_string())? {
        Value::Array(parts) => {
            let text = |at: usize| match parts.get(at) {
                Some(Value::BulkString(bytes)) => String::from_utf8(bytes.clone()).ok(),
                _ => None,
            };
            let port = text(1).and_then(|port| port.parse().ok());
            text(0).zip(port).ok_or_else(|| "an address of an unknown form".to_owned())
        }
        Value::Nil => Err("it knows no master of this name".to_owned()),
        _ => Err("an answer of an unknown form".to_owned()),
    }
}

/// Connects within `within`. How long answers may take is the configuration's.
pub(super) async fn connect(
    info: &ConnectionInfo,
    config: AsyncConnectionConfig,
    within: Duration,
) -> Result<MultiplexedConnection, String> {
    let config = config.set_connection_timeout(Some(within)).set_pipeline_buffer_size(1024);
    let client = Client::open(info.clone()).map_err(|error| error.to_string())?;
    client.get_multiplexed_async_connection_with_config(&config).await.map_err(|error| error.to_string())
}
