//! One end of a node link: messages over a stream, and a beat in both directions, so that an end
//! that is gone or cut off is noticed within 3 s.

use std::{
    collections::VecDeque,
    io,
    sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, split},
    sync::mpsc,
    time::{MissedTickBehavior, interval, sleep, timeout},
};

use super::messages::{BadNodeMessage, MESSAGE_MAX, Message, decode, encode};
use super::pulse::Pulse;

/// Between two beats.
const BEAT: Duration = Duration::from_millis(500);

/// Beats of ours without a sign of the other end. They are counted, not timed: after a pause of the
/// whole machine no end counts as silent.
const SILENT_BEATS_MAX: u32 = 5;

/// Time for a message to leave. The other end reads all the time.
const WRITE_LIMIT: Duration = Duration::from_millis(2500);

/// Time for the last words of an end that takes none of ours any more.
const LAST_WORDS_LIMIT: Duration = Duration::from_secs(1);

/// Bytes of them: one message, and what was on its way before it.
const LAST_WORDS_BYTES: usize = 2 * MESSAGE_MAX;

/// Messages that wait for this end, or for the stream.
pub(crate) const QUEUE: usize = 256;

/// Messages that this end has taken, and has not looked at.
pub(crate) const HEARD: usize = 16;

/// Messages that wait for this end beside these.
const WAITING_MAX: usize = 2 * QUEUE;

/// Bytes of the messages that wait for this end.
const WAITING_BYTES_MAX: usize = 16 * MESSAGE_MAX;

/// Bytes of an end that is refused which are read, and thrown away.
const PART_BYTES_MAX: usize = 64 * 1024;

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

impl NodeLinkError {
    /// The other end broke the rules of one link: others of it may be well.
    pub(crate) fn is_of_one_link(&self) -> bool {
        matches!(self, Self::Flood | Self::Bad(_))
    }
}

/// Carries messages until this end drops its own side of the queues (`Ok`), or the link ends. What
/// has arrived before the end is still delivered. `pulse`: what is known of the other end
/// meanwhile; it is over when the link is.
pub(crate) async fn carry<S, Out, In>(
    stream: S,
    outgoing: mpsc::Receiver<Out>,
    incoming: mpsc::Sender<In>,
    pulse: &Pulse,
) -> Result<(), NodeLinkError>
where
    S: AsyncRead + AsyncWrite + Unpin,
    Out: Message,
    In: Message,
{
    let _over = EndsPulse(pulse);
    let (reader, writer) = split(stream);
    let (silent, is_over) = (AtomicU32::new(0), AtomicBool::new(false));
    // Bytes that may still be read.
    let left = AtomicUsize::new(usize::MAX);
    let mut waiting = Waiting::default();
    let ended = {
        let reading = read_all(reader, &incoming, &silent, &left, pulse, &mut waiting);
        tokio::pin!(reading);
        tokio::select! {
            ended = &mut reading => ended,
            ended = write_all(writer, outgoing, &silent, &is_over, pulse) => match ended {
                // The other end takes nothing any more. It may have said why before.
                Err(broken @ NodeLinkError::Broken(_)) => {
                    left.store(LAST_WORDS_BYTES, Ordering::Relaxed);
                    let last = timeout(LAST_WORDS_LIMIT, reading).await;
                    last.unwrap_or(Err(broken))
                }
                ended => ended,
            },
        }
    };
    pulse.end();
    if is_over.load(Ordering::Relaxed) {
        return Ok(());
    }
    if ended.is_err() {
        while let Some(message) = waiting.take() {
            if incoming.send(message).await.is_err() {
                break;
            }
        }
    }
    ended
}

/// Also where the link is dropped.
struct EndsPulse<'a>(&'a Pulse);

