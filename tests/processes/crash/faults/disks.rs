//! The nodes' disks: a file system in a file for each. It can be full, and it can lose its power: what no finished sync
//! covered is then gone.

use std::fs::{self, File};
use std::io::Write;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use rustix::fs::{FallocateFlags, fallocate, statvfs};

use super::super::world::{installed, tool};

const DISK_BYTES: u64 = 256 << 20;
/// The call that a file system takes for the end of its power: `EXT4_IOC_SHUTDOWN`, without writing its journal.
const SHUTDOWN: &str = r#"for (@ARGV) { open(my $d, "<", $_) or die "$_: $!"; my $f = pack("L", 2); ioctl($d, 0x8004587d, $f) or die "$_: $!" }"#;

/// What disks of their own need.
pub(super) fn possible() -> Result<(), String> {
    ["mkfs.ext4", "mount", "umount", "perl"].into_iter().try_for_each(installed)
}

/// Where a node's disk is to be seen.
pub(crate) fn mounted(folder: &Path, node: usize) -> PathBuf {
    folder.join(format!("disk{node}"))
}

fn image(folder: &Path, node: usize) -> PathBuf {
    folder.join(format!("disk{node}.img"))
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a path of plain letters")
}

/// Makes an empty disk for each node.
pub(crate) fn build(folder: &Path) {
    for node in 1..=3 {
        let image = image(folder, node);
        File::create(&image).and_then(|file| file.set_len(DISK_BYTES)).expect("a file for a disk");
        // No blocks are kept back for the superuser, so that full is full.
        tool("mkfs.ext4", &["-q", "-F", "-m", "0", text(&image)]);
        fs::create_dir(mounted(folder, node)).expect("a folder");
        mount(folder, node);
    }
}

fn mount(folder: &Path, node: usize) {
    tool("mount", &["-o", "loop", text(&image(folder, node)), text(&mounted(folder, node))]);
}

/// Takes a disk away at the end, whoever still looks at it.
pub(crate) fn unmount(folder: &Path, node: usize) {
    let mounted = mounted(folder, node);
    std::process::Command::new("umount").args(["--lazy", text(&mounted)]).status().ok();
}

/// Leaves no room on a node's disk, but for a few bytes within what its files already have. Again, where the node removed
/// something since.
pub(super) fn fill(folder: &Path, node: usize) {
    let mounted = mounted(folder, node);
    let file = File::options().append(true).create(true).open(mounted.join("filler")).expect("a file");
    // What is written meanwhile takes room too: a smaller piece is tried until the smallest has none.
    let mut piece = statvfs(&mounted).map(|disk| disk.f_bfree * disk.f_frsize).expect("a disk");
    let mut filled = file.metadata().expect("a length").len();
    while 4096 <= piece {
        match fallocate(file.as_fd(), FallocateFlags::empty(), filled, piece) {
            Ok(()) => filled += piece,
            Err(_) => piece /= 2,
        }
    }
}

/// Makes room again.
pub(super) fn empty(folder: &Path, node: usize) {
    fs::remove_file(mounted(folder, node).join("filler")).expect("the filler");
}

/// Ends the power of some disks at once. Who writes to them must be at a stand before: a sync that is under way while ext4
/// shuts down may be told that it succeeded though it did not (seen with Linux 6.18: the file was shorter after the next mount
/// than a sync had said), and no processor outlives the end of its power to pass that on. They are to be killed then, and the
/// disks restored.
pub(super) fn cut_power(folder: &Path, nodes: &[usize]) {
    for node in nodes {
        let write = |name: &str, text: &str| {
            let mut file = File::create(mounted(folder, *node).join(name)).expect("a file");
            file.write_all(text.as_bytes()).expect("written");
            file
        };
        write("synced", "this one stays").sync_all().expect("synced");
        drop(write("unsynced", "this one goes"));
    }
    let mounted: Vec<_> = nodes.iter().map(|node| mounted(folder, *node)).collect();
    let arguments: Vec<&str> = ["-e", SHUTDOWN].into_iter().chain(mounted.iter().map(|path| text(path))).collect();
    tool("perl", &arguments);
}

/// Gives a disk its power back, and looks that it kept what it had promised, and nothing else.
pub(super) fn restore_power(folder: &Path, node: usize) {
    let mounted = mounted(folder, node);
    tool("umount", &[text(&mounted)]);
    mount(folder, node);
    let kept = fs::read_to_string(mounted.join("synced")).unwrap_or_default();
    assert_eq!(kept, "this one stays", "the disk lost what it had synced: such a power cut proves nothing");
    let lost = fs::read_to_string(mounted.join("unsynced")).unwrap_or_default();
    assert_eq!(lost, "", "the disk kept what it had not synced: the power cut did not bite");
    for name in ["synced", "unsynced"] {
        fs::remove_file(mounted.join(name)).ok();
    }
}
