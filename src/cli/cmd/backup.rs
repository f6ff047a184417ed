//! `backup`: the whole state of a running cluster as a file.

use std::fs::{self, File};
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};

use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

use crate::cli::connect::Client;
use crate::cli::error::{Failure, YES};
use crate::cli::json::cluster_id_text;
use crate::cli::output::Output;
use crate::clock::{Clock, SystemClock};
use crate::node::backup::{BackupView, examine};
use crate::service::LockService;

#[derive(Debug, Args)]
pub(in crate::cli) struct BackupOptions {
    /// Where to write it; a file that is there already is left alone; `-` for standard output, as it comes from the node
    file: PathBuf,
}

#[derive(Serialize)]
struct BackupLine<'a> {
    file: String,
    cluster: &'a str,
    cluster_id: String,
    index: String,
    records: u64,
    bytes: u64,
    sessions: u64,
}

/// Writes a backup of a running cluster. What has the file's name is whole: it is verified before it gets it. What goes to
/// standard output cannot be taken back: there the exit code alone says whether it is whole.
pub(in crate::cli) async fn run(client: &Client, options: &BackupOptions, output: &Output) -> Result<u8, Failure> {
    let file = &options.file;
    if file == Path::new("-") {
        return piped(client, output).await;
    }
    if file.exists() {
        return Err(taken(file));
    }
    let (partial, mut opened) = Partial::begin(file)?;
    fetch(client, &partial.0, &mut opened, output).await?;
    opened.sync_all().map_err(failed("sync", &partial.0))?;
    let view = examine(&partial.0)?;
    named(&partial.0, file)?;
    sync_parent(file)?;
    let line = BackupLine {
        file: file.display().to_string(),
        cluster: &view.cluster,
        cluster_id: cluster_id_text(view.cluster_id),
        index: view.index.to_string(),
        records: view.records,
        bytes: view.bytes,
        sessions: view.sessions,
    };
    output.answer(&line, || backup_text(file, &view))?;
    Ok(YES)
}

/// The backup on standard output, which is not a terminal, and nothing else there.
async fn piped(client: &Client, output: &Output) -> Result<u8, Failure> {
    if io::stdout().is_terminal() {
        let detail =
            "a backup is not text, and standard output is a terminal; name a file, or send it on: | ssh, > FILE";
        return Err(Failure { says_next: true, ..Failure::usage(detail) });
    }
    let bytes = fetch(client, Path::new("standard output"), &mut io::stdout(), output).await?;
    output.remark(&format!("{bytes} bytes; `restore` checks them"));
    Ok(YES)
}

fn backup_text(file: &Path, view: &BackupView) -> String {
    let BackupView { cluster, index, records, bytes, .. } = view;
    format!("{}: cluster {cluster} at log index {index}, {records} records, {bytes} bytes", file.display())
}

/// A file that is not whole yet, removed unless it got its final name.
struct Partial(PathBuf);

impl Drop for Partial {
    fn drop(&mut self) {
        // Gone already where all went well.
        let _ = fs::remove_file(&self.0);
    }
}

impl Partial {
    /// Makes a file beside the final one, under a name that no other run has.
    fn begin(file: &Path) -> Result<(Self, File), Failure> {
        let mut name = file.file_name().unwrap_or_default().to_owned();
        name.push(format!(".{:08x}.partial", SystemClock::new().random_below(1 << 32)));
        let path = file.with_file_name(name);
        let opened = File::create_new(&path).map_err(|error| {
            let directory = parent_of(file).display();
            let detail = format!(
                "cannot write into {directory}: {error}; make that directory writable, or name a file elsewhere"
            );
            Failure { says_next: true, ..Failure::usage(detail) }
        })?;
        Ok((Self(path), opened))
    }
}

fn taken(file: &Path) -> Failure {
    let detail = format!("{} is there already and stays as it is; name another file", file.display());
    Failure { says_next: true, ..Failure::usage(detail) }
}

/// Gives the whole file its final name, unless another file got that name meanwhile.
fn named(partial: &Path, file: &Path) -> Result<(), Failure> {
    let exists = |error: &io::Error| error.kind() == io::ErrorKind::AlreadyExists;
    let linked = fs::hard_link(partial, file).or_else(|error| {
        if exists(&error) {
            return Err(error);
        }
        // Not every file system knows a second name for a file: there an empty file keeps the name until the rename.
        File::create_new(file).and_then(|_| fs::rename(partial, file))
    });
    linked.map_err(|error| if exists(&error) { taken(file) } else { failed("write", file)(error) })
}

fn failed(doing: &'static str, path: &Path) -> impl Fn(io::Error) -> Failure {
    let path = path.display().to_string();
    move |error| {
        let next = "look after that disk, or name a file on another one";
        Failure::stopped(format!("cannot {doing} {path}: {error}; {next}"))
    }
}

async fn fetch(client: &Client, path: &Path, to: &mut impl Write, output: &Output) -> Result<u64, Failure> {
    let mut download = client.service().backup().await?;
    let bar = if output.watched && !output.json { ProgressBar::no_length() } else { ProgressBar::hidden() };
    if let Ok(style) = ProgressStyle::with_template("{spinner} {bytes} ({bytes_per_sec})") {
        bar.set_style(style);
    }
    while let Some(bytes) = download.next().await? {
        to.write_all(&bytes).map_err(failed("write", path))?;
        bar.inc(bytes.len() as u64);
    }
    bar.finish_and_clear();
    to.flush().map_err(failed("write", path))?;
    Ok(bar.position())
}

fn parent_of(file: &Path) -> &Path {
    file.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

fn sync_parent(file: &Path) -> Result<(), Failure> {
    let parent = parent_of(file);
    File::open(parent).and_then(|directory| directory.sync_all()).map_err(failed("sync", parent))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two runs that write the same backup have a file of their own each; the first to end gets the name, and the other one is
    /// refused and leaves nothing behind.
    #[test]
    fn two_runs_never_share_a_file() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("harbour.backup");
        let runs = ["one", "two"].map(|content| {
            let (partial, mut opened) = Partial::begin(&file).unwrap();
            opened.write_all(content.as_bytes()).unwrap();
            partial
        });
        let [first, second] = runs;
        named(&second.0, &file).unwrap();
        let refused = named(&first.0, &file).unwrap_err();
        assert!(refused.detail.contains("is there already"), "{refused:?}");
        assert_eq!(refused.exit(), 64);
        drop((first, second));
        assert_eq!(fs::read_to_string(&file).unwrap(), "two");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "the partial files are gone");
    }

    /// A directory that is not there is a mistake of the command line: the directory is named, with what to do.
    #[test]
    fn a_missing_directory_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let directory = folder.path().join("nope");
        let refused = Partial::begin(&directory.join("x")).err().unwrap();
        assert!(refused.detail.contains(&format!("into {}: ", directory.display())), "{refused:?}");
        assert_eq!((refused.exit(), refused.says_next), (64, true));
    }
}
