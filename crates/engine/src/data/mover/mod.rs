//! A mover: one OS thread with its own event loop that serves its data channels and their storage.
//!
//! A thread and not a task: the kernel shares CPU time by thread, so on a busy machine a transfer
//! with more movers gets more of it (Balaprakash 2016 §IV-A).

pub(crate) mod commands;
pub(crate) mod connect;
pub(crate) mod event_loop;

use std::{io, sync::Arc};

use mio::Poll;

use crate::data::mover::{
    commands::{MoverCommand, MoverShared},
    event_loop::EventLoop,
};

/// Handle of one mover thread; clones share it. The thread ends when the last handle and the last
/// set on it are gone.
#[derive(Clone)]
pub struct Mover(Arc<Alive>);

struct Alive(Arc<MoverShared>);

impl Drop for Alive {
    fn drop(&mut self) {
        self.0.give(MoverCommand::Stop);
    }
}

impl Mover {
    /// Starts a thread. Fails where the system gives no thread or epoll descriptor.
    pub fn spawn(name: &str) -> io::Result<Self> {
        let poll = Poll::new()?;
        let shared = Arc::new(MoverShared::new(&poll)?);
        let event_loop = EventLoop::new(poll, Arc::clone(&shared));
        std::thread::Builder::new()
            .name(name.into())
            .spawn(move || event_loop.run())?;
        Ok(Self(Arc::new(Alive(shared))))
    }

    pub(crate) fn shared(&self) -> Arc<MoverShared> {
        Arc::clone(&self.0.0)
    }
}
