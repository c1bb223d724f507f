//! Draws transfers. Each picture fits 80 columns and 24 lines; larger terminals show more.

use ratatui::{
    Frame,
    layout::{Constraint, Layout, Rect},
    style::{Color, Modifier, Style},
    text::{Line, Span},
    widgets::{Block, Borders, Gauge, Paragraph, RenderDirection, Row, Sparkline, Table, Wrap},
};

use super::history::{FileLine, TransferHistory};
use crate::{
    report::progress::clock,
    units::{show_bytes, show_rate, show_setting},
};

const NAME: Style = Style::new().add_modifier(Modifier::BOLD);
const FAINT: Style = Style::new().add_modifier(Modifier::DIM);
const BAD: Style = Style::new().fg(Color::Red);

/// One transfer, all over `area`.
pub(crate) fn one(frame: &mut Frame<'_>, area: Rect, history: &TransferHistory, keys: &str) {
    let files_height = if area.height >= 24 { 8 } else { 5 };
    let [title, gauge, facts, graph, tuner, files, foot] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(1),
        Constraint::Length(2),
        Constraint::Min(4),
        Constraint::Length(3),
        Constraint::Length(files_height),
        Constraint::Length(1),
    ])
    .areas(area);
    frame.render_widget(Paragraph::new(title_of(history, title.width)), title);
    draw_gauge(frame, gauge, history);
    frame.render_widget(Paragraph::new(facts_of(history)), facts);
    draw_graph(frame, graph, history);
    let text = Paragraph::new(tuner_of(history)).wrap(Wrap { trim: true });
    frame.render_widget(text, tuner);
    draw_files(frame, files, history);
    let foot_text = match &history.warning {
        Some(warning) => Line::styled(cut(warning, foot.width.into()), BAD),
        None => Line::styled(keys.to_owned(), FAINT),
    };
    frame.render_widget(Paragraph::new(foot_text), foot);
}

/// A line for each transfer, the chosen one marked.
pub(crate) fn all(frame: &mut Frame<'_>, area: Rect, histories: &[TransferHistory], chosen: usize) {
    let header = [
        "PID",
        "WHAT",
        "DONE",
        "GOODPUT",
        "LEFT",
        "FILES",
        "CHANNELS",
        "LIMITED BY",
    ];
    let widths = [6, 0, 4, 11, 7, 9, 8, 12].map(|width| match width {
        0 => Constraint::Min(8),
        width => Constraint::Length(width),
    });
    let rows = histories.iter().enumerate().map(|(at, history)| {
        let row = Row::new(cells(history));
        match at == chosen {
            true => row.style(Style::new().add_modifier(Modifier::REVERSED)),
            false => row,
        }
    });
    let table = Table::new(rows, widths).header(Row::new(header).style(NAME));
    frame.render_widget(table, area);
}

/// As [`all`] has them.
pub(crate) fn cells(history: &TransferHistory) -> [String; 8] {
    let done = history
        .part_done()
        .map(|part| format!("{:.0} %", part * 100.0));
    let left = history.seconds_left().map(clock);
    let unknown = || "-".to_owned();
    [
        history.pid.to_string(),
        format!("{} -> {}", name_of(&history.source), history.destination),
        done.unwrap_or_else(unknown),
        show_rate(history.goodput_bps),
        left.unwrap_or_else(unknown),
        format!("{}/{}", history.files, history.files_total),
        setting_of(history),
        history.limited_by.clone().unwrap_or_else(unknown),
    ]
}

fn title_of(history: &TransferHistory, width: u16) -> Line<'static> {
    let more = match history.more_sources {
        0 => String::new(),
        n => format!(" and {n} more"),
    };
    let room = usize::from(width).saturating_sub("godwit   -> ".len() + more.len());
    // A short list leaves its lines to the other.
    let taken = history.destination.chars().count().min(room / 2);
    let source = cut(&history.source, room - taken);
    let destination = cut(&history.destination, room - source.chars().count());
    Line::from(vec![
        Span::styled("godwit", NAME),
        format!("  {source}{more} -> {destination}").into(),
    ])
}

