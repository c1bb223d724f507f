//! Style, script and icon, which are in the program. Their names change with what they hold, so
//! that browsers keep them.

use std::sync::LazyLock;

use axum::{
    extract::Path,
    http::{StatusCode, header},
    response::{IntoResponse, Response},
};
use sha2::{Digest as _, Sha256};

struct Asset {
    path: String,
    media: &'static str,
    text: &'static str,
}

static STYLE: LazyLock<Asset> = LazyLock::new(|| {
    let text = include_str!("assets/style.css");
    asset("style", "css", "text/css; charset=utf-8", text)
});

static SCRIPT: LazyLock<Asset> = LazyLock::new(|| {
    let text = include_str!("assets/script.js");
    asset("script", "js", "text/javascript; charset=utf-8", text)
});

static ICON: LazyLock<Asset> = LazyLock::new(|| {
    asset(
        "icon",
        "svg",
        "image/svg+xml",
        include_str!("assets/icon.svg"),
    )
});

fn asset(name: &str, end: &str, media: &'static str, text: &'static str) -> Asset {
    let digest = Sha256::digest(text);
    let sum: String = digest
        .iter()
        .take(6)
        .map(|byte| format!("{byte:02x}"))
        .collect();
    Asset {
        path: format!("/assets/{name}-{sum}.{end}"),
        media,
        text,
    }
}

/// Where the style is.
pub(super) fn style() -> &'static str {
    &STYLE.path
}

/// Where the script is.
pub(super) fn script() -> &'static str {
    &SCRIPT.path
}

/// Where the icon is.
pub(super) fn icon() -> &'static str {
    &ICON.path
}

pub(super) async fn get(Path(name): Path<String>) -> Response {
    let is_it = |asset: &&&Asset| asset.path.strip_prefix("/assets/") == Some(name.as_str());
    match [&*STYLE, &*SCRIPT, &*ICON].iter().find(is_it) {
        Some(asset) => {
            let headers = [
                (header::CONTENT_TYPE, asset.media),
                (header::CACHE_CONTROL, "public, max-age=31536000, immutable"),
            ];
            (headers, asset.text).into_response()
        }
        None => StatusCode::NOT_FOUND.into_response(),
    }
}
