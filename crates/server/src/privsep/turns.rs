//! Turns for the checksums of sessions in processes of their own.
//!
//! ```text
//!   session ── TurnWanted ──► monitor: waits in the queue of the whole server
//!           ◄── one byte ────         by a pipe: other answers must not wait behind a turn
//!           ── TurnEnded ───►         the next session has its turn
//! ```
//! The monitor does not trust the session: a session has one turn at a time, and it takes it
//! back after [`TURN_MAX`] and when the session has ended.

use std::{
    io,
    os::fd::{AsFd as _, OwnedFd},
    sync::Arc,
    time::Duration,
};

use rustix::pipe::{PipeFlags, pipe_with};
use tokio::{
    io::AsyncReadExt as _,
    net::unix::pipe,
    sync::{mpsc, oneshot},
    time::sleep,
};

use super::{
    link::{ChildEnd, LinkError},
    messages::FromSession,
};
use crate::access::turns::{AccountTurns, Turn, TurnRequest};

/// Longest turn of a session: many times what a step of a checksum takes
/// (`engine::digest`). A session that needs longer waits for a slow disk, or an attacker has
/// taken it over: the next session does not wait for it.
const TURN_MAX: Duration = Duration::from_millis(500);

/// The monitor's side, one for each session.
pub(super) struct TurnGrants {
    turns: AccountTurns,
    granted: Arc<OwnedFd>,
    /// While the session wants a turn or has it. Dropping this ends either.
    outstanding: Option<oneshot::Sender<()>>,
}

impl TurnGrants {
    /// Also the session's end of the pipe.
    pub(super) fn new(turns: AccountTurns) -> io::Result<(Self, OwnedFd)> {
        let (receiver, granted) = pipe_with(PipeFlags::CLOEXEC)?;
        // A session that does not read must not stop the monitor.
        rustix::io::ioctl_fionbio(&granted, true)?;
        let grants = Self {
            turns,
            granted: Arc::new(granted),
            outstanding: None,
        };
        Ok((grants, receiver))
    }

    /// The session wants a turn. `None`: it must not, because it has asked before.
    pub(super) fn wanted(&mut self) -> Option<()> {
        if self.outstanding.is_some() {
            return None;
        }
        let (sender, ended) = oneshot::channel();
        self.outstanding = Some(sender);
        // A task of its own: whatever else the session asks for, its turn ends in time.
        tokio::spawn(grant(self.turns.clone(), Arc::clone(&self.granted), ended));
        Some(())
    }

    /// The session needs no turn any more. `None`: it has asked for none.
    pub(super) fn ended(&mut self) -> Option<()> {
        self.outstanding.take().map(drop)
    }
}

/// Gives one turn, and takes it back when it has ended, at the latest after [`TURN_MAX`].
async fn grant(turns: AccountTurns, granted: Arc<OwnedFd>, mut ended: oneshot::Receiver<()>) {
    let turn = tokio::select! {
        turn = turns.next() => turn,
        _ = &mut ended => return,
    };
    // A session that is gone, or has left thousands of bytes unread, needs no turn.
    if rustix::io::write(granted.as_fd(), &[0]).is_ok() {
        tokio::select! {
            _ = ended => {}
            () = sleep(TURN_MAX) => {}
        }
    }
    drop(turn);
}

/// The session's side: gets a turn for each of `requests`, one after the other. Ends where the
/// monitor is gone.
pub(super) async fn fetch(
    link: &ChildEnd,
    granted: OwnedFd,
    mut requests: mpsc::Receiver<TurnRequest>,
) -> Result<(), LinkError> {
    let mut granted = pipe::Receiver::from_owned_fd(granted)?;
    while let Some(request) = requests.recv().await {
        if request.is_closed() {
            continue;
        }
        link.send(&FromSession::TurnWanted)?;
        granted.read_u8().await?;
        let (turn, ended) = Turn::of_monitor();
        // If the request was dropped meanwhile, the turn ends at once.
        drop(request.send(turn));
        // An error says that it was dropped, which is its end.
        let _ = ended.await;
        link.send(&FromSession::TurnEnded)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::future::ready;

    use tokio::task::yield_now;

    use super::*;
    use crate::access::turns::Turns;

    #[tokio::test]
    async fn a_turn_that_is_never_given_back_is_taken_back() {
        let turns = Turns::new(1);
        let (mut hostile, receiver) = TurnGrants::new(turns.of("eve")).unwrap();
        hostile.wanted().unwrap();
        assert_eq!(hostile.wanted(), None, "one at a time");
        let mut receiver = pipe::Receiver::from_owned_fd(receiver).unwrap();
        receiver.read_u8().await.expect("a turn is a byte");
        drop(turns.of("jo").next().await);
        hostile.ended().unwrap();
        assert_eq!(hostile.ended(), None, "there is none");
    }

    #[tokio::test]
    async fn turns_of_a_session_that_has_ended_are_passed_on() {
        let turns = Turns::new(1);
        let jo = turns.of("jo");
        let first = jo.next().await;
        let mut waiting = Vec::new();
        for _ in 0..3 {
            let (mut gone, _receiver) = TurnGrants::new(turns.of("eve")).unwrap();
            gone.wanted().unwrap();
            waiting.push(gone);
        }
        yield_now().await;
        waiting.clear();
        drop(first);
        yield_now().await;
        tokio::select! {
            biased;
            _turn = jo.next() => {}
            () = ready(()) => panic!("a turn waits for sessions that are gone"),
        }
    }
}
