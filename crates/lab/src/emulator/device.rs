//! A TUN device: the network interface of a host whose other end is the emulator.

use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd};

use tun_rs::{DeviceBuilder, Layer, SyncDevice};

use super::Mode;

/// The device node.
pub const TUN_NODE: &str = "/dev/net/tun";

/// A TUN device. It disappears when dropped.
pub struct Device {
    tun: SyncDevice,
    mode: Mode,
}

impl std::fmt::Debug for Device {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Device").field("mode", &self.mode).finish()
    }
}

impl Device {
    /// Makes a device `name` in the network namespace of the calling thread, down and without
    /// address.
    ///
    /// # Errors
    /// What the kernel says: no such device node, not permitted.
    pub fn open(name: &str, mode: Mode) -> io::Result<Device> {
        // The builder would make a missing node itself, which is not ours to do.
        std::fs::metadata(TUN_NODE)?;
        let tun = DeviceBuilder::new()
            .name(name)
            .layer(Layer::L3)
            .enable(false)
            .packet_information(false)
            .offload(mode == Mode::Offload)
            .build_sync()?;
        tun.set_nonblocking(true)?;
        Ok(Device { tun, mode })
    }

    /// How frames look.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// Reads the next frame into `buffer`; `None` when there is none.
    pub(super) fn read(&self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        match rustix::io::read(self.as_fd(), buffer) {
            Ok(len) => Ok(Some(len)),
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => Ok(None),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Hands a frame to the host.
    pub(super) fn write(&self, frame: &[u8]) -> io::Result<()> {
        rustix::io::write(self.as_fd(), frame)?;
        Ok(())
    }

    /// Hands a frame in two pieces to the host.
    pub(super) fn write_pieces(&self, head: &[u8], payload: &[u8]) -> io::Result<()> {
        rustix::io::writev(self.as_fd(), &[IoSlice::new(head), IoSlice::new(payload)])?;
        Ok(())
    }
}

impl AsFd for Device {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.tun.as_fd()
    }
}
