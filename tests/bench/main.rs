//! What the parts cost that every request goes through: the machine, its search for deadlocks, the codec, the log on
//! disk, the way to the cluster. Run by `cargo bench --bench parts`, with a part of a name behind it for some of them.
//! Figures mean something on a quiet machine.

mod codec;
mod deadlock;
mod machine;
mod wal;
mod ways;
mod words;

use std::time::Duration;

use criterion::{Criterion, criterion_group, criterion_main};

const WARM_UP: Duration = Duration::from_secs(1);
const MEASURED: Duration = Duration::from_secs(3);
const SAMPLES: usize = 30;

fn settings() -> Criterion {
    Criterion::default().warm_up_time(WARM_UP).measurement_time(MEASURED).sample_size(SAMPLES).without_plots()
}

criterion_group! {
    name = parts;
    config = settings();
    targets = machine::free_locks, machine::hand_over, machine::mass_expiry, deadlock::one_more_wait, codec::entries, wal::append_and_sync, ways::embedded_and_remote
}
criterion_main!(parts);
