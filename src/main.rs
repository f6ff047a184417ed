//! The `lockkeeper` binary.
fn main() {}
