//! The controlling terminal, and its foreground group.

use std::fs::{File, OpenOptions};
use std::io;

use nix::sys::signal::{SigSet, SigmaskHow, Signal as MaskedSignal};
use rustix::process::{Pid, getpgrp};
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetpgrp, tcsetattr, tcsetpgrp};

/// The controlling terminal of this process, and the terminal's modes when it was opened.
#[derive(Debug)]
pub(super) struct Terminal {
    file: File,
    modes: Option<Termios>,
}

impl Terminal {
    /// Opens the terminal. Returns `None` if this process has none.
    #[must_use]
    pub(super) fn open() -> Option<Self> {
        let file = OpenOptions::new().read(true).write(true).open("/dev/tty").ok()?;
        let modes = tcgetattr(&file).ok();
        Some(Self { file, modes })
    }

    #[must_use]
    pub(super) fn is_foreground(&self, group: Pid) -> bool {
        tcgetpgrp(&self.file).is_ok_and(|foreground| foreground == group)
    }

    /// Whether this process's own group is in the foreground.
    #[must_use]
    pub(super) fn is_ours(&self) -> bool {
        self.is_foreground(getpgrp())
    }

    /// Puts a group of this session into the foreground.
    pub(super) fn give_to(&self, group: Pid) -> io::Result<()> {
        // The system stops a background process that does this with SIGTTOU, unless the calling thread blocks that
        // signal.
        let before = SigSet::from(MaskedSignal::SIGTTOU).thread_swap_mask(SigmaskHow::SIG_BLOCK)?;
        let given = tcsetpgrp(&self.file, group);
        before.thread_set_mask()?;
        given.map_err(io::Error::from)
    }

    /// Lets this thread, and threads that it starts from now on, write from the background to a terminal in the mode
    /// `tostop`. Otherwise each notice of this process would stop its own job, and the command with it.
    pub(super) fn write_from_background() -> io::Result<()> {
        Ok(SigSet::from(MaskedSignal::SIGTTOU).thread_block()?)
    }

    /// Puts this process's group into the foreground again, if this other group is in it.
    pub(super) fn take_back_from(&self, group: Pid) -> io::Result<()> {
        if self.is_foreground(group) { self.give_to(getpgrp()) } else { Ok(()) }
    }

    /// Restores the modes, because a program that was killed may have left the terminal raw.
    pub(super) fn restore_modes(&self) {
        if let (Some(modes), true) = (&self.modes, self.is_ours()) {
            let restored = tcsetattr(&self.file, OptionalActions::Drain, modes);
            if let Err(error) = restored {
                tracing::debug!(%error, "the terminal's modes could not be restored");
            }
        }
    }
}
