//! The terminal while a screen is shown, restored in every case; and its keys.

use std::{
    io::{self, IsTerminal, Stderr},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use parking_lot::{Mutex, MutexGuard};

use crossterm::{
    event::{self, Event as Input, KeyCode, KeyEvent, KeyEventKind, KeyModifiers},
    execute,
    terminal::{EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode},
};
use ratatui::{Frame, Terminal, backend::CrosstermBackend};
use rustix::process::{Signal, getpid, kill_process};

use super::{draw, history::TransferHistory};
use crate::{
    error::{Error, Result},
    report::{events::Event, progress::Snapshot},
};

/// Time between two polls of the keyboard.
const KEY_POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Lines that are printed after the screen.
const LINES_MAX: usize = 1000;

const KEYS: &str = "q: end in good order; twice: at once";

/// The terminal shows the screen.
static TAKEN: AtomicBool = AtomicBool::new(false);

/// The action of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Key {
    End,
    Up,
    Down,
    Other,
}

/// The terminal behind standard error, as long as this lives.
pub(crate) struct RawTerminal {
    terminal: Terminal<CrosstermBackend<Stderr>>,
}

impl RawTerminal {
    /// # Errors
    /// Standard error is no terminal, or one that cannot be drawn on.
    pub(crate) fn new() -> Result<Self> {
        if !io::stderr().is_terminal() {
            return Err(Error::Usage(
                "a screen needs a terminal, and standard error is none".to_owned(),
            ));
        }
        let take = || {
            enable_raw_mode()?;
            TAKEN.store(true, Ordering::Relaxed);
            execute!(io::stderr(), EnterAlternateScreen)?;
            Terminal::new(CrosstermBackend::new(io::stderr()))
        };
        match take() {
            Ok(terminal) => Ok(Self { terminal }),
            Err(error) => {
                give_back();
                Err(Error::local("draw on the terminal".to_owned(), &error))
            }
        }
    }

    pub(crate) fn draw(&mut self, picture: impl FnOnce(&mut Frame<'_>)) {
        // A terminal that is gone needs no screen.
        let _ = self.terminal.draw(picture);
    }
}

impl Drop for RawTerminal {
    fn drop(&mut self) {
        give_back();
    }
}

/// Restores the terminal, before the process ends. May be called more than once.
pub fn give_back() {
    if TAKEN.swap(false, Ordering::Relaxed) {
        // The error cannot be reported.
        let _ = execute!(io::stderr(), LeaveAlternateScreen);
        let _ = disable_raw_mode();
    }
}

/// The next key, if one comes soon.
pub(crate) fn key() -> io::Result<Option<Key>> {
    if !event::poll(KEY_POLL_INTERVAL)? {
        return Ok(None);
    }
    let Input::Key(KeyEvent {
        code,
        modifiers,
        kind: KeyEventKind::Press,
        ..
    }) = event::read()?
    else {
        return Ok(None);
    };
    Ok(Some(match code {
        KeyCode::Char('c') if modifiers.contains(KeyModifiers::CONTROL) => Key::End,
        KeyCode::Char('q') | KeyCode::Esc => Key::End,
        KeyCode::Up | KeyCode::Char('k') => Key::Up,
        KeyCode::Down | KeyCode::Char('j') => Key::Down,
        _ => Key::Other,
    }))
}

/// `--tui`: one transfer on the whole terminal.
pub struct Screen {
    shown: Mutex<ScreenState>,
    over: Arc<AtomicBool>,
}

struct ScreenState {
    /// Until the end of the transfer.
    taken: Option<RawTerminal>,
    history: TransferHistory,
    began: Instant,
    /// Lines to print when the terminal is restored.
    lines: Vec<String>,
}

impl Screen {
    /// Takes the terminal. In raw mode the interrupt key arrives as a key.
    ///
    /// # Errors
    /// Standard error is no terminal, or one that cannot be drawn on.
    pub fn new() -> Result<Self> {
        let over = Arc::new(AtomicBool::new(false));
        let shown = Mutex::new(ScreenState {
            taken: Some(RawTerminal::new()?),
            history: TransferHistory::default(),
            began: Instant::now(),
            lines: Vec::new(),
        });
        let ended = Arc::clone(&over);
        thread::spawn(move || {
            while !ended.load(Ordering::Relaxed) {
                match key() {
                    Ok(Some(Key::End)) => {
                        // It is there.
                        let _ = kill_process(getpid(), Signal::INT);
                    }
                    Ok(_) => {}
                    Err(_) => return,
                }
            }
        });
        Ok(Self { shown, over })
    }

    /// Something happened.
    pub fn on_event(&self, event: &Event) {
        self.shown().history.on_event(event);
    }

    /// Draws; `None` restores the terminal and returns the lines to print.
    pub fn show(&self, progress: Option<&Snapshot>) -> Vec<String> {
        let mut shown = self.shown();
        let ScreenState {
            taken,
            history,
            began,
            lines,
        } = &mut *shown;
        match (progress, taken.as_mut()) {
            (Some(now), Some(taken)) => {
                history.on_progress(now, began.elapsed().as_secs_f64());
                taken.draw(|frame| draw::one(frame, frame.area(), history, KEYS));
                Vec::new()
            }
            _ => {
                self.over.store(true, Ordering::Relaxed);
                *taken = None;
                std::mem::take(lines)
            }
        }
    }

    /// Keeps a line until the terminal is restored; after that returns it for printing.
    pub fn keep(&self, line: String) -> Option<String> {
        let mut shown = self.shown();
        if shown.taken.is_none() {
            return Some(line);
        }
        if shown.lines.len() < LINES_MAX {
            shown.lines.push(line);
        }
        None
    }

    fn shown(&self) -> MutexGuard<'_, ScreenState> {
        self.shown.lock()
    }
}
