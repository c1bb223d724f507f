//! How pages print numbers.

/// Three or four digits, as many as mean something.
pub(super) fn short(value: f64) -> String {
    match value.abs() {
        large if large >= 100.0 => format!("{value:.0}"),
        middling if middling >= 10.0 => format!("{value:.1}"),
        small if small >= 0.1 => format!("{value:.2}"),
        0.0 => "0".to_owned(),
        _ => format!("{value:.3}"),
    }
}

/// A time until something happened, which may be never.
pub(super) fn seconds(value: f64) -> String {
    if value.is_finite() {
        format!("{value:.1}")
    } else {
        "never".to_owned()
    }
}
