//! The control with which Video4Linux devices make a key frame.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;

use rustix::io::Errno;
use rustix::ioctl::{Opcode, Updater, ioctl, opcode};

/// `V4L2_CID_MPEG_VIDEO_FORCE_KEY_FRAME`: a button, whose value does not matter (`linux/v4l2-controls.h`).
const FORCE_KEY_FRAME: u32 = 0x0099_0900 + 229;

/// `struct v4l2_control` (`linux/videodev2.h`).
#[repr(C)]
struct Control {
    id: u32,
    value: i32,
}

/// `struct v4l2_queryctrl` (`linux/videodev2.h`).
#[repr(C)]
struct ControlQuery {
    id: u32,
    kind: u32,
    name: [u8; 32],
    minimum: i32,
    maximum: i32,
    step: i32,
    default_value: i32,
    flags: u32,
    reserved: [u32; 2],
}

/// `V4L2_CTRL_FLAG_DISABLED`: the driver knows the control, but the device lacks it.
const DISABLED: u32 = 0x0001;

/// `VIDIOC_S_CTRL`.
const SET_CONTROL: Opcode = opcode::read_write::<Control>(b'V', 28);
/// `VIDIOC_QUERYCTRL`.
const QUERY_CONTROL: Opcode = opcode::read_write::<ControlQuery>(b'V', 36);

/// Whether a device makes key frames on request. Another program may have the device open meanwhile. Blocks as long as the driver does.
///
/// # Errors
/// The device cannot be opened, or is not a Video4Linux device.
pub fn takes_key_frame_requests(device: &Path) -> io::Result<bool> {
    let device = open(device)?;
    let mut query = ControlQuery {
        id: FORCE_KEY_FRAME,
        kind: 0,
        name: [0; 32],
        minimum: 0,
        maximum: 0,
        step: 0,
        default_value: 0,
        flags: 0,
        reserved: [0; 2],
    };
    // SAFETY: `VIDIOC_QUERYCTRL` reads and writes one `v4l2_queryctrl`, which `ControlQuery` is, bit for bit.
    let ask = unsafe { Updater::<QUERY_CONTROL, ControlQuery>::new(&mut query) };
    // SAFETY: as above. A file that is no such device refuses the request.
    match unsafe { ioctl(device.as_fd(), ask) } {
        Ok(()) => Ok(query.flags & DISABLED == 0),
        // The device has no control with this number.
        Err(Errno::INVAL) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Makes a device give a key frame. Another program may have the device open meanwhile: controls are not exclusive.
pub(super) fn force_key_frame(device: &Path) -> io::Result<()> {
    let device = open(device)?;
    let mut control = Control { id: FORCE_KEY_FRAME, value: 1 };
    // SAFETY: `VIDIOC_S_CTRL` reads and writes one `v4l2_control`, which `Control` is, bit for bit.
    let set = unsafe { Updater::<SET_CONTROL, Control>::new(&mut control) };
    // SAFETY: as above. A file that is no such device refuses the request.
    unsafe { ioctl(device.as_fd(), set) }.map_err(io::Error::from)
}

fn open(device: &Path) -> io::Result<File> {
    File::options().read(true).write(true).open(device)
}

/// Whether this error means that the device never takes the request.
pub(super) fn is_final(error: &io::Error) -> bool {
    let finals = [Errno::INVAL, Errno::NOTTY, Errno::ACCESS, Errno::PERM];
    error.raw_os_error().is_some_and(|code| finals.iter().any(|found| found.raw_os_error() == code))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The values that `linux/videodev2.h` gives on this machine's architecture.
    #[test]
    fn the_requests_are_those_of_the_kernel() {
        if cfg!(any(target_arch = "x86_64", target_arch = "aarch64")) {
            assert_eq!((SET_CONTROL, QUERY_CONTROL), (0xC008_561C, 0xC044_5624));
        }
        assert_eq!((size_of::<Control>(), size_of::<ControlQuery>()), (8, 68));
        assert_eq!(std::mem::offset_of!(ControlQuery, flags), 56);
        assert_eq!(FORCE_KEY_FRAME, 0x0099_09E5);
    }

    #[test]
    fn what_is_no_camera_refuses() {
        let null = Path::new("/dev/null");
        for error in [force_key_frame(null).unwrap_err(), takes_key_frame_requests(null).unwrap_err()] {
            assert!(is_final(&error), "{error}");
        }
        let error = force_key_frame(Path::new("/nowhere")).unwrap_err();
        assert!(!is_final(&error), "it may be plugged in again: {error}");
        assert!(!is_final(&Errno::BUSY.into()));
    }
}
