//! `top`: the user's transfers that run on this host.

use std::io::{self, IsTerminal};

use ratatui::{
    layout::{Constraint, Layout},
    text::Line,
};
use tokio_util::sync::CancellationToken;

use super::{
    draw,
    history::TransferHistory,
    live_status::NAME,
    screen::{Key, RawTerminal, key},
};
use crate::{
    error::{Error, Result},
    local::presence::{Presence, user_folder},
    report::events::Observer,
};

/// Lines of transfers above the one that is shown whole.
const LIST_MAX: u16 = 6;

const KEYS: &str = "up, down: another transfer; q: leave";

/// Shows them until the user quits; once, as lines, if standard output or standard error is no
/// terminal, and as JSON objects with `json`.
///
/// # Errors
/// The presence folder cannot be used, or the terminal cannot be drawn on.
pub fn run(
    json: bool,
    once: bool,
    observer: &dyn Observer,
    stop: &CancellationToken,
) -> Result<()> {
    let presence = user_folder()
        .and_then(|folder| Presence::join(&folder, NAME))
        .map_err(|e| Error::local("look for transfers of yours".to_owned(), &e))?;
    if json || once || !io::stdout().is_terminal() || !io::stderr().is_terminal() {
        for history in histories(&presence)? {
            let line = match serde_json::to_string(&history) {
                Ok(line) if json => line,
                _ => draw::cells(&history).join("\t"),
            };
            observer.on_output(line.as_bytes());
        }
        return Ok(());
    }
    let mut taken = RawTerminal::new()?;
    let mut chosen = 0;
    loop {
        let histories = histories(&presence)?;
        chosen = chosen.min(histories.len().saturating_sub(1));
        taken.draw(|frame| {
            let Some(history) = histories.get(chosen) else {
                let nothing = "no transfer of yours runs on this host (q: leave)";
                frame.render_widget(Line::raw(nothing), frame.area());
                return;
            };
            let lines = u16::try_from(histories.len() + 1).unwrap_or(u16::MAX);
            let height = Constraint::Length(lines.min(LIST_MAX));
            let [list, whole] = Layout::vertical([height, Constraint::Min(1)]).areas(frame.area());
            // The chosen one is always among them.
            let from = (chosen + 2).saturating_sub(usize::from(list.height));
            draw::all(frame, list, &histories[from..], chosen - from);
            draw::one(frame, whole, history, KEYS);
        });
        match key().map_err(|e| Error::local("read keys".to_owned(), &e))? {
            Some(Key::End) => return Ok(()),
            Some(Key::Up) => chosen = chosen.saturating_sub(1),
            Some(Key::Down) => chosen += 1,
            Some(Key::Other) | None => {}
        }
        if stop.is_cancelled() {
            return Ok(());
        }
    }
}

/// Those that run, the oldest first.
fn histories(presence: &Presence) -> Result<Vec<TransferHistory>> {
    let heard = presence
        .read_peers()
        .map_err(|e| Error::local("look for transfers of yours".to_owned(), &e))?;
    let read = |(_, text): (String, String)| serde_json::from_str(&text).ok();
    let mut histories: Vec<TransferHistory> = heard.into_iter().filter_map(read).collect();
    histories.sort_by(|a, b| b.seconds.total_cmp(&a.seconds));
    Ok(histories)
}
