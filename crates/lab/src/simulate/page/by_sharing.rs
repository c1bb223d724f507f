//! The page of a research network.

use std::fmt::Write as _;

use super::table;
use crate::{
    report::{
        FigureFile,
        chart::{Axis, Bar, Figure, Scale},
    },
    simulate::{
        format::SimScenario,
        research::{DayResult, ResearchResult, outcome::CLASSES},
    },
    stats::{mean, standard_deviation, student_t_975},
};

pub(super) fn write(
    text: &mut String,
    scenario: &SimScenario,
    result: &ResearchResult,
    name: &str,
) -> Vec<FigureFile> {
    let file = format!("{name}.svg");
    let _ = writeln!(
        text,
        "![{}]({file})\n\nJain's index among users, of the time that their transfers would need \
         on an empty network over the time that they took: means over days, and their 95 % \
         confidence intervals.\n",
        scenario.title
    );
    days(text, result);
    let head = [
        "transfers",
        "Gbit/s in all",
        "Jain of rates",
        "Jain of alone",
        "of alone, %: a tenth of users is below",
        "median user",
        "rate of the median user, Gbit/s",
        "lost, per million",
        "all ended",
    ];
    type Of = fn(&DayResult) -> f64;
    let of: [(Of, usize); 7] = [
        (|day| day.goodput_bps / 1e9, 1),
        (|day| day.jain, 3),
        (|day| day.jain_of_alone, 3),
        (|day| 100.0 * day.of_alone.0, 1),
        (|day| 100.0 * day.of_alone.1, 1),
        (|day| day.user_bps.1 / 1e9, 2),
        (|day| 1e6 * day.loss, 2),
    ];
    text.push_str("## Users\n\nMeans over days ± 95 %.\n\n");
    table(
        text,
        &head,
        result.ways.iter().map(|(sharing, all)| {
            let mut row = vec![sharing.name().to_owned()];
            row.extend(of.iter().map(|(of, digits)| spread(all, *of, *digits)));
            let ended: usize = all.iter().map(|day| day.ended).sum();
            let begun: usize = result.days.iter().map(|(transfers, _)| transfers).sum();
            row.push(if ended == begun {
                "yes".into()
            } else {
                format!("{ended} of {begun}")
            });
            row
        }),
    );
    by_size(text, result);
    links(text, result);
    vec![FigureFile {
        name: file,
        svg: figure(result).to_svg("f", true),
    }]
}

fn days(text: &mut String, result: &ResearchResult) {
    let terabytes = result
        .days
        .iter()
        .map(|(_, bytes)| format!("{:.0}", bytes / 1e12));
    let terabytes: Vec<String> = terabytes.collect();
    let transfers: Vec<String> = result.days.iter().map(|(n, _)| n.to_string()).collect();
    let _ = writeln!(
        text,
        "Seeds: {}. Transfers of each: {}. TB of each: {}.\n",
        result.days.len(),
        transfers.join(", "),
        terabytes.join(", ")
    );
}

fn by_size(text: &mut String, result: &ResearchResult) {
    text.push_str(
        "## Completion by size\n\nSeconds from the arrival of a transfer to its end: median, and \
         95th percentile, means over days.\n\n",
    );
    let head: Vec<&str> = std::iter::once("transfers")
        .chain(CLASSES.iter().map(|(name, _)| *name))
        .collect();
    table(
        text,
        &head,
        result.ways.iter().map(|(sharing, all)| {
            let mut row = vec![sharing.name().to_owned()];
            row.extend((0..CLASSES.len()).map(|class| {
                let some = all
                    .iter()
                    .map(|day| day.classes[class])
                    .filter(|(.., n)| *n > 0);
                let some: Vec<(f64, f64, usize)> = some.collect();
                let of = |pick: fn(&(f64, f64, usize)) -> f64| {
                    mean(&some.iter().map(pick).collect::<Vec<f64>>())
                };
                match (of(|c| c.0), of(|c| c.1)) {
                    (Some(middle), Some(late)) => format!("{middle:.1}, {late:.0}"),
                    _ => "–".to_owned(),
                }
            }));
            row
        }),
    );
}

fn links(text: &mut String, result: &ResearchResult) {
    text.push_str("## The links that were full for longest, in the first day\n\n");
    let head = [
        "transfers",
        "link",
        "full, % of the time",
        "mean queue, %",
        "lost, per million",
        "most connections",
    ];
    let rows = result.ways.iter().flat_map(|(sharing, all)| {
        let links = all
            .first()
            .map(|day| day.fullest.as_slice())
            .unwrap_or_default();
        links.iter().take(3).map(|link| {
            vec![
                sharing.name().to_owned(),
                link.name.clone(),
                format!("{:.1}", 100.0 * link.full),
                format!("{:.1}", 100.0 * link.queue),
                format!("{:.2}", 1e6 * link.loss),
                link.connections_max.to_string(),
            ]
        })
    });
    table(text, &head, rows);
}

/// Mean and half its 95 % confidence interval, `None` of one value.
#[allow(clippy::cast_precision_loss, reason = "counts of days")]
fn interval(values: &[f64]) -> (f64, Option<f64>) {
    let middle = mean(values).unwrap_or(0.0);
    let half = (values.len() > 1).then(|| {
        let t = student_t_975(values.len() - 1);
        t * standard_deviation(values).unwrap_or(0.0) / (values.len() as f64).sqrt()
    });
    (middle, half)
}

fn spread(days: &[DayResult], of: fn(&DayResult) -> f64, digits: usize) -> String {
    let values: Vec<f64> = days.iter().map(of).collect();
    match interval(&values) {
        (middle, Some(half)) => format!("{middle:.digits$} ± {half:.digits$}"),
        (middle, None) => format!("{middle:.digits$}"),
    }
}

fn figure(result: &ResearchResult) -> Figure {
    let bars: Vec<Bar> = (result.ways.iter().enumerate())
        .map(|(at, (sharing, all))| {
            let values: Vec<f64> = all.iter().map(|day| day.jain_of_alone).collect();
            let (middle, half) = interval(&values);
            Bar {
                label: sharing.name().to_owned(),
                colour: usize::from(at < 2),
                value: middle,
                interval: half.map(|half| (middle - half, middle + half)),
                text: format!("{middle:.3}"),
            }
        })
        .collect();
    let longest = bars
        .iter()
        .map(|bar| bar.interval.map_or(bar.value, |(_, high)| high));
    Figure::Bars {
        name: "Jain's index among users".into(),
        axis: Axis::over("Jain's index among users", Scale::Linear, longest),
        bars,
    }
}
