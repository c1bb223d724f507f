//! Whole numbers of nanoseconds, bytes and packets.

#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "not negative, and casts of floats saturate"
)]
pub(super) fn whole(value: f64) -> u64 {
    value.round() as u64
}
