//! Times of files, which their objects have as metadata: an answer about one object tells that of
//! one, and a listing none.

use godwit_http::s3;
use godwit_http_client::{Answer, Method, Request};
use godwit_proto::{FtpPath, timestamp::Timestamp};
use tokio::task::JoinSet;

use crate::session::http::{commands::HttpControl, wire::Wire};

/// Objects that are asked for at the same time.
const TOGETHER: usize = 8;

/// The time of the file that an answer is about; `None`: it is not kept.
pub(in crate::session::http) fn time_in(answer: &Answer) -> Option<Timestamp> {
    let value = answer.header(s3::MTIME_HEADER)?;
    s3::read_mtime(value).map(Timestamp)
}

impl HttpControl {
    /// The times of the files that objects are of, one each; `None`: it is not kept, or the service
    /// does not answer. Objects that were just fetched are not asked for again.
    pub(in crate::session) async fn times_of_objects(
        &mut self,
        paths: &[FtpPath],
    ) -> Vec<Option<Timestamp>> {
        let mut times = vec![None; paths.len()];
        let mut waiting = Vec::new();
        let Some(bucket) = &self.server().bucket else {
            return times;
        };
        for (at, path) in paths.iter().enumerate() {
            let target = bucket.target(path);
            match bucket.times.take(&target) {
                Some(told) => times[at] = told,
                None => waiting.push((at, target)),
            }
        }
        let share = waiting.len().div_ceil(TOGETHER).max(1);
        let mut asking = JoinSet::new();
        for share in waiting.chunks(share) {
            let kept = self.more_wires.pop();
            let wire = kept.unwrap_or_else(|| Wire::new(self.server().clone()));
            asking.spawn(ask(wire, share.to_vec()));
        }
        while let Some(asked) = asking.join_next().await {
            let Ok((wire, asked)) = asked else { continue };
            self.more_wires.push(wire);
            for (at, time) in asked {
                times[at] = time;
            }
        }
        times
    }
}

/// Asks for one after the other.
async fn ask(
    mut wire: Wire,
    targets: Vec<(usize, String)>,
) -> (Wire, Vec<(usize, Option<Timestamp>)>) {
    let mut times = Vec::with_capacity(targets.len());
    for (at, target) in targets {
        let request = |target: &str| Request::new(Method::HEAD, target);
        let mut time = None;
        if let Ok(exchange) = wire.send(&target, request).await {
            if exchange.answer.status.is_success() {
                time = time_in(&exchange.answer);
            }
            wire.done(exchange).await;
        }
        times.push((at, time));
    }
    (wire, times)
}
