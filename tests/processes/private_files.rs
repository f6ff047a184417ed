//! The files of a node and of a backup: no other user of the machine can read the handles in them.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::single_node::{SingleNode, config_of_one, free_addresses, program_after};

/// The program under the usual umask, with which new files can be read by every user.
fn program() -> Command {
    program_after("umask 022")
}

/// The paths below `path` and the path itself to which other users than the owner have access.
fn exposed(path: &Path) -> Vec<PathBuf> {
    let metadata = fs::metadata(path).expect("a file");
    let mut found = Vec::new();
    if metadata.permissions().mode() & 0o077 != 0 {
        found.push(path.to_owned());
    }
    if metadata.is_dir() {
        let entries = fs::read_dir(path).expect("a directory");
        found.extend(entries.flat_map(|entry| exposed(&entry.expect("an entry").path())));
    }
    found
}

/// H-16: only the owner can read the data of a node, a backup and what is restored from it. A node warns about a
/// directory that others can read, with the command that ends it.
#[tokio::test]
async fn data_is_private() {
    let folder = tempfile::tempdir().expect("a folder");
    let in_folder = |name: &str| folder.path().join(name);
    let [client, peer] = free_addresses();
    let (data, backup, restored) = (in_folder("data"), in_folder("file.backup"), in_folder("restored"));
    let config = config_of_one("private", &data, &client, &peer);
    let start = || SingleNode::start_by(program(), folder.path(), "private", &config, &client);
    let node = start();
    let holder = node.leads().await;
    holder.lock("a").acquire().await.expect("free").release().await.expect("released");
    let run = |arguments: &[&str]| {
        let output = program().args(arguments).env("LOCKKEEPER_ENDPOINTS", &client).output().expect("it ran");
        assert!(output.status.success(), "{output:?}");
    };
    run(&["backup", &backup.display().to_string()]);
    run(&["restore", &backup.display().to_string(), "--data", &restored.display().to_string()]);
    for path in [&data, &backup, &restored] {
        assert_eq!(exposed(path), Vec::<PathBuf>::new());
    }
    let warning = format!("run chmod -R go= {}", data.display());
    assert!(!node.log().contains(&warning), "{}", node.log());
    drop(node);
    fs::set_permissions(&data, Permissions::from_mode(0o755)).expect("its owner");
    let node = start();
    node.leads().await;
    assert!(node.log().contains(&warning), "{}", node.log());
}
