//! How octets map to stripes (GFD.020 "OPTS RETR StripeLayout").

/// Which octet goes to which receiving stripe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StripeLayout {
    /// Equal contiguous parts.
    Partitioned,
    /// Round robin of blocks of `block_bytes` (> 0).
    Blocked {
        /// Octets of a block.
        block_bytes: u64,
    },
}