impl Drop for EndsPulse<'_> {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// `silent`: beats of ours without a sign of the other end; `is_over`: this end has said all.
async fn write_all<Out: Message>(
    mut writer: impl AsyncWrite + Unpin,
    mut outgoing: mpsc::Receiver<Out>,
    silent: &AtomicU32,
    is_over: &AtomicBool,
    pulse: &Pulse,
) -> Result<(), NodeLinkError> {
    let mut beat = interval(BEAT);
    beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
    // Since the last beat was due: an answer says as much.
    let mut has_answered = false;
    loop {
        tokio::select! {
            message = outgoing.recv() => match message {
                Some(message) => say(&mut writer, &message).await?,
                None => {
                    // What was said before has been sent; that it is over, the end tells. Until
                    // the other end has read that it is read on: a stream that ends with bytes
                    // unread is reset, and the last words may be lost.
                    is_over.store(true, Ordering::Relaxed);
                    pulse.end();
                    drop(timeout(WRITE_LIMIT, writer.shutdown()).await);
                    sleep(WRITE_LIMIT).await;
                    return Ok(());
                }
            },
            _ = beat.tick() => {
                if silent.fetch_add(1, Ordering::Relaxed) >= SILENT_BEATS_MAX {
                    return Err(NodeLinkError::Silent);
                }
                if !std::mem::take(&mut has_answered) {
                    say(&mut writer, &Out::beat(pulse.next_beat())).await?;
                }
            }
            () = pulse.came.notified(), if Out::ANSWERS_BEATS => {
                has_answered = true;
                say(&mut writer, &Out::beat(pulse.next_beat())).await?;
            }
        }
    }
}

/// `left`: bytes that it may still take; it ends where there are none. `waiting`: messages for
/// which this end has no room yet.
async fn read_all<In: Message>(
    mut reader: impl AsyncRead + Unpin,
    incoming: &mpsc::Sender<In>,
    silent: &AtomicU32,
    left: &AtomicUsize,
    pulse: &Pulse,
    waiting: &mut Waiting<In>,
) -> Result<(), NodeLinkError> {
    let mut bytes = Vec::new();
    let mut chunk = vec![0; READ_BYTES];
    loop {
        if incoming.is_closed() {
            // Nobody hears what comes.
            waiting.clear();
        }
        tokio::select! {
            room = incoming.reserve(), if !waiting.messages.is_empty() => match room {
                Ok(room) => {
                    if let Some(next) = waiting.take() {
                        room.send(next);
                    }
                }
                Err(_) => waiting.clear(),
            },
            count = reader.read(&mut chunk) => {
                let count = count?;
                let may_take = left.load(Ordering::Relaxed);
                if count == 0 || count > may_take {
                    return Err(NodeLinkError::Closed);
                }
                left.store(may_take - count, Ordering::Relaxed);
                silent.store(0, Ordering::Relaxed);
                bytes.extend_from_slice(&chunk[..count]);
                loop {
                    let before = bytes.len();
                    let Some(message) = decode::<In>(&mut bytes)? else {
                        break;
                    };
                    if let Some(beat) = message.as_beat() {
                        pulse.hear(beat);
                        continue;
                    }
                    waiting.add(message, before - bytes.len())?;
                }
            }
        }
    }
}

/// Messages for which an end has no room yet. Where one can say what two say, one does, so that an
/// end which is busy with a slow client loses nothing.
struct Waiting<In> {
    /// Each with the bytes that it came as.
    messages: VecDeque<(In, usize)>,
    bytes: usize,
}

impl<In> Default for Waiting<In> {
    fn default() -> Self {
        Self {
            messages: VecDeque::new(),
            bytes: 0,
        }
    }
}

impl<In: Message> Waiting<In> {
    /// `bytes`: that it came as.
    fn add(&mut self, message: In, bytes: usize) -> Result<(), NodeLinkError> {
        let message = match self.messages.back_mut() {
            Some((last, size)) => {
                let message = last.absorb(message);
                if message.is_none() {
                    // One message has a limit, however many it is made of.
                    let more = bytes.min(MESSAGE_MAX.saturating_sub(*size));
                    *size += more;
                    self.bytes += more;
                }
                message
            }
            None => Some(message),
        };
        if let Some(message) = message {
            self.bytes += bytes;
            self.messages.push_back((message, bytes));
        }
        match self.messages.len() > WAITING_MAX || self.bytes > WAITING_BYTES_MAX {
            true => Err(NodeLinkError::Flood),
            false => Ok(()),
        }
    }

