//! `top`: the user's transfers that run on this host.

use std::io::{self, IsTerminal};

use ratatui::{
    layout::{Constraint, Layout},
    text::Line,
};

use super::{
    draw,
    published::NAME,
    screen::{Key, Taken, key},
    story::Story,
};
use crate::{
    context::Stop,
    error::{Error, Result},
    events::Observer,
    roster::{Roster, user_folder},
};

/// Lines of transfers above the one that is shown whole.
const LIST_MAX: u16 = 6;

const KEYS: &str = "up, down: another transfer; q: leave";

/// Shows them until the user leaves; once, as lines, where standard output or standard error is no
/// terminal, and as JSON objects with `json`.
///
/// # Errors
/// Where transfers meet cannot be entered, or the terminal cannot be drawn on.
pub fn run(json: bool, once: bool, observer: &dyn Observer, stop: &Stop) -> Result<()> {
    let roster = user_folder()
        .and_then(|folder| Roster::join(&folder, NAME))
        .map_err(|e| Error::local("look for transfers of yours".to_owned(), &e))?;
    if json || once || !io::stdout().is_terminal() || !io::stderr().is_terminal() {
        for story in stories(&roster)? {
            let line = match serde_json::to_string(&story) {
                Ok(line) if json => line,
                _ => draw::cells(&story).join("\t"),
            };
            observer.on_output(line.as_bytes());
        }
        return Ok(());
    }
    let mut taken = Taken::new()?;
    let mut chosen = 0;
    loop {
        let stories = stories(&roster)?;
        chosen = chosen.min(stories.len().saturating_sub(1));
        taken.draw(|frame| {
            let Some(story) = stories.get(chosen) else {
                let nothing = "no transfer of yours runs on this host (q: leave)";
                frame.render_widget(Line::raw(nothing), frame.area());
                return;
            };
            let lines = u16::try_from(stories.len() + 1).unwrap_or(u16::MAX);
            let height = Constraint::Length(lines.min(LIST_MAX));
            let [list, whole] = Layout::vertical([height, Constraint::Min(1)]).areas(frame.area());
            // The chosen one is always among them.
            let from = (chosen + 2).saturating_sub(usize::from(list.height));
            draw::all(frame, list, &stories[from..], chosen - from);
            draw::one(frame, whole, story, KEYS);
        });
        match key().map_err(|e| Error::local("read keys".to_owned(), &e))? {
            Some(Key::End) => return Ok(()),
            Some(Key::Up) => chosen = chosen.saturating_sub(1),
            Some(Key::Down) => chosen += 1,
            Some(Key::Other) | None => {}
        }
        if stop.is_set() {
            return Ok(());
        }
    }
}

/// Those that run, the oldest first.
fn stories(roster: &Roster) -> Result<Vec<Story>> {
    let heard = roster
        .hear()
        .map_err(|e| Error::local("look for transfers of yours".to_owned(), &e))?;
    let read = |(_, text): (String, String)| serde_json::from_str(&text).ok();
    let mut stories: Vec<Story> = heard.into_iter().filter_map(read).collect();
    stories.sort_by(|a, b| b.seconds.total_cmp(&a.seconds));
    Ok(stories)
}
