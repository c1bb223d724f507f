//! One end of a node link: messages over a stream, and a beat in both directions, so that an end
//! that is gone or cut off is noticed within 3 s.

use std::{io, time::Duration};

use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, split},
    sync::mpsc,
    time::{MissedTickBehavior, interval, timeout},
};

use super::messages::{BadNodeMessage, Message, decode, encode};

/// Between two beats.
const BEAT: Duration = Duration::from_millis(500);

/// Beats of ours without a sign of the other end. They are counted, not timed: after a pause of the
/// whole machine no end counts as silent.
const SILENT_BEATS_MAX: u32 = 5;

/// Time for a message to leave. The other end reads all the time.
const WRITE_LIMIT: Duration = Duration::from_millis(2500);

/// Messages that wait for this end, or for the stream.
pub(crate) const QUEUE: usize = 256;

/// Bytes taken from the stream at a time.
const READ_BYTES: usize = 16 * 1024;

/// Why a link ended.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NodeLinkError {
    #[error("it closed the link")]
    Closed,
    #[error("the link broke: {0}")]
    Broken(#[from] io::Error),
    #[error("it does not answer for {} s", (BEAT * SILENT_BEATS_MAX).as_secs_f64())]
    Silent,
    #[error(transparent)]
    Bad(#[from] BadNodeMessage),
    #[error("it sends more than is wanted")]
    Flood,
}

/// Carries messages until this end drops its own side of the queues (`Ok`), or the link ends.
pub(crate) async fn carry<S, Out, In>(
    stream: S,
    mut outgoing: mpsc::Receiver<Out>,
    incoming: mpsc::Sender<In>,
) -> Result<(), NodeLinkError>
where
    S: AsyncRead + AsyncWrite + Unpin,
    Out: Message,
    In: Message,
{
    let (mut reader, mut writer) = split(stream);
    let mut beat = interval(BEAT);
    beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut silent = 0;
    let mut bytes = Vec::new();
    let mut chunk = vec![0; READ_BYTES];
    loop {
        tokio::select! {
            count = reader.read(&mut chunk) => {
                let count = count?;
                if count == 0 {
                    return Err(NodeLinkError::Closed);
                }
                silent = 0;
                bytes.extend_from_slice(&chunk[..count]);
                while let Some(message) = decode::<In>(&mut bytes)? {
                    if message.is_beat() {
                        continue;
                    }
                    match incoming.try_send(message) {
                        Ok(()) => {}
                        Err(mpsc::error::TrySendError::Full(_)) => return Err(NodeLinkError::Flood),
                        Err(mpsc::error::TrySendError::Closed(_)) => return Ok(()),
                    }
                }
            }
            message = outgoing.recv() => match message {
                Some(message) => write(&mut writer, &message).await?,
                None => {
                    // What was said before has been sent; that it is over, the end tells.
                    drop(timeout(WRITE_LIMIT, writer.shutdown()).await);
                    return Ok(());
                }
            },
            _ = beat.tick() => {
                silent += 1;
                if silent > SILENT_BEATS_MAX {
                    return Err(NodeLinkError::Silent);
                }
                write(&mut writer, &Out::beat()).await?;
            }
        }
    }
}

async fn write<Out: Message>(
    writer: &mut (impl AsyncWrite + Unpin),
    message: &Out,
) -> Result<(), NodeLinkError> {
    let bytes = encode(message)?;
    let written = async {
        writer.write_all(&bytes).await?;
        writer.flush().await
    };
    match timeout(WRITE_LIMIT, written).await {
        Ok(written) => Ok(written?),
        Err(_) => Err(NodeLinkError::Silent),
    }
}

#[cfg(test)]
mod tests {

    use super::*;
    use crate::nodes::messages::{NodeOrder, NodeReport};

    fn runtime() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap()
    }

    #[test]
    fn messages_come_in_order_and_beats_keep_an_idle_link() {
        runtime().block_on(async {
            let (front, node) = tokio::io::duplex(1000);
            let (orders, of_front) = mpsc::channel(QUEUE);
            let (to_front, mut reports) = mpsc::channel(QUEUE);
            let (answers, of_node) = mpsc::channel(QUEUE);
            let (to_node, mut heard) = mpsc::channel(QUEUE);
            let front = tokio::spawn(carry::<_, NodeOrder, NodeReport>(front, of_front, to_front));
            let node = tokio::spawn(carry::<_, NodeReport, NodeOrder>(node, of_node, to_node));
            orders.send(NodeOrder::Hello { version: 1 }).await.unwrap();
            orders.send(NodeOrder::Drop).await.unwrap();
            assert!(matches!(
                heard.recv().await,
                Some(NodeOrder::Hello { version: 1 })
            ));
            assert!(matches!(heard.recv().await, Some(NodeOrder::Drop)));
            tokio::time::sleep(Duration::from_secs(4)).await;
            answers.send(NodeReport::Noted).await.unwrap();
            assert!(matches!(reports.recv().await, Some(NodeReport::Noted)));
            drop(orders);
            assert!(front.await.unwrap().is_ok());
            assert!(matches!(node.await.unwrap(), Err(NodeLinkError::Closed)));
        });
    }

    #[test]
    fn silence_ends_a_link() {
        runtime().block_on(async {
            let (front, _held) = tokio::io::duplex(100_000);
            let (_orders, of_front) = mpsc::channel(QUEUE);
            let (to_front, _reports) = mpsc::channel(QUEUE);
            let ended = carry::<_, NodeOrder, NodeReport>(front, of_front, to_front).await;
            assert!(matches!(ended, Err(NodeLinkError::Silent)), "{ended:?}");
        });
    }

    #[test]
    fn an_end_that_does_not_read_is_no_longer_waited_for() {
        runtime().block_on(async {
            let (front, _held) = tokio::io::duplex(10);
            let (orders, of_front) = mpsc::channel(QUEUE);
            let (to_front, _reports) = mpsc::channel(QUEUE);
            orders.send(NodeOrder::Abort).await.unwrap();
            let ended = carry::<_, NodeOrder, NodeReport>(front, of_front, to_front).await;
            assert!(matches!(ended, Err(NodeLinkError::Silent)), "{ended:?}");
        });
    }

    #[test]
    fn what_is_no_message_ends_a_link() {
        runtime().block_on(async {
            let (front, mut other) = tokio::io::duplex(1000);
            let (_orders, of_front) = mpsc::channel(QUEUE);
            let (to_front, _reports) = mpsc::channel(QUEUE);
            other.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
            let ended = carry::<_, NodeOrder, NodeReport>(front, of_front, to_front).await;
            assert!(matches!(ended, Err(NodeLinkError::Bad(_))), "{ended:?}");
        });
    }
}
