//! The nodes' disks: one file system in a file for each node. A disk can be full, and it can lose power, which loses
//! all writes that no completed sync covers.

use std::fs::{self, File};
use std::io::Write;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use rustix::fs::{FallocateFlags, fallocate, statvfs};

use super::super::sandbox::{installed, tool};

const DISK_BYTES: u64 = 256 << 20;
/// The ioctl `EXT4_IOC_SHUTDOWN`, which ends all writes of a file system without writing its journal, like a loss of
/// power.
const SHUTDOWN: &str = r#"for (@ARGV) { open(my $d, "<", $_) or die "$_: $!"; my $f = pack("L", 2); ioctl($d, 0x8004587d, $f) or die "$_: $!" }"#;

/// Returns an error if a program that this needs is not installed.
pub(super) fn possible() -> Result<(), String> {
    ["mkfs.ext4", "mount", "umount", "perl"].into_iter().try_for_each(installed)
}

/// The mount point of a node's disk.
pub(crate) fn mounted(folder: &Path, node: usize) -> PathBuf {
    folder.join(format!("disk{node}"))
}

fn image(folder: &Path, node: usize) -> PathBuf {
    folder.join(format!("disk{node}.img"))
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a path of plain letters")
}

/// Creates an empty disk for each node.
pub(crate) fn build(folder: &Path) {
    for node in 1..=3 {
        let image = image(folder, node);
        File::create(&image).and_then(|file| file.set_len(DISK_BYTES)).expect("a file for a disk");
        // No blocks are reserved for the superuser, so that a full disk is full for every user.
        tool("mkfs.ext4", &["-q", "-F", "-m", "0", text(&image)]);
        fs::create_dir(mounted(folder, node)).expect("a folder");
        mount(folder, node);
    }
}

fn mount(folder: &Path, node: usize) {
    tool("mount", &["-o", "loop", text(&image(folder, node)), text(&mounted(folder, node))]);
}

/// Unmounts a disk at the end, even if it is still in use.
pub(crate) fn unmount(folder: &Path, node: usize) {
    let mounted = mounted(folder, node);
    std::process::Command::new("umount").args(["--lazy", text(&mounted)]).status().ok();
}

/// Fills a node's disk except for the space inside its existing files. A repeated call fills what the node has freed in
/// the meantime.
pub(super) fn fill(folder: &Path, node: usize) {
    let mounted = mounted(folder, node);
    let file = File::options().append(true).create(true).open(mounted.join("filler")).expect("a file");
    // The node may write meanwhile, so smaller and smaller pieces are written until even the smallest does not fit.
    let mut piece = statvfs(&mounted).map(|disk| disk.f_bfree * disk.f_frsize).expect("a disk");
    let mut filled = file.metadata().expect("a length").len();
    while 4096 <= piece {
        match fallocate(file.as_fd(), FallocateFlags::empty(), filled, piece) {
            Ok(()) => filled += piece,
            Err(_) => piece /= 2,
        }
    }
}

/// Frees the filled space.
pub(super) fn empty(folder: &Path, node: usize) {
    fs::remove_file(mounted(folder, node).join("filler")).expect("the filler");
}

/// Cuts the power of some disks at once. The processes that write to them must be stopped before: a sync in progress
/// while ext4 shuts down may report success although it failed (observed with Linux 6.18: the file was shorter after
/// the next mount than a successful sync had promised), and a real power cut would not let the process act on that
/// report. The processes must be killed afterwards and the disks restored.
pub(super) fn cut_power(folder: &Path, nodes: &[usize]) {
    for node in nodes {
        let write = |name: &str, text: &str| {
            let mut file = File::create(mounted(folder, *node).join(name)).expect("a file");
            file.write_all(text.as_bytes()).expect("written");
            file
        };
        write("synced", "synced data").sync_all().expect("synced");
        drop(write("unsynced", "unsynced data"));
    }
    let mounted: Vec<_> = nodes.iter().map(|node| mounted(folder, *node)).collect();
    let arguments: Vec<&str> = ["-e", SHUTDOWN].into_iter().chain(mounted.iter().map(|path| text(path))).collect();
    tool("perl", &arguments);
}

/// Restores the power of a disk, and checks that the disk kept what was synced and lost what was not.
pub(super) fn restore_power(folder: &Path, node: usize) {
    let mounted = mounted(folder, node);
    tool("umount", &[text(&mounted)]);
    mount(folder, node);
    let kept = fs::read_to_string(mounted.join("synced")).unwrap_or_default();
    assert_eq!(kept, "synced data", "the disk lost synced data, which a real power cut would keep");
    let lost = fs::read_to_string(mounted.join("unsynced")).unwrap_or_default();
    assert_eq!(lost, "", "the disk kept unsynced data: the power cut had no effect");
    for name in ["synced", "unsynced"] {
        fs::remove_file(mounted.join(name)).ok();
    }
}
