//! Random names, which cannot be guessed.

use rustix::rand::{GetRandomFlags, getrandom};

/// 32 hexadecimal digits.
pub(super) fn random_name() -> std::io::Result<String> {
    let mut bytes = [0; 16];
    getrandom(&mut bytes, GetRandomFlags::empty())?;
    Ok(format!("{:032x}", u128::from_ne_bytes(bytes)))
}
