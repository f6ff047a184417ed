//! `backup`: the whole state of a running cluster as a file.

use std::fs::{self, File};
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};

use clap::Args;
use serde::Serialize;
use tokio::task::spawn_blocking;

use crate::cli::connect::Client;
use crate::cli::error::{Failure, YES};
use crate::cli::files::{parent, sync_parent};
use crate::cli::lock::signals::{self, Signals};
use crate::cli::output::Output;
use crate::clock::{Clock, SystemClock};
use crate::node::backup::{BackupView, examine};
use crate::service::LockService;
use crate::shapes::cluster_id_text;

#[derive(Debug, Args)]
pub(in crate::cli) struct BackupOptions {
    /// Path of the backup, where no file may exist; `-` writes unchecked to standard output
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

/// Writes a backup of a running cluster. A file gets its final name only after it was verified, so a file with that
/// name is complete. For standard output, only the exit code says whether the backup is complete.
pub(in crate::cli) async fn run(client: &Client, options: &BackupOptions, output: &Output) -> Result<u8, Failure> {
    let file = &options.file;
    if file == Path::new("-") {
        return piped(client, output).await;
    }
    if file.exists() {
        return Err(taken(file));
    }
    let mut signals = Signals::listen()?;
    let (partial, mut opened) = Partial::begin(file)?;
    let verified = async {
        fetch(client, &partial.0, &mut opened, output).await?;
        let path = partial.0.clone();
        let examined = spawn_blocking(move || -> Result<BackupView, Failure> {
            opened.sync_all().map_err(failed("sync", &path))?;
            Ok(examine(&path)?)
        });
        examined.await.map_err(|error| Failure::stopped(error.to_string()))?
    };
    let view = tokio::select! {
        biased;
        signal = signals.next_ending() => return Ok(signals::exit_code(signal)),
        verified = verified => verified?,
    };
    give_final_name(&partial.0, file)?;
    sync_parent(file).map_err(failed("sync", parent(file)))?;
    let line = BackupLine {
        file: file.display().to_string(),
        cluster: &view.cluster,
        cluster_id: cluster_id_text(view.cluster_id),
        index: view.index.to_string(),
        records: view.records,
        bytes: view.bytes,
        sessions: view.sessions,
    };
    output.answer(&line, || {
        let BackupView { cluster, index, records, bytes, .. } = &view;
        format!("{}: cluster {cluster} at log index {index}, {records} records, {bytes} bytes", file.display())
    })
}

/// Writes the backup to standard output, which must not be a terminal.
async fn piped(client: &Client, output: &Output) -> Result<u8, Failure> {
    if io::stdout().is_terminal() {
        let detail =
            "a backup is not text, and standard output is a terminal; name a file, or redirect it: | ssh, > FILE";
        return Err(Failure::usage("<FILE>", detail));
    }
    let bytes = fetch(client, Path::new("standard output"), &mut io::stdout(), output).await?;
    output.remark(&format!("{bytes} bytes; `restore` checks them"));
    Ok(YES)
}

/// An incomplete file. It is removed on drop, unless it has its final name.
struct Partial(PathBuf);

impl Drop for Partial {
    fn drop(&mut self) {
        // After a success no file has this name.
        let _ = fs::remove_file(&self.0);
    }
}

impl Partial {
    /// Creates a file next to the final one, under a unique name.
    fn begin(file: &Path) -> Result<(Self, File), Failure> {
        let mut name = file.file_name().unwrap_or_default().to_owned();
        name.push(format!(".{:08x}.partial", SystemClock::new().random_below(1 << 32)));
        let path = file.with_file_name(name);
        let opened = File::create_new(&path).map_err(|error| {
            let directory = parent(file).display();
            let detail = format!(
                "cannot write into {directory}: {error}; make that directory writable, or name a file elsewhere"
            );
            Failure::usage("<FILE>", detail)
        })?;
        Ok((Self(path), opened))
    }
}

fn taken(file: &Path) -> Failure {
    let detail = format!("{} exists already and is not overwritten; name another file", file.display());
    Failure::usage("<FILE>", detail)
}

/// Gives the complete file its final name. Fails if that name already exists.
fn give_final_name(partial: &Path, file: &Path) -> Result<(), Failure> {
    let exists = |error: &io::Error| error.kind() == io::ErrorKind::AlreadyExists;
    let linked = fs::hard_link(partial, file).or_else(|error| {
        if exists(&error) {
            return Err(error);
        }
        // Some file systems have no hard links. There, an empty file reserves the name until the rename.
        File::create_new(file).and_then(|_| fs::rename(partial, file))
    });
    linked.map_err(|error| if exists(&error) { taken(file) } else { failed("write", file)(error) })
}

fn failed(doing: &'static str, path: &Path) -> impl Fn(io::Error) -> Failure {
    let path = path.display().to_string();
    move |error| {
        let next = "check that disk, or name a file on another one";
        Failure::stopped(format!("cannot {doing} {path}: {error}; {next}"))
    }
}

async fn fetch(client: &Client, path: &Path, to: &mut impl Write, output: &Output) -> Result<u64, Failure> {
    let mut download = client.service().backup().await?;
    let bar = output.progress("{spinner} {bytes} ({bytes_per_sec})");
    while let Some(bytes) = download.next().await? {
        to.write_all(&bytes).map_err(failed("write", path))?;
        bar.inc(bytes.len() as u64);
    }
    bar.finish_and_clear();
    to.flush().map_err(failed("write", path))?;
    Ok(bar.position())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two runs that write the same backup use different files. The first one to end gets the name. The other one is
    /// refused, and removes its file.
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
        give_final_name(&second.0, &file).unwrap();
        let refused = give_final_name(&first.0, &file).unwrap_err();
        assert!(refused.detail.contains("exists already"), "{refused:?}");
        assert_eq!(refused.exit(), 64);
        drop((first, second));
        assert_eq!(fs::read_to_string(&file).unwrap(), "two");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "the partial files are gone");
    }

    /// A missing directory is a usage error that names the directory and the next step.
    #[test]
    fn a_missing_directory_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let directory = folder.path().join("nope");
        let refused = Partial::begin(&directory.join("x")).err().unwrap();
        assert!(refused.detail.contains(&format!("into {}: ", directory.display())), "{refused:?}");
        assert_eq!((refused.exit(), refused.next_step()), (64, None), "the detail names it");
    }
}
