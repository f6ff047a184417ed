//! Compiles every file of `proto/` in pure Rust, so that no `protoc` has to be installed, and keeps the descriptors of
//! the client API, with their comments, for server reflection.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::{env, fs};

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=proto");
    println!("cargo:rustc-env=LOCKKEEPER_PROFILE={}", profile()?);
    let mut compiler = protox::Compiler::new(["proto"])?;
    compiler.include_source_info(true).include_imports(true).open_files(files("proto/lockkeeper/v1")?)?;
    let out = PathBuf::from(env::var("OUT_DIR")?);
    fs::write(out.join("descriptors.bin"), compiler.encode_file_descriptor_set())?;
    compiler.open_files(files("proto")?)?;
    let mut config = tonic_prost_build::Config::new();
    config.enable_type_names();
    tonic_prost_build::configure()
        .bytes(".")
        // The type of the module that includes the generated code.
        .codec_path("super::BoundedCodec")
        .compile_fds_with_config(compiler.file_descriptor_set(), config)?;
    Ok(())
}

/// Returns the proto files in a folder, without those in its subfolders.
fn files(folder: impl AsRef<Path>) -> Result<Vec<PathBuf>, Box<dyn Error>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "proto") {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

/// The profile's folder below `target`: cargo's own variable says `release` for every profile that inherits from it.
fn profile() -> Result<String, Box<dyn Error>> {
    let out = PathBuf::from(env::var("OUT_DIR")?);
    let folder = out.ancestors().nth(3).and_then(|folder| folder.file_name());
    Ok(folder.map_or_else(|| env::var("PROFILE"), |name| Ok(name.to_string_lossy().into_owned()))?)
}
