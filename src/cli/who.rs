//! The default metadata of a command: user, host and program.

use nix::unistd::{Uid, User};

use super::error::Failure;
use crate::limits::WHO_PART_BYTES_MAX;
use crate::model::Metadata;

/// The name of this program, for commands that run no other program.
pub(super) const OWN_PROGRAM: &str = "lockkeeper";

/// Returns the user, the host and the program that works under the lock. The arguments of the program are left out,
/// because all clients can see the metadata and arguments may be secret.
pub(super) fn metadata(program: &str) -> Result<Metadata, Failure> {
    let user =
        ["USER", "LOGNAME"].into_iter().find_map(|name| std::env::var(name).ok().filter(|user| !user.is_empty()));
    let user = user.or_else(|| Some(User::from_uid(Uid::current()).ok()??.name));
    let user = user.unwrap_or_else(|| format!("uid{}", Uid::current()));
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").or_else(|_| std::env::var("HOSTNAME"));
    let host = shortened(host.unwrap_or_default().trim());
    let who = format!("{}@{host} {}", shortened(&user), shortened(program));
    Ok(Metadata { who: who.into(), host: host.into(), pid: std::process::id(), ..Metadata::default() }.checked()?)
}

/// Returns a shortened name from the environment, without control characters.
fn shortened(text: &str) -> String {
    let mut kept: String = text.chars().filter(|c| !c.is_control()).collect();
    while WHO_PART_BYTES_MAX < kept.len() {
        kept.pop();
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The metadata has the user, the host, the program and the process.
    #[test]
    fn user_host_and_program_are_named() {
        let metadata = metadata("make").expect("within its bounds");
        let (user, rest) = metadata.who.split_once('@').expect("a user");
        assert!(!user.is_empty() && rest == format!("{} make", metadata.host), "{metadata:?}");
        assert_eq!(metadata.pid, std::process::id());
    }

    /// Names of any length and content fit into the metadata, and leave as much space again for a reason.
    #[test]
    fn names_are_cut() {
        let cut = shortened(&"é\u{1b}".repeat(500));
        assert!(cut.len() <= WHO_PART_BYTES_MAX && cut.chars().all(|c| c == 'é'), "{cut:?}");
        let who = format!("{cut}@{cut} {cut}");
        assert!(who.len() + cut.len() <= crate::limits::METADATA_BYTES_MAX / 2, "{} bytes", who.len());
    }
}