fn draw_gauge(frame: &mut Frame<'_>, area: Rect, history: &TransferHistory) {
    let more = if history.total_known { "" } else { "+" };
    let of = format!(
        "{}: {} of {}{more}",
        history.phase,
        show_bytes(history.bytes),
        show_bytes(history.bytes_total)
    );
    match history.part_done() {
        Some(part) => {
            let gauge = Gauge::default()
                .gauge_style(Style::new().fg(Color::Green).bg(Color::Black))
                .label(format!("{of}, {:.0} %", part * 100.0))
                .ratio(part);
            frame.render_widget(gauge, area);
        }
        None => frame.render_widget(Paragraph::new(of), area),
    }
}

fn facts_of(history: &TransferHistory) -> Vec<Line<'static>> {
    let left = history.seconds_left();
    let left = left
        .map(|s| format!(", {} left", clock(s)))
        .unwrap_or_default();
    let failed = match history.files_failed {
        0 => String::new(),
        n => format!(", {n} failed"),
    };
    let retried = match history.retries {
        0 => String::new(),
        n => format!(", {n} tried again"),
    };
    let rtt = history.rtt_ms.map(|ms| format!(", RTT {ms:.1} ms"));
    let loss = history
        .loss_ratio
        .map(|r| format!(", {:.2} % sent again", r * 100.0));
    vec![
        Line::from(vec![
            Span::styled(show_rate(history.goodput_bps), NAME),
            format!(
                ", {} passed{left}, {} of {} files{failed}{retried}",
                clock(history.seconds),
                history.files,
                history.files_total
            )
            .into(),
        ]),
        Line::from(format!(
            "{} channels ({}){}{}",
            history.channels,
            setting_of(history),
            rtt.unwrap_or_default(),
            loss.unwrap_or_default()
        )),
    ]
}

fn draw_graph(frame: &mut Frame<'_>, area: Rect, history: &TransferHistory) {
    let most = history.history_bps.iter().max().copied().unwrap_or(0);
    let title = format!(
        " goodput, a column a second, at most {} ",
        show_rate(most as f64)
    );
    // The newest is at the right.
    let newest_first: Vec<u64> = history.history_bps.iter().rev().copied().collect();
    let graph = Sparkline::default()
        .block(Block::new().borders(Borders::TOP).title(title))
        .direction(RenderDirection::RightToLeft)
        .style(Style::new().fg(Color::Cyan))
        .data(newest_first);
    frame.render_widget(graph, area);
}

fn tuner_of(history: &TransferHistory) -> Vec<Line<'static>> {
    let limit = history.limited_by.as_deref().unwrap_or("not known yet");
    let reason = history.reason.as_deref().unwrap_or("not chosen yet");
    vec![
        Line::from(vec![
            Span::styled("limited by: ", NAME),
            limit.to_owned().into(),
        ]),
        Line::from(vec![
            Span::styled("setting: ", NAME),
            reason.to_owned().into(),
        ]),
    ]
}

fn draw_files(frame: &mut Frame<'_>, area: Rect, history: &TransferHistory) {
    let block = Block::new().borders(Borders::TOP).title(" files ");
    let room = usize::from(block.inner(area).height);
    let width = usize::from(area.width);
    let from = history.recent.len().saturating_sub(room);
    let lines: Vec<Line<'_>> = history
        .recent
        .iter()
        .skip(from)
        .map(|f| file_line(f, width))
        .collect();
    frame.render_widget(Paragraph::new(lines).block(block), area);
}

fn file_line(file: &FileLine, width: usize) -> Line<'static> {
    let head = format!("{:<9}{:>11}  ", file.state, show_bytes(file.bytes));
    let rest = match &file.error {
        Some(error) => error,
        None => &file.path,
    };
    let text = format!("{head}{}", cut(rest, width.saturating_sub(head.len())));
    match file.state.as_str() {
        "failed" => Line::styled(text, BAD),
        "moving" => Line::styled(text, NAME),
        _ => Line::raw(text),
    }
}

fn setting_of(history: &TransferHistory) -> String {
    match history.setting {
        Some(s) => show_setting(s.concurrency.into(), s.stripes.into(), s.parallelism.into()),
        None => history.channels.to_string(),
    }
}

/// The last component.
fn name_of(place: &str) -> String {
    let trimmed = place.trim_end_matches('/');
    trimmed.rsplit('/').next().unwrap_or(trimmed).to_owned()
}

/// At most `room` characters: cut in the middle.
fn cut(text: &str, room: usize) -> String {
    let count = text.chars().count();
    if count <= room {
        return text.to_owned();
    }
    let Some(room) = room.checked_sub(3).filter(|room| *room > 0) else {
        return text.chars().take(room).collect();
    };
    let head: String = text.chars().take(room - room / 2).collect();
    let tail: String = text.chars().skip(count - room / 2).collect();
    format!("{head}...{tail}")
}

