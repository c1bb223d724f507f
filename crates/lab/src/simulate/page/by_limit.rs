//! The page of transfers whose limit is known.

use std::fmt::Write as _;

use godwit_tune::Bottleneck;

use super::table;
use crate::{
    report::FigureFile,
    simulate::limits::{Kind, LimitRun, LimitsResult},
};

/// How each kind is built, after its name.
const BUILT: [(Kind, &str); 7] = [
    (
        Kind::Window,
        "windows of 64 KiB to three bandwidth-delay products, no loss; the 128 channels that the \
         tuner may use fill at most half of the path, or else 1 to 16 channels, a fixed number, do",
    ),
    (
        Kind::Path,
        "no random loss; one channel's window holds 2 to 6 times the path and its queue; half of \
         the cases are beside traffic that does not yield, 10 to 50 % of the rate",
    ),
    (
        Kind::Loss,
        "random loss of 10^-6 to 2 %; six times of what theory (RFC 9438, Mathis) leaves the \
         channels, 128 or a fixed number as above, is at most half of what path and windows allow",
    ),
    (
        Kind::Processor,
        "the movers of one end, 1 to 4 threads on 0.5 to 4 processors that others leave to them, \
         move 5 to 50 % of what one channel would over this path",
    ),
    (
        Kind::Source,
        "storage of the sender reads as much; both directions",
    ),
    (
        Kind::Destination,
        "storage of the receiver writes as much; the client receives",
    ),
    (Kind::Policy, "`--max-rate` allows as much; both directions"),
];

pub(in crate::simulate) fn write(text: &mut String, result: &LimitsResult) -> Vec<FigureFile> {
    let right = result.runs.iter().filter(|run| run.is_right).count();
    let _ = writeln!(
        text,
        "**{right} of {} cases are named rightly: {}.**\n\n## What is named\n\n\
         Rows are what was built, columns what was named most.\n",
        result.runs.len(),
        percent(right, result.runs.len())
    );
    let names: Vec<Option<&str>> = (Bottleneck::ALL.iter())
        .map(|limit| Some(limit.as_str()))
        .chain([None])
        .filter(|name| result.runs.iter().any(|run| run.named == *name))
        .collect();
    let head: Vec<&str> = (["built"].into_iter())
        .chain(names.iter().map(|name| name.unwrap_or("nothing")))
        .chain(["right"])
        .collect();
    let of = |kind: Kind| result.runs.iter().filter(move |run| run.case.kind == kind);
    table(
        text,
        &head,
        Kind::ALL.iter().map(|kind| {
            let count = |name: &Option<&str>| of(*kind).filter(|run| run.named == *name).count();
            let right = of(*kind).filter(|run| run.is_right).count();
            let mut row = vec![kind.as_str().to_owned()];
            row.extend(names.iter().map(|name| count(name).to_string()));
            row.push(percent(right, of(*kind).count()));
            row
        }),
    );
    text.push_str("## How cases are built\n\n");
    for (kind, how) in BUILT {
        let _ = writeln!(text, "- **{}**: {how}.", kind.as_str());
    }
    text.push_str(
        "\nRate, round trip and queue (5 % to two bandwidth-delay products) are drawn in all \
         cases. Whatever is not the limit of an end, and a cap in half of the cases, allows 2 \
         to 20 times as much: as the limit where it is at an end, as the path's rate \
         otherwise. A sending client sees its own movers and TCP; a receiving one its own \
         movers, and what `godwitd` reports of its movers and of TCP. Storage reads ahead and \
         writes behind as the page cache does, so that a mover sleeps in it only where it is \
         too slow. An upload to slow storage is not among the cases: no server reports its \
         storage to a sender, who sees full windows.\n\n",
    );
    wrong(text, result);
    Vec::new()
}

fn wrong(text: &mut String, result: &LimitsResult) {
    let wrong: Vec<&LimitRun> = result.runs.iter().filter(|run| !run.is_right).collect();
    if wrong.is_empty() {
        return;
    }
    text.push_str("## What is named wrongly\n\n");
    let head = [
        "built",
        "seed",
        "named",
        "rate, Mbit/s",
        "RTT, ms",
        "queue, BDP",
        "window, BDP",
        "loss",
        "limit, Mbit/s",
        "goodput, Mbit/s",
        "channels",
    ];
    table(
        text,
        &head,
        wrong.into_iter().map(|run| {
            let path = &run.case.path;
            let bdp_bytes = path.rate_bps * path.rtt_s / 8.0;
            vec![
                run.case.kind.as_str().to_owned(),
                run.case.seed.to_string(),
                run.named.unwrap_or("nothing").to_owned(),
                format!("{:.0}", path.rate_bps / 1e6),
                format!("{:.1}", path.rtt_s * 1e3),
                format!("{:.2}", path.queue_bdp),
                format!("{:.2}", path.window_bytes / bdp_bytes),
                format!("{:.1e}", path.loss),
                format!("{:.0}", run.case.limit_bps / 1e6),
                format!("{:.0}", run.goodput_bps / 1e6),
                format!("{:.1}", run.mean_channels),
            ]
        }),
    );
}

#[allow(clippy::cast_precision_loss, reason = "counts of cases")]
fn percent(part: usize, of: usize) -> String {
    format!("{:.1} %", 100.0 * part as f64 / of.max(1) as f64)
}