    fn take(&mut self) -> Option<In> {
        let (message, bytes) = self.messages.pop_front()?;
        self.bytes -= bytes;
        Some(message)
    }

    fn clear(&mut self) {
        self.messages.clear();
        self.bytes = 0;
    }
}

/// The next message, which is no beat, of at most `most` bytes, and nothing behind it.
///
/// # Errors
/// The other end ends, or says what is no message, or a longer one.
pub(crate) async fn next_message<In: Message>(
    stream: &mut (impl AsyncRead + Unpin),
    most: usize,
) -> Result<In, NodeLinkError> {
    loop {
        let mut length = [0; 4];
        stream.read_exact(&mut length).await?;
        let length_bytes = usize::try_from(u32::from_be_bytes(length)).unwrap_or(usize::MAX);
        if length_bytes > most {
            return Err(BadNodeMessage::TooLong(length_bytes).into());
        }
        let mut bytes = length.to_vec();
        bytes.resize(4 + length_bytes, 0);
        stream.read_exact(&mut bytes[4..]).await?;
        let message = decode::<In>(&mut bytes)?;
        if let Some(message) = message.filter(|message| message.as_beat().is_none()) {
            return Ok(message);
        }
    }
}

/// Ends a stream so that what was said is read: one that ends with bytes unread is reset.
pub(crate) async fn part(stream: &mut (impl AsyncRead + AsyncWrite + Unpin)) {
    let parting = async {
        stream.shutdown().await?;
        let mut rest = [0; 1024];
        let mut left = PART_BYTES_MAX;
        while left > 0 {
            match stream.read(&mut rest).await? {
                0 => break,
                count => left = left.saturating_sub(count),
            }
        }
        Ok::<_, io::Error>(())
    };
    drop(timeout(WRITE_LIMIT, parting).await);
}