#[cfg(test)]
mod tests {
    use ratatui::{Terminal, backend::TestBackend};

    use super::*;
    use crate::report::events::SettingView;

    fn a_story() -> TransferHistory {
        TransferHistory {
            pid: 4711,
            source: "gsiftp://old.example.org:2811/data/run7/".to_owned(),
            destination: "/srv/data/run7".to_owned(),
            seconds: 75.0,
            phase: "transfer".to_owned(),
            bytes: 1 << 30,
            bytes_total: 2 << 30,
            total_known: true,
            files: 3,
            files_failed: 1,
            files_total: 9,
            channels: 16,
            setting: Some(SettingView {
                concurrency: 2,
                stripes: 1,
                parallelism: 8,
                pipelining: 1,
            }),
            reason: Some("2 x 8: 12 % more than 2 x 4".to_owned()),
            limited_by: Some("path-capacity".to_owned()),
            rtt_ms: Some(61.2),
            goodput_bps: 1e9,
            history_bps: (1..=60).map(|n| n * 10_000_000).collect(),
            recent: [
                ("moving", "run7.root", None),
                ("failed", "x", Some("x: no such file")),
            ]
            .map(|(state, path, error): (_, _, Option<&str>)| FileLine {
                path: path.to_owned(),
                state: state.to_owned(),
                bytes: 1 << 30,
                error: error.map(str::to_owned),
            })
            .into(),
            ..TransferHistory::default()
        }
    }

    fn drawn(width: u16, height: u16, draw: impl FnOnce(&mut Frame<'_>)) -> Vec<String> {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(draw).unwrap();
        let buffer = terminal.backend().buffer();
        let row = |y| {
            (0..width)
                .map(|x| buffer[(x, y)].symbol())
                .collect::<String>()
        };
        (0..height).map(|y| row(y).trim_end().to_owned()).collect()
    }

    #[test]
    fn one_transfer_fits_80_by_24_and_tells_all() {
        let rows = drawn(80, 24, |frame| {
            one(frame, frame.area(), &a_story(), "q: end")
        });
        let text = rows.join("\n");
        for wanted in [
            "godwit  gsiftp://old.example.org:2811/data/run7/ -> /srv/data/run7",
            "transfer: 1.00 GiB of 2.00 GiB, 50 %",
            "1.00 Gbit/s, 1:15 passed, 0:08 left, 3 of 9 files, 1 failed",
            "16 channels (2 x 8), RTT 61.2 ms",
            "goodput, a column a second, at most 600 Mbit/s",
            "limited by: path-capacity",
            "setting: 2 x 8: 12 % more than 2 x 4",
            "moving      1.00 GiB  run7.root",
            "failed      1.00 GiB  x: no such file",
            "q: end",
        ] {
            assert!(text.contains(wanted), "{wanted} is not in\n{text}");
        }
        assert!(text.contains('█'), "{text}");
    }

    #[test]
    fn an_empty_history_and_a_tiny_screen_are_drawn() {
        for (width, height) in [(80, 24), (20, 6), (1, 1), (300, 100)] {
            drawn(width, height, |frame| {
                one(frame, frame.area(), &TransferHistory::default(), "");
            });
            drawn(width, height, |frame| {
                all(frame, frame.area(), &[a_story()], 0)
            });
        }
    }

    #[test]
    fn all_transfers_have_a_line_each() {
        let other = TransferHistory {
            pid: 12,
            ..TransferHistory::default()
        };
        let rows = drawn(100, 4, |frame| {
            all(frame, frame.area(), &[a_story(), other], 0)
        });
        assert!(rows[0].starts_with("PID"), "{rows:?}");
        assert!(rows[1].contains("run7 -> /srv"), "{rows:?}");
        assert!(
            rows[1].contains("50 %") && rows[1].contains("2 x 8"),
            "{rows:?}"
        );
        assert!(rows[2].starts_with("12 "), "{rows:?}");
    }

    #[test]
    fn long_names_lose_their_middle() {
        assert_eq!(cut("abcdefghij", 10), "abcdefghij");
        assert_eq!(cut("abcdefghijk", 9), "abc...ijk");
        assert_eq!(cut("abcdefghijk", 2), "ab");
        assert_eq!(name_of("ftp://h/a/b/"), "b");
    }
}
