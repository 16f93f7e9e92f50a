//! The little of Redis' protocol that is needed: commands of many callers in one stream, answers in the same order.

use std::io::{Error, ErrorKind, Result as IoResult, Write as _};
use std::path::Path;

use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{mpsc, oneshot};

use crate::Result;

/// The most commands that are sent with one write.
const WRITE_MAX: usize = 1024;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Reply {
    Ok,
    Nothing,
    Number(i64),
    Bytes(Vec<u8>),
}

type Answer = oneshot::Sender<Result<Reply>>;

pub(super) struct Connection {
    commands: mpsc::UnboundedSender<(Vec<u8>, Answer)>,
}

impl Connection {
    pub(super) async fn open(socket: &Path) -> Result<Self> {
        let (read, write) = UnixStream::connect(socket).await?.into_split();
        let (commands, queue) = mpsc::unbounded_channel();
        let (asked, answers) = mpsc::unbounded_channel();
        // Both end with the stream, or when nobody can ask any more. Whoever waits then sees that nobody answers.
        tokio::spawn(async move { drop(send(write, queue, asked).await) });
        tokio::spawn(async move { drop(receive(BufReader::new(read), answers).await) });
        Ok(Self { commands })
    }

    pub(super) async fn ask(&self, parts: &[&[u8]]) -> Result<Reply> {
        let (answer, answered) = oneshot::channel();
        self.commands.send((encoded(parts), answer)).map_err(|_| "the connection is closed")?;
        answered.await.map_err(|_| "the connection was closed")?
    }
}

fn encoded(parts: &[&[u8]]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(parts.iter().map(|part| part.len() + 16).sum());
    // Writing to memory cannot fail.
    let _ = write!(bytes, "*{}\r\n", parts.len());
    for part in parts {
        let _ = write!(bytes, "${}\r\n", part.len());
        bytes.extend_from_slice(part);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}

async fn send(
    mut stream: OwnedWriteHalf,
    mut queue: mpsc::UnboundedReceiver<(Vec<u8>, Answer)>,
    asked: mpsc::UnboundedSender<Answer>,
) -> IoResult<()> {
    let mut commands = Vec::new();
    while queue.recv_many(&mut commands, WRITE_MAX).await > 0 {
        let mut bytes = Vec::new();
        for (command, answer) in commands.drain(..) {
            bytes.extend_from_slice(&command);
            // If nobody reads answers any more, whoever waits for this one sees it dropped.
            let _ = asked.send(answer);
        }
        stream.write_all(&bytes).await?;
    }
    Ok(())
}

async fn receive(
    mut stream: BufReader<OwnedReadHalf>,
    mut answers: mpsc::UnboundedReceiver<Answer>,
) -> IoResult<()> {
    while let Some(answer) = answers.recv().await {
        let reply = read_reply(&mut stream).await?;
        // Whoever asked may be gone.
        drop(answer.send(reply.map_err(Into::into)));
    }
    Ok(())
}

/// One answer; an error that the server sent is the inner one.
async fn read_reply(stream: &mut BufReader<OwnedReadHalf>) -> IoResult<std::result::Result<Reply, String>> {
    let mut line = String::new();
    stream.read_line(&mut line).await?;
    let (kind, rest) = line.trim_end().split_at_checked(1).ok_or(ErrorKind::UnexpectedEof)?;
    let number = || rest.parse::<i64>().map_err(Error::other);
    Ok(match kind {
        "+" => Ok(Reply::Ok),
        "-" => Err(rest.to_owned()),
        ":" => Ok(Reply::Number(number()?)),
        "$" => match usize::try_from(number()?) {
            // A negative length stands for nothing.
            Err(_) => Ok(Reply::Nothing),
            Ok(len) => {
                let mut bytes = vec![0; len + 2];
                stream.read_exact(&mut bytes).await?;
                bytes.truncate(len);
                Ok(Reply::Bytes(bytes))
            }
        },
        _ => return Err(Error::other("not an answer")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_written_with_the_length_of_each_part() {
        assert_eq!(encoded(&[b"GET", b"a\r\nb"]), b"*2\r\n$3\r\nGET\r\n$4\r\na\r\nb\r\n");
    }
}