/// Writes one message.
pub(crate) async fn say<Out: Message>(
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

    use godwit_proto::{ByteRange, RangeSet};

    use super::*;
    use crate::nodes::messages::{Counts, FIRST_MESSAGE_MAX, NodeOrder, NodeReport, Spans};

    /// As [`carry`], for a test that does not look at the pulse.
    async fn carried<S, Out, In>(
        stream: S,
        outgoing: mpsc::Receiver<Out>,
        incoming: mpsc::Sender<In>,
    ) -> Result<(), NodeLinkError>
    where
        S: AsyncRead + AsyncWrite + Unpin,
        Out: Message,
        In: Message,
    {
        carry(stream, outgoing, incoming, &Pulse::new()).await
    }

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
            let front = tokio::spawn(carried::<_, NodeOrder, NodeReport>(
                front, of_front, to_front,
            ));
            let node = tokio::spawn(carried::<_, NodeReport, NodeOrder>(node, of_node, to_node));
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

    /// A front end sends no beats of its own beside its answers.
    #[test]
    fn an_answer_is_a_beat() {
        runtime().block_on(async {
            let (front, mut node) = tokio::io::duplex(1 << 16);
            let (_orders, of_front) = mpsc::channel(QUEUE);
            let (to_front, _reports) = mpsc::channel(QUEUE);
            tokio::spawn(carried::<_, NodeOrder, NodeReport>(
                front, of_front, to_front,
            ));
            let pulse = Pulse::new();
            let (mut bytes, mut beats) = (Vec::new(), 0);
            let asked = 8;
            for _ in 0..asked {
                say(&mut node, &NodeReport::beat(pulse.next_beat()))
                    .await
                    .unwrap();
                sleep(BEAT / 2).await;
            }
            let reading = async { while node.read_buf(&mut bytes).await.is_ok() {} };
            drop(timeout(BEAT / 4, reading).await);
            while decode::<NodeOrder>(&mut bytes).unwrap().is_some() {
                beats += 1;
            }
            // The first is due at once; of four more hardly any is sent.
            assert!((asked..asked + 3).contains(&beats), "{beats}");
        });
    }

    /// Over sockets: an end that goes with bytes unread would reset the connection.
    #[test]
    fn the_last_words_are_read() {
        runtime().block_on(async {
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
            let front = tokio::net::TcpStream::connect(listener.local_addr().unwrap());
            let (front, node) = (front.await.unwrap(), listener.accept().await.unwrap().0);
            let (orders, of_front) = mpsc::channel(QUEUE);
            let (to_front, mut reports) = mpsc::channel(QUEUE);
            let (answers, of_node) = mpsc::channel(QUEUE);
            let (to_node, mut heard) = mpsc::channel(QUEUE);
            let node = tokio::spawn(carried::<_, NodeReport, NodeOrder>(node, of_node, to_node));
            orders.try_send(NodeOrder::Abort).unwrap();
            let front = tokio::spawn(carried::<_, NodeOrder, NodeReport>(
                front, of_front, to_front,
            ));
            heard.recv().await.unwrap();
            let why = "enough".to_owned();
            answers.try_send(NodeReport::Refused { why }).unwrap();
            drop((answers, heard));
            for _ in 0..100 {
                // The front end goes on until it hears that.
                let _ = orders.try_send(NodeOrder::Abort);
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            let last = reports.recv().await;
            assert!(matches!(last, Some(NodeReport::Refused { .. })), "{last:?}");
            assert!(matches!(front.await.unwrap(), Err(NodeLinkError::Closed)));
            assert!(node.await.unwrap().is_ok());
        });
    }

    /// A stream into which no byte goes, and the other end of what is read from it.
    fn read_only() -> (impl AsyncRead + AsyncWrite + Unpin, tokio::io::DuplexStream) {
        let (reader, other) = tokio::io::duplex(1 << 20);
        let (writer, gone) = tokio::io::duplex(1);
        drop(gone);
        (tokio::io::join(reader, writer), other)
    }

    #[test]
    fn last_words_are_read_when_nothing_can_be_said_any_more() {
        runtime().block_on(async {
            let (front, mut other) = read_only();
            let (_orders, of_front) = mpsc::channel(QUEUE);
            let (to_front, mut reports) = mpsc::channel(QUEUE);
            let front = tokio::spawn(carried::<_, NodeOrder, NodeReport>(
                front, of_front, to_front,
            ));
            // The first beat has failed when this comes.
            tokio::time::sleep(LAST_WORDS_LIMIT / 4).await;
            let why = "enough".to_owned();
            let last = encode(&NodeReport::Refused { why }).unwrap();
            other.write_all(&last).await.unwrap();
            drop(other);
            let last = reports.recv().await;
            assert!(matches!(last, Some(NodeReport::Refused { .. })), "{last:?}");
            assert!(matches!(front.await.unwrap(), Err(NodeLinkError::Closed)));
        });
    }

    #[test]
    fn last_words_have_a_limit_of_time_and_of_bytes() {
        runtime().block_on(async {
            for talks in [false, true] {
                let (front, mut other) = read_only();
                let (_orders, of_front) = mpsc::channel(QUEUE);
                let (to_front, _) = mpsc::channel(QUEUE);
                let carrying = carried::<_, NodeOrder, NodeReport>(front, of_front, to_front);
                let talking = async {
                    let beats = encode(&NodeReport::beat(Pulse::new().next_beat()))
                        .unwrap()
                        .repeat(1000);
                    let mut said = 0;
                    while talks && other.write_all(&beats).await.is_ok() {
                        said += beats.len();
                        // The other end has its turn.
                        tokio::task::yield_now().await;
                    }
                    if !talks {
                        std::future::pending::<()>().await;
                    }
                    said
                };
                let ended = tokio::select! {
                    biased;
                    ended = carrying => ended,
                    said = talking => panic!("it ended after {said} bytes without a word"),
                };
                match talks {
                    false => assert!(matches!(ended, Err(NodeLinkError::Broken(_))), "{ended:?}"),
                    true => assert!(matches!(ended, Err(NodeLinkError::Closed)), "{ended:?}"),
                }
            }
        });
    }

    #[test]
    fn silence_ends_a_link() {
        runtime().block_on(async {
            let (front, _held) = tokio::io::duplex(100_000);
            let (_orders, of_front) = mpsc::channel(QUEUE);
            let (to_front, _reports) = mpsc::channel(QUEUE);
            let ended = carried::<_, NodeOrder, NodeReport>(front, of_front, to_front).await;
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
            let ended = carried::<_, NodeOrder, NodeReport>(front, of_front, to_front).await;
            assert!(matches!(ended, Err(NodeLinkError::Silent)), "{ended:?}");
        });
    }

    /// Ready and progress, as many as fill no queue, and the end.
    #[test]
    fn an_end_that_is_busy_loses_no_end_of_a_transfer() {
        runtime().block_on(async {
            let (front, mut other) = tokio::io::duplex(1 << 20);
            let (orders, of_front) = mpsc::channel(QUEUE);
            let (to_front, mut reports) = mpsc::channel(1);
            let front = tokio::spawn(carried::<_, NodeOrder, NodeReport>(
                front, of_front, to_front,
            ));
            for bytes in 0..3 * QUEUE as u64 {
                let progress = NodeReport::Progress {
                    transfer: 1,
                    counts: Counts {
                        bytes,
                        ..Counts::default()
                    },
                    fresh: Spans::of(&[ByteRange {
                        start: bytes,
                        end: bytes + 1,
                    }]),
                };
                other.write_all(&encode(&progress).unwrap()).await.unwrap();
            }
            let last = NodeReport::Ready {
                transfer: 1,
                reused: false,
            };
            other.write_all(&encode(&last).unwrap()).await.unwrap();
            drop(other);
            let (mut safe, mut last) = (RangeSet::new(), 0);
            loop {
                match reports.recv().await {
                    Some(NodeReport::Progress { counts, fresh, .. }) => {
                        last = counts.bytes;
                        safe.union_with(&fresh.ranges().into_iter().collect());
                    }
                    Some(NodeReport::Ready { .. }) => break,
                    other => panic!("{other:?}"),
                }
            }
            assert_eq!(last, 3 * QUEUE as u64 - 1);
            let whole = ByteRange {
                start: 0,
                end: 3 * QUEUE as u64,
            };
            assert_eq!(safe.iter().collect::<Vec<_>>(), [whole]);
            drop(orders);
            assert!(front.await.unwrap().is_err());
        });
    }

    #[test]
    fn a_flood_is_a_fault_of_one_link() {
        runtime().block_on(async {
            let (front, mut other) = tokio::io::duplex(1 << 20);
            let (_orders, of_front) = mpsc::channel(QUEUE);
            let (to_front, mut reports) = mpsc::channel(1);
            let flood = encode(&NodeReport::Noted).unwrap().repeat(WAITING_MAX + 2);
            other.write_all(&flood).await.unwrap();
            let front = tokio::spawn(carried::<_, NodeOrder, NodeReport>(
                front, of_front, to_front,
            ));
            while reports.recv().await.is_some() {}
            let error = front.await.unwrap().unwrap_err();
            assert!(matches!(error, NodeLinkError::Flood), "{error:?}");
            assert!(error.is_of_one_link() && !NodeLinkError::Silent.is_of_one_link());
        });
    }

    /// Few messages, but large ones.
    #[test]
    fn bytes_that_wait_have_a_limit() {
        runtime().block_on(async {
            let (front, mut other) = tokio::io::duplex(1 << 20);
            let (_orders, of_front) = mpsc::channel(QUEUE);
            let (to_front, mut reports) = mpsc::channel(1);
            let why = "x".repeat(MESSAGE_MAX / 2);
            let large = encode(&NodeReport::Refused { why }).unwrap();
            let count = 2 * WAITING_BYTES_MAX / MESSAGE_MAX + 3;
            assert!(count < QUEUE);
            let front = tokio::spawn(carried::<_, NodeOrder, NodeReport>(
                front, of_front, to_front,
            ));
            for _ in 0..count {
                // It may be over before the last.
                let _ = other.write_all(&large).await;
            }
            while reports.recv().await.is_some() {}
            let error = front.await.unwrap().unwrap_err();
            assert!(matches!(error, NodeLinkError::Flood), "{error:?}");
        });
    }

    /// Reports on progress become one, which has the limit of one.
    #[test]
    fn progress_that_waits_for_long_is_no_flood() {
        let mut waiting = Waiting::default();
        for bytes in 0..1000 {
            let counts = Counts {
                bytes,
                ..Counts::default()
            };
            let progress = NodeReport::Progress {
                transfer: 1,
                counts,
                fresh: Spans::default(),
            };
            waiting.add(progress, MESSAGE_MAX / 3).unwrap();
        }
        assert!(waiting.bytes <= MESSAGE_MAX && waiting.messages.len() == 1);
        assert!(waiting.take().is_some() && waiting.take().is_none());
        assert_eq!(waiting.bytes, 0);
    }

    /// Both ends have more to say than the stream holds.
    #[test]
    fn ends_that_both_write_read_meanwhile() {
        runtime().block_on(async {
            let (front, node) = tokio::io::duplex(64);
            let (orders, of_front) = mpsc::channel(QUEUE);
            let (to_front, mut reports) = mpsc::channel(QUEUE);
            let (answers, of_node) = mpsc::channel(QUEUE);
            let (to_node, mut heard) = mpsc::channel(QUEUE);
            for _ in 0..20 {
                let name = "x".repeat(1000);
                orders.try_send(NodeOrder::Look { name }).unwrap();
                let why = "y".repeat(1000);
                answers.try_send(NodeReport::Refused { why }).unwrap();
            }
            tokio::spawn(carried::<_, NodeOrder, NodeReport>(
                front, of_front, to_front,
            ));
            tokio::spawn(carried::<_, NodeReport, NodeOrder>(node, of_node, to_node));
            for _ in 0..20 {
                assert!(matches!(heard.recv().await, Some(NodeOrder::Look { .. })));
                let report = reports.recv().await;
                assert!(matches!(report, Some(NodeReport::Refused { .. })));
            }
        });
    }

    #[test]
    fn someone_unknown_has_four_kilobytes_for_a_first_message() {
        runtime().block_on(async {
            let said = async |order: &NodeOrder| {
                let (mut node, mut other) = tokio::io::duplex(1 << 20);
                say(&mut other, &NodeOrder::beat(Pulse::new().next_beat()))
                    .await
                    .unwrap();
                say(&mut other, order).await.unwrap();
                drop(other);
                next_message::<NodeOrder>(&mut node, FIRST_MESSAGE_MAX).await
            };
            let hello = said(&NodeOrder::Hello { version: 7 }).await;
            assert!(matches!(hello, Ok(NodeOrder::Hello { version: 7 })));
            let name = "x".repeat(FIRST_MESSAGE_MAX);
            let long = said(&NodeOrder::Look { name }).await;
            assert!(matches!(long, Err(NodeLinkError::Bad(_))), "{long:?}");
            let nothing = said(&NodeOrder::beat(Pulse::new().next_beat())).await;
            assert!(matches!(nothing, Err(NodeLinkError::Broken(_))));
        });
    }

    #[test]
    fn what_is_no_message_ends_a_link() {
        runtime().block_on(async {
            let (front, mut other) = tokio::io::duplex(1000);
            let (_orders, of_front) = mpsc::channel(QUEUE);
            let (to_front, _reports) = mpsc::channel(QUEUE);
            other.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
            let ended = carried::<_, NodeOrder, NodeReport>(front, of_front, to_front).await;
            assert!(matches!(ended, Err(NodeLinkError::Bad(_))), "{ended:?}");
        });
    }
}
