//! The threads of all clients. On a small machine each worker runs on its own processor, for every product: otherwise
//! Linux moves the workers next to the thread that wakes them, and the figures depend on their placement.

use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::Result;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use tokio::runtime::{Builder, Runtime};

/// The largest number of processors for which workers are pinned; with more, the system finds an idle one.
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
                // If this fails the worker is slower, not wrong.
                let _ = sched_setaffinity(None, &only);
            }
        });
    }
    Ok(builder.build()?)
}
