//! Noticing changes: inotify on cgroup directories.
//!
//! The kernel reports a write to a cgroup's file like one to any other file, whoever made it, and a directory that is made or removed too; so drift is known at once and costs nothing while there is none.
//! What the kernel changes by itself (a CPU that goes away) is not reported, and neither is what a full queue lost: the whole tree is looked at from time to time as well.

use crate::sense::runtime::Inventory;
use nix::errno::Errno;
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify, WatchDescriptor};
use std::collections::HashMap;
use std::ffi::OsString;
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::SyncSender;
use std::time::Instant;

/// What has to be known even when no more notices fit.
#[derive(Debug, Default)]
pub(super) struct Signs {
    /// Some notice did not fit.
    pub(super) missed: AtomicBool,
    /// It is over.
    pub(super) over: AtomicBool,
}

/// What was noticed.
#[derive(Debug)]
pub enum Notice {
    /// A file of a watched cgroup was written.
    Written {
        /// The watch.
        watch: WatchDescriptor,
        /// The file.
        file: OsString,
        /// When it was noticed.
        at: Instant,
    },
    /// A cgroup was made below a watched one.
    Made {
        /// The watch.
        watch: WatchDescriptor,
        /// Its name.
        name: OsString,
        /// When it was noticed.
        at: Instant,
    },
    /// A watched cgroup is gone.
    Gone(WatchDescriptor),
    /// More happened than could be told.
    Lost,
    /// The BPF program says that a cgroup was made at this path.
    Created(String, Instant),
    /// What the container runtime lists; `None` while it is away.
    Listed(Option<Arc<Inventory>>),
    /// The configuration has changed.
    Configured(Box<crate::config::Cgroups>),
    /// It is over.
    Stop,
}

/// The directories that are watched, by the path of their cgroup.
#[derive(Debug)]
pub struct Watches {
    inotify: Arc<Inotify>,
    paths: HashMap<WatchDescriptor, String>,
}

impl Watches {
    /// Starts a thread that passes on what is noticed; it ends when nobody listens any more.
    ///
    /// # Errors
    /// When there is no more inotify to be had, or no thread.
    pub fn start(notices: SyncSender<Notice>) -> io::Result<Watches> {
        let inotify = Arc::new(Inotify::init(InitFlags::IN_CLOEXEC)?);
        let reader = Arc::clone(&inotify);
        crate::threads::spawn("ebb-cgroup-watch", move || pass_on(&reader, &notices))?;
        Ok(Watches { inotify, paths: HashMap::new() })
    }

    /// Watches the cgroup `path` whose directory is held; watching it twice is watching it once.
    ///
    /// # Errors
    /// `NotFound` when it is not there, `StorageFull` when `fs.inotify.max_user_watches` is used up.
    pub fn add(&mut self, path: &str, dir: &OwnedFd) -> io::Result<()> {
        let flags = AddWatchFlags::IN_MODIFY | AddWatchFlags::IN_CREATE | AddWatchFlags::IN_ONLYDIR;
        // inotify takes no descriptor; this link leads to the directory that is held, whatever its name is by now.
        let held = format!("/proc/self/fd/{}", dir.as_raw_fd());
        let watch = self.inotify.add_watch(held.as_str(), flags)?;
        self.paths.insert(watch, path.to_owned());
        Ok(())
    }

    /// The cgroup behind a watch.
    #[must_use]
    pub fn path(&self, watch: WatchDescriptor) -> Option<&str> {
        self.paths.get(&watch).map(String::as_str)
    }

    /// Forgets a watch that the kernel has ended.
    pub fn forget(&mut self, watch: WatchDescriptor) {
        self.paths.remove(&watch);
    }
}

fn pass_on(inotify: &Inotify, notices: &SyncSender<Notice>) {
    loop {
        let events = match inotify.read_events() {
            Ok(events) => events,
            Err(Errno::EINTR) => continue,
            Err(_) => return,
        };
        let at = Instant::now();
        for event in events {
            let watch = event.wd;
            let notice = if event.mask.contains(AddWatchFlags::IN_Q_OVERFLOW) {
                Notice::Lost
            } else if event.mask.contains(AddWatchFlags::IN_IGNORED) {
                Notice::Gone(watch)
            } else {
                let Some(name) = event.name else { continue };
                if event.mask.contains(AddWatchFlags::IN_CREATE) {
                    Notice::Made { watch, name, at }
                } else {
                    Notice::Written { watch, file: name, at }
                }
            };
            // Waiting here is right: what does not fit the kernel's own queue is told as lost.
            if notices.send(notice).is_err() {
                return;
            }
        }
    }
}
