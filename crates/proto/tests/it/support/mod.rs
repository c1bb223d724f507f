//! What the tests of both interpreters share.

pub(crate) mod operations;
pub(crate) mod script;
pub(crate) mod shell;

use std::{
    net::SocketAddr,
    time::{Duration, Instant},
};

use godwit_proto::{
    FtpPath,
    pi::server::{ClearLogins, Output, ServerConfig, ServerPi},
    reply::{Reply, ReplyReader},
    security::MinProtection,
};

/// 2026-11-21 06:08:39.4 UTC, when sessions of the tests begin.
pub(crate) const UNIX_TIME: Duration = Duration::from_millis(1_795_241_319_400);

pub(crate) fn server_config() -> ServerConfig {
    ServerConfig {
        greeting: "host godwit ready.".to_owned(),
        version: "godwit 0.1".to_owned(),
        peer: addr("127.0.0.1:40000"),
        local: addr("127.0.0.1:2811"),
        idle_limit: Duration::from_secs(600),
        login_limit: Duration::from_secs(60),
        login_attempts_max: 3,
        foreign_data_hosts: false,
        channels_max: 64,
        writable: true,
        home: path("/home/u"),
        gssapi: false,
        tls: false,
        tokens: false,
        private_channel: false,
        clear_logins: ClearLogins::All,
        min_protection: MinProtection::Clear,
        unix_time: UNIX_TIME,
    }
}

pub(crate) fn addr(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

pub(crate) fn path(text: &str) -> FtpPath {
    FtpPath::new(text).unwrap()
}

/// Everything there is to do, in order.
pub(crate) fn drain(pi: &mut ServerPi) -> Vec<Output> {
    std::iter::from_fn(|| pi.poll_output()).collect()
}

/// The replies among `outputs`.
pub(crate) fn replies(outputs: &[Output]) -> Vec<Reply> {
    let mut reader = ReplyReader::default();
    for output in outputs {
        if let Output::Send(bytes) = output {
            reader.push(bytes);
        }
    }
    std::iter::from_fn(|| reader.next_reply().unwrap()).collect()
}

pub(crate) fn codes(outputs: &[Output]) -> Vec<u16> {
    replies(outputs).iter().map(|r| r.code.get()).collect()
}

/// A time to count from: sessions never see the real clock.
pub(crate) fn epoch() -> Instant {
    Instant::now()
}
