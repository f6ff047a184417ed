//! The threads that all clients run on. On a small machine each worker keeps to a processor of its own, for every product
//! alike: else Linux gathers the workers beside whatever wakes them, and what is measured is where they happened to be.

use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::Result;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use tokio::runtime::{Builder, Runtime};

/// Processors up to which workers keep to one each; where there are more, the system finds one that is idle.
const SPREAD_PROCESSORS_MAX: usize = 2;

pub(crate) fn spread() -> Result<Runtime> {
    let mut builder = Builder::new_multi_thread();
    builder.enable_all();
    let set = sched_getaffinity(None)?;
    let processors: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|processor| set.is_set(*processor)).collect();
    if processors.len() <= SPREAD_PROCESSORS_MAX {
        let started = AtomicUsize::new(0);
        // The first threads are the workers.
        builder.worker_threads(processors.len()).on_thread_start(move || {
            if let Some(processor) = processors.get(started.fetch_add(1, Ordering::Relaxed)) {
                let mut only = CpuSet::new();
                only.set(*processor);
                // Without it the worker is slower, not wrong.
                let _ = sched_setaffinity(None, &only);
            }
        });
    }
    Ok(builder.build()?)
}
