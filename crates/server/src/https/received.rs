//! Bodies of requests: each wait for a byte has a limit.

use std::{future::poll_fn, pin::Pin, time::Duration};

use hyper::{
    StatusCode,
    body::{Body as _, Bytes, Incoming},
};
use tokio::time::timeout;

use super::answer::Rejected;

/// The next bytes of a request's body. `None`: there are no more.
pub(super) async fn next_bytes(
    body: &mut Incoming,
    limit: Duration,
) -> Result<Option<Bytes>, Rejected> {
    loop {
        let frame = poll_fn(|context| Pin::new(&mut *body).poll_frame(context));
        match timeout(limit, frame).await {
            Ok(None) => return Ok(None),
            Ok(Some(Ok(frame))) => {
                // Trailers say nothing here.
                if let Ok(bytes) = frame.into_data() {
                    return Ok(Some(bytes));
                }
            }
            Ok(Some(Err(error))) => {
                let text = format!("the body is not complete: {error}");
                return Err(Rejected::new(StatusCode::BAD_REQUEST, text));
            }
            Err(_) => {
                let text = "no byte of the body has arrived for a long time";
                return Err(Rejected::new(StatusCode::REQUEST_TIMEOUT, text));
            }
        }
    }
}

/// A whole body of at most `bytes_max` bytes.
pub(super) async fn whole(
    body: &mut Incoming,
    bytes_max: usize,
    limit: Duration,
) -> Result<Vec<u8>, Rejected> {
    let mut whole = Vec::new();
    let read = async {
        while let Some(bytes) = next_bytes(body, limit).await? {
            if whole.len() + bytes.len() > bytes_max {
                let text = format!("the body has more than {bytes_max} bytes");
                return Err(Rejected::new(StatusCode::PAYLOAD_TOO_LARGE, text));
            }
            whole.extend_from_slice(&bytes);
        }
        Ok(())
    };
    match timeout(limit, read).await {
        Ok(read) => read.map(|()| whole),
        Err(_) => {
            let text = "the body takes too long";
            Err(Rejected::new(StatusCode::REQUEST_TIMEOUT, text))
        }
    }
}
