//! Process descriptors: a hold on one process that can never become a hold on another.
//!
//! The system calls that make and use it have no safe wrapper in `nix`.

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, FromRawFd as _, OwnedFd};

/// A process, held.
#[derive(Debug)]
pub(super) struct PidFd {
    fd: OwnedFd,
    pid: i32,
}

impl PidFd {
    /// Holds the process that has `pid` now. Whether that is the one that was meant has to be checked after this call, not before.
    ///
    /// # Errors
    /// `ESRCH` when there is none, `EINVAL` when `pid` is a thread that leads no process.
    pub(super) fn open(pid: i32) -> io::Result<Self> {
        // SAFETY: pidfd_open takes two integers and touches no memory of ours.
        let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
        let fd = i32::try_from(checked(fd)?).map_err(io::Error::other)?;
        // SAFETY: the kernel has just returned this descriptor to us alone.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(Self { fd, pid })
    }

    /// Its number, which is another's as soon as the process has been waited for.
    pub(super) fn pid(&self) -> i32 {
        self.pid
    }

    /// Whether all its threads have ended, waited for or not.
    pub(super) fn has_ended(&self) -> bool {
        let mut asked = [PollFd::new(self.fd.as_fd(), PollFlags::POLLIN)];
        poll(&mut asked, PollTimeout::ZERO).is_ok_and(|ended| ended > 0)
    }

    /// Whether there is a process still, running or not yet waited for.
    pub(super) fn is_there(&self) -> bool {
        let no_info = std::ptr::null::<libc::siginfo_t>();
        let fd = self.fd.as_raw_fd();
        // SAFETY: the descriptor is open as long as self lives; signal 0 is only checked, never sent.
        checked(unsafe { libc::syscall(libc::SYS_pidfd_send_signal, fd, 0, no_info, 0) }).is_ok()
    }

    /// Sends `signal` to the held process.
    ///
    /// # Errors
    /// `ESRCH` when it has ended, `EPERM` without the right to.
    pub(super) fn signal(&self, signal: nix::sys::signal::Signal) -> io::Result<()> {
        let (fd, signal) = (self.fd.as_raw_fd(), signal as libc::c_int);
        let no_info = std::ptr::null::<libc::siginfo_t>();
        // SAFETY: the descriptor is open as long as self lives, and a null siginfo asks the kernel to fill its own.
        checked(unsafe { libc::syscall(libc::SYS_pidfd_send_signal, fd, signal, no_info, 0) })?;
        Ok(())
    }

    /// Takes back the memory of the held process, which must already be dying, without waiting for it to run (`process_mrelease`, Linux 5.15).
    ///
    /// # Errors
    /// `ENOSYS` before 5.15, `EINVAL` when the process is not dying, `ESRCH` when its memory is gone already, `EAGAIN` when it cannot be had now.
    pub(super) fn release_memory(&self) -> io::Result<()> {
        // SAFETY: the descriptor is open as long as self lives; the call touches no memory of ours.
        checked(unsafe { libc::syscall(libc::SYS_process_mrelease, self.fd.as_raw_fd(), 0) })?;
        Ok(())
    }
}

fn checked(result: libc::c_long) -> io::Result<libc::c_long> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::signal::Signal;
    use std::os::unix::process::ExitStatusExt as _;
    use std::process::Command;

    #[test]
    fn the_held_process_gets_the_signal_and_a_dead_one_cannot_be_signalled() {
        let mut child = Command::new("sleep").arg("1000").spawn().unwrap();
        let held = PidFd::open(i32::try_from(child.id()).unwrap()).unwrap();
        assert_eq!(held.release_memory().unwrap_err().raw_os_error(), Some(libc::EINVAL));
        assert!(!held.has_ended());
        held.signal(Signal::SIGKILL).unwrap();
        assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGKILL));
        assert!(held.has_ended());
        assert_eq!(held.signal(Signal::SIGKILL).unwrap_err().raw_os_error(), Some(libc::ESRCH));
    }

    #[test]
    fn a_pid_that_does_not_exist_cannot_be_held() {
        assert_eq!(PidFd::open(i32::MAX).unwrap_err().raw_os_error(), Some(libc::ESRCH));
    }
}
